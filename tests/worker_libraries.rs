//! No libraries, no driver, no state directory, no worker, one agent too many: each is said, and the agent stays.

use std::path::Path;

use warpgauge_tests::harness::agent::{Agent, Setup};
use warpgauge_tests::harness::collector::Collector;
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::feed::Feed;
use warpgauge_tests::harness::live::{Live, QUICK, TWO, worker_of};
use warpgauge_tests::harness::programs;
use warpgauge_tests::harness::scratch::Scratch;
use warpgauge_tests::needs;

/// An agent whose section `worker:` has these lines, with its receiver.
fn start(scratch: &Scratch, worker: &str, args: &[&str]) -> (Agent, Feed, Collector) {
    let config = scratch.path().join("warpgauge.yaml");
    std::fs::write(&config, format!("worker:\n{worker}")).unwrap();
    let collector = Collector::built_in(scratch.path());
    let off = ["--config", config.to_str().unwrap(), "--probes", "off", "--kernel-log", "off"];
    let agent = Setup::new(scratch.path()).to(&collector.address).args(&off).args(args).start();
    (agent, Feed::new(scratch.path()), collector)
}

#[track_caller]
fn wait_lack(feed: &mut Feed, source: &str, reason: &str) {
    wait_for(&format!("{source}: {reason}"), 15, || {
        let lack = feed.value("warpgauge.source.lack", &[("source", source), ("reason", reason)]);
        (lack == Some(1.0) && feed.value("warpgauge.source.up", &[("source", source)]) == Some(0.0))
            .then_some(())
    });
}

#[test]
fn without_the_vendors_libraries_the_agent_says_so_and_stays() {
    let scratch = Scratch::new("libraries-none");
    let nothing =
        "  dcgm_library: /nonexistent/libdcgm.so.4\n  nvml_library: /nonexistent/libnvidia-ml.so.1\n";
    let (mut agent, mut feed, _collector) = start(&scratch, nothing, &[]);
    for source in ["dcgm", "nvml"] {
        wait_lack(&mut feed, source, "no_library");
        let record = wait_for("its record", 3, || feed.statuses(("gpu.status.source", source), "down").pop());
        assert_eq!((record.get("gpu.status.reason"), &*record.severity_text), ("no_library", "INFO"));
    }
    wait_for("the worker", 3, || {
        feed.value("warpgauge.source.up", &[("source", "worker")]).filter(|up| *up == 1.0)
    });
    assert!(agent.is_running() && agent.log().contains("install the NVIDIA driver"), "{}", agent.log());
    assert!(agent.terminate().success());
}

#[test]
fn nvidias_own_library_without_a_driver_says_so() {
    needs!(RealNvml);
    let scratch = Scratch::new("libraries-real");
    let library = programs::real_nvml();
    let worker = format!("  dcgm: false\n  nvml_library: {}\n", library.display());
    let (mut agent, mut feed, _collector) = start(&scratch, &worker, &[]);
    wait_lack(&mut feed, "nvml", "no_driver");
    assert!(agent.is_running() && worker_of(scratch.path()).is_some(), "{}", agent.log());
    assert!(agent.log().contains("modprobe nvidia"), "{}", agent.log());
    assert!(agent.terminate().success());
}

#[test]
fn without_a_worker_nothing_of_the_vendor_is_touched() {
    let scratch = Scratch::new("libraries-off");
    let (mut agent, mut feed, _collector) = start(&scratch, "  nvml_interval: 1s\n", &["--worker", "off"]);
    wait_lack(&mut feed, "worker", "disabled");
    assert_eq!(worker_of(scratch.path()), None);
    assert_eq!(feed.latest("warpgauge.source.up", &[("source", "dcgm")]), []);
    assert!(agent.is_running() && agent.terminate().success());
}

/// Values flow although the state and the runtime directory cannot be used.
#[track_caller]
fn flows_with(test: &str, prepare: impl FnOnce(&Path)) {
    let scratch = Scratch::new(&format!("{test}-dirs"));
    prepare(scratch.path());
    let (state, run) = (scratch.path().join("state"), scratch.path().join("run"));
    let run = run.display().to_string();
    let mut live = Live::start(test, TWO, QUICK, |setup| {
        setup.env("WARPGAUGE_STATE_DIR", &state.display().to_string()).env("WARPGAUGE_RUN_DIR", &run)
    });
    live.energy(0, 15, 0.0);
    live.wait_own("warpgauge.control.up", &[], 0.0, 3);
    assert!(live.terminate());
}

#[test]
fn files_in_place_of_its_directories_cost_the_control_socket_only() {
    flows_with("libraries-files", |dir| {
        for name in ["state", "run"] {
            std::fs::write(dir.join(name), "no directory").unwrap();
        }
    });
}

/// A file system of one page, which is full; gone when dropped.
struct Full(std::path::PathBuf);

impl Full {
    fn mount(at: &Path) -> Self {
        std::fs::create_dir(at).unwrap();
        let mut mount = std::process::Command::new("mount");
        let done = mount.args(["-t", "tmpfs", "-o", "size=4k", "none"]).arg(at).status().unwrap();
        assert!(done.success(), "{}", at.display());
        std::fs::write(at.join("filling"), [1; 4_096]).unwrap();
        Self(at.to_path_buf())
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        // Lazily: what is still open goes with its process. A failure leaves a page of memory.
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_costs_the_lock_and_no_value() {
    needs!(Root);
    let scratch = Scratch::new("libraries-full-disk");
    let _full = Full::mount(&scratch.path().join("full"));
    let state = scratch.path().join("full/state").display().to_string();
    let mut live =
        Live::start("libraries-full", TWO, QUICK, |setup| setup.env("WARPGAUGE_STATE_DIR", &state));
    let first = live.energy(0, 15, 0.0);
    live.energy(0, 5, first.value + 1.5);
    let said = live.feed.latest("warpgauge.state.errors", &[]).iter().map(|point| point.value).sum::<f64>();
    assert!(said > 0.0, "{said}");
    assert!(live.terminate());
}

#[test]
fn a_runtime_directory_that_others_may_write_is_not_used() {
    flows_with("libraries-open", |dir| {
        let run = dir.join("run");
        std::fs::create_dir(&run).unwrap();
        std::fs::set_permissions(&run, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    });
}

#[test]
fn two_agents_on_one_node_both_have_values() {
    let mut first = Live::flowing("libraries-first", TWO, QUICK);
    let state = first.node.path().join("state").display().to_string();
    let mut second =
        Live::start("libraries-second", TWO, QUICK, |setup| setup.env("WARPGAUGE_STATE_DIR", &state));
    second.energy(0, 15, 0.0);
    let now = first.energy(0, 2, 0.0);
    first.energy(0, 4, now.value + 1.0);
    assert!(second.terminate() && first.terminate());
}
