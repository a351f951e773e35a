//! Nodes made of files and answers, and what the map says of them.
//!
//! In: /proc, log folders, the kubelet's and the scheduler's answers, devices. Out: lines. Nothing else is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use super::open_nodes::OpenNodes;
use super::*;
use crate::doctor::log_folders;
use crate::host::HostRoot;
use crate::model::{Grant, JobDevices, JobGrant, PodDevices};
use crate::sources::hpc_jobs::files::Listing;
use crate::sources::kubelet::failure::Reason;
use crate::test_dir::TestDir;

const UID: &str = "0a1b2c3d-1111-2222-3333-444455556666";

struct Node {
    dir: TestDir,
    config: Config,
    gathered: Gathered,
}

impl Node {
    /// GPU-a with minor 1 and GPU-b with minor 0, and on this one MIG-1 (instance 7) with processes; a kubelet.
    fn new() -> Self {
        let dir = TestDir::new();
        let below = |name: &str| {
            fs::create_dir_all(dir.path().join(name)).unwrap();
            dir.path().join(name)
        };
        let (proc, var_log) = (below("proc"), below("log"));
        let host = HostRoot { proc, var_log, sys: below("sys"), dev: below("dev") };
        let config = Config { host, ..Config::default() };
        let gpu = |hw_id: &str, index, minor| Listed {
            hw_id: hw_id.to_owned(),
            index: Some(index),
            minor: Some(minor),
            processes: Some(Vec::new()),
            ..Listed::default()
        };
        let mig = Listed {
            parent: Some("GPU-b".to_owned()),
            gpu_instance: Some(7),
            ..Listed { index: None, minor: None, ..gpu("MIG-1", 0, 0) }
        };
        let gathered = Gathered {
            kubelet: Check::yes("kubelet", "it answers"),
            kubelet_failure: None,
            grants: Some(PodDevices::default()),
            jobs: None,
            log_folders: log_folders::check(&config.host, true),
            libraries: Check::yes("devices", "2 GPUs"),
            devices: vec![gpu("GPU-a", 0, 1), gpu("GPU-b", 1, 0), mig],
            nodes: None,
            late: Vec::new(),
        };
        Self { dir, config, gathered }
    }

