//! Exit statuses and messages of the command line.

use std::process::{Command, Output};

use warpgauge_tests::harness::programs;
use warpgauge_tests::harness::scratch::Scratch;

fn run(args: &[&str]) -> Output {
    Command::new(programs::agent()).args(args).env_remove("OTEL_EXPORTER_OTLP_ENDPOINT").output().unwrap()
}

fn stderr(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

#[test]
fn wrong_usage_is_64() {
    for args in [
        &["run", "--no-such-flag"][..],
        &["run", "--probes", "perhaps"],
        &["walk"],
        &["run", "--findings", "x"],
    ] {
        let out = run(args);
        assert_eq!(out.status.code(), Some(64), "{args:?}: {}", stderr(&out));
        assert!(out.stdout.is_empty() && !out.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn options_before_the_command_are_told_where_they_belong() {
    let out = run(&["--config", "/nowhere.yaml", "doctor"]);
    let said = stderr(&out);
    assert!(out.status.code() == Some(64) && said.contains("options stand after the command"), "{said}");
}

#[test]
fn help_says_where_findings_go_and_what_the_exit_status_means() {
    for args in [&["--help"][..], &["run", "--help"]] {
        let said = String::from_utf8_lossy(&run(args).stdout).into_owned();
        for part in ["OTEL_EXPORTER_OTLP_ENDPOINT=", "WARPGAUGE_LOG", "NODE_NAME", "78 configuration refused"]
        {
            assert!(said.contains(part), "{part} is missing in:\n{said}");
        }
    }
}

#[test]
fn what_is_no_recording_is_told_in_one_line() {
    let scratch = Scratch::new("no-recording");
    let file = scratch.path().join("notes.md");
    std::fs::write(&file, "# notes\nnot one of these lines is JSON\n".repeat(100)).unwrap();
    let out = run(&["run", "--replay", &file.display().to_string()]);
    let said = stderr(&out);
    assert_eq!((out.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains(":1: this is not a recording: one JSON object per line"), "{said}");
}

#[test]
fn fields_without_libraries_say_why_and_where_there_is_more() {
    let scratch = Scratch::new("no-fields");
    let file = scratch.path().join("warpgauge.yaml");
    std::fs::write(&file, "worker: {dcgm_library: /nowhere/d.so, nvml_library: /nowhere/n.so}\n").unwrap();
    let dir = |name: &str| scratch.path().join(name).display().to_string();
    let out = run(&[
        "fields",
        "--config",
        &file.display().to_string(),
        "--state-dir",
        &dir("state"),
        "--run-dir",
        &dir("run"),
    ]);
    let said = stderr(&out);
    assert_eq!(out.status.code(), Some(1), "{said}");
    for part in
        ["dcgm: /nowhere/d.so is not found", "nvml: /nowhere/n.so is not found", "see `warpgauge doctor`"]
    {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }
}

#[test]
fn help_and_version_are_0() {
    for args in [&["--help"][..], &["--version"], &["run", "--help"]] {
        let out = run(args);
        assert_eq!((out.status.code(), out.stderr.is_empty()), (Some(0), true), "{args:?}");
        assert!(!out.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_refused_configuration_is_78_and_every_problem_is_named() {
    let scratch = Scratch::new("refused");
    let file = scratch.path().join("warpgauge.yaml");
    std::fs::write(&file, "probes:\n  cgroup: v3\nexport:\n  metric_interval: soon\n").unwrap();
    let out = Command::new(programs::agent())
        .args(["run", "--call-threshold", "1", "--engine", "http://here", "--config"])
        .arg(&file)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://collector")
        .output()
        .unwrap();
    let text = stderr(&out);
    assert_eq!(out.status.code(), Some(78), "{text}");
    let file = file.display().to_string();
    for start in [
        format!("{file}:2: probes.cgroup: v3"),
        format!("{file}:4: export.metric_interval: soon"),
        "--call-threshold: 1".to_owned(),
        "--engine: http://here".to_owned(),
        "OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(),
    ] {
        assert!(text.lines().any(|line| line.starts_with(&start)), "{start} is missing in:\n{text}");
    }
    assert_eq!(text.lines().count(), 5, "{text}");
}

#[test]
fn a_file_that_is_not_there_is_said() {
    let out = run(&["run", "--config", "/nowhere/warpgauge.yaml"]);
    assert_eq!(out.status.code(), Some(78));
    assert!(stderr(&out).contains("/nowhere/warpgauge.yaml: cannot be read"), "{}", stderr(&out));
    let out = run(&["run", "--replay", "/nowhere/scenario.jsonl"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(stderr(&out).contains("cannot open /nowhere/scenario.jsonl"), "{}", stderr(&out));
}
