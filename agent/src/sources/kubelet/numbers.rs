//! The source's numbers about itself.
//!
//! In: calls, answers, failures. Out: `warpgauge.kubelet.*` and `warpgauge.source.up`.
//! What can go wrong: nothing. On a machine without a kubelet none of them exists.

use std::time::Duration;

use super::answer::{Allocatable, Answer};
use super::client::Call;
use super::failure::Reason;
use super::standing::NAME;
use crate::telemetry::{Counter, Gauge, Telemetry};

/// All of them.
#[derive(Debug)]
pub struct Numbers {
    telemetry: Telemetry,
    up: Gauge,
    met: Option<Met>,
    age: Option<Gauge>,
}

/// Those that begin at 0 when a kubelet is first met, so that its first failure is an increase.
#[derive(Debug)]
struct Met {
    calls: [Counter; 2],
    failures: [Counter; Reason::ALL.len()],
}

impl Numbers {
    /// None is there yet but that the source is not up.
    pub fn new(telemetry: &Telemetry) -> Self {
        let up = telemetry.gauge("warpgauge.source.up", &[("source", NAME)]);
        Self { telemetry: telemetry.clone(), up, met: None, age: None }
    }

    fn met(&mut self) -> &Met {
        let telemetry = &self.telemetry;
        self.met.get_or_insert_with(|| Met {
            calls: [Call::List, Call::Allocatable]
                .map(|call| telemetry.counter("warpgauge.kubelet.calls", &[("call", call.name())])),
            failures: Reason::ALL
                .map(|reason| telemetry.counter("warpgauge.kubelet.failures", &[("reason", reason.name())])),
        })
    }

    /// A call that is made now.
    pub fn call(&mut self, call: Call) {
        let [list, allocatable] = &self.met().calls;
        match call {
            Call::List => list.add(1),
            Call::Allocatable => allocatable.add(1),
        }
    }

    /// A call, or the try to make one, that gave nothing.
    pub fn failure(&mut self, reason: Reason) {
        for (of, counter) in Reason::ALL.iter().zip(&self.met().failures) {
            counter.add(u64::from(*of == reason));
        }
    }

    /// Whether the last try gave an answer.
    pub fn up(&self, up: bool) {
        self.up.set(u64::from(up));
    }

    /// How old the last good answer is.
    pub fn age(&mut self, age: Option<Duration>) {
        let Some(age) = age else { return };
        let gauge = self.age.get_or_insert_with(|| self.telemetry.gauge("warpgauge.kubelet.age", &[]));
        gauge.set(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
    }

    /// What is in a good answer.
    pub fn answer(&self, answer: &Answer) {
        self.telemetry.gauge("warpgauge.kubelet.pods", &[]).set(answer.pods);
        self.devices("given", answer.ids());
        for (reason, number) in answer.left_out.by_reason() {
            self.telemetry.gauge("warpgauge.kubelet.left_out", &[("reason", reason)]).set(number);
        }
    }

    /// What could be given.
    pub fn allocatable(&self, allocatable: &Allocatable) {
        self.devices("allocatable", allocatable.ids);
    }

    fn devices(&self, state: &str, number: u64) {
        self.telemetry.gauge("warpgauge.kubelet.devices", &[("state", state)]).set(number);
    }
}
