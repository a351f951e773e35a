//! The one simulated node of a process, its clock, and the door through which each call of a library goes.
//!
//! In: `WARPGAUGE_SIM_SCENARIO` (a path) and `WARPGAUGE_SIM_START` (seconds since 1970; left out: the first call), and
//! `<SCENARIO>.now`, whose change is seen within 50 ms. Out: the node, and for each call what is to go wrong in it.
//! What can go wrong: a file that does not parse is told on standard error; the node then has no GPUs.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::fault::Fault;
use crate::load;
use crate::node::Scenario;
use crate::overlay::{EngineState, Overlay};
use crate::world::World;

/// How often a `.now` file is looked at. Unit: µs.
const LOOK_US: i64 = 50_000;
/// How long a call that hangs waits before it looks again whether it still must.
const NAP: Duration = Duration::from_millis(10);

/// The node of this process.
#[derive(Debug)]
pub struct Simulator {
    state: Mutex<State>,
    wake: Condvar,
    /// Time set by a test, µs since 1970; 0: the real time.
    set_us: AtomicI64,
    leaked: Mutex<Vec<Vec<u8>>>,
}

#[derive(Debug)]
struct State {
    world: World,
    now_file: Option<PathBuf>,
    looked_us: i64,
    seen: Option<(SystemTime, u64)>,
}

/// How a call is to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// As usual.
    On,
    /// The engine's process did not answer in time.
    TimedOut,
    /// The engine's process is gone.
    Gone,
    /// It returns this code.
    Fails(i32),
    /// It ends the process by SIGSEGV.
    Crashes,
}

/// The node of this process, made at the first use.
pub fn simulator() -> &'static Simulator {
    static SIMULATOR: OnceLock<Simulator> = OnceLock::new();
    SIMULATOR.get_or_init(|| {
        let start = std::env::var("WARPGAUGE_SIM_START").ok().and_then(|text| text.parse::<f64>().ok());
        let path = std::env::var_os("WARPGAUGE_SIM_SCENARIO").map(PathBuf::from);
        let read = path.as_deref().map(load::scenario);
        let scenario = match read {
            Some(Ok(scenario)) => scenario,
            Some(Err(e)) => {
                complain(&e.to_string());
                Scenario { driver: "none".into(), ..Scenario::default() }
            }
            None => Scenario { driver: "none".into(), ..Scenario::default() },
        };
        #[expect(clippy::cast_possible_truncation, reason = "casts of floats clip")]
        let start_us = start.map_or_else(real_us, |seconds| (seconds * 1e6) as i64);
        let now_file = path.map(|path| {
            let mut name = path.into_os_string();
            name.push(".now");
            PathBuf::from(name)
        });
        let world = World::new(scenario, start_us);
        Simulator {
            state: Mutex::new(State { world, now_file, looked_us: i64::MIN, seen: None }),
            wake: Condvar::new(),
            set_us: AtomicI64::new(0),
            leaked: Mutex::new(Vec::new()),
        }
    })
}

#[expect(clippy::print_stderr, reason = "a library has no other place for it; libdcgm does the same")]
fn complain(message: &str) {
    eprintln!("simulator: {message}");
}

/// Real time. Unit: µs since 1970.
fn real_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

impl Simulator {
    /// Now. Unit: µs since 1970.
    pub fn now_us(&self) -> i64 {
        match self.set_us.load(Ordering::SeqCst) {
            0 => real_us(),
            set => set,
        }
    }

    /// For tests: the time stands at `us` until it is set again; `None`: real time.
    pub fn set_time(&self, us: Option<i64>) {
        self.set_us.store(us.unwrap_or(0), Ordering::SeqCst);
        self.wake.notify_all();
    }

    /// Whether a test has set the time: waits for it would not end by themselves.
    pub fn time_is_set(&self) -> bool {
        self.set_us.load(Ordering::SeqCst) != 0
    }

    /// For tests: another node, started at `start_us`, without a `.now` file.
    pub fn replace(&self, scenario: Scenario, start_us: i64) {
        let mut state = self.state();
        *state =
            State { world: World::new(scenario, start_us), now_file: None, looked_us: i64::MIN, seen: None };
    }

