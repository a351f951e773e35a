//! Pods that come and go, through the agent's own stages: what stays in memory of those that are over.
//!
//! In: a folder, and how many pods. Out: a line of JSON: the live bytes of the heap after a tenth of them and after all,
//! the findings by whom they name, and the series and records that are left. One pod begins each second of the scenario, five in
//! the first minutes: maps that had to hold more once have room for good, and what grows after that is a leak. A pod
//! lives 20 s; each other one's process gets a pid that another had 128 pods before. What a live machine would be asked
//! (/proc, the cgroup hierarchy, the kubelet's folders) is really there, below the folder, whose file system must not use
//! the number of a folder again (tmpfs).
//! What can go wrong: the folder cannot be written to. It runs alone, in one thread: every byte counted is the agent's.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "it talks to the test through its standard output")]

mod node;
mod pod;

use std::alloc::System;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use warpgauge::config::Config;
use warpgauge::enrich::lookup::Lookup;
use warpgauge::export::point::Value;
use warpgauge::export::series::Limits;
use warpgauge::export::snapshot::Snapshot;
use warpgauge::host::pid_namespace::PidNamespace;
use warpgauge::model::operation::Majors;
use warpgauge::model::{Attributed, Fact, FindingKind, MonoNs, Signal, StallState, WallAnchor, WallNs};
use warpgauge::pipeline::Stages;
use warpgauge::telemetry::Telemetry;

use node::Node;
use pod::Pod;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// So many pods begin each second at first, and how long. Unit: s.
const BURST: (u64, u64) = (5, 200);
/// A pod's life. Unit: s.
const LIFE: u64 = 20;
/// Between two collections. Unit: s.
const COLLECT_EVERY: u64 = 60;
const SECOND: u64 = 1_000_000_000;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().context("usage: churn FOLDER PODS");
    let (folder, pods) = (PathBuf::from(next()?), next()?.parse::<u64>()?);
    let region = Region::new(HEAP);
    let live = || {
        let change = region.change();
        change.bytes_allocated as i64 - change.bytes_deallocated as i64
    };
    let mut run = Run::new(&folder)?;
    let (mut at_a_tenth, mut second) = (0, 0);
    while run.begun < pods {
        run.second(second)?;
        second += 1;
        if run.begun == pods / 10 {
            at_a_tenth = live();
        }
    }
    let at_the_end = live();
    println!(
        "{{\"pods\":{pods},\"tenth\":{at_a_tenth},\"end\":{at_the_end},\"stalls\":{},\"strange\":{},\"series\":{},\
         \"named\":{},\"files\":{}}}",
        run.stalls,
        run.strange,
        run.series,
        run.named,
        run.node.files()?,
    );
    Ok(())
}

/// The stages, and what came out of them.
struct Run {
    node: Node,
    stages: Stages,
    snapshot: Snapshot,
    facts: Vec<Attributed<Fact>>,
    /// Stalls that began, and those of them whose process is not the one that hung.
    stalls: u64,
    strange: u64,
    /// Series of the latest collection that are of a workload, and those of them with the pod's name.
    series: usize,
    named: usize,
    /// Pods that began, and those of them that are there.
    begun: u64,
    alive: Vec<Pod>,
}

impl Run {
    fn new(folder: &std::path::Path) -> anyhow::Result<Self> {
        let telemetry = Telemetry::default();
        let node = Node::new(folder)?;
        let mount = Some(node.cgroups());
        let lookup = Lookup::new(node.host.clone(), mount, None, &PidNamespace::Host);
        let stages = Stages::new(&Config::default(), Some(lookup), &telemetry);
        let snapshot = Snapshot::new(WallNs(SECOND), Majors::new(None), Limits::default(), telemetry);
        let mut run = Self {
            node,
            stages,
            snapshot,
            facts: Vec::new(),
            stalls: 0,
            strange: 0,
            series: 0,
            named: 0,
            begun: 0,
            alive: Vec::new(),
        };
        run.push(pod::gpu());
        Ok(run)
    }

    /// One second of the node.
    fn second(&mut self, second: u64) -> anyhow::Result<()> {
        let begin = MonoNs(second * SECOND);
        while self.alive.first().is_some_and(|pod| pod.began + LIFE <= second) {
            let pod = self.alive.remove(0);
            pod.last_words(begin).into_iter().for_each(|signal| self.push(signal));
            self.node.remove(&pod)?;
        }
        for _ in 0..if second < BURST.1 { BURST.0 } else { 1 } {
            let pod = self.node.add(self.begun, second)?;
            self.begun += 1;
            pod.first_words(begin).into_iter().for_each(|signal| self.push(signal));
            self.alive.push(pod);
        }
        let words: Vec<Signal> = self.alive.iter().flat_map(|pod| pod.words(second)).collect();
        words.into_iter().for_each(|signal| self.push(signal));
        if second.is_multiple_of(5) {
            self.push(pod::processes(&self.alive, begin));
        }
        if second.is_multiple_of(15) {
            self.push(pod::given(&self.alive, begin));
        }
        self.push(Signal::Tick { at: begin.after(Duration::from_millis(900)) });
        if second % COLLECT_EVERY == COLLECT_EVERY - 1 {
            self.collect(begin.after(Duration::from_secs(1)));
        }
        Ok(())
    }

    fn push(&mut self, signal: Signal) {
        self.stages.push(signal, &mut self.facts);
        let mut facts = std::mem::take(&mut self.facts);
        for fact in facts.drain(..) {
            if let Fact::Finding(finding) = &fact.item
                && let FindingKind::Stall(stall) = &finding.kind
                && stall.state == StallState::Begin
            {
                let is_of = |pod: &Pod| fact.processes.iter().all(|(_, known)| pod.is(known));
                let hung = |pod: &Pod| pod.hangs() && !fact.processes.is_empty() && is_of(pod);
                self.stalls += 1;
                self.strange += u64::from(!self.alive.iter().any(hung));
            }
            self.snapshot.push(&fact);
        }
        self.facts = facts;
    }

    fn collect(&mut self, at: MonoNs) {
        let now = WallAnchor { mono: at, wall: WallNs(at.0 + SECOND) };
        let batch = self.snapshot.collect(now, Duration::from_secs(COLLECT_EVERY), None);
        self.snapshot.settle_zeros(batch.generation);
        let has = |name: &str| {
            let with =
                |p: &&warpgauge::export::point::Point| p.attributes.iter().any(|(key, _)| *key == name);
            batch.points.iter().filter(|p| p.value != Value::End).filter(with).count()
        };
        (self.series, self.named) = (has("k8s.pod.uid"), has("k8s.pod.name"));
    }
}
