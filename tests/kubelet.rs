//! The kubelet, as the agent asks it: every shape of an answer, from the test's own kubelet and from one of Kubernetes'
//! code; and a kubelet that is slow, hung, away, restarted, or none.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use warpgauge::config::KubeletConfig;
use warpgauge::sources::kubelet::{ask_once, ask_pod};
use warpgauge_tests::harness::agent::{Agent, Setup};
use warpgauge_tests::harness::collector::Collector;
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::kubelet::{Judge, Kubelet, Manner, Stranger, answers};
use warpgauge_tests::harness::kubelet_message::{
    Answers, ContainerDevices, ContainerResources, ListPodResourcesResponse, PodResources,
};
use warpgauge_tests::harness::node;
use warpgauge_tests::harness::scratch::Scratch;
use warpgauge_tests::needs;

fn socket(scratch: &Scratch) -> PathBuf {
    scratch.path().join("kubelet/pod-resources/kubelet.sock")
}

/// An agent that does nothing but ask the kubelet, each second with half a second of patience.
fn setup(scratch: &Scratch, collector: &Collector, more: &str) -> Setup {
    let config = scratch.path().join("warpgauge.yaml");
    let text = format!(
        "probes: {{enabled: false}}\nkernel_log: {{enabled: false}}\nworker: {{enabled: false}}\n\
         host_values: {{enabled: false}}\nkubelet: {{socket: {}, {more}}}\n",
        socket(scratch).display()
    );
    std::fs::write(&config, text).unwrap();
    Setup::new(scratch.path()).args(&["--config", &config.to_string_lossy()]).to(&collector.address)
}

const OFTEN: &str = "interval: 1s, timeout: 500ms";

fn latest(collector: &Collector, name: &str, attributes: &[(&str, &str)]) -> Option<f64> {
    collector.latest(&format!("warpgauge.kubelet.{name}"), attributes)
}

#[track_caller]
fn wait_until(collector: &Collector, name: &str, attributes: &[(&str, &str)], want: f64) {
    wait_for(&format!("{name} {attributes:?} to be {want}"), 30, || {
        (latest(collector, name, attributes) == Some(want)).then_some(())
    });
}

#[track_caller]
fn wait_up(collector: &Collector, want: f64) {
    wait_for(&format!("the kubelet's source to be {want}"), 30, || {
        (collector.latest("warpgauge.source.up", &[("source", "kubelet")]) == Some(want)).then_some(())
    });
}

/// The fixture as the agent reads it: `namespace/pod/container resource ids claim`.
const SHAPES: [&str; 19] = [
    "dra/claims/main gpu.nvidia.com gpu-0-mig-19-2-2,gpu-1 dra/gpus-x7k2p",
    "dra/older-kubelet/main k8s.gpu.nvidia.com k8s.gpu.nvidia.com/device=gpu-3,nvidia.com/gpu=3 dra/one",
    "gke/infer-0/srv nvidia.com/gpu nvidia1/vgpu0",
    "gke/infer-1/srv nvidia.com/gpu nvidia1/vgpu2",
    "gke/train-0/main nvidia.com/gpu nvidia0/gi7",
    "gke/train-1/main nvidia.com/gpu nvidia0/gi8/vgpu1",
    "gke/whole/x nvidia.com/gpu nvidia2",
    "index/two-nodes/main nvidia.com/gpu 0",
    "index/two-nodes/main nvidia.com/gpu 1",
    "mesh/job-0/main nvidia.com/gpu 5,6",
    "mesh/job-0/proxy nvidia.com/gpu 4",
    "uuid/p1/main nvidia.com/gpu GPU-aaaaaaaa-0000-0000-0000-000000000001",
    "uuid/p2/main nvidia.com/gpu.shared GPU-aaaaaaaa-0000-0000-0000-000000000002::0",
    "uuid/p3/main nvidia.com/gpu.shared GPU-aaaaaaaa-0000-0000-0000-000000000002::3",
    "uuid/p4/main nvidia.com/mig-1g.10gb MIG-bbbbbbbb-0000-0000-0000-000000000004",
    "uuid/p5/main nvidia.com/mig-1g.10gb.shared MIG-bbbbbbbb-0000-0000-0000-000000000005::7",
    "uuid/p6/main nvidia.com/mig-3g.40gb MIG-GPU-aaaaaaaa-0000-0000-0000-000000000003/12/0",
    "uuid/p7/main nvidia.com/a100 GPU-aaaaaaaa-0000-0000-0000-000000000006",
    "uuid/renamed/main corp.example/accelerator GPU-aaaaaaaa-0000-0000-0000-000000000007",
];
const PODS: f64 = 19.0;
const GIVEN: f64 = 22.0;
const ALLOCATABLE: f64 = 10.0;