    /// For tests: as if the `.now` file had this content from now on.
    pub fn inject(&self, overlay: Overlay) {
        let now = self.now_us();
        self.state().world.inject(overlay, now);
        self.wake.notify_all();
    }

    /// Looks at the node as it is now.
    pub fn with<T>(&self, look: impl FnOnce(&World, i64) -> T) -> T {
        let mut state = self.state();
        let now = self.now_us();
        state.look_at_file(now);
        look(&state.world, now)
    }

    /// Goes through what the scenario has in store for a call: waits, keeps memory, and says how to go on.
    /// `engine`: the call needs the engine's process.
    pub fn enter(&self, call: &str, gpu: Option<u32>, engine: bool) -> Go {
        let begun = self.now_us();
        let faults = self.with(|world, now| world.in_call(call, gpu, now));
        let mut go = Go::On;
        for fault in &faults {
            match fault {
                Fault::Crash(_) => return Go::Crashes,
                Fault::Fail(of) => go = Go::Fails(of.code),
                Fault::Leak(of) => {
                    let bytes = (of.mib as usize).min(1024) << 20;
                    // written to, so that the pages are there
                    self.leaked.lock().unwrap_or_else(PoisonError::into_inner).push(vec![1; bytes]);
                }
                Fault::Slow(of) => {
                    let end = begun.saturating_add(i64::try_from(of.ms).unwrap_or(0).saturating_mul(1000));
                    self.wait_while(|_, now| now < end);
                }
                Fault::Hang(of) => {
                    let waited = |now: i64| {
                        #[expect(clippy::cast_precision_loss, reason = "a difference of hours at most")]
                        let seconds = now.saturating_sub(begun) as f64 / 1e6;
                        of.seconds.is_some_and(|most| most <= seconds)
                    };
                    self.wait_while(|world, now| {
                        !waited(now) && world.in_call(call, gpu, now).contains(fault)
                    });
                }
                _ => {}
            }
        }
        if engine && go == Go::On { self.reach_engine(begun) } else { go }
    }

    /// Waits for a hung engine, at most for the request's timeout.
    fn reach_engine(&self, begun: i64) -> Go {
        let timeout = self.with(|world, _| world.scenario().request_timeout);
        let over = |now: i64| {
            #[expect(clippy::cast_precision_loss, reason = "a difference of hours at most")]
            let seconds = now.saturating_sub(begun) as f64 / 1e6;
            timeout <= seconds
        };
        self.wait_while(|world, now| !over(now) && world.engine(now) == EngineState::Hung);
        match self.with(|world, now| world.engine(now)) {
            EngineState::Up => Go::On,
            EngineState::Down => Go::Gone,
            EngineState::Hung => Go::TimedOut,
        }
    }

    /// Blocks as long as `must` says so; a change of the `.now` file ends it.
    pub fn wait_while(&self, must: impl Fn(&World, i64) -> bool) {
        let mut state = self.state();
        loop {
            let now = self.now_us();
            state.look_at_file(now);
            if !must(&state.world, now) {
                return;
            }
            state = self.wake.wait_timeout(state, NAP).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn look_at_file(&mut self, now: i64) {
        let Some(path) = &self.now_file else { return };
        if self.looked_us <= now && now < self.looked_us.saturating_add(LOOK_US) {
            return;
        }
        self.looked_us = now;
        let metadata = std::fs::metadata(path).ok();
        let seen = metadata.and_then(|metadata| Some((metadata.modified().ok()?, metadata.len())));
        if seen == self.seen {
            return;
        }
        let name = path.display().to_string();
        // a file that is gone is an empty one
        let text = if seen.is_some() { load::text_of(path) } else { Ok(String::new()) };
        match text.and_then(|text| load::overlay_from(&name, &text)) {
            Ok(overlay) => self.world.inject(overlay, now),
            Err(e) => complain(&e.to_string()),
        }
        self.seen = seen;
    }
}
