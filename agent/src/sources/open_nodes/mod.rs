//! Which processes have the driver's device nodes open: those that began before the agent, too.
//!
//! In: procfs, read once as a whole at the start; then orders to look at single processes, which come of what the probes
//! see, and now and then the processes that are new. Out: [`Signal::OpenNodes`], by the driver's numbers of nodes;
//! the ends of processes that had some; which one is the server of MPS.
//! Read only: no node is opened, and no right is needed beyond that of looking at other processes.
//! What can go wrong: processes that may not be looked at, counted; a file system that does not answer: the round waits
//! for it, and is said to be slow; a procfs of another pid namespace, whose numbers mean other processes elsewhere.
//!
//! Reading order: [`kinds`] (which numbers are the driver's) → [`look`] (one process) → [`visible`] (its environment) →
//! [`round`] (all of them) → [`order`].

pub mod kinds;
pub mod look;
pub mod order;
pub mod round;
pub mod visible;

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{Exit, Lack, Outlet, Source};
use crate::host::pid_namespace::{self, PidNamespace};
use crate::host::{HostRoot, mono_now};
use crate::model::Signal;
use crate::model::signal::SourceState;
use crate::telemetry::{Gauge, Telemetry};
use order::Order;
use round::{Rounds, Whom};

/// How often the processes that are new are looked at, without anybody's order.
const EVERY: Duration = Duration::from_secs(30);
/// A round takes some seconds on the largest nodes; one that takes this long hangs.
const SLOW: Duration = Duration::from_secs(20);
/// Orders taken at a time.
const ORDERS_MAX: usize = 1_024;

/// The source.
#[derive(Debug)]
pub struct NodeHolders {
    host: HostRoot,
    orders: mpsc::Receiver<Order>,
    /// `None` while a round is under way, and after one that panicked.
    rounds: Option<Rounds>,
    majors: Option<Vec<u32>>,
    processes: Gauge,
    telemetry: Telemetry,
}

impl NodeHolders {
    /// Touches nothing yet. `majors`: those that are watched instead of NVIDIA's.
    pub fn new(
        host: HostRoot,
        majors: Option<Vec<u32>>,
        orders: mpsc::Receiver<Order>,
        telemetry: &Telemetry,
    ) -> Self {
        let processes = telemetry.gauge("warpgauge.open_nodes.processes", &[]);
        Self { host, orders, rounds: None, majors, processes, telemetry: telemetry.clone() }
    }

    /// One round, on a thread that may wait for a file system.
    async fn round(&mut self, whom: Whom, outlet: &Outlet) -> Result<(), Exit> {
        let own = super::probes::prepare::own_pid(&self.host);
        let make = || Rounds::new(self.host.clone(), self.majors.clone(), own, &self.telemetry);
        let mut rounds = self.rounds.take().unwrap_or_else(make);
        let mut looking = tokio::task::spawn_blocking(move || {
            let mut out = Vec::new();
            rounds.look(whom, &mut out);
            (rounds, out)
        });
        let looked = match timeout(SLOW, &mut looking).await {
            Ok(looked) => looked,
            Err(_) => {
                warn!("Looking at the processes takes long; what is known of them holds meanwhile.");
                looking.await
            }
        };
        let (rounds, said) = looked.map_err(|panic| Exit::Failed(Box::new(panic)))?;
        let holders = rounds.holders() as u64;
        self.rounds = Some(rounds);
        for signal in said {
            // each is said once, or not again for long: it is not dropped
            outlet.send(signal).await.map_err(|_| Exit::Stopped)?;
        }
        self.processes.set(holders);
        Ok(())
    }

    async fn rounds(&mut self, outlet: &Outlet) -> Exit {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut orders = Vec::new();
        let mut ordered = true;
        loop {
            let whom = tokio::select! {
                biased;
                _ = ticks.tick() => Whom::All,
                count = self.orders.recv_many(&mut orders, ORDERS_MAX), if ordered => {
                    ordered = count > 0; // nobody is left who would order
                    let mut whom = BTreeMap::new();
                    for Order { pid, anew } in orders.drain(..) {
                        *whom.entry(pid.0).or_default() |= anew;
                    }
                    Whom::Some(whom)
                }
            };
            if let Err(exit) = self.round(whom, outlet).await {
                return exit;
            }
        }
    }
}

