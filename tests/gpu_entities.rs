//! Devices as they are told: in words, without counting anything twice, and while they come and go.
//!
//! In: a node of GPUs, instances, switches and CPUs. Out: `gpu.info`, `hw.status` and which device has which values.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use warpgauge_tests::harness::collector::Collector;
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::node::Node;
use warpgauge_tests::harness::received::Point;
use warpgauge_tests::needs;

const GPUS: [&str; 3] = [
    "GPU-00000000-0000-4000-8000-000000000000",
    "GPU-00000000-0000-4000-8000-000000000001",
    "GPU-00000000-0000-4000-8000-000000000002",
];
const MIGS: [&str; 3] = [
    "MIG-00000000-0000-4000-9000-000000000011",
    "MIG-00000000-0000-4000-9000-000000000012",
    "MIG-00000000-0000-4000-9000-000000000013",
];
const SWITCHES: [&str; 2] = ["nvswitch-0000:c1:00.0", "nvswitch-0000:c2:00.0"];
const MIB: f64 = 1_048_576.0;
/// Few fields, so that nothing but what is looked at takes time.
const FEW: &str = "groups: [{name: few, interval: 1s, fields: [155, 156, 250, 252, 1110, 1120]}]";

fn hw_id(point: &Point) -> &str {
    &point.attributes["hw.id"]
}

fn now_ns() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

/// What `gpu.info` says of each device, once it knows them all.
fn words(collector: &Collector, devices: usize) -> BTreeMap<String, Point> {
    wait_for("all devices in words", 30, || {
        let known = collector.standing("gpu.info", &[]);
        let by_id: BTreeMap<String, Point> =
            known.iter().map(|point| (hw_id(point).to_owned(), point.clone())).collect();
        (by_id.len() >= devices && known.len() == by_id.len()).then_some(by_id)
    })
}

#[track_caller]
fn check_words(point: &Point, wanted: &[(&str, &str)]) {
    for (name, value) in wanted {
        let said = point.attributes.get(*name).map(String::as_str);
        assert_eq!(said, Some(*value), "{name} of {:?}", point.attributes);
    }
}

#[test]
fn each_device_is_told_in_words_once() {
    needs!(Collector);
    let node = Node::new("gpu-words", "named-entities");
    let collector = Collector::start(node.path());
    let sys = node.path().join("sys");
    let device = sys.join("bus/pci/devices/0000:20:00.0");
    std::fs::create_dir_all(&device).unwrap();
    std::fs::write(device.join("numa_node"), "1\n").unwrap();
    let setup = node.agent(&format!("engine: embedded\n{FEW}")).args(&["--host-sys", &sys.to_string_lossy()]);
    let agent = setup.to(&collector.address).start();
    wait_for("NVML's words", 30, || {
        let of_nvml = collector.standing("gpu.info", &[("gpu.mig.profile.source", "nvml")]);
        (of_nvml.len() == 2).then_some(())
    });
    let words = words(&collector, 9);
    let ids: BTreeSet<&str> = words.keys().map(String::as_str).collect();
    let wanted = GPUS.into_iter().chain([MIGS[0], MIGS[1]]).chain(SWITCHES).chain(["cpu-0", "cpu-1"]);
    assert_eq!(ids, wanted.collect());
    for (number, gpu) in GPUS.iter().enumerate() {
        let number = number.to_string();
        check_words(
            &words[*gpu],
            &[
                ("hw.type", "gpu"),
                ("hw.name", "NVIDIA H100 NVL"),
                ("gpu.index", &number),
                ("gpu.minor", &number),
                ("hw.serial_number", &format!("165000000000{number}")),
                ("gpu.architecture", "hopper"),
                ("gpu.cpu.affinity", "0-31"),
                ("hw.driver_version", "570.86.15"),
            ],
        );
    }
    check_words(&words[GPUS[1]], &[("gpu.pci.address", "0000:20:00.0"), ("gpu.numa.node", "1")]);
    check_words(&words[GPUS[0]], &[("gpu.nvlink.peers", &format!("{}=12", GPUS[1]))]);
    let of_mig =
        [("hw.parent", GPUS[2]), ("gpu.mig.profile", "1g.12gb+me"), ("gpu.mig.profile.source", "nvml")];
    check_words(&words[MIGS[0]], &of_mig);
    check_words(&words[SWITCHES[0]], &[("hw.type", "nvswitch"), ("gpu.pci.address", "0000:c1:00.0")]);
    check_words(&words["cpu-1"], &[("hw.type", "cpu")]);
    assert!(agent.terminate().success());
}

#[test]
fn where_only_dcgm_is_there_its_profile_name_is_not_corrected() {
    let node = Node::new("gpu-words-dcgm", "named-entities");
    let collector = Collector::built_in(node.path());
    let agent = node.agent(&format!("engine: embedded\nnvml: false\n{FEW}")).to(&collector.address).start();
    let words = words(&collector, 9);
    check_words(&words[MIGS[0]], &[("gpu.mig.profile", "1g.11gb+me"), ("gpu.mig.profile.source", "dcgm")]);
    check_words(
        &words[GPUS[1]],
        &[("gpu.index", "1"), ("gpu.minor", "1"), ("hw.driver_version", "570.86.15")],
    );
    assert!(agent.terminate().success());
}

