//! A container or node that is out of processes: nothing of the agent panics, hangs or falls silent.

use std::time::{Duration, Instant};

use warpgauge_tests::harness::agent::Setup;
use warpgauge_tests::harness::cgroups::PidsLimit;
use warpgauge_tests::harness::collector::Collector;
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::scratch::Scratch;
use warpgauge_tests::needs;

use crate::kernel_log::Lines;

fn inside(limit: &PidsLimit, scratch: &Scratch) -> Setup {
    let wrapper = limit.wrapper();
    let wrapper: Vec<_> = wrapper.iter().map(String::as_str).collect();
    Setup::wrapped(scratch.path(), &wrapper).args(&["--probes", "off"])
}

#[test]
fn a_running_agent_needs_no_new_thread() {
    needs!(Root, KmsgWrite, CgroupV1);
    let (scratch, limit) = (Scratch::new("pids-running"), PidsLimit::new("running"));
    let mut collector = Collector::built_in(scratch.path());
    let port = collector.address.rsplit(':').next().unwrap();
    let mut setup = inside(&limit, &scratch)
        .to(&format!("localhost:{port}")) // a name, which a thread looks up at each connection
        .args(&["--kernel-log-facilities", "kernel,user"]);
    let mut agent = setup.start();
    let mut lines = Lines::new("pids");
    wait_for("the agent", 20, || agent.log().contains("Watching").then_some(()));
    lines.write(1);
    lines.wait_for_all(&collector);
    limit.set(1);
    // Threads that are only kept for a while are gone then.
    let began = Instant::now();
    wait_for("quiet seconds", 20, || (began.elapsed() > Duration::from_secs(15)).then_some(()));
    collector.kill();
    lines.write(1);
    collector.run();
    lines.wait_for_all(&collector);
    lines.write(1);
    lines.wait_for_all(&collector);
    assert!(agent.is_running(), "{}", agent.log());
    assert!(agent.terminate().success());
    let log = std::fs::read_to_string(scratch.path().join("agent.log")).unwrap();
    assert!(!log.contains("panicked"), "{log}");
    let kept = std::fs::read_to_string(scratch.path().join("state/kmsg.state")).unwrap();
    assert!(kept.contains("\"resume\":"), "{kept}");
}

#[test]
fn a_start_without_room_runs_or_says_why_not() {
    needs!(Root, CgroupV1);
    let limit = PidsLimit::new("starts");
    let mut outcomes = Vec::new();
    for most in 2..=18 {
        limit.set(most);
        let scratch = Scratch::new(&format!("pids-start-{most}"));
        let mut setup = inside(&limit, &scratch);
        if most % 2 == 0 {
            setup = setup.to("127.0.0.1:9"); // nobody there, and own lines have a thread
        }
        let mut agent = setup.start();
        let runs = wait_for(&format!("a start with {most}"), 10, || {
            if agent.log().contains("Watching") {
                return Some(true);
            }
            (!agent.is_running()).then_some(false)
        });
        let log = agent.log();
        if runs {
            assert!(agent.terminate().success(), "{most}: {log}");
        } else {
            let status = agent.status();
            assert!(status == Some(1) && log.contains("limit of processes"), "{most}: {status:?} {log}");
        }
        let log = std::fs::read_to_string(scratch.path().join("agent.log")).unwrap();
        assert!(!log.contains("panicked"), "{most}: {log}");
        outcomes.push(runs);
    }
    assert_eq!((outcomes.first(), outcomes.last()), (Some(&false), Some(&true)), "{outcomes:?}");
}
