//! Two pods on one GPU are two series in a real Prometheus behind the real Collector, and the device's own series are
//! joined with pods by `gpu.allocation.info`. Case `time-slicing-four-pods`: device series once, without any pod.

use std::collections::BTreeMap;
use std::path::Path;

use warpgauge_tests::harness::agent::Setup;
use warpgauge_tests::harness::cgroups::{PodCgroup, Version, mount};
use warpgauge_tests::harness::collector::Collector;
use warpgauge_tests::harness::deadline::try_for;
use warpgauge_tests::harness::kubelet::Kubelet;
use warpgauge_tests::harness::kubelet_message::{
    Answers, ContainerDevices, ContainerResources, ListPodResourcesResponse, PodResources,
};
use warpgauge_tests::harness::log_links::LogLinks;
use warpgauge_tests::harness::node::Node;
use warpgauge_tests::harness::prometheus::Prometheus;
use warpgauge_tests::harness::tty::{MAJOR, Tty};
use warpgauge_tests::needs;

use crate::driver_calls::Caller;
use crate::hung_call::wait_for_probes;

/// Both GPUs of the node.
const SHARED: &str = "GPU-00000000-0000-4000-8000-000000000000";
const WHOLE: &str = "GPU-00000000-0000-4000-8000-000000000001";
const MIB: f64 = 1_048_576.0;

const NODE: &str = "version: 1\ngpus:\n- {fields: {155: {curve: {constant: 150}}}}\n\
                    - {fields: {155: {curve: {constant: 320}}}}\n";

/// A pod with one container on one device.
fn given(pod: &str, device: &str) -> PodResources {
    let devices = ContainerDevices {
        resource_name: "nvidia.com/gpu".to_owned(),
        device_ids: vec![device.to_owned()],
        topology: None,
    };
    let main = ContainerResources {
        name: "main".to_owned(),
        devices: vec![devices],
        ..ContainerResources::default()
    };
    PodResources { name: pod.to_owned(), namespace: "ml".to_owned(), containers: vec![main] }
}

/// Values by two labels, in their order; anything else that tells them apart makes two of one.
fn by(samples: &[(BTreeMap<String, String>, f64)], labels: [&str; 2]) -> Vec<(String, String, f64)> {
    let label = |of: &BTreeMap<String, String>, name: &str| of.get(name).cloned().unwrap_or_default();
    let mut all: Vec<_> =
        samples.iter().map(|(of, value)| (label(of, labels[0]), label(of, labels[1]), *value)).collect();
    all.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    all
}

/// Waits until the query gives just these values by two labels.
#[track_caller]
fn check(prometheus: &Prometheus, query: &str, labels: [&str; 2], want: &[(&str, &str, f64)]) {
    let mut last = Vec::new();
    let found = try_for(60, || {
        last = by(&prometheus.query(query), labels);
        let same = |(got, want): (&(String, String, f64), &(&str, &str, f64))| {
            got.0 == want.0 && got.1 == want.1 && (got.2 - want.2).abs() < 1e-9
        };
        (last.len() == want.len() && last.iter().zip(want).all(same)).then_some(())
    });
    assert!(found.is_some(), "{query}\n gives {last:?}\n not {want:?}");
}

/// An agent on the node, its kubelet and the pods' folders of logs; terminals stand in for the driver.
fn setup(node: &Node, socket: &Path, links: &LogLinks) -> Setup {
    let config = format!(
        "kernel_log: {{enabled: false}}\nkubelet: {{socket: {}, interval: 1s}}\nhost: {{var_log: {}}}\n\
         worker:\n  engine: embedded\n  groups: [{{name: few, interval: 1s, fields: [155]}}]\n",
        socket.display(),
        links.path().display()
    );
    node.configured(&config).args(&["--probe-majors", &MAJOR.to_string()])
}

