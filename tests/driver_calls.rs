//! Short calls of each kind on a real device node, and a call that ends with its process: what is counted, what is told.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use warpgauge_tests::harness::agent::{Agent, Setup};
use warpgauge_tests::harness::cgroups::{Cgroup, PodCgroup, Version};
use warpgauge_tests::harness::collector::Collector;
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::programs;
use warpgauge_tests::harness::received::Record;
use warpgauge_tests::harness::scratch::Scratch;
use warpgauge_tests::harness::tty::{MAJOR, Tty, VT_WAITACTIVE};
use warpgauge_tests::needs;

use crate::hung_call::wait_for_probes;

/// Enough for the agent to be in the middle of them at times, and often enough to meet that.
const CROWD: usize = 150;
const ROUNDS: usize = 6;

const TTY0: &str = "/dev/tty0";
const DURATION: &str = "gpu.driver.call.duration";
const ERRORS: &str = "gpu.driver.call.errors";
const ENOENT: &str = "failed 2\n";
const ENODEV: &str = "failed 19\n";
const ENOTTY: &str = "failed 25\n";

/// A process that makes the calls it is told to; ended when dropped.
pub(crate) struct Caller {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Caller {
    /// In a cgroup.
    pub(crate) fn start(cgroup: &Cgroup) -> Self {
        let caller = Self::alone();
        cgroup.admit(&caller.child);
        caller
    }

    /// In the cgroup of this test.
    pub(crate) fn alone() -> Self {
        let mut child = Command::new(programs::victim())
            .arg("script")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut caller = Self { child, input, output };
        assert_eq!(caller.answer(), "ready\n");
        caller
    }

