//! Runs of the source over a scripted device: overruns, restarts, a full pipeline.
//!
//! In: a script of what read(2) answers. Out: the signals and counts of one run or several.
//! What can go wrong: nothing; a script that ends waits for ever, as the device does.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;
use tokio_util::sync::CancellationToken;

use super::device::RecordReader;
use super::{KernelLog, StateFile};
use crate::config::KernelLogConfig;
use crate::model::{Delivery, LineKind, MonoNs, Signal};
use crate::sources::{Outlet, queue};
use crate::telemetry::Telemetry;
use crate::test_dir::TestDir;

#[derive(Clone, Copy)]
enum Step {
    /// A record of this number: an XID of code 1000 + number.
    Xid(u64),
    /// A record of this number that says nothing.
    Other(u64),
    Fails(Errno),
    Ends,
    /// Nothing more for now; what follows is written while the reader waits.
    Wait,
}
use Step::{Ends, Fails, Other, Wait, Xid};

struct Script {
    steps: Vec<Step>,
    at: usize,
}

impl RecordReader for Script {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let record: io::Result<String> = match self.steps.get(self.at) {
            None | Some(Wait) => return Err(Errno::AGAIN.into()),
            Some(Fails(errno)) => Err((*errno).into()),
            Some(Ends) => Ok(String::new()),
            Some(Other(seq)) => Ok(format!("6,{seq},{seq},-;usb 1-1: new device\n SUBSYSTEM=usb\n")),
            Some(Xid(seq)) => Ok(format!("4,{seq},{seq},-;NVRM: Xid (PCI:0000:3b:00): {}, x\n", 1000 + seq)),
        };
        self.at += 1;
        let record = record?;
        buffer[..record.len()].copy_from_slice(record.as_bytes());
        Ok(record.len())
    }

    fn rewind(&mut self) -> io::Result<()> {
        self.at = 0;
        Ok(())
    }

    async fn readable(&mut self) -> io::Result<()> {
        if self.at == self.steps.len() {
            std::future::pending::<()>().await;
        }
        self.at += 1;
        Ok(())
    }

    fn now(&self) -> MonoNs {
        MonoNs(7_000_000)
    }
}

/// A node over several runs of the agent.
struct Node {
    dir: TestDir,
    telemetry: Telemetry,
}

/// One run of the agent on it.
struct Run {
    source: KernelLog,
    state: Arc<StateFile>,
    delivery: Arc<Delivery>,
    telemetry: Telemetry,
}

/// code − 1000, backlog
type Seen = (u32, bool);

impl Node {
    fn new() -> Self {
        Self { dir: TestDir::new(), telemetry: Telemetry::default() }
    }

    fn start(&self) -> Run {
        let host = self.dir.host("boot");
        let state = Arc::new(StateFile::load(Some(self.dir.path().join("state")), &host, &self.telemetry));
        let delivery = Arc::new(Delivery::default());
        let config = KernelLogConfig { enabled: true, facilities: vec![0] };
        let source = KernelLog::new(config, host, Arc::clone(&state), Arc::clone(&delivery), &self.telemetry);
        Run { source, state, delivery, telemetry: self.telemetry.clone() }
    }

    fn counted(&self, name: &'static str) -> u64 {
        self.telemetry.read().iter().filter(|(n, _, _)| *n == name).map(|(_, _, value)| value).sum()
    }
}

impl Run {
    /// Reads until `signals` have arrived, with a pipeline that holds one; then stops. Every signal before the last
    /// `owed` ones is settled. Gives the signals, or the error that ended the run early.
    async fn read(&mut self, steps: &[Step], signals: usize, owed: usize) -> Result<Vec<Seen>, String> {
        let (tx, mut rx) = queue(1);
        let outlet = Outlet::new(tx, "kmsg", &self.telemetry);
        let (mut script, stop) = (Script { steps: steps.to_vec(), at: 0 }, CancellationToken::new());
        let mut seen = Vec::new();
        let source = &mut self.source;
        let reading = async {
            let ended = source.read(&mut script, &outlet, &stop).await;
            drop(outlet); // ends the collecting too
            ended
        };
        let collecting = async {
            while seen.len() < signals {
                let Some(Signal::DriverLog { line, .. }) = rx.recv().await else { break };
                let LineKind::Xid(xid) = &line.kind;
                seen.push((xid.code - 1000, line.origin.backlog));
                if seen.len() + owed <= signals {
                    line.origin.seq.into_iter().for_each(|seq| self.delivery.settle(seq));
                }
            }
            stop.cancel();
        };
        let (ended, ()) = tokio::join!(reading, collecting);
        ended.map_err(|error| error.to_string())?;
        Ok(seen)
    }
}

