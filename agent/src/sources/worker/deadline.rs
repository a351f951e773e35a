//! Deadlines: when a source counts as slow, and when its worker is ended, by force in the end, or given up.
//!
//! In: heartbeats (which calls are in flight), and the passing of time. Out: [`Step`]s, each once.
//! Pure: the time comes in, the signals are sent elsewhere. Each library has its own state: a call that hangs in DCGM
//! leaves NVML up. Slow engines are often alive, so nothing is killed before a minute has passed. Time in which the
//! agent itself stood still (a frozen cgroup, a debugger, a suspended machine) does not count: the worker may have
//! stood still with it.
//! What can go wrong: a process that hangs in the kernel does not even end by SIGKILL; it is given up then.

use std::collections::VecDeque;
use std::time::Duration;

use crate::model::signal::LateCall;
use crate::model::{MonoNs, Origin};

/// A call that is not back by then is late; a worker that has said nothing for as long is silent.
pub const LATE: Duration = Duration::from_secs(3);
/// A call this late ends the worker in order (SIGTERM) …
pub const TERMINATE: Duration = Duration::from_secs(60);
/// … and by force (SIGKILL) this much later.
pub const KILL_AFTER: Duration = Duration::from_secs(30);
/// What the kernel gets to end a killed process.
pub const REAP: Duration = Duration::from_secs(5);
/// A heartbeat older than this is not waited for: what it said is taken to hold still.
const BEAT_OVERDUE: Duration = Duration::from_millis(750);
/// Two looks further apart than this: nobody looked, so what happened between them is nobody's fault.
const STOOD_STILL: Duration = Duration::from_millis(1_500);
/// So many of these times are left out, so that a starved agent still ends a hung worker one day.
const STOOD_STILL_MAX: usize = 16;
/// A library that is slow again within this …
const AGAIN: Duration = Duration::from_secs(60);
/// … stays slow until no call of it was late for so long, instead of coming and going with every call.
const CALM: Duration = Duration::from_secs(10);
/// Name of the call when it is not a library that is late, but the worker itself.
pub const SILENT: &str = "worker silent";

/// The libraries that are watched.
pub const ORIGINS: [Origin; 2] = [Origin::Dcgm, Origin::Nvml];

/// A call in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flight {
    /// Whose library.
    pub origin: Origin,
    /// The call.
    pub call: LateCall,
}

/// Something to do or to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A call of this library is late.
    Late(Origin, LateCall),
    /// No call of it is late any more.
    Back(Origin),
    /// Send SIGTERM.
    Terminate,
    /// Send SIGKILL.
    Kill,
    /// It did not end: give it up.
    Abandon,
}

/// One worker's deadlines.
#[derive(Debug)]
pub struct Deadlines {
    born: MonoNs,
    heard: MonoNs,
    in_flight: Vec<Flight>,
    slow: [Slow; 2],
    looked: Option<MonoNs>,
    stood_still: VecDeque<(MonoNs, MonoNs)>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Working,
    /// It was asked to end, by an order or by SIGTERM.
    Ending {
        kill_at: MonoNs,
    },
    Killed {
        at: MonoNs,
    },
    Abandoned,
}

impl Deadlines {
    /// A worker started at `now`.
    pub fn new(now: MonoNs) -> Self {
        Self {
            born: now,
            heard: now,
            in_flight: Vec::new(),
            slow: Default::default(),
            looked: None,
            stood_still: VecDeque::new(),
            stage: Stage::Working,
        }
    }

    /// A heartbeat came in. No call can have begun before the worker.
    pub fn heartbeat(&mut self, now: MonoNs, in_flight: Vec<Flight>) {
        self.heard = now;
        self.in_flight = in_flight;
        self.in_flight.iter_mut().for_each(|flight| flight.call.began = flight.call.began.max(self.born));
    }

    /// A library's thread said how it is, which it does between two calls: what was in flight came back. The next
    /// heartbeat knows of a newer one.
    pub fn spoke(&mut self, name: &str) {
        self.in_flight.retain(|flight| flight.origin.name() != name);
    }