#[test]
fn memory_is_summed_once_and_parts_belong_to_their_device() {
    let node = Node::new("gpu-memory", "named-entities");
    let collector = Collector::built_in(node.path());
    let agent = node.agent(&format!("engine: embedded\n{FEW}")).to(&collector.address).start();
    let usage = wait_for("the memory of each device", 30, || {
        let usage = collector.standing("hw.gpu.memory.usage", &[("hw.gpu.memory.state", "used")]);
        let usage = if usage.is_empty() { collector.standing("hw.gpu.memory.usage", &[]) } else { usage };
        (usage.len() == 4).then_some(usage)
    });
    let ids: BTreeSet<&str> = usage.iter().map(hw_id).collect();
    assert_eq!(ids, [GPUS[0], GPUS[1], MIGS[0], MIGS[1]].into_iter().collect(), "no parent of instances");
    assert_eq!(usage.iter().map(|p| p.value).sum::<f64>(), 2_200.0 * MIB, "what the processes hold together");
    let limit = collector.standing("hw.gpu.memory.limit", &[]);
    let size = |id: &str| limit.iter().find(|p| hw_id(p) == id).map(|p| p.value);
    assert_eq!((size(GPUS[0]), size(MIGS[0])), (Some(95_830.0 * MIB), Some(11_008.0 * MIB)));
    let share = collector.standing("hw.gpu.memory.utilization", &[("hw.id", GPUS[0])]);
    assert!((share[0].value - 1_000.0 / 95_830.0).abs() < 1e-12, "{share:?}");
    let cores = collector.points().into_iter().filter(|p| p.attributes.contains_key("cpu.logical_number"));
    let cores: BTreeSet<(String, String)> =
        cores.map(|p| (hw_id(&p).to_owned(), p.attributes["cpu.logical_number"].clone())).collect();
    let wanted = [("cpu-0", "0"), ("cpu-0", "1"), ("cpu-1", "2"), ("cpu-1", "3")];
    assert_eq!(cores, wanted.map(|(cpu, core)| (cpu.to_owned(), core.to_owned())).into_iter().collect());
    assert!(agent.terminate().success());
}

#[test]
fn instances_come_and_go_with_a_new_layout() {
    let node = Node::new("gpu-mig-layout", "named-entities");
    let collector = Collector::built_in(node.path());
    let agent = node.agent(&format!("engine: embedded\n{FEW}")).to(&collector.address).start();
    let used = |id: &str| collector.standing("hw.gpu.memory.usage", &[("hw.id", id)]);
    wait_for("the first layout", 30, || {
        (!used(MIGS[0]).is_empty() && !used(MIGS[1]).is_empty()).then_some(())
    });
    let changed = now_ns();
    node.now(&format!("mig: {{2: [{{profile: 7g.94gb, uuid: {}, memory_mib: 95232}}]}}", MIGS[2]));
    wait_for("the new instance", 15, || (!used(MIGS[2]).is_empty()).then_some(()));
    wait_for("the end of the old ones", 15, || {
        (used(MIGS[0]).is_empty() && used(MIGS[1]).is_empty()).then_some(())
    });
    let points = collector.points();
    let of = |id: &str| {
        let name = "hw.gpu.memory.usage";
        points.iter().filter(move |p| p.name == name && p.attributes["hw.id"] == id).collect::<Vec<_>>()
    };
    let first = of(MIGS[2]).iter().find(|p| !p.value.is_nan()).map(|p| p.time).unwrap();
    assert!(
        first.saturating_sub(changed) < 4_000_000_000,
        "two intervals of 1 s, and what a busy machine adds"
    );
    for old in [MIGS[0], MIGS[1]] {
        let of_old = of(old);
        assert!(of_old.last().unwrap().value.is_nan(), "ended by a point without a value");
        assert_eq!(of_old.iter().filter(|p| p.value.is_nan()).count(), 1, "once");
    }
    let info = collector.standing("gpu.info", &[("hw.parent", GPUS[2])]);
    assert_eq!(info.iter().map(hw_id).collect::<Vec<_>>(), [MIGS[2]]);
    assert!(agent.terminate().success());
}

#[test]
fn a_gpu_is_lost_and_back() {
    let node = Node::new("gpu-lost", "named-entities");
    let collector = Collector::built_in(node.path());
    let agent = node.agent(&format!("engine: embedded\n{FEW}")).to(&collector.address).start();
    let status = |state: &str| {
        let of_it = [("hw.id", GPUS[1]), ("hw.state", state)];
        collector.standing("hw.status", &of_it).first().map(|p| p.value)
    };
    let power = || collector.standing("hw.power", &[("hw.id", GPUS[1])]);
    wait_for("a value", 30, || (!power().is_empty() && status("ok") == Some(1.0)).then_some(()));
    node.now("lost: [1]");
    wait_for("the loss", 15, || (status("failed") == Some(1.0)).then_some(()));
    wait_for("the reason", 15, || {
        let of_it = [("hw.id", GPUS[1]), ("gpu.absence.reason", "device_lost")];
        (!collector.standing("gpu.field.absent", &of_it).is_empty() && power().is_empty()).then_some(())
    });
    let others = collector.standing("hw.status", &[("hw.state", "ok")]);
    assert!(others.iter().filter(|p| hw_id(p) != GPUS[1]).all(|p| p.value == 1.0), "{others:?}");
    node.now("");
    wait_for("its return", 20, || (status("ok") == Some(1.0) && !power().is_empty()).then_some(()));
    assert_eq!(collector.standing("gpu.info", &[("hw.id", GPUS[1])]).len(), 1, "the same device");
    assert!(agent.terminate().success());
}