    fn process(&mut self, hw_id: &str, pid: u32, comm: &str, cgroup: &str) {
        let proc = self.config.host.proc(pid.to_string());
        fs::create_dir_all(&proc).unwrap();
        let tail = "S 1 7 7 0 -1 4194560 1 0 0 0 3 4 0 0 20 0 1 0 1 0 0";
        fs::write(proc.join("stat"), format!("{pid} ({comm}) {tail}")).unwrap();
        fs::write(proc.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
        self.on(hw_id, pid);
    }

    fn on(&mut self, hw_id: &str, pid: u32) {
        let device = self.gathered.devices.iter_mut().find(|device| device.hw_id == hw_id).unwrap();
        device.processes.as_mut().unwrap().push(pid);
    }

    /// The folder of a pod and the link of its container `main`, whose id is of this digit.
    fn logs(&mut self, pod: &str, uid: &str, digit: &str) {
        let (pods, links) = (self.dir.path().join("log/pods"), self.dir.path().join("log/containers"));
        fs::create_dir_all(pods.join(format!("ml_{pod}_{uid}/main"))).unwrap();
        fs::create_dir_all(&links).unwrap();
        symlink("/x", links.join(format!("{pod}_ml_main-{}.log", digit.repeat(64)))).unwrap();
        self.gathered.log_folders = log_folders::check(&self.config.host, true);
    }

    fn give(&mut self, pod: &str, resource: &str, ids: &[&str], claim: Option<&str>) {
        let grant = Grant {
            namespace: "ml".to_owned(),
            pod: pod.to_owned(),
            container: "main".to_owned(),
            resource: resource.to_owned(),
            device_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
            claim: claim.map(str::to_owned),
        };
        self.gathered.grants.get_or_insert_default().grants.push(grant);
    }

    fn lines(&self) -> Vec<Line> {
        judge(&self.config, &self.gathered, None)
    }

    fn json(&self) -> Vec<Value> {
        let mut out = Vec::new();
        print::json(&self.lines(), &mut out).unwrap();
        String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn text(&self) -> String {
        let mut out = Vec::new();
        print::text(&self.lines(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// `stage reason` of all failures, each once.
    fn failures(&self) -> BTreeSet<String> {
        let of = |line: &Line| line.failures().to_vec();
        self.lines().iter().flat_map(of).map(|f| format!("{} {}", f.stage, f.reason)).collect()
    }
}

fn in_pod(uid: &str, digit: &str) -> String {
    format!("/kubepods/burstable/pod{uid}/{}", digit.repeat(64))
}

#[test]
fn a_pod_is_followed_from_its_device_id_and_from_its_process() {
    let mut node = Node::new();
    node.logs("train-0", UID, "a");
    node.give("train-0", "nvidia.com/gpu", &["nvidia0/gi7/vgpu1"], None);
    node.process("MIG-1", 77, "python3", &in_pod(UID, "a"));
    let lines = node.json();
    let id = "a".repeat(64);
    let of = |kind: &str| lines.iter().filter(|line| line["map"] == kind).cloned().collect::<Vec<_>>();
    assert_eq!(
        of("allocation"),
        [json!({
            "map": "allocation",
            "raw": {"source": "pod_resources", "namespace": "ml", "pod": "train-0", "container": "main",
                    "resource": "nvidia.com/gpu", "id": "nvidia0/gi7/vgpu1"},
            "key": "GPU instance 7 of the GPU with minor 0",
            "result": {"hw_ids": ["MIG-1"], "share": 1, "pod_uid": UID},
        })]
    );
    assert_eq!(
        of("device")[2],
        json!({
            "map": "device",
            "raw": {"hw_id": "MIG-1", "parent": "GPU-b", "gpu_instance": 7},
            "given_to": ["ml/train-0/main"],
            "used_by": [77],
        })
    );
    assert_eq!(
        of("process"),
        [json!({
            "map": "process",
            "raw": {"pid": 77, "comm": "python3", "hw_ids": ["MIG-1"], "evidence": "nvml",
                    "cgroup": in_pod(UID, "a"), "pod_folder": format!("ml_train-0_{UID}"),
                    "log_link": format!("train-0_ml_main-{id}.log")},
            "key": {"pod_uid": UID, "container_id": id},
            "result": {"kind": "pod", "uid": UID, "namespace": "ml", "pod": "train-0", "container": "main"},
        })]
    );
    assert_eq!(node.failures(), BTreeSet::new());
    let text = node.text();
    for want in [
        &*format!(
            "allocation  ml/train-0/main: nvidia.com/gpu nvidia0/gi7/vgpu1 → GPU instance 7 of the GPU with minor 0 \
             → MIG-1, share 1; pod uid {UID}\n"
        ),
        "device      MIG-1 (of GPU-b, instance 7): given to ml/train-0/main; used by 77\n",
        "device      GPU-a (index 0, minor 1): given to nobody; used by nobody\n",
        &*format!("ml_train-0_{UID}, train-0_ml_main-{id}.log → pod ml/train-0/main\n"),
        "0 with something that could not be mapped\n",
    ] {
        assert!(text.contains(want), "{want} in {text}");
    }
}

#[test]
fn whose_a_process_is_has_five_forms() {
    let mut node = Node::new();
    node.logs("train-0", UID, "a");
    let id = "c".repeat(64);
    let all = [
        (10, in_pod(UID, "a"), "pod ml/train-0/main"),
        (11, format!("/system.slice/docker-{id}.scope"), "a container of no pod"),
        (12, "/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0".into(), "Slurm job 4711, step 0"),
        (13, "/system.slice/ollama.service".into(), "service ollama.service"),
        (14, "/user.slice/user-7.slice/session-3.scope".into(), "a plain process"),
    ];
    for (pid, cgroup, _) in &all {
        node.process("GPU-a", *pid, "p", cgroup);
    }
    let text = node.text();
    for (pid, _, want) in &all {
        let line =
            text.lines().find(|line| line.starts_with(&format!("process     {pid} p on GPU-a"))).unwrap();
        assert!(line.ends_with(&format!(" → {want}")), "{line}");
    }
    assert_eq!(node.failures(), BTreeSet::new());
}

#[test]
fn jobs_are_followed_from_their_files() {
    let mut node = Node::new();
    let grant = |gpu, instance| JobGrant { gpu, instance, jobs: vec!["4711".to_owned(), "4712".to_owned()] };
    let jobs = JobDevices { grants: vec![grant(1, Some(7)), grant(9, None)] };
    node.gathered.jobs = Some(Ok(Listing { jobs, unreadable: BTreeMap::new(), malformed: 0 }));
    let text = node.text();
    for want in [
        "job 4711, 4712: 1.7 → GPU instance 7 of the GPU with index 1 → MIG-1\n",
        "job 4711, 4712: 9 → the GPU with index 9\n            ✗ job_mapping unknown_device\n",
        "device      MIG-1 (of GPU-b, instance 7): given to job 4711, job 4712; used by nobody\n",
    ] {
        assert!(text.contains(want), "{want} in {text}");
    }
}

#[test]
fn each_failure_is_said_with_its_stage_and_reason() {
    fn check(want: &str, make: impl FnOnce(&mut Node)) {
        let mut node = Node::new();
        node.logs("train-0", UID, "a");
        make(&mut node);
        assert_eq!(node.failures(), BTreeSet::from([want.to_owned()]), "{}", node.text());
    }
    let foreign = |node: &mut Node| {
        fs::create_dir_all(node.config.host.proc("1/ns")).unwrap();
        symlink("pid:[4026532100]", node.config.host.proc("1/ns/pid")).unwrap();
    };
    check("allocation unknown_device", |node| node.give("train-0", "nvidia.com/gpu", &["GPU-x"], None));
    check("allocation malformed_id", |node| node.give("train-0", "nvidia.com/gpu", &["gpu zero"], None));
    check("allocation unknown_device", |node| {
        node.give("train-0", "gpu.nvidia.com", &["gpu-5", "k8s.gpu.nvidia.com/device=gpu-5"], Some("ml/c"));
    });
    check("allocation mismatch", |node| {
        node.give("train-0", "nvidia.com/gpu", &["GPU-b"], None);
        node.process("GPU-a", 7, "p", &in_pod(UID, "a"));
    });
    check("allocation no_allocation", |node| {
        node.give("train-0", "nvidia.com/gpu", &["GPU-b"], None);
        let other = UID.replace('0', "1");
        node.logs("stray", &other, "b");
        node.process("GPU-b", 7, "p", &in_pod(&other, "b"));
    });
    check("names no_log_link", |node| node.give("new", "nvidia.com/gpu", &["GPU-b"], None));
    check("names no_log_link", |node| node.process("GPU-a", 7, "p", &in_pod(&UID.replace('0', "1"), "b")));
    check("names unreadable", |node| {
        fs::remove_dir_all(node.dir.path().join("log")).unwrap();
        node.gathered.log_folders = log_folders::check(&node.config.host, true);
        node.process("GPU-a", 7, "p", &in_pod(UID, "a"));
    });
    check("job_mapping no_directory", |node| node.gathered.jobs = Some(Err("/x: no".to_owned())));
    check("job_mapping unreadable", |node| {
        let unreadable = BTreeMap::from([("3".to_owned(), "it is not a regular file".to_owned())]);
        node.gathered.jobs = Some(Ok(Listing { unreadable, ..Listing::default() }));
    });
    check("job_mapping malformed_job", |node| {
        node.gathered.jobs = Some(Ok(Listing { malformed: 2, ..Listing::default() }));
    });
    check("process gone", |node| node.on("GPU-a", 4_000_000));
    check("process not_asked", |node| {
        foreign(node);
        node.process("GPU-a", 7, "p", &in_pod(UID, "a"));
    });
    check("cgroup no_path", |node| {
        node.process("GPU-a", 7, "p", "/");
        fs::write(node.config.host.proc("7/cgroup"), "8:pids:/x\n").unwrap();
    });
    check("process unreadable", |node| {
        node.gathered.nodes = Some(OpenNodes { unreadable: 2, ..OpenNodes::default() });
    });
    check("source slow", |node| node.gathered.late = vec!["log folders"]);
    check("kubelet slow", |node| {
        node.gathered.kubelet_failure = Some(failure::Failure {
            stage: "kubelet",
            reason: Reason::Slow.name(),
            what: String::new(),
            remedy: "",
        });
    });
}

#[test]
fn ids_of_other_devices_and_the_second_name_of_a_claims_device_are_no_failures() {
    let mut node = Node::new();
    node.logs("train-0", UID, "a");
    node.give("train-0", "gpu.nvidia.com", &["gpu-1", "k8s.gpu.nvidia.com/device=gpu-9"], Some("ml/c"));
    node.give("train-0", "example.com/thing", &["0"], None);
    assert_eq!(node.failures(), BTreeSet::new());
    let text = node.text();
    assert!(text.contains("gpu.nvidia.com ml/c gpu-1 → the GPU with minor 1 → GPU-a; pod uid"), "{text}");
    assert!(text.contains("example.com/thing 0 → the GPU with index 0 → no device of this driver"), "{text}");
}

#[test]
fn where_no_library_lists_processes_their_open_nodes_tell_and_a_monitor_is_no_stray() {
    let mut node = Node::new();
    node.logs("train-0", UID, "a");
    node.give("other", "nvidia.com/gpu", &["GPU-b"], None);
    node.process("GPU-a", 7, "p", &in_pod(UID, "a"));
    let minors = BTreeMap::from([(7, BTreeSet::from([1, 5]))]);
    node.gathered.nodes = Some(OpenNodes { minors, unreadable: 0 });
    let line = node.json().into_iter().find(|line| line["map"] == "process").unwrap();
    assert_eq!(line["raw"]["hw_ids"], json!(["/dev/nvidia5", "GPU-a"]));
    assert_eq!((&line["raw"]["evidence"], &line["failures"]), (&json!("open_fd"), &Value::Null));
}

#[test]
fn of_one_pod_there_are_its_devices_and_who_else_is_on_them() {
    let mut node = Node::new();
    let other = UID.replace('0', "1");
    node.logs("train-0", UID, "a");
    node.logs("other", &other, "b");
    node.give("train-0", "nvidia.com/gpu", &["GPU-b"], None);
    node.process("GPU-b", 7, "p", &in_pod(UID, "a"));
    node.process("GPU-b", 8, "p", &in_pod(&other, "b"));
    node.process("GPU-a", 9, "p", &in_pod(&other, "b"));
    let told = |node: &Node, pod: &str| {
        let only = ("ml".to_owned(), pod.to_owned());
        let lines = judge(&node.config, &node.gathered, Some(&only));
        let word = |line: &Line| match line {
            Line::Source(_) => None,
            Line::Allocation(allocation) => Some(allocation.raw.id.clone()),
            Line::Device(device) => Some(device.raw.hw_id.clone()),
            Line::Process(process) => {
                let failures: Vec<&str> = process.failures.iter().map(|failure| failure.reason).collect();
                Some(format!("{} {}", process.raw.pid, failures.join(" ")))
            }
        };
        lines.iter().filter_map(word).collect::<Vec<_>>()
    };
    assert_eq!(told(&node, "train-0"), ["GPU-b", "GPU-b", "7 ", "8 "], "of the other one nothing was asked");
    node.gathered.grants = Some(PodDevices::default());
    assert_eq!(told(&node, "other"), ["GPU-a", "GPU-b", "7 ", "8 no_allocation", "9 no_allocation"]);
}

#[test]
fn nothing_that_others_wrote_can_command_a_terminal() {
    let mut node = Node::new();
    node.give("a\u{1b}[31m", "nvidia.com/gpu", &["GPU-\u{9b}x"], None);
    node.process("GPU-a", 7, "p\u{1b}]0;x", "/evil\u{1b}[2J\u{202e}");
    let (text, lines) = (node.text(), node.json());
    let is_command = |c: char| c != '\n' && !crate::model::plain::is_plain(c);
    assert!(!text.contains(is_command), "{text:?}");
    assert!(text.contains("p]0;x on GPU-a (nvml): /evil\u{fffd}[2J\u{fffd} → a plain process"), "{text}");
    assert_eq!(lines.iter().filter(|line| line["map"] == "process").count(), 1);
}
