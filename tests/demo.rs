//! The demo: a process of a pod hangs in a driver call, the driver reports an XID, and the Collector hears whose it was,
//! on which GPU, and what that GPU did meanwhile.
//!
//! In: the programs that `cargo xtask demo` built. Out: what the Collector received, for people. The GPUs are simulated:
//! the agent's worker loads the simulators of `tests/` in place of libdcgm and libnvidia-ml.
//! What can go wrong: no root, no terminal, no kernel programs; it says what is missing and shows the rest.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "it talks to people")]

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use warpgauge_tests::harness::cgroups::{PodCgroup, Version, mount};
use warpgauge_tests::harness::collector::Collector;
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::need::Need;
use warpgauge_tests::harness::node::Node;
use warpgauge_tests::harness::programs;
use warpgauge_tests::harness::received::Record;
use warpgauge_tests::harness::tty::{MAJOR, Tty};

/// The GPU of the XID, as the driver writes it.
const PCI: &str = "0000:3b:00";
/// Two simulated GPUs, one of which is busy and at its power limit.
const SCENARIO: &str = r#"
version: 1
defaults: {name: NVIDIA H100 80GB HBM3, architecture: hopper, memory_mib: 81920, nvlinks: {count: 18}}
gpus:
- pci: "0000:3b:00.0"
  fields:
    112: {curve: {constant: 4}}
    150: {curve: {sine: {mean: 74, amplitude: 2, period: 60}}}
    155: {curve: {sine: {mean: 690, amplitude: 8, period: 20}}}
    203: {curve: {constant: 97}}
    1002: {curve: {sine: {mean: 0.86, amplitude: 0.05, period: 20}}}
- pci: "0000:5e:00.0"
"#;

