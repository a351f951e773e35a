//! NVML: who has what of each GPU, and the basic fields where DCGM is not.
//!
//! In: a process of this test as a process on a simulated GPU. Out: what its workload holds; levels of each GPU.

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
