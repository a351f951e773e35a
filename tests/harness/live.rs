//! A simulated node with an agent on it and a receiver of what it says: what a test of faults starts from.
//!
//! In: a scenario's text, lines of the section `worker:`, more of the agent's arguments. Out: all of it running;
//! ended when dropped. The receiver is the small built-in one: the real Collector has tests of its own.
//! What can go wrong: the simulators were not built.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::Pid;

use super::agent::{Agent, Setup};
use super::collector::Collector;
use super::deadline::wait_for;
use super::feed::Feed;
use super::node::Node;
use super::received::{Point, Record};

/// Watches that are quick: temperature, power, energy and utilisation each second.
pub const QUICK: &str =
    "health_interval: 1s\ngroups:\n- {name: quick, interval: 1s, fields: [150, 155, 156, 203]}";

/// Two GPUs with an energy counter of 1 J/s, so that its value tells the time.
pub const TWO: &str = "version: 1\ngpus:\n- count: 2\n  fields:\n    150: {curve: {constant: 45}}\n    \
                       155: {curve: {constant: 150}}\n    156: {curve: {counter: {start: 5000, per_s: 1000}}}\n    \
                       203: {curve: {constant: 40}}\n";

/// All of it.
#[derive(Debug)]
pub struct Live {
    /// The agent, until a test ends it.
    pub agent: Option<Agent>,
    /// The node.
    pub node: Node,
    /// What was received.
    pub feed: Feed,
    _collector: Collector,
}

impl Live {
    /// Starts everything; `more` may change how the agent is started.
    pub fn start(test: &str, scenario: &str, worker: &str, more: impl FnOnce(Setup) -> Setup) -> Self {
        let node = Node::of_text(test, scenario);
        let collector = Collector::built_in(node.path());
        let agent = more(node.agent(worker).to(&collector.address)).start();
        let feed = Feed::new(node.path());
        Self { agent: Some(agent), node, feed, _collector: collector }
    }

    /// The same, once there are values of GPUs 0 and 1.
    ///
    /// # Panics
    /// When there are none in time.
    #[track_caller]
    pub fn flowing(test: &str, scenario: &str, worker: &str) -> Self {
        let mut live = Self::start(test, scenario, worker, |setup| setup);
        for gpu in 0..2 {
            live.energy(gpu, 20, 0.0);
        }
        live
    }

    /// Waits until the energy counter of a GPU is above `least`. Unit: J.
    ///
    /// # Panics
    /// When it is not in time.
    #[track_caller]
    pub fn energy(&mut self, gpu: u32, seconds: u64, least: f64) -> Point {
        self.wait_point("hw.energy", gpu, seconds, |point| point.value > least)
    }

    /// The id of a simulated GPU.
    pub fn gpu(number: u32) -> String {
        format!("GPU-00000000-0000-4000-8000-{number:012x}")
    }

    /// The worker process, if it lives.
    pub fn worker(&self) -> Option<Pid> {
        worker_of(self.node.path())
    }

    /// Waits for a series of a device whose latest point is as wanted.
    ///
    /// # Panics
    /// When there is none in time.
    #[track_caller]
    pub fn wait_point(&mut self, name: &str, gpu: u32, seconds: u64, is: impl Fn(&Point) -> bool) -> Point {
        let hw_id = Self::gpu(gpu);
        let what = format!("{name} of GPU {gpu}");
        wait_for(&what, seconds, || self.feed.latest(name, &[("hw.id", &hw_id)]).into_iter().find(&is))
    }

    /// Waits until a field of a GPU is absent for this reason.
    ///
    /// # Panics
    /// When it is not in time.
    #[track_caller]
    pub fn wait_absent(&mut self, gpu: u32, field: &str, reason: &str, seconds: u64) -> Point {
        let hw_id = Self::gpu(gpu);
        let of = [("hw.id", hw_id.as_str()), ("gpu.field", field), ("gpu.absence.reason", reason)];
        wait_for(&format!("{of:?} to be absent"), seconds, || {
            self.feed.latest("gpu.field.absent", &of).into_iter().find(|point| point.value == 1.0)
        })
    }

    /// Waits for a metric of the agent's own.
    ///
    /// # Panics
    /// When it has not this value in time.
    #[track_caller]
    pub fn wait_own(&mut self, name: &str, of: &[(&str, &str)], value: f64, seconds: u64) {
        wait_for(&format!("{name} {of:?} = {value}"), seconds, || {
            (self.feed.value(name, of) == Some(value)).then_some(())
        });
    }

    /// Waits for a `gpu.status` record of a source.
    ///
    /// # Panics
    /// When it does not come in time.
    #[track_caller]
    pub fn wait_source(&mut self, source: &str, state: &str, seconds: u64) -> Record {
        self.wait_status(("gpu.status.source", source), state, seconds)
    }

    /// Waits for a `gpu.status` record with this attribute.
    ///
    /// # Panics
    /// When it does not come in time.
    #[track_caller]
    pub fn wait_status(&mut self, of: (&str, &str), state: &str, seconds: u64) -> Record {
        wait_for(&format!("{of:?} to be {state}"), seconds, || self.feed.statuses(of, state).pop())
    }

    /// Ends the agent by SIGTERM and says whether it ended well.
    ///
    /// # Panics
    /// When it does not end.
    pub fn terminate(&mut self) -> bool {
        self.agent.take().is_some_and(|agent| agent.terminate().success())
    }
}

/// The pid in the worker's lock, if that process lives.
pub fn worker_of(dir: &Path) -> Option<Pid> {
    let text = std::fs::read_to_string(dir.join("state/worker.lock")).ok()?;
    let pid = Pid::from_raw(text.trim().parse().ok()?)?;
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    (!stat.rsplit_once(')')?.1.trim_start().starts_with('Z')).then_some(pid)
}

/// Now, ns since 1970.
pub fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
