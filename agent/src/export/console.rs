//! The console: one line per finding, for people.
//!
//! In: attributed findings. Out: lines on a writer, which is written to by a thread of its own, since standard output
//! may be a pipe that nobody reads.
//! What can go wrong: the writer fails or is too slow; lines are lost, counted, and nothing else happens.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::record::{GAP_EVENT, Record, state_name};
use super::session::GapSettled;
use super::whose::process_of;
use crate::model::operation::Majors;
use crate::model::plain::is_plain;
use crate::model::{
    Attributed, Delivery, Finding, FindingKind, Known, Pid, Process, Stall, StallState, WallAnchor, WallNs,
    Xid,
};
use crate::telemetry::{Counter, Telemetry};

/// Lines that wait for a slow reader.
const QUEUE: usize = 1_024;

/// Prints findings.
#[derive(Debug)]
pub struct Console {
    lines: SyncSender<Line>,
    done: oneshot::Receiver<()>,
    settles: Option<Settles>,
    queue_full: Counter,
}

/// Whom to tell that a line was printed or lost, counted, which is all that can be done for it.
#[derive(Clone, Debug, Default)]
pub struct Settles {
    /// Of records of the kernel log.
    pub delivery: Arc<Delivery>,
    /// Of the record of the gap.
    pub gap: GapSettled,
}

impl Settles {
    fn settle(&self, seq: Option<u64>, gap: bool) {
        if let Some(seq) = seq {
            self.delivery.settle(seq);
        }
        if gap {
            self.gap.settle();
        }
    }
}

#[derive(Debug)]
struct Line {
    text: String,
    seq: Option<u64>,
    gap: bool,
}

impl Console {
    /// Starts the thread that prints. With `settles`, a printed line counts as delivered: for the only exporter.
    ///
    /// # Errors
    /// The system's, when it refuses a thread.
    pub fn start(
        out: Box<dyn Write + Send>,
        settles: Option<Settles>,
        telemetry: &Telemetry,
    ) -> io::Result<Self> {
        let lost = |reason| telemetry.counter("warpgauge.console.lines.lost", &[("reason", reason)]);
        let (queue_full, failed) = (lost("queue_full"), lost("write_failed"));
        let (lines, queue) = sync_channel(QUEUE);
        let (finished, done) = oneshot::channel();
        let printer = Printer { out, settles: settles.clone(), failed };
        std::thread::Builder::new().name("console".into()).spawn(move || {
            printer.run(&queue);
            // The other end may have stopped waiting.
            let _ = finished.send(());
        })?;
        Ok(Self { lines, done, settles, queue_full })
    }

    /// Prints one finding; never waits.
    pub fn finding(
        &self,
        finding: &Finding,
        fact: &Attributed<impl Sized>,
        record: &Record,
        majors: &Majors,
        now: WallAnchor,
    ) {
        self.print(Line { text: line(finding, fact, record, majors, now), seq: record.seq, gap: false });
    }

    /// Prints a record that no finding led to.
    pub fn note(&self, record: &Record) {
        let text = format!("{} {} {}\n", clock(record.time), record.event_name, printable(&record.body));
        self.print(Line { text, seq: record.seq, gap: record.event_name == GAP_EVENT });
    }

    /// Waits until everything is printed, at most until the deadline.
    pub async fn finish(self, deadline: Instant) {
        drop(self.lines);
        // Either the thread is done, or it hangs in a write and dies with the process.
        let _ = tokio::time::timeout_at(deadline, self.done).await;
    }

    fn print(&self, line: Line) {
        let (seq, gap) = (line.seq, line.gap);
        if self.lines.try_send(line).is_err() {
            self.queue_full.add(1);
            if let Some(settles) = &self.settles {
                settles.settle(seq, gap);
            }
        }
    }
}

struct Printer {
    out: Box<dyn Write + Send>,
    settles: Option<Settles>,
    failed: Counter,
}

impl Printer {
    fn run(mut self, queue: &Receiver<Line>) {
        let mut said = false;
        while let Ok(line) = queue.recv() {
            match self.out.write_all(line.text.as_bytes()).and_then(|()| self.out.flush()) {
                Ok(()) => said = false,
                Err(error) => {
                    self.failed.add(1);
                    if !std::mem::replace(&mut said, true) {
                        tracing::warn!(
                            reason = "no_stdout",
                            what = %error,
                            remedy = "give standard output room, or set OTEL_EXPORTER_OTLP_ENDPOINT",
                            "Findings cannot be printed; they are lost and counted."
                        );
                    }
                }
            }
            if let Some(settles) = &self.settles {
                settles.settle(line.seq, line.gap);
            }
        }
    }
}

