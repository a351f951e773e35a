//! `warpgauge doctor map` on a simulated node with a kubelet: the same with and without a running agent, and failures.
//!
//! In: simulated GPUs with processes, a /proc and log folders of files, the test's own kubelet. Out: lines, exit status.

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::kubelet::{Kubelet, Manner};
use warpgauge_tests::harness::kubelet_message::{
    Answers, ContainerDevices, ContainerResources, ListPodResourcesResponse, PodResources,
};
use warpgauge_tests::harness::node::Node;

const UID: &str = "0a1b2c3d-1111-2222-3333-444455556666";
const GPU: [&str; 2] =
    ["GPU-00000000-0000-4000-8000-000000000000", "GPU-00000000-0000-4000-8000-000000000001"];

fn given(pods: &[(&str, &str)]) -> Answers {
    let pod = |(name, id): &(&str, &str)| PodResources {
        name: (*name).to_owned(),
        namespace: "ml".to_owned(),
        containers: vec![ContainerResources {
            name: "main".to_owned(),
            devices: vec![ContainerDevices {
                resource_name: "nvidia.com/gpu".to_owned(),
                device_ids: vec![(*id).to_owned()],
                topology: None,
            }],
            ..ContainerResources::default()
        }],
    };
    Answers {
        list: ListPodResourcesResponse { pod_resources: pods.iter().map(pod).collect() },
        ..Answers::default()
    }
}

fn process(proc: &Path, pid: u32, cgroup: &str) {
    let dir = proc.join(pid.to_string());
    std::fs::create_dir_all(&dir).unwrap();
    let stat = format!("{pid} (python3) S 1 7 7 0 -1 4194560 1 0 0 0 3 4 0 0 20 0 1 0 1 0 0");
    std::fs::write(dir.join("stat"), stat).unwrap();
    std::fs::write(dir.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
}

/// A node of two GPUs: on the first a process of the pod ml/train-0, which has it, on the second a service's.
struct Mapped {
    node: Node,
    kubelet: Kubelet,
    flags: Vec<String>,
    container_id: String,
    cgroup: String,
    link: String,
}

impl Mapped {
    fn new(test: &str) -> Self {
        let text = "version: 1\ngpus:\n- {processes: [{pid: 4000001, memory_mib: 100}]}\n\
                    - {processes: [{pid: 4000002, memory_mib: 100}]}\n";
        let node = Node::of_text(test, text);
        let (proc, log) = (node.path().join("proc"), node.path().join("log"));
        let container_id = "c".repeat(64);
        let cgroup = format!("/kubepods/burstable/pod{UID}/{container_id}");
        process(&proc, 4_000_001, &cgroup);
        process(&proc, 4_000_002, "/system.slice/ollama.service");
        std::fs::create_dir_all(log.join(format!("pods/ml_train-0_{UID}/main"))).unwrap();
        std::fs::create_dir_all(log.join("containers")).unwrap();
        let link = format!("train-0_ml_main-{container_id}.log");
        symlink("/nowhere", log.join("containers").join(&link)).unwrap();
        let socket = node.path().join("kubelet/pod-resources/kubelet.sock");
        let kubelet = Kubelet::start(&socket, given(&[("train-0", "nvidia0")]));
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let flag = |name: &str, value: &Path| [name.to_owned(), path(value)];
        let flags = [
            flag("--host-proc", &proc),
            flag("--host-var-log", &log),
            flag("--pod-resources-kubelet-socket", &socket),
        ];
        Self { node, kubelet, flags: flags.concat(), container_id, cgroup, link }
    }

    fn flags(&self) -> Vec<&str> {
        self.flags.iter().map(String::as_str).collect()
    }

    /// The lines, and the exit status.
    fn map(&self, more: &[&str]) -> (Vec<Value>, Option<i32>) {
        let words = [&["doctor", "map", "--json"], &*self.flags(), more].concat();
        let out = self.node.command(&words, "engine: embedded").output().unwrap();
        let lines = String::from_utf8(out.stdout).unwrap();
        (lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), out.status.code())
    }

    /// The lines with this exit status and so many allocations, devices and processes; on a slow machine a source may
    /// not answer the first look in time.
    #[track_caller]
    fn wait(&self, more: &[&str], status: i32, want: [usize; 3]) -> Vec<Value> {
        wait_for(&format!("{want:?} lines of {more:?} with status {status}"), 60, || {
            let (lines, ended) = self.map(more);
            let counts = ["allocation", "device", "process"].map(|kind| of(&lines, kind).len());
            (counts == want && ended == Some(status)).then_some(lines)
        })
    }

    /// All is mapped, from what `from` tells of the devices.
    #[track_caller]
    fn check(&self, from: &str) {
        let lines = self.wait(&[], 0, [1, 2, 2]);
        let devices = of(&lines, "source").into_iter().find(|line| line["name"] == "devices").unwrap();
        assert_eq!(devices["what"], format!("2 GPUs, 0 MIG devices, told by {from}"));
        let raw = json!({"source": "pod_resources", "namespace": "ml", "pod": "train-0", "container": "main",
                         "resource": "nvidia.com/gpu", "id": "nvidia0"});
        let result = json!({"hw_ids": [GPU[0]], "pod_uid": UID});
        let key = "the GPU with minor 0";
        let want = json!({"map": "allocation", "raw": raw, "key": key, "result": result});
        assert_eq!(of(&lines, "allocation"), [&want]);
        let whose = |line: &&Value| json!([line["given_to"], line["used_by"]]);
        let whose: Vec<_> = of(&lines, "device").iter().map(whose).collect();
        assert_eq!(whose, [json!([["ml/train-0/main"], [4_000_001]]), json!([[], [4_000_002]])]);
        let processes = of(&lines, "process");
        let raw = json!({"pid": 4_000_001, "comm": "python3", "hw_ids": [GPU[0]], "evidence": "nvml",
                         "cgroup": self.cgroup, "pod_folder": format!("ml_train-0_{UID}"), "log_link": self.link});
        let key = json!({"pod_uid": UID, "container_id": self.container_id});
        let result =
            json!({"kind": "pod", "uid": UID, "namespace": "ml", "pod": "train-0", "container": "main"});
        assert_eq!(processes[0], &json!({"map": "process", "raw": raw, "key": key, "result": result}));
        assert_eq!(processes[1]["result"], json!({"kind": "unit", "name": "ollama.service"}));
    }
}

