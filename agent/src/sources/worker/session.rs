//! One worker's life, from its start to its end: frames both ways, deadlines, the memory budget.
//!
//! In: the process and its socket. Out: signals, state changes, and how it ended ([`Ended`]).
//! What can go wrong: all of it is foreign code's doing: silence, garbage, a crash, a process that cannot be killed.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::Shared;
use super::deadline::{Deadlines, LATE, Step};
use super::desk::Pending;
use super::ended::{ENDED, Ended, Why};
use super::hold::Reason;
use super::intake::Aside;
use super::memory::{self, Verdict};
use super::spawn::Process;
use crate::host::{mono_now, process_usage};
use crate::model::Signal;
use crate::sources::Outlet;
use crate::wire::order::{Configure, End};
use crate::wire::{Decoder, FrameError, Order, PROTOCOL, Report, encode, order, report};

/// How often deadlines are looked at.
const LOOK: Duration = Duration::from_millis(250);
/// How often memory is looked at, and how often when it is near the budget.
const WEIGH: Duration = Duration::from_secs(5);
const WEIGH_NEAR: Duration = Duration::from_secs(1);
/// What an ordered end may take, a little more than the worker gives its threads: then SIGKILL.
const LET_GO: Duration = Duration::from_millis(4_200);
/// The same when the driver waits for it.
const LET_GO_WHILE_WAITED_FOR: Duration = Duration::from_millis(2_200);
/// The same when the whole agent ends.
const LET_GO_AT_STOP: Duration = Duration::from_millis(300);
/// Bytes that may wait for a worker that does not read.
const OUT_MAX: usize = 64 * 1024;
/// Reports taken before something else gets its turn.
const REPORTS_AT_ONCE: usize = 64;

/// Full buffers taken before deadlines are looked at; a socket's own buffer holds no more.
const READS_AT_ONCE: usize = 8;

/// What was in the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    Some,
    Nothing,
    /// It is closed, or says what cannot be.
    Closed,
}

/// A worker at work.
#[derive(Debug)]
pub(super) struct Session<'a> {
    shared: &'a mut Shared,
    process: &'a mut Process,
    outlet: &'a Outlet,
    decoder: Decoder,
    out: Vec<u8>,
    deadlines: Deadlines,
    pending: Pending,
    why: Option<Why>,
    /// It was told that the driver is released; from then on it has [`LET_GO`], whatever it was ended for before.
    let_go: bool,
    weigh_at: Instant,
    /// Processor time booked so far.
    booked: (Duration, Duration),
    /// What it had dropped by the last heartbeat.
    dropped: (u64, u64),
    /// Empty between two reads; kept for its memory.
    signals: Vec<Signal>,
}

impl<'a> Session<'a> {
    pub(super) fn new(shared: &'a mut Shared, process: &'a mut Process, outlet: &'a Outlet) -> Self {
        Self {
            shared,
            process,
            outlet,
            decoder: Decoder::default(),
            out: Vec::new(),
            deadlines: Deadlines::new(mono_now()),
            pending: Pending::default(),
            why: None,
            let_go: false,
            weigh_at: Instant::now() + LOOK,
            booked: Default::default(),
            dropped: (0, 0),
            signals: Vec::new(),
        }
    }

    /// For tests: it began at `born`, and has said nothing since.
    #[cfg(test)]
    pub(super) fn born(mut self, born: crate::model::MonoNs) -> Self {
        self.deadlines = Deadlines::new(born);
        self
    }

    /// Runs until the process is gone, or given up.
    pub(super) async fn run(
        mut self,
        stream: UnixStream,
        configure: Configure,
        stop: &CancellationToken,
    ) -> Ended {
        let mut hold = self.shared.hold.subscribe();
        // What was released while the process came to be is not touched at all.
        if self.shared.hold.now().released.is_none() {
            self.order(order::Kind::Configure(configure));
        }
        let mut tick = interval(LOOK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut open, mut told_to_stop) = (true, false);
        let ended = loop {
            if let Some((reason, _)) = self.shared.hold.now().released
                && !self.let_go
            {
                self.let_go = true;
                // Who releases by hand can wait for an engine that ends in order; the driver cannot, and what hangs
                // gains nothing by time.
                let in_order = reason == Reason::Manual && self.deadlines.hanging().next().is_none();
                let within = if in_order { LET_GO } else { LET_GO_WHILE_WAITED_FOR };
                self.end(Why::Released, within);
            }
            tokio::select! {
                biased;
                () = stop.cancelled(), if !told_to_stop => {
                    told_to_stop = true;
                    self.end(Why::Stopped, LET_GO_AT_STOP);
                }
                _ = tick.tick() => {
                    // After a pause of the agent it is no silence what waits in the socket.
                    open = open && self.drain(&stream).await;
                    if let Some(ended) = self.look().await {
                        break ended;
                    }
                }
                _ = hold.changed() => {}
                Some(asked) = self.shared.questions.recv(), if self.why.is_none() => {
                    let known = || self.shared.intake.listed();
                    let Some(asked) = asked.unless_known(known) else { continue };
                    match self.shared.states.refusal(asked.question()) {
                        Some(why) => asked.refuse(&why),
                        None => {
                            let order = self.pending.order(mono_now(), asked);
                            order.into_iter().for_each(|order| self.order(order));
                        }
                    }
                }
                _ = stream.writable(), if open && !self.out.is_empty() => open = self.write(&stream),
                _ = stream.readable(), if open => open = self.read(&stream).await != Read::Closed,
            }
            if !open && !self.deadlines.is_ending() {
                self.closed().await;
            }
        };
        self.pending.refuse_all("the worker ended");
        self.shared.gauges.memory.set(0);
        self.shared.gauges.up.set(0);
        ended
    }