    /// The worker was ordered to end and has `within` for it.
    pub fn ending(&mut self, now: MonoNs, within: Duration) {
        let kill_at = now.after(within);
        match self.stage {
            Stage::Working => self.stage = Stage::Ending { kill_at },
            Stage::Ending { kill_at: earlier } => {
                self.stage = Stage::Ending { kill_at: kill_at.min(earlier) };
            }
            Stage::Killed { .. } | Stage::Abandoned => {}
        }
    }

    /// Whether it was told to end.
    pub fn is_ending(&self) -> bool {
        self.stage != Stage::Working
    }

    /// How long the worker has lived, but for what was stood still of it.
    pub fn age(&self, now: MonoNs) -> Duration {
        counted(&self.stood_still, now, self.born)
    }

    /// Names of the calls that are late now, the oldest of each library.
    pub fn hanging(&self) -> impl Iterator<Item = &str> {
        self.slow
            .iter()
            .filter(|slow| slow.late)
            .filter_map(|slow| slow.told.as_ref())
            .map(|call| &*call.call)
    }

    /// What is due at `now`.
    pub fn look(&mut self, now: MonoNs, steps: &mut Vec<Step>) {
        let before = self.looked.replace(now).filter(|before| age(now, *before) > STOOD_STILL);
        if let Some(before) = before {
            self.stood_still.truncate(STOOD_STILL_MAX - 1);
            self.stood_still.push_front((before, now));
        }
        let still = &self.stood_still;
        let silence = counted(still, now, self.heard);
        // A call that came back since the last heartbeat is not late: believe it until the next one is overdue.
        let as_of = if silence > BEAT_OVERDUE { now } else { self.heard };
        let mut worst = if silence >= LATE { silence } else { Duration::ZERO };
        for (origin, told) in ORIGINS.into_iter().zip(&mut self.slow) {
            let of_origin = self.in_flight.iter().filter(|flight| flight.origin == origin);
            let oldest = of_origin.map(|flight| &flight.call).min_by_key(|call| call.began);
            let late = oldest.filter(|call| counted(still, as_of, call.began) >= LATE).cloned();
            worst = worst.max(late.as_ref().map_or(Duration::ZERO, |call| counted(still, as_of, call.began)));
            let silent = || LateCall { call: SILENT.to_owned(), hw_id: None, began: self.heard };
            let late = late.or_else(|| (silence >= LATE).then(silent));
            steps.extend(told.look(now, origin, late));
        }
        match self.stage {
            Stage::Working if worst >= TERMINATE => {
                steps.push(Step::Terminate);
                self.stage = Stage::Ending { kill_at: now.after(KILL_AFTER) };
            }
            Stage::Ending { kill_at } if kill_at <= now => {
                steps.push(Step::Kill);
                self.stage = Stage::Killed { at: now };
            }
            Stage::Killed { at } if age(now, at) >= REAP => {
                steps.push(Step::Abandon);
                self.stage = Stage::Abandoned;
            }
            Stage::Working | Stage::Ending { .. } | Stage::Killed { .. } | Stage::Abandoned => {}
        }
    }
}

/// What is said of one library.
#[derive(Debug, Default)]
struct Slow {
    told: Option<LateCall>,
    /// A call is late at the moment.
    late: bool,
    /// When one became late; when one was late; both for the last time.
    became: Option<MonoNs>,
    was: Option<MonoNs>,
    /// It is not the first time of late.
    again: bool,
}

impl Slow {
    fn look(&mut self, now: MonoNs, origin: Origin, late: Option<LateCall>) -> Option<Step> {
        let since = |then: Option<MonoNs>| then.map_or(Duration::MAX, |then| age(now, then));
        if late.is_some() {
            if !self.late {
                self.again = since(self.became) <= AGAIN;
                self.became = Some(now);
            }
            self.was = Some(now);
        }
        self.late = late.is_some();
        let waits = late.is_none() && self.again && since(self.was) < CALM;
        if waits || self.told == late {
            return None;
        }
        self.told.clone_from(&late);
        Some(late.map_or(Step::Back(origin), |call| Step::Late(origin, call)))
    }
}