    /// Its number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Makes one call; gives its outcome.
    pub(crate) fn call(&mut self, words: &str) -> String {
        writeln!(self.input.as_mut().unwrap(), "{words}").unwrap();
        self.answer()
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    /// Its input ends, and so does it.
    pub(crate) fn end(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended by itself
        let _ = self.child.wait();
    }
}

/// An agent that watches opens of paths with this beginning, at work.
fn agent(scratch: &Scratch, collector: &Collector, open_prefix: &str) -> Agent {
    let config = scratch.path().join("warpgauge.yaml");
    let probes = format!("probes: {{open_prefix: {open_prefix}, read_interval: 250ms, scan_interval: 50ms}}");
    std::fs::write(&config, format!("{probes}\nstalls: {{call_threshold: 300ms}}\n")).unwrap();
    let mut agent = Setup::new(scratch.path())
        .to(&collector.address)
        .args(&["--config", config.to_str().unwrap(), "--probe-majors", &MAJOR.to_string()])
        .args(&["--cgroup", "v2", "--kernel-log", "off"])
        .env("WARPGAUGE_LOG", "debug")
        .start();
    wait_for_probes(&mut agent, collector);
    // a source that is still loading after a second counts as up
    wait_for("the last probe", 30, || {
        (collector.latest("warpgauge.probe.info", &[("probe", "mmap")]) == Some(1.0)).then_some(())
    });
    agent
}

#[test]
fn calls_of_each_kind_are_counted_and_end_with_their_process() {
    needs!(Root, Tty0, Probes, Collector, CgroupV2);
    let scratch = Scratch::new("driver-calls");
    let collector = Collector::start(scratch.path());
    let agent = agent(&scratch, &collector, TTY0);
    let closes_are_seen = collector.latest("warpgauge.probe.info", &[("probe", "close")]) == Some(1.0);
    let pod = PodCgroup::new(Version::V2, 21);
    let _alone = Tty::hold();
    let entries = |map| collector.latest("warpgauge.probe.entries", &[("map", map)]).unwrap_or(0.0);
    let of_pod = |metric: &str, call: &str, more: &[(&str, &str)]| {
        let series = [&[("k8s.pod.uid", pod.pod_uid.as_str()), ("gpu.driver.call", call)], more].concat();
        collector.latest(metric, &series)
    };

    let mut caller = Caller::start(&pod);
    for _ in 0..3 {
        assert_eq!(caller.call("open /dev/tty0"), "done\n");
        assert_eq!(caller.call("mmap"), ENODEV);
        assert_eq!(caller.call("close"), "done\n");
    }
    assert_eq!(caller.call("open /dev/tty0-absent"), ENOENT);
    assert_eq!(caller.call("open /dev/null"), "done\n");
    assert_eq!(caller.call("close"), "done\n");
    assert_eq!(caller.call("open /dev/tty0"), "done\n");
    for command in 0xde00..0xde10 {
        assert_eq!(caller.call(&format!("ioctl {command}")), ENOTTY);
    }

    let device = [("gpu.driver.device", "4:0")];
    let count = |what: &str, want: f64, call: &str, more: &[(&str, &str)]| {
        wait_for(what, 20, || (of_pod(DURATION, call, more) == Some(want)).then_some(()));
    };
    count("the opens", 4.0, "open", &device);
    count("all opens, with the one that failed", 5.0, "open", &[]);
    count("the mmaps", 3.0, "mmap", &device);
    count("commands nobody knows", 16.0, "ioctl", &device);
    let ioctls = collector.points().into_iter().filter(|p| {
        p.name == DURATION && p.has(&[("k8s.pod.uid", &pod.pod_uid), ("gpu.driver.call", "ioctl")])
    });
    let operations: BTreeSet<_> = ioctls.map(|p| p.attributes.get("gpu.driver.operation").cloned()).collect();
    assert_eq!(operations, [Some("0x0".to_owned())].into(), "as one");
    if closes_are_seen {
        count("the closes", 3.0, "close", &device);
    }
    let errors = |call| of_pod(ERRORS, call, &[]);
    assert_eq!((errors("open"), errors("mmap"), errors("ioctl")), (Some(1.0), Some(3.0), Some(16.0)));
    assert_eq!(of_pod(ERRORS, "open", &device), Some(0.0), "the one that failed has no device");
    let lived = entries("histogram");
    assert!(4.0 <= lived, "a key for each kind, not {lived}");

    caller.end();
    wait_for("the map to be empty", 30, || (entries("histogram") == 0.0).then_some(()));
    assert_eq!(entries("in_flight"), 0.0);
    assert_eq!(of_pod(DURATION, "open", &device), Some(4.0), "the series stays");
    assert_eq!(collector.latest("warpgauge.probe.lost_returns", &[]).unwrap_or(0.0), 0.0);
    assert!(agent.terminate().success());
    let last = collector.points().into_iter().rfind(|p| p.name == DURATION).unwrap();
    assert!(last.start < last.time);
    assert_eq!(of_pod(DURATION, "ioctl", &device), Some(16.0), "up to the last export");
    let of_pod = [("k8s.pod.uid", pod.pod_uid.as_str())];
    let calls: f64 = collector.standing(DURATION, &of_pod).iter().map(|point| point.sum).sum();
    let all = collector.latest("gpu.workload.driver.time", &of_pod).unwrap();
    assert!(0.0 < all && (all - calls).abs() < 1e-9, "{all} s in the driver, {calls} s by call");
}

#[test]
fn a_killed_process_closes_its_stall_and_the_kernel_programs_say_so() {
    needs!(Root, Tty0, Probes, Collector, CgroupV2);
    let scratch = Scratch::new("killed-call");
    let collector = Collector::start(scratch.path());
    let agent = agent(&scratch, &collector, TTY0);
    let pod = PodCgroup::new(Version::V2, 22);
    let tty = Tty::hold();
    let mut victim = tty.victim();
    pod.admit(&victim);
    let pid = victim.id().to_string();
    let stalls = || -> Vec<Record> {
        let of_victim = |r: &Record| r.event == "gpu.stall" && r.get("process.pid") == pid;
        collector.records().into_iter().filter(of_victim).collect()
    };

    tty.hang(&mut victim);
    let begin = wait_for("the stall", 20, || stalls().into_iter().next());
    assert_eq!(begin.get("gpu.stall.state"), "begin");
    victim.kill().unwrap();
    victim.wait().unwrap();
    let end = wait_for("the end of the stall", 20, || {
        stalls().into_iter().find(|r| r.get("gpu.stall.state") != "begin")
    });
    assert!(["end", "unobserved"].contains(&end.get("gpu.stall.state")), "{end:?}");
    assert_eq!(end.get("gpu.stall.id"), begin.get("gpu.stall.id"));

    let line = format!("slow call ended: thread {pid} on 4:0, command {VT_WAITACTIVE:#x}, returned -");
    wait_for("the kernel's own words", 20, || agent.log().contains(&line).then_some(()));
    wait_for("the map to be empty", 30, || {
        (collector.latest("warpgauge.probe.entries", &[("map", "in_flight")]) == Some(0.0)).then_some(())
    });
    assert!(agent.terminate().success());
    assert_eq!(stalls().len(), 2, "each told once");
}

/// Between a look at the map and a look at a thread, a call may return: that is no second end.
#[test]
fn calls_that_return_at_once_are_each_told_once() {
    needs!(Root, Tty0, Probes, Collector, CgroupV2);
    let scratch = Scratch::new("returned-at-once");
    let collector = Collector::start(scratch.path());
    let agent = agent(&scratch, &collector, TTY0);
    for _ in 0..ROUNDS {
        let tty = Tty::hold();
        let mut crowd = tty.crowd(CROWD);
        let pid = crowd.id().to_string();
        let told = || {
            let mut told: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for stall in collector.records().into_iter().filter(|r| r.get("process.pid") == pid) {
                let states = told.entry(stall.get("thread.id").to_owned()).or_default();
                states.push(stall.get("gpu.stall.state").to_owned());
            }
            told
        };
        wait_for("every stall", 30, || (told().len() == CROWD).then_some(()));
        tty.release();
        wait_for("every end", 30, || told().values().all(|states| 2 <= states.len()).then_some(()));
        drop(crowd.stdin.take()); // it waits for the end of its input
        assert!(crowd.wait().unwrap().success());
        wait_for("an empty map", 30, || {
            (collector.latest("warpgauge.probe.entries", &[("map", "in_flight")]) == Some(0.0)).then_some(())
        });
        let others: Vec<_> = told().into_iter().filter(|(_, states)| *states != ["begin", "end"]).collect();
        assert_eq!(others, [], "of {CROWD}");
    }
    assert!(agent.terminate().success());
    assert_eq!(collector.latest("warpgauge.probe.lost_returns", &[]).unwrap_or(0.0), 0.0);
}

/// A pipe with a name below /dev, as every watched path has one: opening it waits for the other side. Removed when
/// dropped.
struct Fifo(String);

impl Fifo {
    fn new() -> Self {
        let path = format!("/dev/warpgauge-{}", std::process::id());
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        Self(path)
    }
}

impl Drop for Fifo {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0); // in memory: gone with the next boot at the latest
    }
}