    fn order(&mut self, kind: order::Kind) {
        let end = matches!(kind, order::Kind::End(_));
        if self.out.len() < OUT_MAX || end {
            // Orders are short but for the configuration, which is bounded when it is read.
            if let Err(error) = encode(&Order { kind: Some(kind) }, &mut self.out) {
                warn!(%error, "An order is too long for the worker.");
            }
        }
    }

    fn end(&mut self, why: Why, within: Duration) {
        self.why.get_or_insert(why);
        self.order(order::Kind::End(End {}));
        self.deadlines.ending(mono_now(), within);
    }

    /// The socket is closed: the process is ending, or does not deserve to live.
    async fn closed(&mut self) {
        self.why.get_or_insert(Why::Crashed);
        self.deadlines.ending(mono_now(), LET_GO);
        if self.why == Some(Why::Crashed) {
            self.shared.states.none(ENDED);
            self.tell().await;
        }
    }

    async fn tell(&mut self) {
        let changes = self.shared.states.changes();
        self.shared.tell.changes(self.outlet, changes).await;
    }

    async fn look(&mut self) -> Option<Ended> {
        if let Some(status) = self.process.ended() {
            let why = self.why.unwrap_or(Why::Crashed);
            match why {
                Why::Stopped | Why::Released | Why::Replaced => debug!(status, "The worker ended."),
                _ => warn!(status, ?why, "The worker ended."),
            }
            return Some(Ended { why, abandoned: false });
        }
        let mut steps = Vec::new();
        self.deadlines.look(mono_now(), &mut steps);
        if self.deadlines.age(mono_now()) >= LATE {
            self.shared.states.overdue();
        }
        for step in steps {
            match step {
                Step::Late(origin, call) => self.shared.states.late(origin, Some(call)),
                Step::Back(origin) => self.shared.states.late(origin, None),
                Step::Terminate => {
                    for call in self.deadlines.hanging() {
                        self.shared.before.hung(mono_now(), call);
                    }
                    warn!(
                        pid = self.process.pid(),
                        "A call has not come back for a minute: the worker is ended."
                    );
                    self.why.get_or_insert(Why::Hung);
                    self.process.terminate();
                }
                Step::Kill => self.process.kill(),
                Step::Abandon => {
                    return Some(Ended { why: self.why.unwrap_or(Why::Hung), abandoned: true });
                }
            }
        }
        self.tell().await;
        if self.weigh_at <= Instant::now() {
            self.weigh_at = Instant::now() + WEIGH;
            self.weigh();
        }
        None
    }

    fn weigh(&mut self) {
        // The worker's pid is one of our own namespace, so it is our own /proc that knows it.
        let Some(usage) = process_usage::read(&Path::new(super::PROC).join(self.process.pid().to_string()))
        else {
            return;
        };
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let gauges = &self.shared.gauges;
        gauges.memory.set(usage.resident);
        gauges.cpu_user.add(nanos(usage.user.saturating_sub(self.booked.0)));
        gauges.cpu_system.add(nanos(usage.system.saturating_sub(self.booked.1)));
        self.booked = (usage.user.max(self.booked.0), usage.system.max(self.booked.1));
        if self.why.is_some() {
            return;
        }
        let may_replace = self.shared.throttle.may_replace(mono_now());
        let budget = self.shared.config.memory_limit;
        if memory::is_near(usage.resident, budget) {
            self.weigh_at = Instant::now() + WEIGH_NEAR;
        }
        let why = match memory::judge(usage.resident, budget, may_replace) {
            Verdict::Keep => return,
            Verdict::Replace => Why::Replaced,
            Verdict::End => Why::TooBig,
        };
        warn!(resident = usage.resident, budget, "The worker is above its memory budget: it is replaced.");
        self.end(why, LET_GO);
    }

