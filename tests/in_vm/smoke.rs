//! The machine itself, a kprobe event by hand, the doctor, and one hung call from end to end.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;
use warpgauge_tests::harness::agent::Setup;
use warpgauge_tests::harness::cgroups::{PodCgroup, Version};
use warpgauge_tests::harness::collector::Collector;
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::driver::{Module, major};
use warpgauge_tests::harness::programs;
use warpgauge_tests::harness::received::Record;
use warpgauge_tests::harness::scratch::Scratch;
use warpgauge_tests::needs;

const TRACEFS: &str = "/sys/kernel/tracing";
/// A command of the driver's kind ('F') that it has not.
const COMMAND: u32 = 0xc000_467e;

/// A process that makes the calls it is told to.
struct Caller {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Caller {
    fn start() -> Self {
        let mut victim = Command::new(programs::victim());
        let mut child = victim.arg("script").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut caller = Self { child, input, output };
        assert_eq!(caller.answer(), "ready");
        caller
    }

    fn begin(&mut self, call: &str) {
        writeln!(self.input, "{call}").unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn call(&mut self, call: &str) -> String {
        self.begin(call);
        self.answer()
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended by itself
        let _ = self.child.wait();
    }
}

#[test]
fn the_guest_has_the_kernel_and_the_driver_it_should() {
    needs!(Vm);
    let name = std::env::var("WARPGAUGE_VM").unwrap();
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    assert!(release.starts_with(&format!("{name}.")), "{release} is no {name}");
    assert!(Module::Nvidia.is_loaded() && Module::Uvm.is_loaded());
    assert_eq!(major("nvidia"), Some(195));
    assert!(major("nvidia-uvm").is_some_and(|major| major != 195));
    let described = fs::exists("/sys/kernel/btf/nvidia").unwrap();
    assert_eq!(described, name != "5.10", "modules describe their types since 5.11");
    assert!(fs::exists("/sys/fs/cgroup/cgroup.controllers").unwrap(), "the unified hierarchy");
}

#[test]
fn an_event_of_tracefs_sees_the_call_and_its_return() {
    needs!(Vm);
    let say = |line: &str| {
        let mut events = File::options().append(true).open(format!("{TRACEFS}/kprobe_events")).unwrap();
        events.write_all(line.as_bytes()).unwrap();
    };
    say("p:by_hand/begin nvidia:nvidia_unlocked_ioctl\n");
    say("r4096:by_hand/end nvidia:nvidia_unlocked_ioctl\n");
    fs::write(format!("{TRACEFS}/events/by_hand/enable"), "1").unwrap();
    let mut caller = Caller::start();
    assert_eq!(caller.call("open /dev/nvidiactl"), "done");
    for _ in 0..3 {
        caller.call(&format!("ioctl {COMMAND}"));
    }
    let profile = fs::read_to_string(format!("{TRACEFS}/kprobe_profile")).unwrap();
    let hits = |event: &str| {
        let line = profile.lines().find(|line| line.split_whitespace().next() == Some(event)).unwrap();
        line.split_whitespace().skip(1).map(|n| n.parse().unwrap()).collect::<Vec<u64>>()
    };
    assert_eq!((hits("begin"), hits("end")), (vec![3, 0], vec![3, 0]), "hits and misses");
    fs::write(format!("{TRACEFS}/events/by_hand/enable"), "0").unwrap();
    say("-:by_hand/begin\n");
    say("-:by_hand/end\n");
    // others' events, such as those of an agent that was killed, are none of this test's
    let left = fs::read_to_string(format!("{TRACEFS}/kprobe_events")).unwrap();
    assert!(!left.contains("by_hand"), "{left}");
}

#[test]
fn the_doctor_finds_the_driver_and_its_probes() {
    needs!(Vm);
    let out = Command::new(programs::agent())
        .args(["doctor", "--json", "--worker", "off", "--wait", "60"])
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let state = |check: &str| {
        let line = lines.iter().find(|line| line["check"] == check);
        line.and_then(|line| line["state"].as_str())
            .unwrap_or_else(|| panic!("no {check} in {text}"))
            .to_owned()
    };
    eprintln!("{text}");
    assert_eq!(state("driver"), "yes", "{text}");
}

#[test]
fn a_hung_call_is_told_while_it_hangs_with_its_process_and_cgroup() {
    needs!(Vm, Root, Probes, Collector, CgroupV2);
    let scratch = Scratch::new("vm-hung-call");
    let collector = Collector::start(scratch.path());
    let mut agent = Setup::new(scratch.path())
        .to(&collector.address)
        .args(&["--cgroup", "v2", "--kernel-log", "off", "--worker", "off"])
        .start();
    wait_for("the probe", 60, || {
        assert!(agent.is_running(), "the agent ended:\n{}", agent.log());
        (collector.latest("warpgauge.probe.info", &[("probe", "ioctl")]) == Some(1.0)).then_some(())
    });
    let pod = PodCgroup::new(Version::V2, 1);
    let mut caller = Caller::start();
    pod.admit(&caller.child);
    let pid = caller.child.id().to_string();
    let stalls = |state: &str| -> Vec<Record> {
        let of_caller = |r: &Record| r.get("process.pid") == pid && r.get("gpu.stall.state") == state;
        collector.records().into_iter().filter(of_caller).collect()
    };

    assert_eq!(caller.call("open /dev/nvidiactl"), "done");
    Module::Nvidia.order("hang ioctl 255 0x7e 1");
    caller.begin(&format!("ioctl {COMMAND}"));
    wait_for("the call to hang", 20, || (Module::Nvidia.number("hanging") == Some(1)).then_some(()));
    let begin = wait_for("the stall while it lasts", 20, || stalls("begin").into_iter().next());
    assert_eq!(Module::Nvidia.number("hanging"), Some(1), "told while the call hangs");
    assert_eq!(begin.get("gpu.driver.device"), "195:255");
    assert_eq!(begin.get("gpu.driver.call"), "ioctl");
    assert_eq!(begin.get("process.executable.name"), "ioctl-victim");
    assert_eq!(begin.get("process.linux.cgroup"), pod.path());
    assert_eq!(begin.get("container.id"), pod.container_id);
    assert_eq!(begin.get("k8s.pod.uid"), pod.pod_uid);

    Module::Nvidia.order("clear");
    assert!(!caller.answer().is_empty(), "the call returns");
    let end = wait_for("the end of the stall", 20, || stalls("end").into_iter().next());
    assert_eq!(end.get("gpu.stall.id"), begin.get("gpu.stall.id"), "the same episode");
    assert!(agent.terminate().success());
    assert_eq!((stalls("begin").len(), stalls("end").len()), (1, 1), "each told once");
}