fn of<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["map"] == kind).collect()
}

#[test]
fn each_device_and_process_is_followed_to_its_pod_with_and_without_an_agent() {
    let mapped = Mapped::new("doctor-map");
    mapped.check("a worker of the doctor's own");
    let agent = mapped.node.agent("engine: embedded").args(&mapped.flags()).start();
    // A look before that would have a worker of its own in the way of the agent's.
    wait_for("the agent's NVML", 30, || {
        let up = |line: &str| line.contains("A source is up") && line.contains("source=\"nvml\"");
        agent.log().lines().any(up).then_some(())
    });
    mapped.check("the running agent");
    assert!(agent.terminate().success());
}

#[test]
fn what_cannot_be_mapped_is_said_and_one_pod_is_asked_for_alone() {
    let mapped = Mapped::new("doctor-map-failures");
    let lines = mapped.wait(&["--pod", "ml/train-0"], 0, [1, 1, 1]);
    assert!(1 <= mapped.kubelet.gets(), "{lines:#?}");
    mapped.kubelet.say(given(&[("train-0", "nvidia1"), ("gone", "nvidia7")]));
    let lines = mapped.wait(&[], 1, [2, 2, 2]);
    let failures: Vec<String> = lines
        .iter()
        .flat_map(|line| [&line["failure"], &line["failures"][0]])
        .filter(|failure| !failure.is_null())
        .map(|failure| format!("{} {}", failure["stage"], failure["reason"]).replace('"', ""))
        .collect();
    assert_eq!(failures, ["allocation unknown_device", "allocation mismatch"]);
    mapped.kubelet.behave(Manner::Error(tonic::Code::PermissionDenied));
    let lines = mapped.wait(&[], 1, [0, 2, 2]);
    let failure = &lines[0]["failure"];
    assert_eq!((&failure["stage"], &failure["reason"]), (&json!("kubelet"), &json!("not_permitted")));
}
