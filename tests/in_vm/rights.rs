//! What the doctor finds with all rights, with those for kernel programs alone, and with none; and every program of the
//! object on this kernel.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::Value;
use warpgauge::host::cgroup_hierarchy::Version;
use warpgauge_tests::harness::programs;
use warpgauge_tests::needs;

use super::watched::PROBES;
use crate::every_program::check;

const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
/// Root, whose rights are those that the bounding set leaves.
const BPF_AND_PERFMON: [&str; 3] = ["setpriv", "--inh-caps=-all", "--bounding-set=-all,+bpf,+perfmon"];
const NOBODY: [&str; 6] =
    ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"];

/// Checks by name: state, what, remedy.
type Checks = BTreeMap<String, [String; 3]>;

fn doctor(wrapper: &[&str]) -> Checks {
    let agent = programs::agent();
    let mut command = match wrapper {
        [] => Command::new(&agent),
        [program, args @ ..] => {
            let mut command = Command::new(program);
            command.args(args).arg(&agent);
            command
        }
    };
    let out = command.args(["doctor", "--json", "--worker", "off", "--wait", "60"]).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(!text.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
    eprintln!("{wrapper:?}:\n{text}");
    let check = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let of = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        (of("check"), [of("state"), of("what"), of("remedy")])
    };
    text.lines().map(check).collect()
}

fn probe<'a>(checks: &'a Checks, name: &str) -> &'a [String; 3] {
    checks.get(&format!("probe {name}")).ok_or_else(|| format!("no probe {name} in {checks:#?}")).unwrap()
}

#[test]
fn the_kernel_takes_every_program() {
    needs!(Vm);
    check(Version::V2);
    check(Version::V1);
}

#[test]
fn with_every_right_all_probes_stand_on_the_drivers_functions() {
    needs!(Vm);
    let checks = doctor(&[]);
    for name in PROBES {
        let [state, what, _] = probe(&checks, name);
        assert_eq!(state, "yes", "{name}: {what}");
        assert!(what.starts_with("attached as tracefs_kprobe"), "{name}: {what}");
        assert!(!what.contains("refused"), "{name}: {what}");
    }
    let [state, what, _] = probe(&checks, "scheduler");
    assert_eq!((state.as_str(), what.contains("sched_tracepoint")), ("yes", true), "{what}");
}

/// Reading and writing tracefs takes no right beyond being root. Only 5.10 counts a program's memory against a limit, which
/// cannot be raised without a right of its own; what this process has raised, its children have.
#[test]
fn with_the_rights_for_kernel_programs_alone_all_probes_stand_as_well() {
    needs!(Vm);
    let checks = doctor(&BPF_AND_PERFMON);
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let unlimited = |line: &str| line.starts_with("Max locked memory") && line.contains("unlimited");
    if std::env::var("WARPGAUGE_VM").unwrap() == "5.10" && !limits.lines().any(unlimited) {
        let [state, what, remedy] = &checks["probes"];
        assert_eq!(state, "no", "{what}");
        assert!(remedy.contains("CAP_SYS_RESOURCE"), "{what}: {remedy}");
        return;
    }
    // Debian's kernels begin at a level at which CAP_PERFMON is not enough
    assert_eq!(fs::read_to_string(PARANOID).unwrap().trim(), "3");
    let [state, what, remedy] = &checks["probes"];
    assert_eq!(state, "no", "{what}");
    assert!(
        what.contains("CAP_SYS_ADMIN") && remedy.contains("kernel.perf_event_paranoid"),
        "{what}: {remedy}"
    );
    fs::write(PARANOID, "2").unwrap();
    let checks = doctor(&BPF_AND_PERFMON);
    fs::write(PARANOID, "3").unwrap();
    for name in PROBES {
        let [state, what, _] = probe(&checks, name);
        assert_eq!(state, "yes", "{name}: {what}");
        assert!(what.starts_with("attached as tracefs_kprobe"), "{name}: {what}");
    }
}

#[test]
fn without_rights_the_lack_is_named_with_its_remedy() {
    needs!(Vm);
    let checks = doctor(&NOBODY);
    let of_probes: Vec<_> = checks.iter().filter(|(name, _)| name.starts_with("probe")).collect();
    assert!(!of_probes.is_empty(), "{checks:#?}");
    for (name, [state, what, remedy]) in of_probes {
        assert_eq!(state, "no", "{name}: {what}");
        assert!(remedy.contains("root") || remedy.contains("CAP_BPF"), "{name}: {what}: {remedy}");
    }
}
