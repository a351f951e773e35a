//! `warpgauge doctor` on this kernel, with all rights, with some and with none: which probe works, and what it lacks.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use warpgauge_tests::harness::programs;
use warpgauge_tests::harness::scratch::Scratch;
use warpgauge_tests::needs;

/// Checks by name: state, what, remedy.
type Checks = BTreeMap<String, (String, String, String)>;

/// The agent where everybody may run it.
struct Doctor {
    scratch: Scratch,
    program: PathBuf,
}

impl Doctor {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let program = scratch.path().join("warpgauge");
        fs::copy(programs::agent(), &program).unwrap();
        fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
        Self { scratch, program }
    }

    /// `rights`: words of setpriv, which leaves the agent with these only.
    fn ask(&self, rights: &[&str]) -> Checks {
        let program = self.program.to_str().unwrap();
        let state = self.scratch.path().join("state");
        let words = [
            "doctor",
            "--json",
            "--worker",
            "off",
            "--kernel-log",
            "off",
            "--state-dir",
            state.to_str().unwrap(),
        ];
        let words = [&["setpriv"], rights, &[program], &words[..]].concat();
        let mut command = Command::new(words[0]);
        for (name, _) in std::env::vars_os() {
            if ["OTEL_", "WARPGAUGE_"].iter().any(|start| name.to_string_lossy().starts_with(start)) {
                command.env_remove(name);
            }
        }
        let out = command.args(&words[1..]).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        assert!(!text.is_empty(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
        let checks = text.lines().map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            let of = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
            (of("check"), (of("state"), of("what"), of("remedy")))
        });
        checks.collect()
    }
}

fn check(checks: &Checks, want: &[(&str, &str, &str)]) {
    for (name, state, part) in want {
        assert!(checks.contains_key(*name), "no {name} in {checks:#?}");
        let found = &checks[*name];
        assert_eq!((found.0.as_str(), found.1.contains(part)), (*state, true), "{name}: {found:?}");
        assert!(found.0 != "no" || !found.2.is_empty(), "{name} has no remedy");
    }
}

fn has(file: &str) -> bool {
    Path::new(file).exists()
}

#[test]
fn each_probe_says_its_row_and_why_not_a_better_one() {
    needs!(Root, Probes);
    let checks = Doctor::new("doctor-rows").ask(&[]);
    check(
        &checks,
        &[("probe exec", "yes", "attached as sched_tracepoint"), ("probe scheduler", "yes", "on demand")],
    );
    if has("/sys/kernel/tracing/kprobe_events") {
        let row = "attached as tracefs_kprobe";
        check(
            &checks,
            &[("kprobe events", "yes", ""), ("probe ioctl", "yes", row), ("probe locks", "yes", row)],
        );
        return;
    }
    let why = "tracefs_kprobe (no_kprobes: run a kernel built with CONFIG_KPROBE_EVENTS)";
    check(
        &checks,
        &[("kprobe events", "no", "is not there"), ("probe locks", "no", why), ("probe xid", "no", why)],
    );
    assert_eq!(checks["probe locks"].2, "run a kernel built with CONFIG_KPROBE_EVENTS");
    if has("/sys/bus/event_source/devices/kprobe") {
        check(&checks, &[("probe ioctl", "yes", "attached as perf_kprobe"), ("probe ioctl", "yes", why)]);
        return;
    }
    let neither = format!("attached as syscall_tracepoint; refused: {why}; perf_kprobe (no_kprobes: ");
    check(
        &checks,
        &[("perf kprobes", "no", ""), ("probe ioctl", "yes", &neither), ("probe mmap", "yes", &neither)],
    );
}

/// Below 5.11 maps are locked memory.
fn maps_are_locked_memory() -> bool {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse::<u32>().ok());
    (numbers.next().unwrap(), numbers.next().unwrap()) < (5, 11)
}

#[test]
fn what_is_missing_is_said_for_each_set_of_rights() {
    needs!(Root, Probes);
    let doctor = Doctor::new("doctor-rights");
    let nobody =
        ["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"];
    let bpf = ("right bpf", "no", "needed for all driver probes");
    let perfmon = ("right perfmon", "no", "needed for all driver probes");
    let ptrace = ("right ptrace", "no", "hung thread");
    let admin = ("right admin", "no", "measuring what the probes cost");
    let checks = doctor.ask(&nobody);
    check(&checks, &[bpf, perfmon, ptrace, admin, ("tracefs", "no", "needed for all probes")]);
    check(&checks, &[("probes", "no", "may not be read"), ("kernel symbols", "yes", "")]);
    assert!(checks["probes"].2.contains("CAP_BPF"), "{checks:#?}");

    // root owns tracefs, and that alone loads nothing
    let checks = doctor.ask(&["--inh-caps=-all", "--bounding-set=-all"]);
    check(&checks, &[bpf, perfmon, ptrace, admin, ("tracefs", "yes", "can be read")]);
    check(&checks, &[("probes", "no", "not permitted")]);

    // the least
    let locked = if maps_are_locked_memory() { ",+sys_resource" } else { "" };
    let sets = [
        format!("--inh-caps=-all,+bpf,+perfmon{locked}"),
        format!("--bounding-set=-all,+bpf,+perfmon{locked}"),
    ];
    let checks = doctor.ask(&[&sets[0], &sets[1]]);
    check(&checks, &[("right bpf", "yes", "CAP_BPF"), ("right perfmon", "yes", ""), ptrace, admin]);
    check(
        &checks,
        &[("tracefs", "yes", ""), ("right resource", "yes", ""), ("probe ioctl", "yes", "attached as")],
    );
    check(&checks, &[("probe open", "yes", "attached as"), ("probe exec", "yes", "attached as")]);

    // neither of them, but what they were split from
    let sets =
        [format!("--inh-caps=-all,+sys_admin{locked}"), format!("--bounding-set=-all,+sys_admin{locked}")];
    let checks = doctor.ask(&[&sets[0], &sets[1]]);
    check(&checks, &[("right bpf", "yes", "stands in"), ("right admin", "yes", ""), ptrace]);
    check(&checks, &[("probe ioctl", "yes", "attached as")]);

    let checks = doctor.ask(&[]);
    let yes = |name: &'static str| (name, "yes", "");
    check(
        &checks,
        &["right bpf", "right perfmon", "right resource", "right ptrace", "right admin", "tracefs"].map(yes),
    );
    check(&checks, &[("probe ioctl", "yes", "attached as")]);
}
