//! NVML: who has what of each GPU, and the basic fields where DCGM is not.
//!
//! In: processes of this test as processes on a simulated GPU. Out: what their workloads hold and use; levels of each GPU.

use std::process::{Child, Command, Stdio};

use warpgauge_tests::harness::cgroups::{PodCgroup, Version, mount};
use warpgauge_tests::harness::collector::Collector;
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::node::Node;
use warpgauge_tests::needs;

const GPU: &str = "GPU-00000000-0000-4000-8000-000000000000";
const MIB: f64 = 1_048_576.0;

/// Ended when dropped.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended already
        let _ = self.0.wait();
    }
}

#[test]
fn a_workload_has_the_memory_and_the_use_of_its_processes() {
    needs!(Root);
    let version = if mount(Version::V1).is_some() { Version::V1 } else { Version::V2 };
    let pod = PodCgroup::new(version, 77);
    let (first, second) = (Sleeper::start(), Sleeper::start());
    pod.admit(&first.0);
    pod.admit(&second.0);
    let node = Node::of_text("gpu-processes", "version: 1\ngpus: [{}]\n");
    let collector = Collector::built_in(node.path());
    let setup = node.agent("engine: embedded\ngroups: [{name: few, interval: 1s, fields: [155]}]");
    let agent = setup.to(&collector.address).start();
    wait_for("a value", 30, || (!collector.standing("hw.power", &[]).is_empty()).then_some(()));
    node.now(&format!(
        "processes: {{0: [{{pid: {}, memory_mib: 1000, sm: 30}}, {{pid: {}, memory_mib: 500, sm: 20}}]}}",
        first.0.id(),
        second.0.id()
    ));
    let of_it = [("hw.id", GPU), ("k8s.pod.uid", &*pod.pod_uid), ("container.id", &*pod.container_id)];
    let value = |name: &str| collector.standing(name, &of_it).first().map(|p| p.value);
    wait_for("the memory of both", 20, || {
        (value("gpu.process.memory.usage") == Some(1_500.0 * MIB)).then_some(())
    });
    wait_for("the use of both", 20, || {
        value("gpu.process.sm.utilization").filter(|v| (v - 0.5).abs() < 1e-9)
    });
    node.now("processes: {0: []}");
    wait_for("the end of both series", 20, || {
        (value("gpu.process.memory.usage").is_none() && value("gpu.process.sm.utilization").is_none())
            .then_some(())
    });
    assert!(agent.terminate().success());
}

#[test]
fn two_pods_on_one_gpu_are_two_series_and_the_one_that_ends_has_no_levels() {
    needs!(Root, Collector);
    let version = if mount(Version::V1).is_some() { Version::V1 } else { Version::V2 };
    let pods = [PodCgroup::new(version, 78), PodCgroup::new(version, 79)];
    let processes = [Sleeper::start(), Sleeper::start()];
    pods.iter().zip(&processes).for_each(|(pod, process)| pod.admit(&process.0));
    let energy = "version: 1\ngpus: [{fields: {156: {curve: {counter: {start: 5000, per_s: 100000}}}}}]\n";
    let node = Node::of_text("gpu-workloads", energy);
    let collector = Collector::start(node.path());
    let setup = node.agent("engine: embedded\ngroups: [{name: few, interval: 1s, fields: [156]}]");
    let agent = setup.to(&collector.address).start();
    wait_for("a value", 30, || (!collector.standing("hw.energy", &[]).is_empty()).then_some(()));
    let [first, second] = [0, 1].map(|n: usize| {
        let (memory, sm) = [(1_000, 30), (500, 20)][n];
        format!("{{pid: {}, memory_mib: {memory}, sm: {sm}}}", processes[n].0.id())
    });
    node.now(&format!("processes: {{0: [{first}, {second}]}}"));
    // A metric has one series for each of the two, and this is their values.
    let both = |name: &str| -> Option<[f64; 2]> {
        let all = collector.standing(name, &[("hw.id", GPU)]);
        assert!(all.len() <= 2, "{all:?}");
        let of = |pod: &PodCgroup| {
            let whose = [("k8s.pod.uid", &*pod.pod_uid), ("container.id", &*pod.container_id)];
            all.iter().find(|point| point.has(&whose)).map(|point| point.value)
        };
        Some([of(&pods[0])?, of(&pods[1])?])
    };
    for (name, want) in [
        ("gpu.workload.memory.usage", [1_000.0 * MIB, 500.0 * MIB]),
        ("gpu.workload.sm.utilization", [0.3, 0.2]),
    ] {
        wait_for(name, 30, || {
            both(name).filter(|has| has.iter().zip(want).all(|(has, want)| (has - want).abs() < 1e-9))
        });
    }
    // 30 J and 20 J of 100 J each second: both are counted over the same time, however long that is.
    let joules = wait_for("the energy of both", 30, || both("gpu.workload.energy").filter(|j| 20.0 < j[1]));
    assert!((joules[0] / joules[1] - 1.5).abs() < 1e-6, "{joules:?}");
    let device: f64 = collector.standing("hw.energy", &[("hw.id", GPU)]).iter().map(|p| p.value).sum();
    assert!(joules[0] + joules[1] < device, "{joules:?} of {device}");

    node.now(&format!("processes: {{0: [{second}]}}"));
    let uid = pods[0].pod_uid.as_str();
    let levels = ["memory.usage", "sm.utilization"].map(|name| format!("gpu.workload.{name}"));
    wait_for("the end of the levels of the first", 30, || {
        levels.iter().all(|name| collector.standing(name, &[("k8s.pod.uid", uid)]).is_empty()).then_some(())
    });
    let last = both("gpu.workload.energy").unwrap();
    wait_for("the second to go on", 30, || both("gpu.workload.energy").filter(|j| last[1] + 20.0 < j[1]));
    let sums = collector.points().into_iter().filter(|p| p.name == "gpu.workload.energy");
    let of_first: Vec<f64> = sums.filter(|p| p.has(&[("k8s.pod.uid", uid)])).map(|p| p.value).collect();
    assert!(of_first.is_sorted(), "a sum never falls: {of_first:?}");
    assert!(agent.terminate().success());
}

#[test]
fn nvml_alone_gives_the_basic_fields() {
    let text = "version: 1\ngpus: [{fields: {150: {curve: {constant: 45}}, 155: {curve: {constant: 150}}, \
                203: {curve: {constant: 40}}}, processes: [{pid: 1, memory_mib: 1000}]}]\n";
    let node = Node::of_text("gpu-nvml", text);
    let collector = Collector::built_in(node.path());
    let agent = node.agent("dcgm: false").to(&collector.address).start();
    for (name, attribute, want) in [
        ("hw.temperature", ("hw.sensor_location", "gpu"), 45.0),
        ("hw.power", ("hw.type", "gpu"), 150.0),
        ("hw.gpu.utilization", ("hw.gpu.task", "general"), 0.4),
        ("hw.gpu.memory.usage", ("hw.type", "gpu"), 1_000.0 * MIB),
        ("hw.gpu.memory.limit", ("hw.type", "gpu"), 81_920.0 * MIB),
    ] {
        let value = wait_for(name, 30, || {
            collector.standing(name, &[("hw.id", GPU), attribute]).first().map(|p| p.value)
        });
        assert!((value - want).abs() < 1e-9, "{name}: {value}");
    }
    let counted = |name: &str| !collector.standing(name, &[("hw.id", GPU)]).is_empty();
    wait_for("energy", 20, || counted("hw.energy").then_some(()));
    assert!(agent.terminate().success());
}