impl Source for NodeHolders {
    fn name(&self) -> &'static str {
        "open_nodes"
    }

    async fn run(&mut self, outlet: &Outlet, stop: &CancellationToken) -> Exit {
        if pid_namespace::of(&self.host) == PidNamespace::Foreign {
            let reason = Some("foreign".to_owned());
            let source = SourceState { name: "pid_namespace".to_owned(), up: false, reason, late: None };
            outlet.offer(Signal::Source { at: mono_now(), source });
            return Exit::Unavailable(vec![Lack {
                reason: "foreign_pid_namespace",
                what: "/proc shows another pid namespace than the host's: no GPU can be put to a process"
                    .to_owned(),
                remedy: "run with the host's pid namespace (hostPID: true), or mount its /proc and name it by --host-proc",
            }]);
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => Exit::Stopped,
            exit = self.rounds(outlet) => exit,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::model::{OpenNode, Pid};
    use crate::sources::queue;
    use crate::test_dir::TestDir;

    /// This process as it is, whose descriptors are real ones; the agent would be another.
    #[tokio::test]
    async fn a_real_process_is_seen_and_looked_at_when_it_is_ordered() {
        let dir = TestDir::new();
        let pid = std::process::id();
        symlink(format!("/proc/{pid}"), dir.path().join(pid.to_string())).unwrap();
        symlink("1", dir.path().join("self")).unwrap();
        let host = HostRoot { proc: dir.path().to_owned(), ..HostRoot::default() };
        let held = std::fs::File::open("/dev/full").unwrap();
        let (orders_tx, orders) = mpsc::channel(4);
        let telemetry = Telemetry::default();
        let mut source = NodeHolders::new(host, Some(vec![1]), orders, &telemetry);
        let (tx, mut rx) = queue(16);
        let outlet = Outlet::new(tx, "open_nodes", &telemetry);
        let stop = CancellationToken::new();
        let (stopping, running) =
            (stop.clone(), tokio::spawn(async move { source.run(&outlet, &stop).await }));
        let mut has_full = async || {
            let Some(Signal::OpenNodes { open, .. }) = rx.recv().await else { panic!("nodes") };
            assert_eq!(open.pid, Pid(pid));
            open.nodes.contains(&OpenNode::Gpu { minor: 7 })
        };
        assert!(has_full().await);
        drop(held);
        orders_tx.send(Order { pid: Pid(pid), anew: true }).await.unwrap();
        assert!(!has_full().await);
        stopping.cancel();
        assert!(matches!(running.await.unwrap(), Exit::Stopped));
    }

    #[tokio::test]
    async fn a_foreign_pid_namespace_switches_it_off() {
        let dir = TestDir::new();
        std::fs::create_dir_all(dir.path().join("1/ns")).unwrap();
        symlink("pid:[4026532100]", dir.path().join("1/ns/pid")).unwrap();
        let host = HostRoot { proc: dir.path().to_owned(), ..HostRoot::default() };
        let (telemetry, (_orders, orders)) = (Telemetry::default(), mpsc::channel(4));
        let mut source = NodeHolders::new(host, None, orders, &telemetry);
        let (tx, mut rx) = queue(16);
        let outlet = Outlet::new(tx, "open_nodes", &telemetry);
        let Exit::Unavailable(lacks) = source.run(&outlet, &CancellationToken::new()).await else {
            panic!("off")
        };
        assert_eq!(lacks[0].reason, "foreign_pid_namespace");
        let Some(Signal::Source { source, .. }) = rx.recv().await else { panic!("said") };
        assert_eq!((source.name.as_str(), source.up), ("pid_namespace", false));
    }
}
