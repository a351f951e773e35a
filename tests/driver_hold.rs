//! The driver is let go of and taken again, by hand and by DCGM's bind event; series go on.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::live::{Live, QUICK, TWO, wall_ns};
use warpgauge_tests::harness::programs;
use warpgauge_tests::harness::scratch::Scratch;

fn driver(dir: &Path, word: &str) -> String {
    let mut command = Command::new(programs::agent());
    let out = command.args(["driver", word, "--run-dir"]).arg(dir.join("run")).output().unwrap();
    let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    assert!(out.status.success(), "{said}");
    said
}

/// Whether a process has a vendor's library, or a device of the driver, open or mapped.
fn holds_the_driver(pid: u32) -> bool {
    let dir = Path::new("/proc").join(pid.to_string());
    let maps = std::fs::read_to_string(dir.join("maps")).unwrap_or_default();
    let files = std::fs::read_dir(dir.join("fd")).into_iter().flatten().flatten();
    let mut open = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    let is_its = |text: &str| ["dcgm_sim", "nvml_sim", "/dev/nvidia"].iter().any(|name| text.contains(name));
    is_its(&maps) || open.any(|file| is_its(&file.to_string_lossy()))
}

#[test]
fn released_by_hand_nothing_holds_the_driver_and_taken_again_counters_go_on() {
    let mut live = Live::flowing("hold-hand", TWO, QUICK);
    let before = live.energy(0, 5, 0.0);
    let worker = live.worker().unwrap().as_raw_nonzero().get().cast_unsigned();
    let agent = live.agent.as_ref().unwrap().pid();
    assert_eq!((holds_the_driver(worker), holds_the_driver(agent)), (true, false));
    let asked = Instant::now();
    driver(live.node.path(), "release");
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    assert_eq!((live.worker(), holds_the_driver(worker), holds_the_driver(agent)), (None, false, false));
    for source in ["dcgm", "nvml"] {
        let released = live.wait_source(source, "released", 3);
        assert_eq!((&*released.severity_text, released.get("gpu.status.reason")), ("INFO", "released"));
    }
    live.wait_own("warpgauge.source.up", &[("source", "worker")], 0.0, 2);
    driver(live.node.path(), "take");
    let up = live.wait_source("dcgm", "up", 5);
    assert_eq!(up.get("gpu.status.phase"), "end");
    let after = live.energy(0, 5, before.value + 1.0);
    assert_eq!(after.start, before.start, "the counter goes on");
    assert_eq!(live.feed.value("warpgauge.worker.restarts", &[("reason", "crashed")]), Some(0.0));
    assert!(live.terminate());
}

#[test]
fn dcgms_bind_event_releases_and_the_driver_is_taken_when_its_module_is_back() {
    let sys = Scratch::new("hold-bind-sys");
    let module = sys.path().join("module/nvidia");
    std::fs::create_dir_all(&module).unwrap();
    let host_sys = sys.path().display().to_string();
    let mut live = Live::start("hold-bind", TWO, QUICK, |setup| setup.args(&["--host-sys", &host_sys]));
    let before = live.energy(0, 15, 0.0);
    live.node.now("bind_event: 1\n");
    live.wait_source("dcgm", "released", 6);
    wait_for("the worker's end", 3, || live.worker().is_none().then_some(()));
    std::fs::remove_dir(&module).unwrap();
    live.node.now("bind_event: 2\n");
    // Long enough for a look at a node without the module.
    let gone = wall_ns();
    wait_for("exports meanwhile", 3, || {
        live.feed.points().last().filter(|point| point.time > gone + 800_000_000).map(drop)
    });
    assert_eq!(live.worker(), None, "nothing to take");
    std::fs::create_dir(&module).unwrap();
    live.wait_source("dcgm", "up", 5);
    let after = live.energy(0, 5, before.value + 1.0);
    assert_eq!(after.start, before.start, "the counter goes on");
    assert!(live.terminate());
}
