//! An agent at work on the double, and what it says.
//!
//! In: nothing, or a test's name. Out: series and stalls; the double without rules before and after.
//! Starting an agent takes an emulated processor many seconds: most tests share one, and tell their calls by their pods.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use warpgauge_tests::harness::agent::{Agent, Setup};
use warpgauge_tests::harness::collector::Collector;
use warpgauge_tests::harness::deadline::{try_for, wait_for};
use warpgauge_tests::harness::driver::Module;
use warpgauge_tests::harness::feed::Feed;
use warpgauge_tests::harness::received::Record;
use warpgauge_tests::harness::scratch::Scratch;

pub(super) const DURATION: &str = "gpu.driver.call.duration";
pub(super) const ERRORS: &str = "gpu.driver.call.errors";

/// A call this long is slow; tests wait for it.
pub(super) const THRESHOLD: Duration = Duration::from_millis(300);

/// The probes on the driver's own functions.
pub(super) const PROBES: [&str; 14] = [
    "ioctl",
    "open",
    "close",
    "mmap",
    "poll",
    "rm",
    "init_adapter",
    "locks",
    "uvm_register",
    "uvm_fault",
    "uvm_service",
    "uvm_evict",
    "xid",
    "power",
];

/// The agent that tests share.
static SHARED: Mutex<Option<Watched>> = Mutex::new(None);

/// The shared agent, for one test.
pub(super) struct Shared {
    watched: MutexGuard<'static, Option<Watched>>,
    _rules: Rules,
}

/// An agent, and where its words are kept; ended when dropped.
pub(super) struct Watched {
    pub(super) agent: Option<Agent>,
    pub(super) feed: Feed,
    setup: Setup,
    _collector: Collector,
    scratch: Scratch,
}

/// The agent of one test alone.
pub(super) struct Own {
    watched: Watched,
    _rules: Rules,
}

/// Nothing of an earlier test hangs or has rules when a test begins, nor of this one when it ends.
#[derive(Debug)]
struct Rules;

impl Rules {
    fn none() -> Self {
        static ON_CONSOLE: Once = Once::new();
        ON_CONSOLE.call_once(panic_on_console);
        clear();
        for module in [Module::Nvidia, Module::Uvm] {
            wait_for("what an earlier test left to be over", 20, || {
                let over = (0..KINDS.len()).all(|kind| count(module, KINDS[kind]).in_flight == 0);
                over.then_some(())
            });
        }
        Self
    }
}

/// A guest that is not done in time has told its failures to nobody else: libtest prints them at the end.
fn panic_on_console() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let _ = std::fs::write("/dev/console", format!("{panic}\n"));
        usual(panic);
    }));
}

impl Drop for Rules {
    fn drop(&mut self) {
        clear();
    }
}

fn clear() {
    for module in [Module::Nvidia, Module::Uvm].into_iter().filter(|module| module.is_loaded()) {
        module.order("clear");
    }
    if Module::Nvidia.is_loaded() {
        Module::Nvidia.order("power running");
    }
}

/// Kinds of calls that the double counts.
const KINDS: [&str; 11] =
    ["ioctl", "open", "close", "mmap", "poll", "fault", "rm", "init", "api", "service", "evict"];

/// The double's own counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) begun: u64,
    pub(super) ended: u64,
    pub(super) in_flight: u64,
}

/// What a module counted of a kind since it was loaded.
pub(super) fn count(module: Module, kind: &str) -> Count {
    let state = module.state();
    let line = state.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(" begun ")).unwrap_or("");
    let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [begun, ended, in_flight] = numbers.as_slice() else { return Count::default() };
    Count { begun: *begun, ended: *ended, in_flight: *in_flight }
}

/// Waits until this many calls hang in a module.
#[track_caller]
pub(super) fn wait_hanging(module: Module, calls: u64) {
    wait_for(&format!("{calls} calls to hang"), 30, || {
        (module.number("hanging") == Some(calls)).then_some(())
    });
}

impl Shared {
    /// The shared agent, at work. A test that failed may have ended it.
    pub(super) fn agent() -> Self {
        let rules = Rules::none();
        let mut watched = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if !watched.as_mut().is_some_and(Watched::is_running) {
            *watched = None;
            let mut fresh = Watched::new("vm-shared");
            fresh.run();
            *watched = Some(fresh);
        }
        Self { watched, _rules: rules }
    }
}

impl Deref for Shared {
    type Target = Watched;

    fn deref(&self) -> &Watched {
        self.watched.as_ref().unwrap()
    }
}

impl DerefMut for Shared {
    fn deref_mut(&mut self) -> &mut Watched {
        self.watched.as_mut().unwrap()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the shared agent's log:\n{}", self.log());
        }
    }
}

impl Own {
    /// Not started yet. The shared agent is ended, so that this is the only one.
    pub(super) fn agent(name: &str) -> Self {
        *SHARED.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Self { _rules: Rules::none(), watched: Watched::new(name) }
    }

    /// The same, whose probes may cost so much. Unit: CPUs.
    pub(super) fn with_budget(name: &str, cpus: f64) -> Self {
        *SHARED.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Self { _rules: Rules::none(), watched: Watched::with(name, &format!(", budget: {cpus}")) }
    }
}

impl Deref for Own {
    type Target = Watched;

    fn deref(&self) -> &Watched {
        &self.watched
    }
}

