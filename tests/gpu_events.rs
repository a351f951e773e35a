//! What DCGM tells once, as a mask, as a counter or as a rate: the sums at the Collector against the scenario's curves.
//!
//! In: curves over the scenario's time, XIDs, health incidents. Out: points, compared with the curves' own integrals.

use warpgauge_tests::harness::collector::Collector;
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::node::Node;
use warpgauge_tests::harness::received::Point;

const GPUS: [&str; 4] = [
    "GPU-00000000-0000-4000-8000-000000000000",
    "GPU-00000000-0000-4000-8000-000000000001",
    "GPU-00000000-0000-4000-8000-000000000002",
    "GPU-00000000-0000-4000-8000-000000000003",
];
/// Between two samples. Unit: s.
const STEP: f64 = 0.5;

/// Two GPUs, the second lost from 4 s to 6 s.
const CURVES: &str = "
version: 1
defaults: {nvlinks: {count: 18}}
gpus:
- fields:
    112: {curve: {steps: [[0, 4], [5, 68], [8, 0]]}}
    156: {curve: {counter: {start: 7000000000, per_s: 250}}}
    202: {curve: {counter: {start: 100, per_s: 10, reset_at: 6}}}
    252: {curve: {constant: 1024}}
    449: {curve: {constant: 100}}
    1009: {curve: {steps: [[0, 1000000], [5, 3000000]]}}
    1010: {curve: {constant: 1000000}, absent: blank, from: 4, until: 6}
- fields: {156: {curve: {counter: {per_s: 1000}}}, 449: {curve: {constant: 100}}}
faults: [lost: {gpu: 1, from: 4, until: 6}]
";
const CURVES_GROUP: &str = "engine: embedded\nnvml: false\ngroups: [{name: few, interval: 500ms, fields: [112, 155, 156, 202, 252, 449, 1009, 1010]}]";

/// Points of one series, without ends.
fn series(points: &[Point], name: &str, attributes: &[(&str, &str)]) -> Vec<Point> {
    points.iter().filter(|p| p.name == name && p.has(attributes) && !p.value.is_nan()).cloned().collect()
}

/// Waits until the scenario is this old. Unit: s.
fn wait_until(node: &Node, collector: &Collector, seconds: f64) {
    let from = node.moment(seconds);
    wait_for("the scenario's end", 60, || {
        let power = collector.standing("hw.power", &[]);
        power.iter().any(|p| p.time as f64 > from).then_some(())
    });
}

#[track_caller]
fn near(what: &str, got: f64, want: f64, slack: f64) {
    assert!((got - want).abs() <= slack, "{what}: {got} in place of {want} ± {slack}");
}