/// Which device an open is for is known at its end only: one that turns out to be of none that is watched was announced
/// all the same, and has an end.
#[test]
fn a_slow_open_of_a_watched_path_ends_whatever_it_opened() {
    needs!(Root, Probes, Collector);
    let scratch = Scratch::new("opening");
    let collector = Collector::start(scratch.path());
    let fifo = Fifo::new();
    let agent = agent(&scratch, &collector, &fifo.0);
    let stalls = |pid: &str| -> Vec<Record> {
        let of_reader = |r: &Record| r.event == "gpu.stall" && r.get("process.pid") == pid;
        collector.records().into_iter().filter(of_reader).collect()
    };

    let mut reader = Command::new("cat").arg(&fifo.0).stdout(Stdio::null()).spawn().unwrap();
    let pid = reader.id().to_string();
    let begin = wait_for("the stall", 20, || stalls(&pid).into_iter().next());
    assert_eq!((begin.get("gpu.stall.state"), begin.get("gpu.driver.call")), ("begin", "open"));
    drop(std::fs::File::options().write(true).open(&fifo.0).unwrap()); // lets the reader in, and then out
    assert!(reader.wait().unwrap().success());
    let end = wait_for("its end", 20, || stalls(&pid).into_iter().nth(1));
    assert_eq!((end.get("gpu.stall.state"), end.get("gpu.stall.id")), ("end", begin.get("gpu.stall.id")));
    assert!(agent.terminate().success());
    assert_eq!(stalls(&pid).len(), 2, "each told once");
    assert_eq!(collector.latest("warpgauge.probe.lost_returns", &[]).unwrap_or(0.0), 0.0);
    let counted =
        collector.points().into_iter().any(|p| p.name == DURATION && p.has(&[("gpu.driver.call", "open")]));
    assert!(!counted, "of no device that is watched");
}