/// The time from `then` to `now` but for what was stood still of it.
fn counted(stood_still: &VecDeque<(MonoNs, MonoNs)>, now: MonoNs, then: MonoNs) -> Duration {
    let left_out = stood_still.iter().map(|(from, until)| age(now.min(*until), then.max(*from)));
    age(now, then).saturating_sub(left_out.sum())
}

fn age(now: MonoNs, then: MonoNs) -> Duration {
    now.since(then).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> MonoNs {
        MonoNs(ms * 1_000_000)
    }

    fn call(name: &str, began: u64) -> LateCall {
        LateCall { call: name.to_owned(), hw_id: Some("GPU-1".to_owned()), began: ms(began) }
    }

    /// A worker born at 0 that makes these calls (origin, begin, end in ms), beats every 500 ms up to `alive` and is
    /// looked at every 250 ms: what is due, and when.
    fn run(calls: &[(Origin, u64, u64)], alive: u64, until: u64) -> Vec<(u64, Step)> {
        let mut deadlines = Deadlines::new(ms(0));
        let (mut log, mut steps) = (Vec::new(), Vec::new());
        for now in (0..=until).step_by(250) {
            if now % 500 == 0 && now <= alive {
                let here = calls.iter().filter(|(_, began, end)| *began <= now && now < *end);
                let flights =
                    here.map(|(origin, began, _)| Flight { origin: *origin, call: call("f", *began) });
                deadlines.heartbeat(ms(now), flights.collect());
            }
            deadlines.look(ms(now), &mut steps);
            log.extend(steps.drain(..).map(|step| (now, step)));
        }
        log
    }

    const NEVER: u64 = u64::MAX;

    #[test]
    fn a_late_call_makes_its_own_library_slow_and_nothing_else() {
        for origin in ORIGINS {
            let log = run(&[(origin, 1_100, 9_800)], NEVER, 20_000);
            assert_eq!(
                log,
                [(4_500, Step::Late(origin, call("f", 1_100))), (10_000, Step::Back(origin))],
                "within 4 s of its begin"
            );
        }
        assert_eq!(run(&[(Origin::Dcgm, 0, 2_900), (Origin::Dcgm, 2_950, 5_800)], NEVER, 10_000), []);
    }

    #[test]
    fn a_minute_ends_the_worker_and_half_a_minute_more_kills_it() {
        let log = run(&[(Origin::Nvml, 0, NEVER)], NEVER, 200_000);
        let want = [
            (3_000, Step::Late(Origin::Nvml, call("f", 0))),
            (60_000, Step::Terminate),
            (90_000, Step::Kill),
            (95_000, Step::Abandon),
        ];
        assert_eq!(log, want);
        let back = run(&[(Origin::Nvml, 0, 59_000)], NEVER, 200_000);
        assert_eq!(back.last(), Some(&(59_000, Step::Back(Origin::Nvml))), "it was alive");
        let too_late = run(&[(Origin::Nvml, 0, 61_000)], NEVER, 200_000);
        assert!(too_late.contains(&(90_000, Step::Kill)), "SIGTERM is not taken back: {too_late:?}");
    }

    #[test]
    fn a_silent_worker_is_slow_as_a_whole() {
        let log = run(&[], 10_000, 14_000);
        let silent = LateCall { call: SILENT.to_owned(), hw_id: None, began: ms(10_000) };
        let want = ORIGINS.map(|origin| (13_000, Step::Late(origin, silent.clone())));
        assert_eq!(log, want);
        assert!(run(&[], 10_000, 80_000).contains(&(70_000, Step::Terminate)));
        let hung = run(&[(Origin::Dcgm, 9_800, NEVER)], 10_000, 13_000);
        assert_eq!(hung[0], (13_000, Step::Late(Origin::Dcgm, call("f", 9_800))), "the call is named");
    }

    #[test]
    fn an_ordered_end_has_its_time() {
        let mut deadlines = Deadlines::new(ms(0));
        deadlines.ending(ms(1_000), Duration::from_secs(2));
        deadlines.ending(ms(2_000), Duration::from_secs(9));
        let mut steps = Vec::new();
        let mut due = Vec::new();
        for now in (1_000..12_000).step_by(500) {
            deadlines.heartbeat(ms(now), Vec::new());
            deadlines.look(ms(now), &mut steps);
            due.extend(steps.drain(..).map(|step| (now, step)));
        }
        assert_eq!(due, [(3_000, Step::Kill), (8_000, Step::Abandon)]);
        assert!(deadlines.is_ending());
    }

    #[test]
    fn a_library_that_is_slow_again_and_again_stays_slow_until_it_is_calm() {
        let calls: Vec<_> = (0..5).map(|n| (Origin::Dcgm, n * 4_500, n * 4_500 + 4_000)).collect();
        let log = run(&calls, NEVER, 60_000);
        let backs: Vec<_> = log.iter().filter(|(_, step)| *step == Step::Back(Origin::Dcgm)).collect();
        // The first one is told as over at once; the last is late until 22 s.
        assert_eq!(backs.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [4_000, 31_750]);
        assert_eq!(log.last(), Some(&(31_750, Step::Back(Origin::Dcgm))));
        let rare = run(&[(Origin::Dcgm, 0, 5_000), (Origin::Dcgm, 61_000, 66_000)], NEVER, 80_000);
        assert_eq!(rare.iter().filter(|(at, _)| [5_000, 66_000].contains(at)).count(), 2, "{rare:?}");
    }

    #[test]
    fn time_in_which_the_agent_stood_still_does_not_count() {
        let mut deadlines = Deadlines::new(ms(0));
        let mut steps = Vec::new();
        let flight = || vec![Flight { origin: Origin::Dcgm, call: call("f", 1_000) }];
        deadlines.heartbeat(ms(1_500), flight());
        deadlines.look(ms(1_750), &mut steps);
        deadlines.look(ms(100_000), &mut steps);
        assert_eq!(steps, [], "neither silent nor late after 98 s of nothing");
        assert_eq!(deadlines.age(ms(100_000)), Duration::from_millis(1_750), "nor older");
        deadlines.heartbeat(ms(100_100), flight());
        deadlines.look(ms(100_250), &mut steps);
        assert_eq!(steps, [], "the worker tells the call's true begin");
        deadlines.heartbeat(ms(102_500), flight());
        deadlines.look(ms(101_500), &mut steps);
        deadlines.look(ms(102_500), &mut steps);
        assert_eq!(steps, [Step::Late(Origin::Dcgm, call("f", 1_000))], "0.75 s before and 2.5 s after it");
        let mut starved = Deadlines::new(ms(0));
        steps.clear();
        for now in (0..110_000).step_by(2_000) {
            starved.look(ms(now), &mut steps);
        }
        assert!(steps.contains(&Step::Terminate), "who is looked at rarely is ended late, but is ended");
    }

    #[test]
    fn a_thread_that_spoke_after_its_call_does_not_hang_in_it() {
        let mut deadlines = Deadlines::new(ms(0));
        let flight = |origin| Flight { origin, call: call("dlopen", 0) };
        deadlines.heartbeat(ms(10), vec![flight(Origin::Dcgm), flight(Origin::Nvml)]);
        deadlines.spoke("dcgm");
        let mut steps = Vec::new();
        (0..=3_100).step_by(100).for_each(|now| deadlines.look(ms(now), &mut steps));
        let silent = LateCall { call: SILENT.to_owned(), hw_id: None, began: ms(10) };
        let want = [Step::Late(Origin::Nvml, call("dlopen", 0)), Step::Late(Origin::Dcgm, silent)];
        assert_eq!(steps, want);
    }

    #[test]
    fn times_that_cannot_be_are_put_right() {
        let mut deadlines = Deadlines::new(ms(5_000));
        let flight = |began| vec![Flight { origin: Origin::Dcgm, call: call("f", began) }];
        let mut steps = Vec::new();
        deadlines.heartbeat(ms(5_500), flight(0));
        deadlines.look(ms(5_500), &mut steps);
        assert_eq!(steps, [], "it cannot have begun before the worker");
        deadlines.heartbeat(ms(6_000), flight(u64::MAX / 1_000_000));
        deadlines.look(ms(6_000), &mut steps);
        assert_eq!(steps, [], "nor in the future");
    }
}