#[tokio::test]
async fn what_was_there_is_backlog_and_what_comes_is_not() {
    let node = Node::new();
    let steps = [Other(4), Xid(5), Other(6), Xid(7), Wait, Xid(8), Other(9), Xid(10), Wait, Xid(11)];
    let seen = node.start().read(&steps, 5, 0).await;
    assert_eq!(seen, Ok(vec![(5, true), (7, true), (8, false), (10, false), (11, false)]));
    assert_eq!((node.counted("warpgauge.kmsg.records"), node.counted("warpgauge.kmsg.lost")), (8, 0));
}

#[tokio::test]
async fn gaps_and_long_records_are_counted_and_passed_over() {
    let node = Node::new();
    let steps = [Xid(1), Wait, Fails(Errno::PIPE), Xid(5), Fails(Errno::INVAL), Fails(Errno::INTR), Xid(7)];
    assert_eq!(node.start().read(&steps, 3, 0).await, Ok(vec![(1, true), (5, false), (7, false)]));
    let counted = ["overruns", "ignored", "lost", "records"].map(|name| match name {
        "overruns" => node.counted("warpgauge.kmsg.overruns"),
        "ignored" => node.counted("warpgauge.kmsg.ignored"),
        "lost" => node.counted("warpgauge.kmsg.lost"),
        _ => node.counted("warpgauge.kmsg.records"),
    });
    assert_eq!(counted, [1, 1, 3, 3], "6 was too long, and is not lost as well");
}

#[tokio::test]
async fn other_errors_end_the_run_and_the_next_one_goes_on_behind() {
    let node = Node::new();
    for (last, want) in [(Fails(Errno::IO), "reading the kernel log: "), (Ends, "the kernel log ended")] {
        let mut run = node.start();
        let error = run.read(&[Xid(1), Wait, Xid(2), last], 9, 0).await.unwrap_err();
        assert!(error.starts_with(want), "{error}");
        assert_eq!(run.read(&[Xid(1), Xid(2), Xid(3)], 1, 0).await, Ok(vec![(3, false)]));
    }
    let stuck = node.start().read(&vec![Fails(Errno::PIPE); 20_000], 9, 0).await;
    assert!(stuck.unwrap_err().contains("no record in"));
}

#[tokio::test]
async fn a_clean_restart_repeats_nothing_and_misses_nothing() {
    let node = Node::new();
    let mut run = node.start();
    assert_eq!(
        run.read(&[Xid(1), Xid(2), Wait, Xid(3)], 3, 0).await,
        Ok(vec![(1, true), (2, true), (3, false)])
    );
    assert!(run.state.save(&run.delivery));
    let steps = [Xid(1), Xid(2), Xid(3), Xid(4), Other(5), Wait, Xid(6)];
    let mut run = node.start();
    assert_eq!(
        run.read(&steps, 2, 0).await,
        Ok(vec![(4, false), (6, false)]),
        "written in between, and live"
    );
}

#[tokio::test]
async fn a_kill_repeats_what_was_owed_with_the_same_mark() {
    let node = Node::new();
    let mut run = node.start();
    let steps = [Xid(1), Xid(2), Xid(3), Wait, Xid(4)];
    assert_eq!(
        run.read(&steps, 2, 1).await,
        Ok(vec![(1, true), (2, true)]),
        "in the middle of the first drain"
    );
    assert!(run.state.save(&run.delivery));
    let mut run = node.start();
    assert_eq!(run.read(&steps, 3, 0).await, Ok(vec![(2, true), (3, true), (4, false)]));
}

#[tokio::test]
async fn a_kill_before_the_first_regular_save_does_not_make_backlog_of_what_follows() {
    let node = Node::new();
    assert_eq!(node.start().read(&[Xid(1), Wait, Xid(2)], 1, 1).await, Ok(vec![(1, true)]));
    let steps = [Xid(1), Xid(2), Xid(3), Wait, Xid(4)];
    let seen = node.start().read(&steps, 4, 0).await;
    assert_eq!(seen, Ok(vec![(1, true), (2, false), (3, false), (4, false)]));
}

#[tokio::test]
async fn a_state_ahead_of_the_log_is_void_instead_of_making_blind() {
    let node = Node::new();
    let run = node.start();
    run.delivery.read(u64::MAX - 1, false);
    assert!(run.state.save(&run.delivery));
    let mut run = node.start();
    assert_eq!(run.state.previous().resume, Some(u64::MAX));
    assert_eq!(run.read(&[Xid(1), Wait, Xid(2)], 2, 0).await, Ok(vec![(1, true), (2, false)]));
    assert_eq!((run.delivery.resume_at(), node.counted("warpgauge.state.errors")), (Some(3), 1));
}