/// Somebody serves the fixture: each grant is read as it is, the numbers arrive, and the doctor sees the same.
fn check_shapes<K>(test: &str, serve: impl Fn(&Path) -> K) {
    let scratch = Scratch::new(test);
    let socket = socket(&scratch);
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let served = serve(&socket);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = KubeletConfig::default();
    let asked = runtime.block_on(ask_once(&config, &socket, Duration::from_secs(10)));
    let (answer, allocatable) = asked.unwrap();
    let line = |grant: &warpgauge::model::Grant| {
        let claim = grant.claim.as_deref().map(|claim| format!(" {claim}")).unwrap_or_default();
        let ids = grant.device_ids.join(",");
        format!("{}/{}/{} {} {ids}{claim}", grant.namespace, grant.pod, grant.container, grant.resource)
    };
    assert_eq!(answer.devices.grants.iter().map(line).collect::<Vec<_>>(), SHAPES);
    let others: Vec<_> = answer.others.iter().map(String::as_str).collect();
    assert_eq!(others, ["amd.com/gpu", "compute-domain.nvidia.com", "rdma/hca"]);
    let resources: Vec<_> = allocatable.unwrap().resources.into_iter().collect();
    assert_eq!(resources, ["nvidia.com/gpu", "nvidia.com/gpu.shared"]);

    let pod = |namespace, name| {
        let limit = Duration::from_secs(10);
        let answer = runtime.block_on(ask_pod(&config, &socket, limit, (namespace, name))).unwrap();
        answer.devices.grants.iter().map(line).collect::<Vec<_>>()
    };
    assert_eq!(pod("mesh", "job-0"), SHAPES[9..11], "one pod with two containers");
    assert_eq!(pod("dra", "claims"), SHAPES[..1]);
    assert!(pod("mesh", "job-1").is_empty() && pod("other", "job-0").is_empty());

    let collector = Collector::built_in(scratch.path());
    let agent = setup(&scratch, &collector, OFTEN).start();
    wait_until(&collector, "devices", &[("state", "given")], GIVEN);
    wait_until(&collector, "devices", &[("state", "allocatable")], ALLOCATABLE);
    wait_until(&collector, "pods", &[], PODS);
    wait_up(&collector, 1.0);
    wait_for("more questions", 30, || {
        (2.0 <= latest(&collector, "calls", &[("call", "List")])?).then_some(())
    });
    let once = latest(&collector, "calls", &[("call", "GetAllocatableResources")]);
    assert_eq!((once, latest(&collector, "failures", &[])), (Some(1.0), Some(0.0)), "{}", agent.log());
    let (state, what, _) = doctor(&scratch);
    let want = format!("{GIVEN} device ids given to 17 of {PODS} pods; {ALLOCATABLE} can be given");
    assert!(state == "yes" && what.contains(&want) && what.contains("amd.com/gpu"), "{what}");
    drop(served);
    wait_up(&collector, 0.0);
    assert_eq!(latest(&collector, "devices", &[("state", "given")]), Some(GIVEN), "what was said stays");
    let again = serve(&socket);
    wait_up(&collector, 1.0);
    drop(again);
    assert!(agent.terminate().success());
}

#[test]
fn each_shape_is_read_as_the_tests_kubelet_writes_it() {
    let (answers, _) = answers("shapes");
    check_shapes("kubelet-shapes", |socket| Kubelet::start(socket, answers.clone()));
}