impl DerefMut for Own {
    fn deref_mut(&mut self) -> &mut Watched {
        &mut self.watched
    }
}

impl Watched {
    /// With the quickest intervals; not started.
    pub(super) fn new(name: &str) -> Self {
        Self::with(name, "")
    }

    /// `more`: further keys of the probes' configuration, behind a comma.
    fn with(name: &str, more: &str) -> Self {
        let scratch = Scratch::new(name);
        let collector = Collector::start(scratch.path());
        let config = scratch.path().join("warpgauge.yaml");
        let probes = format!("probes: {{read_interval: 250ms, scan_interval: 50ms{more}}}");
        let quick = format!("{probes}\nstalls: {{call_threshold: 300ms}}\n");
        std::fs::write(&config, quick).unwrap();
        let setup = Setup::new(scratch.path()).to(&collector.address).args(&[
            "--config",
            config.to_str().unwrap(),
            "--cgroup",
            "v2",
            "--worker",
            "off",
        ]);
        let feed = Feed::new(scratch.path());
        Self { agent: None, feed, setup, _collector: collector, scratch }
    }

    fn is_running(&mut self) -> bool {
        self.agent.as_mut().is_some_and(Agent::is_running)
    }

    /// Starts it (again), and waits for its probes.
    pub(super) fn run(&mut self) {
        let seen = self.feed.points().len();
        self.agent = Some(self.setup.start());
        self.wait_probes(seen);
    }

    /// Starts it where the driver is not loaded: there is no probe to wait for.
    pub(super) fn start_without_driver(&mut self) {
        self.agent = Some(self.setup.start());
        wait_for("the agent to speak", 30, || (!self.feed.points().is_empty()).then_some(()));
    }

    /// Waits until every probe has said, in points after the first `seen`, that it stands on the driver's functions.
    #[track_caller]
    pub(super) fn wait_probes(&mut self, seen: usize) {
        for probe in PROBES {
            let of = [("probe", probe), ("tactic", "tracefs_kprobe")];
            wait_for(&format!("probe {probe}"), 60, || {
                assert!(self.agent.as_mut().unwrap().is_running(), "{}", self.log());
                let points = self.feed.points().get(seen..).unwrap_or_default();
                let last = points.iter().rfind(|p| p.name == "warpgauge.probe.info" && p.has(&of));
                last.is_some_and(|point| point.value == 1.0).then_some(())
            });
        }
    }

    pub(super) fn log(&self) -> String {
        self.agent.as_ref().map(Agent::log).unwrap_or_default()
    }

    /// The latest values of all series of a metric with these attributes, added up.
    pub(super) fn sum(&mut self, metric: &str, of: &[(&str, &str)]) -> f64 {
        self.feed.latest(metric, of).iter().map(|point| point.value).sum()
    }

    /// The same of a histogram's sums. Unit: s.
    pub(super) fn seconds(&mut self, metric: &str, of: &[(&str, &str)]) -> f64 {
        self.feed.latest(metric, of).iter().map(|point| point.sum).sum()
    }

    /// Waits until it is this much.
    #[track_caller]
    pub(super) fn wait_sum(&mut self, metric: &str, of: &[(&str, &str)], want: f64) {
        let mut last = 0.0;
        let reached = try_for(20, || {
            last = self.sum(metric, of);
            (last == want).then_some(())
        });
        assert!(
            reached.is_some(),
            "{metric} {of:?} is {last}, not {want}; {:#?}",
            self.feed.latest(metric, &[])
        );
    }

    /// What it said of a process's stalls.
    pub(super) fn stalls(&mut self, pid: &str, state: &str) -> Vec<Record> {
        let is = |r: &&Record| {
            r.event == "gpu.stall" && r.get("process.pid") == pid && r.get("gpu.stall.state") == state
        };
        self.feed.records().iter().filter(is).cloned().collect()
    }

    /// Waits for the first of them.
    #[track_caller]
    pub(super) fn wait_stall(&mut self, pid: &str, state: &str) -> Record {
        wait_for(&format!("a stall of {pid} in state {state}"), 20, || {
            self.stalls(pid, state).into_iter().next()
        })
    }

    /// Waits until no call is in flight in the kernel's map, and nothing is known to stall.
    #[track_caller]
    pub(super) fn wait_quiet(&mut self) {
        wait_for("the map of calls in flight to be empty", 30, || {
            (self.feed.value("warpgauge.probe.entries", &[("map", "in_flight")]) == Some(0.0)).then_some(())
        });
        wait_for("no stall to be open", 20, || (self.sum("gpu.stall.active", &[]) == 0.0).then_some(()));
    }

    /// Nothing was lost in the kernel.
    #[track_caller]
    pub(super) fn assert_nothing_lost(&mut self) {
        let lost = self.feed.latest("warpgauge.probe.lost", &[]);
        let lost: Vec<_> = lost.iter().filter(|point| point.value != 0.0).collect();
        assert!(lost.is_empty(), "{lost:?}");
        assert_eq!(self.sum("warpgauge.probe.lost_returns", &[]), 0.0);
    }

    /// SIGTERM; it must end well. Gives its log.
    #[track_caller]
    pub(super) fn terminate(&mut self) -> String {
        let agent = self.agent.take().unwrap();
        let kept = self.scratch.path().join("agent.log");
        let ended = agent.terminate();
        let log = std::fs::read_to_string(kept).unwrap();
        assert!(ended.success(), "{log}");
        log
    }
}