/// The line of a finding, with its end of line.
pub fn line(
    finding: &Finding,
    fact: &Attributed<impl Sized>,
    record: &Record,
    majors: &Majors,
    now: WallAnchor,
) -> String {
    let mut text = match &finding.kind {
        FindingKind::Stall(stall) => stall_line(stall, fact, record, majors, now),
        FindingKind::Xid(xid) => xid_line(xid, fact, record),
        FindingKind::Status(_) => format!("{} STATUS {}", clock(record.time), record.body),
    };
    text = printable(&text);
    text.push('\n');
    text
}

fn stall_line(
    stall: &Stall,
    fact: &Attributed<impl Sized>,
    record: &Record,
    majors: &Majors,
    now: WallAnchor,
) -> String {
    let mut text = format!("{} STALL {} {}", clock(record.time), state_name(stall.state), stall.cause.name());
    if let Some(call) = &stall.call {
        let node = call.node.clone().or_else(|| call.device.map(|device| device.to_string()));
        put(&mut text, " ", node);
        put(&mut text, " ", Some(call.kind.name()));
        put(&mut text, " ", majors.operation(call.kind, call.op, call.device));
    }
    let seconds = stall.duration.as_secs_f64();
    let length = match stall.state {
        StallState::Begin | StallState::Update => {
            format!(" for {seconds:.1} s since {}", clock(now.wall(stall.begin)))
        }
        StallState::End => format!(" took {seconds:.3} s"),
        StallState::Unobserved => format!(" took up to {seconds:.1} s, end not seen"),
    };
    text.push_str(&length);
    for victim in &stall.victims {
        put_process(&mut text, victim.pid, process_of(fact, victim.pid));
        let comm = victim.caller.as_ref().map(|caller| &caller.comm);
        put(&mut text, " thread=", comm.map(|comm| format!("{comm}/{}", victim.tid.0)));
    }
    if let Some(holder) = &stall.holder {
        put(&mut text, " holder", Some(""));
        put_process(&mut text, holder.pid, process_of(fact, holder.pid));
    }
    if !stall.evidence.is_empty() {
        put(&mut text, " | ", Some(stall.evidence.join("; ")));
    }
    text
}

fn xid_line(xid: &Xid, fact: &Attributed<impl Sized>, record: &Record) -> String {
    // From before the agent began to watch: nothing that happens now.
    let backlog = if xid.line.origin.backlog { " backlog" } else { "" };
    let mut text = format!("{} XID{backlog} {} {}", clock(record.time), xid.code, xid.name);
    let device = xid.hw_id.clone().or_else(|| xid.pci.map(|pci| pci.to_string()));
    put(&mut text, " ", device);
    for (name, word) in [("class", &xid.class), ("severity", &xid.severity), ("action", &xid.action)] {
        put(&mut text, &format!(" {name}="), Some(word));
    }
    if let Some(pid) = xid.pid {
        put_process(&mut text, pid, process_of(fact, pid));
    }
    put(&mut text, " | ", Some(&xid.line.raw));
    text
}

fn put_process(text: &mut String, pid: Pid, known: &Known<Process>) {
    let process = known.is();
    put(text, " ", Some(process.and_then(|p| p.comm.as_deref()).unwrap_or("?")));
    put(text, "/", Some(pid.0));
    put(text, " unknown=", known.reason());
    let Some(process) = process else { return };
    let workload = &process.workload;
    // By name, as people know it.
    match (&workload.namespace, &workload.pod) {
        (Some(namespace), Some(pod)) => put(text, " pod=", Some(format_args!("{namespace}/{pod}"))),
        _ => put(text, " pod=", workload.pod_uid.as_ref()),
    }
    let container = workload.container_id.as_ref();
    let id = container.and_then(|id| id.get(..12).or(Some(id)));
    put(text, " container=", workload.container.as_deref().or(id));
    put(text, " job=", workload.slurm_job.as_ref());
    if container.is_none() {
        put(text, " cgroup=", process.cgroup.as_ref());
    }
}

fn put(text: &mut String, before: &str, value: Option<impl std::fmt::Display>) {
    if let Some(value) = value {
        // Writing to a String cannot fail.
        let _ = write!(text, "{before}{value}");
    }
}