#[test]
fn one_pod_is_asked_for_alone_where_the_kubelet_has_that() {
    let scratch = Scratch::new("kubelet-get");
    let socket = socket(&scratch);
    let kubelet = Kubelet::start(&socket, pods(3));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ids = || {
        let (config, limit) = (KubeletConfig::default(), Duration::from_secs(10));
        let answer = runtime.block_on(ask_pod(&config, &socket, limit, ("many", "pod-1"))).unwrap();
        answer.devices.grants.iter().map(|grant| grant.device_ids.join(",")).collect::<Vec<_>>()
    };
    let want = ["GPU-aaaaaaaa-0000-0000-0000-000000000002::1"];
    assert_eq!((ids(), kubelet.gets(), kubelet.lists()), (want.map(str::to_owned).to_vec(), 1, 0));
    kubelet.without_get();
    assert_eq!((ids(), kubelet.gets(), kubelet.lists()), (want.map(str::to_owned).to_vec(), 1, 1));
}

#[test]
fn each_shape_is_read_as_kubernetes_own_code_writes_it() {
    needs!(KubeletJudge);
    let (_, file) = answers("shapes");
    check_shapes("kubelet-judge", |socket| Judge::start(socket, &file));
}

/// State, what, remedy of the doctor's row.
fn doctor(scratch: &Scratch) -> (String, String, String) {
    let mut command = node::bare_command(&["doctor", "--json", "--worker", "off", "--probes", "off"]);
    let dir = |name| scratch.path().join(name);
    command.arg("--config").arg(dir("warpgauge.yaml"));
    command.arg("--state-dir").arg(dir("state")).arg("--run-dir").arg(dir("run"));
    let out = command.output().unwrap();
    let lines: Vec<Value> = String::from_utf8(out.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let row = lines.iter().find(|line| line["check"] == "kubelet").unwrap();
    let of = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
    (of("state"), of("what"), of("remedy"))
}

fn pods(number: usize) -> Answers {
    let pod = |n: usize| PodResources {
        name: format!("pod-{n}"),
        namespace: "many".to_owned(),
        containers: vec![ContainerResources {
            name: "main".to_owned(),
            devices: vec![ContainerDevices {
                resource_name: "nvidia.com/gpu.shared".to_owned(),
                device_ids: vec![format!("GPU-aaaaaaaa-0000-0000-0000-000000000002::{n}")],
                topology: None,
            }],
            ..ContainerResources::default()
        }],
    };
    let list = ListPodResourcesResponse { pod_resources: (0..number).map(pod).collect() };
    Answers { list, ..Answers::default() }
}

/// The running agent says why, keeps what it knew and lets it age.
#[track_caller]
fn check_trouble(collector: &Collector, agent: &mut Agent, reason: &str) {
    let what = format!("the failure {reason}");
    wait_for(&what, 30, || (1.0 <= latest(collector, "failures", &[("reason", reason)])?).then_some(()));
    wait_up(collector, 0.0);
    wait_for("the answer to age", 30, || (2.0 < latest(collector, "age", &[])?).then_some(()));
    assert_eq!(latest(collector, "devices", &[("state", "given")]), Some(5_000.0));
    assert!(agent.is_running());
    let said = agent.log().lines().filter(|line| line.contains(&format!("reason=\"{reason}\""))).count();
    assert_eq!(said, 1, "said once: {}", agent.log());
}

/// All is well again.
#[track_caller]
fn check_recovery(collector: &Collector) {
    wait_up(collector, 1.0);
    wait_for("a young answer", 30, || (latest(collector, "age", &[])? < 1.5).then_some(()));
}

#[test]
fn five_thousand_pods_stay_known_whatever_the_kubelet_does() {
    let scratch = Scratch::new("kubelet-trouble");
    let socket = socket(&scratch);
    let collector = Collector::built_in(scratch.path());
    let kubelet = Kubelet::start(&socket, pods(5_000));
    let mut agent = setup(&scratch, &collector, OFTEN).start();
    wait_until(&collector, "devices", &[("state", "given")], 5_000.0);
    wait_until(&collector, "pods", &[], 5_000.0);
    for (manner, reason) in [
        (Manner::Slow, "slow"),
        (Manner::Garbage, "garbage"),
        (Manner::Error(tonic::Code::Unknown), "failed"),
    ] {
        kubelet.behave(manner);
        check_trouble(&collector, &mut agent, reason);
        kubelet.behave(Manner::Well);
        check_recovery(&collector);
    }
    drop(kubelet);
    check_trouble(&collector, &mut agent, "refused");
    let garbage = || latest(&collector, "failures", &[("reason", "garbage")]);
    let before = garbage();
    let stranger = Stranger::start(&socket, b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    wait_for("a stranger to be known as one", 30, || (before < garbage()).then_some(()));
    drop(stranger);
    std::fs::remove_file(&socket).unwrap();
    check_trouble(&collector, &mut agent, "no_socket");
    let _kubelet = Kubelet::start(&socket, pods(3));
    check_recovery(&collector);
    wait_until(&collector, "devices", &[("state", "given")], 3.0);
    assert!(agent.terminate().success());
}

#[test]
fn a_socket_where_nobody_answers_is_slow_and_the_doctor_cannot_tell() {
    let scratch = Scratch::new("kubelet-hung");
    let collector = Collector::built_in(scratch.path());
    let _hung = Stranger::start(&socket(&scratch), b"");
    let agent = setup(&scratch, &collector, OFTEN).start();
    wait_for("a slow call", 30, || {
        (2.0 <= latest(&collector, "failures", &[("reason", "slow")])?).then_some(())
    });
    assert_eq!(latest(&collector, "age", &[]), None, "it has never answered");
    let (state, what, remedy) = doctor(&scratch);
    assert!(state == "unknown" && what.contains("slow") && !remedy.is_empty(), "{state} {what}");
    assert!(agent.terminate().success());
}

#[test]
fn a_node_without_a_kubelet_is_told_once_and_one_that_comes_is_seen() {
    let scratch = Scratch::new("kubelet-none");
    let collector = Collector::built_in(scratch.path());
    let agent = setup(&scratch, &collector, "interval: 1h").start();
    wait_up(&collector, 0.0);
    wait_for("the line", 30, || agent.log().contains("There is no kubelet here").then_some(()));
    assert_eq!(latest(&collector, "calls", &[]), None, "nothing about a kubelet where there is none");
    assert_eq!(doctor(&scratch).0, "off");
    let kubelet = Kubelet::start(&socket(&scratch), pods(1));
    wait_up(&collector, 1.0);
    assert_eq!(agent.log().matches("There is no kubelet here").count(), 1);

    // It is asked when its files say that devices were given, and not before.
    wait_until(&collector, "devices", &[("state", "given")], 1.0);
    let before = kubelet.lists();
    kubelet.say(pods(2));
    let plugins = scratch.path().join("kubelet/device-plugins");
    std::fs::create_dir(&plugins).unwrap();
    std::fs::write(plugins.join("kubelet_internal_checkpoint"), "{}").unwrap();
    wait_until(&collector, "devices", &[("state", "given")], 2.0);
    assert!((before + 1..=before + 2).contains(&kubelet.lists()), "{} after {before}", kubelet.lists());
    assert!(agent.terminate().success());
}

#[test]
fn switched_off_nobody_is_asked() {
    let scratch = Scratch::new("kubelet-off");
    let collector = Collector::built_in(scratch.path());
    let kubelet = Kubelet::start(&socket(&scratch), pods(1));
    let agent = setup(&scratch, &collector, OFTEN).env("DCGM_POD_RESOURCES_KUBELET_SOCKET", "off").start();
    wait_for("the word", 30, || {
        let lack = [("source", "kubelet"), ("reason", "disabled")];
        (collector.latest("warpgauge.source.lack", &lack) == Some(1.0)).then_some(())
    });
    assert_eq!(kubelet.lists(), 0);
    assert!(agent.terminate().success());
}
