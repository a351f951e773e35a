//! The agent with something missing: it runs, exports what is left, and says each lack once, with its remedy.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use warpgauge_tests::harness::agent::{Agent, Setup};
use warpgauge_tests::harness::collector::Collector;
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::scratch::Scratch;
use warpgauge_tests::needs;

/// Hides a path from the agent alone, in a mount namespace of its own, then executes it.
fn hiding(script: &str) -> Vec<String> {
    let script = format!("set -e; {script}; exec \"$0\" \"$@\"");
    ["unshare", "--mount", "sh", "-c", &script].map(str::to_owned).to_vec()
}

const NO_BTF: &str = "mount -t tmpfs none /sys/kernel/btf";
const NO_TRACEFS: &str = "mount -t tmpfs none /sys/kernel/tracing; mount -t tmpfs none /sys/kernel/debug";
/// Root without the right to read the kernel log.
const NO_SYSLOG: [&str; 3] =
    ["setpriv", "--inh-caps=-syslog,-sys_admin", "--bounding-set=-syslog,-sys_admin"];
/// Somebody without any right.
const NOBODY: [&str; 6] =
    ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"];

struct Lacking {
    scratch: Scratch,
    collector: Collector,
}

impl Lacking {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let collector = Collector::start(scratch.path());
        Self { scratch, collector }
    }

    fn setup(&self, wrapper: &[&str]) -> Setup {
        // The checkout may lie where only root can look: the program is executed from the scratch folder.
        let program = self.scratch.path().join("warpgauge");
        std::fs::copy(warpgauge_tests::harness::programs::agent(), &program).unwrap();
        std::fs::set_permissions(self.scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
        Setup::wrapped_program(self.scratch.path(), wrapper, &program)
            .to(&self.collector.address)
            .args(&["--probe-majors", "4"])
    }

    /// Runs until its metrics arrive, and gives the log.
    #[track_caller]
    fn check(&self, mut setup: Setup, lacks: &[(&str, &str)], up: &[(&str, f64)]) {
        let mut agent = setup.start();
        for (source, want) in up {
            wait_for(&format!("source {source} to be {want}"), 60, || {
                assert!(agent.is_running(), "the agent ended:\n{}", agent.log());
                let value = self.collector.latest("warpgauge.source.up", &[("source", source)]);
                (value == Some(*want)).then_some(())
            });
        }
        assert_said_once(&mut agent, lacks);
        assert!(agent.terminate().success());
    }
}

/// Each lack (its source, where it is one's, and its reason) is one line with a remedy; waits for it, then counts.
#[track_caller]
fn assert_said_once(agent: &mut Agent, lacks: &[(&str, &str)]) {
    let lines = |agent: &Agent, (source, reason): (&str, &str)| -> Vec<String> {
        let of = |line: &&str| line.contains(source) && line.contains(&format!("reason=\"{reason}\""));
        agent.log().lines().filter(of).map(str::to_owned).collect()
    };
    for lack in lacks {
        wait_for(&format!("{lack:?} to be said"), 30, || (!lines(agent, *lack).is_empty()).then_some(()));
    }
    for lack in lacks {
        let said = lines(agent, *lack);
        assert_eq!(said.len(), 1, "{lack:?}: {said:?}");
        assert!(said[0].contains("remedy="), "{}", said[0]);
    }
    assert!(agent.is_running(), "{}", agent.log());
}

#[test]
fn without_btf() {
    needs!(Root, Probes, Collector);
    let lacking = Lacking::new("no-btf");
    let wrapper = hiding(NO_BTF);
    let setup = lacking.setup(&wrapper.iter().map(String::as_str).collect::<Vec<_>>());
    lacking.check(setup, &[("probes", "no_btf")], &[("kmsg", 1.0), ("probes", 0.0)]);
}

#[test]
fn without_tracefs() {
    needs!(Root, Probes, Collector);
    let lacking = Lacking::new("no-tracefs");
    let wrapper = hiding(NO_TRACEFS);
    let setup = lacking.setup(&wrapper.iter().map(String::as_str).collect::<Vec<_>>());
    lacking.check(setup, &[("probes", "no_tracefs")], &[("kmsg", 1.0), ("probes", 0.0)]);
}

#[test]
fn without_the_right_to_read_the_kernel_log() {
    needs!(Root, Probes, Collector, DmesgRestricted);
    let lacking = Lacking::new("no-kmsg");
    let setup = lacking.setup(&NO_SYSLOG);
    lacking.check(setup, &[("kmsg", "not_permitted")], &[("kmsg", 0.0), ("probes", 1.0)]);
}

#[test]
fn without_a_collector() {
    needs!(Root);
    let scratch = Scratch::new("no-collector");
    let mut setup = Setup::new(scratch.path()).to("127.0.0.1:9").args(&["--probes", "off"]);
    let mut agent = setup.start();
    assert_said_once(&mut agent, &[("Collector", "unreachable")]);
    assert!(agent.terminate().success());
}

#[test]
fn without_any_privilege() {
    needs!(Root, Probes, Collector, DmesgRestricted);
    let lacking = Lacking::new("nobody");
    let lacks = [("kmsg", "not_permitted"), ("probes", "not_permitted")];
    lacking.check(lacking.setup(&NOBODY), &lacks, &[("kmsg", 0.0), ("probes", 0.0)]);
}

#[test]
fn without_everything_at_once() {
    needs!(Root, Probes, DmesgRestricted);
    let scratch = Scratch::new("nothing");
    let program: PathBuf = scratch.path().join("warpgauge");
    std::fs::copy(warpgauge_tests::harness::programs::agent(), &program).unwrap();
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let mut wrapper = hiding(&format!("{NO_BTF}; {NO_TRACEFS}"));
    wrapper.extend(NOBODY.map(str::to_owned));
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let mut setup = Setup::wrapped_program(scratch.path(), &wrapper, &program).to("127.0.0.1:9");
    let mut agent = setup.start();
    let lacks = [
        ("Collector", "unreachable"),
        ("kmsg", "not_permitted"),
        ("probes", "no_btf"),
        ("probes", "no_tracefs"),
    ];
    assert_said_once(&mut agent, &lacks);
    assert!(agent.terminate().success(), "it still ends in order");
}