#[test]
fn on_one_gpu_are_two_series_in_prometheus() {
    needs!(Root, Tty0, Probes, Collector, Prometheus);
    let version = if mount(Version::V1).is_some() { Version::V1 } else { Version::V2 };
    let node = Node::of_text("two-pods", NODE);
    let prometheus = Prometheus::start(node.path());
    let collector = Collector::writing(node.path(), prometheus.remote_write());
    let links = LogLinks::new(node.path());
    let pods = [("train-0", 91), ("train-1", 92)].map(|(name, number)| {
        let cgroup = PodCgroup::new(version, number);
        links.add(["ml", name, &cgroup.pod_uid], "main", &cgroup.container_id);
        cgroup
    });
    let socket = node.path().join("kubelet.sock");
    let two = [given("train-0", &format!("{SHARED}::0")), given("train-1", &format!("{SHARED}::1"))];
    let list = ListPodResourcesResponse { pod_resources: [&two[..], &[given("whole", WHOLE)]].concat() };
    let _kubelet = Kubelet::start(&socket, Answers { list, ..Answers::default() });
    let mut agent = setup(&node, &socket, &links).to(&collector.address).start();
    wait_for_probes(&mut agent, &collector);

    let _alone = Tty::hold();
    let mut callers = pods.each_ref().map(|cgroup| Caller::start(cgroup));
    for (caller, calls) in callers.iter_mut().zip([3, 5]) {
        assert_eq!(caller.call("open /dev/tty0"), "done\n");
        (0..calls).for_each(|_| assert_eq!(caller.call("ioctl 56832"), "failed 25\n"));
    }
    let [first, second] = callers.each_ref().map(|caller| caller.pid());
    let of_second = format!("{{pid: {second}, memory_mib: 500, sm: 20}}");
    node.now(&format!("processes: {{0: [{{pid: {first}, memory_mib: 1000, sm: 30}}, {of_second}]}}"));
    check_processes(&prometheus, pods.each_ref().map(|cgroup| cgroup.pod_uid.as_str()));
    check_devices(&prometheus);

    // One of them ends; the other's series stay, and so does the device's.
    let [first, _second] = callers;
    first.end();
    node.now(&format!("processes: {{0: [{of_second}]}}"));
    check(&prometheus, MEMORY, POD_AND_DEVICE, &[("train-1", SHARED, 500.0 * MIB)]);
    check(&prometheus, "hw_power_watts", POD_AND_DEVICE, &DEVICES);
    assert!(agent.terminate().success());
}

const MEMORY: &str = "gpu_process_memory_usage_bytes";
const POD_AND_DEVICE: [&str; 2] = ["k8s_pod_name", "hw_id"];
/// A device's series is one, whoever has it.
const DEVICES: [(&str, &str, f64); 2] = [("", SHARED, 150.0), ("", WHOLE, 320.0)];

/// What the processes of each pod have of the device, and their calls into its driver.
#[track_caller]
fn check_processes(prometheus: &Prometheus, uids: [&str; 2]) {
    let two = |first, second| [("train-0", SHARED, first), ("train-1", SHARED, second)];
    check(prometheus, MEMORY, POD_AND_DEVICE, &two(1_000.0 * MIB, 500.0 * MIB));
    check(prometheus, "gpu_process_sm_utilization_ratio", POD_AND_DEVICE, &two(0.3, 0.2));
    let calls = [("train-0", uids[0], 3.0), ("train-1", uids[1], 5.0)];
    // Other tests' calls on terminals are of no pod whose name this agent knows.
    let of = "{gpu_driver_call=\"ioctl\",k8s_pod_name!=\"\"}";
    let [errors, durations] = [
        format!("gpu_driver_call_errors_total{of}"),
        format!("histogram_count(gpu_driver_call_duration_seconds{of})"),
    ];
    check(prometheus, &errors, ["k8s_pod_name", "k8s_pod_uid"], &calls);
    check(prometheus, &durations, ["k8s_pod_name", "k8s_pod_uid"], &calls);
}

/// The devices' own series, and the pods that have them, joined either way.
#[track_caller]
fn check_devices(prometheus: &Prometheus) {
    check(prometheus, "hw_power_watts", POD_AND_DEVICE, &DEVICES);
    let given = [("train-0", SHARED, 1.0), ("train-1", SHARED, 1.0), ("whole", WHOLE, 1.0)];
    check(prometheus, "gpu_allocation_info_ratio", POD_AND_DEVICE, &given);
    // A device that is not shared: its pod is one more label.
    let join = "hw_power_watts * on (hw_id) group_left (k8s_pod_name) (gpu_allocation_info_ratio{k8s_pod_name=\"whole\"})";
    check(prometheus, join, POD_AND_DEVICE, &[("whole", WHOLE, 320.0)]);
    // One that is: each of its pods has all of it.
    let join = "(gpu_allocation_info_ratio > bool 0) * on (hw_id) group_left () hw_power_watts";
    let want = [("train-0", SHARED, 150.0), ("train-1", SHARED, 150.0), ("whole", WHOLE, 320.0)];
    check(prometheus, join, POD_AND_DEVICE, &want);
}