/// Names of processes and lines of the kernel log are free text: nothing in them may steer a terminal.
fn printable(text: &str) -> String {
    text.chars().filter(|c| is_plain(*c)).collect()
}

/// UTC, to the millisecond.
fn clock(at: WallNs) -> String {
    let second = jiff::Timestamp::from_millisecond(i64::try_from(at.0 / 1_000_000).unwrap_or(0));
    second.map_or_else(|_| "?".to_owned(), |t| format!("{t:.3}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;
    use crate::export::record::Recorder;
    use crate::export::samples::{self, NOW};

    /// Keeps what it is given, or refuses all.
    #[derive(Clone, Default)]
    struct Paper {
        text: Arc<Mutex<Vec<u8>>>,
        broken: bool,
    }

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.broken {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.text.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn print(fact: &Attributed<Finding>) -> String {
        let majors = Majors::new(None);
        let record = Recorder::new("boot").finding(&fact.item, fact, &majors, NOW);
        line(&fact.item, fact, &record, &majors, NOW)
    }

    #[test]
    fn a_line_says_what_whose_and_for_how_long() {
        assert_eq!(
            print(&samples::stall(StallState::Begin)),
            "2023-11-14T22:13:19.500Z STALL begin driver_call nvidiactl ioctl NV_ESC_RM_CONTROL for 2.5 s since \
             2023-11-14T22:13:17.000Z python3/77 pod=6f1c container=ab12 thread=worker-0/78 | in the call for 2.5 s; \
             state D\n"
        );
        assert_eq!(
            print(&samples::xid(Some(4))),
            "2023-11-14T22:13:19.000Z XID 79 fallen off the bus GPU-1 class=bus severity=fatal action=reset \
             python3/77 pod=6f1c container=ab12 | NVRM: Xid (PCI:0000:3b:00): 79, pid=77, name=python3, GPU has \
             fallen off the bus.\n"
        );
        assert_eq!(
            print(&samples::status(false)),
            "2023-11-14T22:13:18.000Z STATUS dcgm is slow, reason slow, call dcgmUpdateAllFields\n"
        );
        let locked = print(&samples::lock_stall());
        assert!(locked.contains(" thread=worker-0/78 holder nvidia-smi/99 pod=7a2d | "), "{locked}");
        let named = print(&samples::named(samples::lock_stall()));
        assert!(named.contains(" python3/77 pod=ml/train-0 container=main thread="), "{named}");
        assert!(named.contains(" holder nvidia-smi/99 pod=ml/probe-7 | "), "{named}");
        let mut old = samples::xid(Some(4));
        let FindingKind::Xid(xid) = &mut old.item.kind else { panic!("an XID") };
        xid.line.origin.backlog = true;
        assert!(print(&old).starts_with("2023-11-14T22:13:19.000Z XID backlog 79 fallen off the bus GPU-1 "));
    }

    #[test]
    fn nothing_in_a_name_steers_the_terminal() {
        let mut fact = samples::xid(None);
        let hostile = Process { comm: Some("\u{1b}[2Jx\n\u{202e}y".into()), ..Process::default() };
        fact.processes = vec![(Pid(77), Known::Is(hostile))];
        let line = print(&fact);
        assert!(line.contains(" [2Jxy/77 |"), "{line}");
        assert_eq!(line.matches(char::is_control).count(), 1, "the end of line");
    }

    #[tokio::test]
    async fn printed_is_delivered_and_so_is_what_a_broken_output_refused() {
        for (broken, lost) in [(false, 0), (true, 1)] {
            let (paper, telemetry) = (Paper { broken, ..Paper::default() }, Telemetry::default());
            let settles = Settles::default();
            let delivery = Arc::clone(&settles.delivery);
            delivery.read(901, true);
            let out = Box::new(paper.clone());
            let console = Console::start(out, Some(settles), &telemetry).unwrap();
            let (fact, majors) = (samples::xid(Some(901)), Majors::new(None));
            let record = Recorder::new("boot").finding(&fact.item, &fact, &majors, NOW);
            console.finding(&fact.item, &fact, &record, &majors, NOW);
            console.finish(Instant::now() + Duration::from_secs(10)).await;
            assert_eq!(delivery.resume_at(), Some(902));
            let failed = telemetry.counter("warpgauge.console.lines.lost", &[("reason", "write_failed")]);
            assert_eq!(failed.get(), lost);
            assert_eq!(paper.text.lock().unwrap().is_empty(), broken);
        }
    }
}