#[test]
fn sums_are_the_integrals_of_the_scenarios_curves() {
    // A GPU that is lost has the others watched anew, too.
    let (curves, _) = CURVES.split_once("\nfaults:").unwrap();
    let node = Node::of_text("gpu-sums", curves);
    let collector = Collector::built_in(node.path());
    let agent = node.agent(CURVES_GROUP).to(&collector.address).start();
    wait_until(&node, &collector, 10.0);
    let points = collector.points();
    let since = |ns: u64| (ns as f64 - node.moment(0.0)) / 1e9;
    let of = |name: &str, key: (&str, &str)| series(&points, name, &[("hw.id", GPUS[0]), key]);
    let any = ("hw.id", GPUS[0]);

    for (reason, end) in [("power_cap", 8.0), ("hw_thermal", 8.0)] {
        let last = of("gpu.dcgm.clocks_event_reasons", ("gpu.clock.event.reason", reason)).pop().unwrap();
        let begin = if reason == "power_cap" { since(last.start) } else { 5.0 };
        near(reason, last.value, end - begin, STEP + 0.1);
    }
    let idle = of("gpu.dcgm.clocks_event_reasons", ("gpu.clock.event.reason", "gpu_idle"));
    assert!(idle.last().is_some_and(|p| p.value == 0.0), "a reason that never held is there, at 0");

    let energy = of("hw.energy", any).pop().unwrap();
    let millijoules = energy.value * 1e3;
    near("whole mJ", millijoules, millijoules.round(), 1e-6);
    near("energy", energy.value, 0.25 * since(energy.time - energy.start + node.moment(0.0) as u64), 0.003);

    let replays = of("gpu.dcgm.pcie_replay_total", any);
    let (first, last) = (&replays[0], replays.last().unwrap());
    assert!(last.start > first.start, "the counter fell: {replays:?}");
    near("begin anew", since(last.start), 6.0, STEP + 0.1);
    near("count since", last.value, 10.0 * (since(last.time) - 6.0), 1.5);
    let before = replays.iter().rfind(|p| p.start == first.start).unwrap();
    near("count before", before.value, (before.time - first.start) as f64 / 1e8, 1.5);

    let used = of("hw.gpu.memory.usage", any).pop().unwrap();
    assert_eq!(used.value, 1_024.0 * 1_048_576.0);

    let io = |direction: &str| of("hw.gpu.io", ("network.io.direction", direction)).pop().unwrap();
    let (sent, received) = (io("transmit"), io("receive"));
    let want = 1e6 * (5.0 - since(sent.start)) + 3e6 * (since(sent.time) - 5.0);
    near("rate with a step", sent.value, want, 2e6 * STEP + 2e5);
    // A value counts from the sample before it; a gap, and the first one after it, count for nothing.
    let want = 1e6 * (since(received.time) - since(received.start) - 2.0);
    near("rate with a gap", received.value, want - 1e6 * STEP / 2.0, 1e6 * (STEP + 0.1));
    let last = of("gpu.dcgm.nvlink_throughput_total", any).pop().unwrap();
    near("NVLink", last.value, 1e8 * (last.time - last.start) as f64 / 1e9, 1e8 * STEP);
    assert!(agent.terminate().success());
}

#[test]
fn a_lost_gpu_leaves_no_spike_and_no_second_sample() {
    let node = Node::of_text("gpu-gap", CURVES);
    let collector = Collector::built_in(node.path());
    let agent = node.agent(CURVES_GROUP).to(&collector.address).start();
    wait_until(&node, &collector, 10.0);
    wait_for("the GPU that was lost", 20, || {
        let back = collector.standing("hw.energy", &[("hw.id", GPUS[1])]);
        back.iter().any(|p| p.time as f64 > node.moment(10.0)).then_some(())
    });
    let points = collector.points();
    let of_it = [("hw.id", GPUS[1])];
    let (energy, link) =
        (series(&points, "hw.energy", &of_it), series(&points, "gpu.dcgm.nvlink_throughput_total", &of_it));
    let starts: std::collections::BTreeSet<u64> = energy.iter().map(|p| p.start).collect();
    assert_eq!(starts.len(), 1, "a gap changes neither start nor count");
    let last = energy.last().unwrap();
    near("energy over the gap", last.value, (last.time - last.start) as f64 / 1e9, 0.01);
    let last = link.last().unwrap();
    let seconds = (last.time - last.start) as f64 / 1e9;
    // Lost: the gap, the sample that is a whole counter, and the step before the next one.
    let lost = seconds - last.value / 1e8;
    assert!((2.0 - STEP..=2.0 + 3.0 * STEP + 0.6).contains(&lost), "{lost} s of {seconds} s are lost");
    assert!(collector.latest("warpgauge.samples.dropped", &[("reason", "after_blank")]) >= Some(1.0));
    assert!(agent.terminate().success());
}

