//! Profiling fields: decided per GPU, paused for another profiler, and back.
//!
//! In: nodes whose GPUs differ, requests to pause. Out: values, or the reason why there are none.

use std::process::Command;

use warpgauge_tests::harness::collector::Collector;
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::node::Node;
use warpgauge_tests::harness::programs;

const GROUPS: &str =
    "engine: embedded\nnvml: false\ngroups: [{name: few, interval: 500ms, fields: [155, 203, 1001, 1004]}]";
const ENGINE_ACTIVE: &str = "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO";
const METRIC: &str = "gpu.dcgm.utilization";

fn gpu(number: u32) -> String {
    format!("GPU-00000000-0000-4000-8000-{number:012x}")
}

fn mig(number: u32) -> String {
    format!("MIG-00000000-0000-4000-9000-{number:012x}")
}

fn reason(collector: &Collector, hw_id: &str) -> Option<String> {
    let absent = collector.standing("gpu.field.absent", &[("hw.id", hw_id), ("gpu.field", ENGINE_ACTIVE)]);
    absent.first().map(|point| point.attributes["gpu.absence.reason"].clone())
}

fn has_value(collector: &Collector, hw_id: &str) -> bool {
    !collector.standing(METRIC, &[("hw.id", hw_id)]).is_empty() && reason(collector, hw_id).is_none()
}

fn control(node: &Node, what: &str) -> (bool, String) {
    let run = node.path().join("run");
    let asked =
        Command::new(programs::agent()).args(["profiling", what, "--run-dir"]).arg(run).output().unwrap();
    (asked.status.success(), String::from_utf8_lossy(&asked.stdout).into_owned())
}

#[test]
fn support_is_decided_for_each_gpu() {
    let node = Node::new("gpu-mixed", "mixed-profiling");
    let collector = Collector::built_in(node.path());
    let agent = node.agent(GROUPS).to(&collector.address).start();
    wait_for("values of the instances", 30, || {
        (1..=3).all(|number| has_value(&collector, &mig(number))).then_some(())
    });
    assert_eq!(reason(&collector, &gpu(1)).as_deref(), Some("not_supported"));
    assert!(!has_value(&collector, &gpu(1)));
    for number in 0..=2 {
        let of_it = [("hw.id", &*gpu(number)), ("hw.gpu.task", "general")];
        assert!(!collector.standing("hw.gpu.utilization", &of_it).is_empty(), "field 203 of GPU {number}");
    }
    let blanks = collector.points().into_iter().filter(|p| p.name == "gpu.field.absent");
    let blanks = blanks.filter(|p| p.attributes["gpu.absence.reason"] == "blank");
    let blanks: Vec<_> = blanks.filter(|p| p.attributes["gpu.field"] == ENGINE_ACTIVE).collect();
    assert!(blanks.is_empty(), "the first blank is no error: {blanks:?}");
    assert!(agent.terminate().success());
}

#[test]
fn a_pause_is_told_and_ended_where_nvml_serves_profiling() {
    check_pause("gpu-pause-gpm", "version: 1\ngpus: [{}]\n", &gpu(0));
}

#[test]
fn a_pause_is_told_and_ended_where_the_module_serves_profiling() {
    let text = "version: 1\ngpus: [{name: NVIDIA A100, architecture: ampere, profiling: module}]\n";
    check_pause("gpu-pause-module", text, &gpu(0));
}

#[track_caller]
fn check_pause(test: &str, scenario: &str, hw_id: &str) {
    let node = Node::of_text(test, scenario);
    let collector = Collector::built_in(node.path());
    let agent = node.agent(GROUPS).to(&collector.address).start();
    wait_for("a value", 30, || has_value(&collector, hw_id).then_some(()));
    let (done, said) = control(&node, "pause");
    assert!(done && said.contains("profiling"), "{said}");
    wait_for("the pause", 15, || (reason(&collector, hw_id).as_deref() == Some("paused")).then_some(()));
    assert!(!has_value(&collector, hw_id), "no value while it is paused");
    assert!(!collector.standing("hw.power", &[("hw.id", hw_id)]).is_empty(), "the rest goes on");
    let lack = [("source", "profiling"), ("reason", "paused")];
    wait_for("the source", 15, || {
        (collector.latest("warpgauge.source.lack", &lack) == Some(1.0)).then_some(())
    });
    let (done, said) = control(&node, "resume");
    assert!(done, "{said}");
    wait_for("the value again", 15, || has_value(&collector, hw_id).then_some(()));
    assert!(agent.terminate().success());
}

#[test]
fn a_pause_by_another_client_is_no_fault() {
    let text = "version: 1\ngpus: [{name: NVIDIA A100, architecture: ampere, profiling: module}]\n\
                faults: [paused: {from: 4, until: 13}]\n";
    let node = Node::of_text("gpu-pause-other", text);
    let collector = Collector::built_in(node.path());
    let agent = node.agent(GROUPS).to(&collector.address).start();
    let hw_id = gpu(0);
    wait_for("a value", 30, || has_value(&collector, &hw_id).then_some(()));
    let lack = [("source", "profiling"), ("reason", "paused")];
    wait_for("the pause", 20, || {
        (collector.latest("warpgauge.source.lack", &lack) == Some(1.0)).then_some(())
    });
    wait_for("the reason", 10, || (reason(&collector, &hw_id).as_deref() == Some("paused")).then_some(()));
    wait_for("the value again", 30, || has_value(&collector, &hw_id).then_some(()));
    wait_for("the source again", 30, || {
        (collector.latest("warpgauge.source.up", &[("source", "profiling")]) == Some(1.0)).then_some(())
    });
    assert!(agent.terminate().success());
}