    /// False when the socket is closed.
    fn write(&mut self, stream: &UnixStream) -> bool {
        match stream.try_write(&self.out) {
            Ok(n) => drop(self.out.drain(..n)),
            Err(error) if is_passing(error.kind()) => {}
            Err(_) => return false,
        }
        true
    }

    /// Takes what waits in the socket; false when it is closed.
    async fn drain(&mut self, stream: &UnixStream) -> bool {
        for _ in 0..READS_AT_ONCE {
            match self.read(stream).await {
                Read::Some => {}
                Read::Nothing => break,
                Read::Closed => return false,
            }
        }
        true
    }

    async fn read(&mut self, stream: &UnixStream) -> Read {
        let mut buffer = [0; 64 * 1024];
        match stream.try_read(&mut buffer) {
            Ok(0) => return Read::Closed,
            Ok(n) => self.decoder.push(buffer.get(..n).unwrap_or_default()),
            Err(error) if is_passing(error.kind()) => return Read::Nothing,
            Err(_) => return Read::Closed,
        }
        let mut signals = std::mem::take(&mut self.signals);
        let open = self.take_reports(&mut signals).await;
        self.shared.tell.signals(self.outlet, &mut signals).await;
        self.signals = signals;
        if open { Read::Some } else { Read::Closed }
    }

    async fn take_reports(&mut self, signals: &mut Vec<Signal>) -> bool {
        loop {
            // In portions: a thousand small reports are handed on before the next thousand are made.
            for _ in 0..REPORTS_AT_ONCE {
                let kind = match self.decoder.take::<Report>() {
                    Ok(None) => return true,
                    Ok(Some(report)) => report.kind,
                    Err(error) => {
                        self.garbage(&error);
                        return false;
                    }
                };
                let Some(kind) = kind else { continue }; // of a newer worker
                if let Some(aside) = self.shared.intake.push(mono_now(), kind, signals) {
                    self.aside(aside, signals).await;
                }
            }
            self.shared.tell.signals(self.outlet, signals).await;
        }
    }

    fn garbage(&mut self, error: &FrameError) {
        warn!(%error, "The worker said what cannot be: it is replaced.");
        self.why.get_or_insert(Why::Protocol);
        self.process.kill();
    }

    async fn aside(&mut self, aside: Aside, signals: &mut Vec<Signal>) {
        match aside {
            Aside::Hello(hello) => self.hello(&hello),
            Aside::Heartbeat(in_flight, (values, others)) => {
                self.deadlines.heartbeat(mono_now(), in_flight);
                let refused = &self.shared.refused;
                refused.values.add(values.saturating_sub(self.dropped.0));
                refused.others.add(others.saturating_sub(self.dropped.1));
                self.dropped = (values, others);
            }
            Aside::State(state) => {
                // What was said before belongs before the change of state.
                self.shared.tell.signals(self.outlet, signals).await;
                self.deadlines.spoke(&state.name);
                if !self.shared.states.report(state) {
                    self.shared.refused.invalid.add(1);
                }
                self.tell().await;
            }
            Aside::Note(note) => self.shared.tell.note(&note),
            Aside::Answer(answer) => {
                let paused = self.pending.answer(answer);
                let before = &mut self.shared.before;
                before.paused = paused.unwrap_or(before.paused);
            }
            Aside::Bind(true) => self.shared.hold.release(Reason::Bind),
            Aside::Bind(false) => self.shared.hold.take_after(Reason::Bind),
        }
    }

    fn hello(&mut self, hello: &report::Hello) {
        if hello.protocol != PROTOCOL {
            warn!(
                theirs = hello.protocol,
                ours = PROTOCOL,
                "The worker is of another build: it is replaced."
            );
            self.end(Why::Protocol, LET_GO);
        }
        if let Some(pid) = hello.abandoned {
            self.why.get_or_insert(Why::Held(pid));
            self.deadlines.ending(mono_now(), LET_GO);
        }
        self.shared.gauges.up.set(u64::from(self.why.is_none()));
        match hello.rights_given_up {
            1 => debug!("The worker gave up the capabilities it has no use for."),
            given_up => {
                let given_up = if given_up == 2 { "no" } else { "unknown" };
                info!(
                    given_up,
                    why = hello.rights_why,
                    "The worker may have more capabilities than it needs."
                );
            }
        }
    }
}

fn is_passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