fn main() -> ExitCode {
    match demo() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            println!("The demo ended early: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn demo() -> anyhow::Result<()> {
    let missing: Vec<&str> = [
        (Need::Root, "root: loading kernel programs and writing to the kernel log need it; build as yourself, then `sudo target/debug/demo`"),
        (Need::Tty0, "a virtual terminal (/dev/tty0), which stands in for a GPU's device node"),
        (Need::Probes, "the kernel programs, BTF and tracefs; see `cargo xtask build-ebpf`"),
        (Need::KmsgWrite, "the right to write to /dev/kmsg, where the XID line stands in for the driver's"),
    ]
    .iter()
    .filter(|(need, _)| !need.is_met())
    .map(|(_, what)| *what)
    .collect();
    if missing.is_empty() { live(&Node::of_text("demo", SCENARIO)) } else { replayed(&missing) }
}

fn live(node: &Node) -> anyhow::Result<()> {
    let dir = node.path();
    say_what_stands_in();
    let collector = collector(dir);
    let mut agent = node
        .watching("engine: embedded")
        .to(&collector.address)
        .args(&["--probe-majors", &MAJOR.to_string(), "--kernel-log-facilities", "kernel,user"])
        .start();
    wait_for("the agent's probes", 60, || {
        let ready = collector.latest("warpgauge.probe.info", &[("probe", "ioctl")]) == Some(1.0);
        (ready || !agent.is_running()).then_some(())
    });
    anyhow::ensure!(agent.is_running(), "the agent ended:\n{}", agent.log());

    let version = if mount(Version::V1).is_some() { Version::V1 } else { Version::V2 };
    let pod = PodCgroup::new(version, 1);
    let tty = Tty::hold();
    let mut victim = tty.victim();
    pod.admit(&victim);
    println!(
        "\nA process (pid {}) in a pod's cgroup goes into the driver and does not come back…",
        victim.id()
    );
    let pid = victim.id().to_string();
    node.now(&format!("processes: {{0: [{{pid: {pid}, memory_mib: 61440, sm: 96}}]}}\n"));
    tty.hang(&mut victim);
    let of_victim = |r: &Record, event: &str| r.event == event && r.get("process.pid") == pid;
    let begun = wait_for("the stall at the Collector", 30, || {
        collector.records().into_iter().find(|r| of_victim(r, "gpu.stall"))
    });
    show_stall(&begun);
    println!("\nMeanwhile DCGM and NVML tell of the GPU that this process holds memory on (simulated):");
    let hw_id = show_gpu(&collector, &pod.pod_uid);

    println!("\n…and the driver reports an error of that process:");
    let text = format!(
        "NVRM: Xid (PCI:{PCI}): 31, pid={pid}, name=ioctl-victim, Ch 00000008, intr 00000000. MMU Fault"
    );
    println!("  {text}");
    let mut kmsg = std::fs::File::options().write(true).open("/dev/kmsg").context("/dev/kmsg")?;
    kmsg.write_all(format!("<4>{text}\n").as_bytes()).context("/dev/kmsg")?;
    let xid = wait_for("the XID at the Collector", 30, || {
        collector.records().into_iter().find(|r| of_victim(r, "gpu.xid"))
    });
    show_xid(&xid, &collector);
    anyhow::ensure!(xid.get("hw.id") == hw_id, "the XID is not put to the GPU");

    println!("\nThe call returns at last:");
    tty.release();
    victim.wait().context("the victim")?;
    let ended = wait_for("the end of the stall at the Collector", 30, || {
        collector
            .records()
            .into_iter()
            .find(|r| of_victim(r, "gpu.stall") && r.get("gpu.stall.state") == "end")
    });
    show_stall(&ended);
    let calls = wait_for("the call in the histogram", 30, || {
        collector.points().into_iter().rfind(|p| {
            let series = [("k8s.pod.uid", pod.pod_uid.as_str()), ("gpu.driver.call", "ioctl")];
            p.name == "gpu.driver.call.duration" && p.has(&series) && 1.0 < p.sum
        })
    });
    println!("  histogram  {} call, {:.3} s together", calls.value, calls.sum);
    let (scale, buckets) = calls.buckets.unwrap_or_default();
    for (index, count) in buckets {
        let bound = |index: i64| 2f64.powf((-scale as f64).exp2() * index as f64);
        println!("             {count} between {} and {} s", bound(index), bound(index + 1));
    }
    let status = agent.terminate();
    println!("\nThe agent was told to stop: {status}.");
    Ok(())
}

fn collector(dir: &Path) -> Collector {
    if programs::collector().is_file() {
        println!("\nStarting the OpenTelemetry Collector and the agent on loopback.");
        return Collector::start(dir);
    }
    println!(
        "\nNeither Go nor a built Collector is on this machine: a small built-in OTLP receiver takes its place."
    );
    Collector::built_in(dir)
}

fn show_stall(r: &Record) {
    println!("The Collector received, with severity {}:", r.severity_text);
    println!("  event      {} {} ({})", r.event, r.get("gpu.stall.state"), r.get("gpu.stall.cause"));
    println!(
        "  device     {}, {} {}",
        r.get("gpu.driver.device"),
        r.get("gpu.driver.call"),
        r.get("gpu.driver.operation")
    );
    let seconds: f64 = r.get("gpu.stall.duration").parse().unwrap_or_default();
    let so_far = if r.get("gpu.stall.state") == "end" { "in all" } else { "so far" };
    println!("  how long   {seconds:.3} s {so_far}; {}", r.get("gpu.stall.evidence"));
    show_whose(r);
}

fn say_what_stands_in() {
    println!("What stands in for what, since this needs no GPU:");
    println!("  /dev/tty0            for /dev/nvidiactl: a real device node with a real driver behind it");
    println!("  VT_WAITACTIVE        for an RM call that hangs: a real ioctl that waits in the kernel");
    println!(
        "  a line in /dev/kmsg  for the driver's: the same text, but from user space, which only this demo believes"
    );
    println!(
        "  two simulated GPUs   for real ones: libraries with DCGM's and NVML's interface, numbers made up"
    );
}

/// What the GPU of the pod does; its `hw.id`.
fn show_gpu(collector: &Collector, pod_uid: &str) -> String {
    let memory = wait_for("the memory of the pod's process", 30, || {
        let of_pod = [("k8s.pod.uid", pod_uid)];
        collector.points().into_iter().rfind(|p| p.name == "gpu.process.memory.usage" && p.has(&of_pod))
    });
    let hw_id = memory.attributes.get("hw.id").cloned().unwrap_or_default();
    println!("  GPU            {hw_id}, {}", product(collector, &hw_id));
    println!("  of the pod     {:.0} GiB of its memory", memory.value / f64::from(1 << 30));
    for (what, metric, more, factor, unit) in [
        ("utilization", "hw.gpu.utilization", ("hw.gpu.task", "general"), 100.0, "%"),
        ("SM active", "gpu.dcgm.sm.utilization", ("hw.type", "gpu"), 100.0, "%"),
        ("power", "hw.power", ("hw.type", "gpu"), 1.0, "W"),
        ("temperature", "hw.temperature", ("hw.sensor_location", "gpu"), 1.0, "°C"),
        (
            "power cap",
            "gpu.dcgm.clocks_event_reasons",
            ("gpu.clock.event.reason", "power_cap"),
            1.0,
            "s of lower clocks since the agent started",
        ),
    ] {
        let series = [("hw.id", hw_id.as_str()), more];
        let value = wait_for(what, 30, || collector.latest(metric, &series).filter(|value| *value > 0.0));
        println!("  {what:<14} {:.0} {unit}", value * factor);
    }
    hw_id
}

/// The GPU's name, of its info series.
fn product(collector: &Collector, hw_id: &str) -> String {
    wait_for("the GPU's name", 30, || {
        let info =
            collector.points().into_iter().rfind(|p| p.name == "gpu.info" && p.has(&[("hw.id", hw_id)]));
        info?.attributes.get("hw.name").cloned()
    })
}

fn show_xid(r: &Record, collector: &Collector) {
    println!("The Collector received, with severity {}:", r.severity_text);
    println!(
        "  event      {} {} ({}) on {}",
        r.event,
        r.get("gpu.xid.code"),
        r.get("gpu.xid.name"),
        r.get("gpu.pci.address")
    );
    println!("  GPU        {}, {}", r.get("hw.id"), product(collector, r.get("hw.id")));
    println!("  class      {}, action {}", r.get("gpu.xid.class"), r.get("gpu.xid.action"));
    show_whose(r);
}

fn show_whose(r: &Record) {
    println!("  whose      {} (pid {})", r.get("process.executable.name"), r.get("process.pid"));
    println!("  cgroup     {}", r.get("process.linux.cgroup"));
    println!("  container  {}", r.get("container.id"));
    println!("  pod uid    {}", r.get("k8s.pod.uid"));
}

fn replayed(missing: &[&str]) -> anyhow::Result<()> {
    println!("This machine lacks, for the live demo:");
    for what in missing {
        println!("  - {what}");
    }
    println!("\nThe rest: a recorded scenario, through the same stages. What the agent found in it:");
    let scenario = programs::workspace().join("tests/fixtures/scenarios/hung_call_and_xid.jsonl");
    let mut agent = std::process::Command::new(programs::agent());
    let status = agent.arg("run").arg("--replay").arg(scenario).status().context("the agent")?;
    anyhow::ensure!(status.success(), "the agent: {status}");
    Ok(())
}