#[test]
fn each_xid_counts_once_and_health_recovers() {
    let node = Node::of_text("gpu-xids", "version: 1\ngpus: [{count: 4}]\n");
    let collector = Collector::built_in(node.path());
    let setup = node.agent(
        "engine: embedded\nnvml: false\nhealth_interval: 1s\ngroups: [{name: few, interval: 1s, fields: [155, 230]}]",
    );
    let agent = setup.to(&collector.address).start();
    let health = |subsystem: &str| {
        let of_it = [("hw.id", GPUS[0]), ("gpu.health.subsystem", subsystem)];
        collector.standing("gpu.health.status", &of_it).first().map(|p| p.value)
    };
    let state = |state: &str| {
        let of_it = [("hw.id", GPUS[0]), ("hw.state", state)];
        collector.standing("hw.status", &of_it).first().map(|p| p.value)
    };
    wait_for("a healthy node", 30, || (health("memory") == Some(0.0)).then_some(()));
    wait_until(&node, &collector, 5.0);
    let xids = "xids: [{gpu: 1, code: 31}, {gpu: 1, code: 43}, {gpu: 1, code: 45}, {gpu: 3, code: 79}, \
                {gpu: 3, code: 79, source: kmsg}, {gpu: 2, code: 79, source: kmsg, late_s: 3}]\n";
    node.now(&format!(
        "{xids}health: [{{gpu: 0, system: 16, level: 20, code: 1, text: bad}}, {{gpu: 0, system: 128, level: 10, code: 2}}]"
    ));
    let xid = |gpu: usize, code: &str| {
        let of_it = [("hw.id", GPUS[gpu]), ("gpu.error.xid", code)];
        collector.standing("gpu.dcgm.xid_errors", &of_it).first().map(|p| p.value)
    };
    let all = [(1, "31"), (1, "43"), (1, "45"), (2, "79"), (3, "79")];
    wait_for("all XIDs", 30, || all.iter().all(|(gpu, code)| xid(*gpu, code).is_some()).then_some(()));
    wait_for("the incidents", 30, || {
        let both = health("memory") == Some(2.0) && health("thermal") == Some(1.0);
        (both && state("failed") == Some(1.0)).then_some(())
    });
    assert_eq!(health("pcie"), Some(0.0));
    node.now(xids);
    wait_for("the recovery", 30, || {
        let both = health("memory") == Some(0.0) && health("thermal") == Some(0.0);
        (both && state("ok") == Some(1.0)).then_some(())
    });
    for (gpu, code) in all {
        assert_eq!(xid(gpu, code), Some(1.0), "XID {code} of GPU {gpu}");
    }
    assert_eq!(collector.standing("gpu.dcgm.xid_errors", &[]).len(), all.len(), "and no other");
    assert!(agent.terminate().success());
}

#[test]
fn what_cannot_be_is_left_out_and_counted() {
    let text = "version: 1\ngpus: [{fields: {203: {curve: {steps: [[0, 40], [4, 4294967295], [7, 41]]}}, \
                150: {curve: {constant: -300}}, 1001: {curve: {constant: 1.7}}}}]\n";
    let node = Node::of_text("gpu-range", text);
    let collector = Collector::built_in(node.path());
    let groups = "groups: [{name: few, interval: 500ms, fields: [150, 155, 203, 1001]}]";
    let agent =
        node.agent(&format!("engine: embedded\nnvml: false\n{groups}")).to(&collector.address).start();
    wait_until(&node, &collector, 8.5);
    let points = collector.points();
    let utilization = series(&points, "hw.gpu.utilization", &[("hw.id", GPUS[0])]);
    let values: Vec<f64> = utilization.iter().map(|p| p.value).collect();
    assert!(values.iter().all(|v| [0.4, 0.41].contains(v)), "no spike: {values:?}");
    assert!(values.first() == Some(&0.4) && values.last() == Some(&0.41), "{values:?}");
    assert!(series(&points, "hw.temperature", &[]).is_empty(), "nothing is below absolute zero");
    for field in
        ["DCGM_FI_DEV_GPU_UTIL_RATIO", "DCGM_FI_DEV_GPU_TEMP_CELSIUS", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO"]
    {
        let of_it = [("gpu.field", field), ("gpu.absence.reason", "invalid")];
        assert!(!series(&points, "gpu.field.absent", &of_it).is_empty(), "{field} is said to be invalid");
    }
    assert!(collector.latest("warpgauge.samples.invalid", &[("reason", "range")]) > Some(10.0));
    assert!(agent.terminate().success());
}
