//! The library's side of a session: whether it is initialised, its connections, and the engine behind them.
//!
//! In: calls with a handle. Out: the engine and the node for the time of a request, or the code why not. What can go
//! wrong: -10 before `dcgmInit`, -21 for a handle that is dead or never was, -11 when the engine does not answer.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use gpu_scenario::overlay::EngineState;
use gpu_scenario::{Go, Version, World, simulator};

use crate::codes::{CONNECTION_NOT_VALID, FUNCTION_NOT_FOUND, OK, TIMEOUT, UNINITIALIZED};
use crate::engine::Engine;

/// Handle of the embedded engine.
pub(crate) const EMBEDDED: usize = 0x7fff_ffff;

static CLIENT: Mutex<Client> = Mutex::new(Client::new());

struct Client {
    initialised: bool,
    next_handle: usize,
    connections: BTreeMap<usize, Connection>,
    engine: Option<Engine>,
}

#[derive(Clone, Copy)]
struct Connection {
    /// Start of the engine to which it leads. Unit: µs since 1970; `None`: it is dead.
    engine_since_us: Option<i64>,
    persists: bool,
}

impl Client {
    const fn new() -> Self {
        Self { initialised: false, next_handle: 1, connections: BTreeMap::new(), engine: None }
    }

    /// A new handle; also a failed connect uses one up.
    fn handle(&mut self, engine_since_us: Option<i64>, persists: bool) -> usize {
        let handle = self.next_handle;
        self.next_handle += if engine_since_us.is_some() { 1 } else { 5 };
        self.connections.insert(handle, Connection { engine_since_us, persists });
        handle
    }
}

fn with_client<T>(change: impl FnOnce(&mut Client) -> T) -> T {
    change(&mut CLIENT.lock().unwrap_or_else(PoisonError::into_inner))
}

/// What a call of the scenario may do before the call itself. `Err`: the code with which it ends.
pub(crate) fn enter(call: &str, gpu: Option<u32>, engine: bool) -> Result<(), i32> {
    match simulator().enter(call, gpu, engine) {
        Go::On => Ok(()),
        Go::TimedOut => Err(TIMEOUT),
        Go::Gone => Err(CONNECTION_NOT_VALID),
        Go::Fails(code) => Err(code),
        Go::Crashes => {
            crash();
            Err(CONNECTION_NOT_VALID)
        }
    }
}

/// Ends the process by SIGSEGV, as the engine's null pointer does in embedded mode.
pub(crate) fn crash() {
    // SAFETY: both are plain calls of the C library; a handler of the process must not swallow it
    unsafe {
        libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        libc::raise(libc::SIGSEGV);
    }
}

/// Whether the library and the engine behind it have a call that came with `version`.
pub(crate) fn has(version: Version) -> Result<(), i32> {
    let known = simulator().with(|world, _| version <= world.library() && version <= world.engine_version());
    if known { Ok(()) } else { Err(FUNCTION_NOT_FOUND) }
}

/// -20 for the requests whose sub-command changed between versions: the engine must not be older than the library
/// where the sub-command is another (4.0 and 4.6).
pub(crate) fn has_subcommand(world: &World) -> Result<(), i32> {
    let (library, engine) = (world.library(), world.engine_version());
    let age = |version: Version| {
        if version < Version(4, 0, 0) {
            2
        } else if version < Version(4, 6, 0) {
            3
        } else {
            4
        }
    };
    if age(library) <= age(engine) { Ok(()) } else { Err(FUNCTION_NOT_FOUND) }
}

pub(crate) fn init() -> i32 {
    if let Err(code) = enter("dcgmInit", None, false) {
        return code;
    }
    with_client(|client| client.initialised = true);
    OK
}

pub(crate) fn shutdown() -> i32 {
    if let Err(code) = enter("dcgmShutdown", None, false) {
        return code;
    }
    with_client(|client| {
        client.initialised = false;
        client.connections.clear();
        client.engine = None;
    });
    OK
}

/// Starts the embedded engine. `Ok(None)`: it runs already, the caller's handle stays untouched.
pub(crate) fn start(call: &str, manual: bool) -> Result<Option<usize>, i32> {
    enter(call, None, false)?;
    let now = simulator().now_us();
    with_client(|client| {
        if !client.initialised {
            return Err(UNINITIALIZED);
        }
        if client.connections.contains_key(&EMBEDDED) {
            return Ok(None);
        }
        let mut engine = Engine::new(now);
        engine.manual = manual;
        client.engine = Some(engine);
        client.connections.insert(EMBEDDED, Connection { engine_since_us: Some(now), persists: false });
        Ok(Some(EMBEDDED))
    })
}

pub(crate) fn stop(handle: usize) -> Result<(), i32> {
    enter("dcgmStopEmbedded", None, false)?;
    with_client(|client| {
        if handle != EMBEDDED || client.connections.remove(&EMBEDDED).is_none() {
            return Err(crate::codes::BAD_PARAM);
        }
        client.engine = None;
        Ok(())
    })
}

/// Connects to the host engine: code and handle. A failed connect writes a handle too, which is dead.
pub(crate) fn connect(call: &str, timeout_ms: u32, persists: bool) -> (i32, usize) {
    let simulator = simulator();
    if !with_client(|client| client.initialised) {
        return (UNINITIALIZED, 0);
    }
    let begun = simulator.now_us();
    let past = |now: i64, seconds: f64| {
        #[expect(clippy::cast_precision_loss, reason = "a difference of minutes")]
        let waited = now.saturating_sub(begun) as f64 / 1e6;
        seconds <= waited
    };
    // retries each 50 ms inside the timeout, and gives up one retry before it ends
    let timeout_ms = if timeout_ms == 0 { 5000 } else { timeout_ms };
    let patience = f64::from(timeout_ms.saturating_sub(50)) / 1e3;
    if !simulator.time_is_set() {
        simulator.wait_while(|world, now| world.engine(now) == EngineState::Down && !past(now, patience));
    }
    if let Err(code) = enter(call, None, false) {
        return (code, with_client(|client| client.handle(None, false)));
    }
    let dead = |world: &World, now: i64| {
        let t = world.seconds(now);
        world.any(|f| matches!(f, gpu_scenario::fault::Fault::DeadConnect(span) if span.holds(t)))
    };
    let twice = 2.0 * simulator.with(|world, _| world.scenario().request_timeout);
    let unanswered = |world: &World, now: i64| world.engine(now) == EngineState::Hung || dead(world, now);
    simulator.wait_while(|world, now| unanswered(world, now) && !past(now, twice));
    let state =
        simulator.with(|world, now| (world.engine(now), unanswered(world, now), world.engine_since(now)));
    match state {
        (EngineState::Down, ..) => (CONNECTION_NOT_VALID, with_client(|client| client.handle(None, false))),
        // the return value is that of the clean-up
        (_, true, _) => (OK, with_client(|client| client.handle(None, false))),
        (_, false, since) => {
            let handle = with_client(|client| {
                let same = client.engine.as_ref().is_some_and(|engine| engine.since_us == since);
                if !same && !client.connections.contains_key(&EMBEDDED) {
                    client.engine = Some(Engine::new(since));
                }
                client.handle(Some(since), persists)
            });
            (OK, handle)
        }
    }
}

pub(crate) fn disconnect(handle: usize) -> i32 {
    if let Err(code) = enter("dcgmDisconnect", None, false) {
        return code;
    }
    with_client(|client| {
        if let Some(connection) = client.connections.remove(&handle)
            && let Some(engine) = client.engine.as_mut().filter(|_| !connection.persists)
        {
            engine.drop_owner(handle);
        }
    });
    OK
}

/// One request: what the scenario has in store for `call`, then `serve` with an engine that is up to date.
pub(crate) fn request<T>(
    call: &str,
    gpu: Option<u32>,
    handle: usize,
    serve: impl FnOnce(&mut Engine, &World, i64) -> Result<T, i32>,
) -> Result<T, i32> {
    if !with_client(|client| client.initialised) {
        return Err(UNINITIALIZED);
    }
    let connection = with_client(|client| client.connections.get(&handle).copied());
    let since = connection.and_then(|connection| connection.engine_since_us).ok_or(CONNECTION_NOT_VALID)?;
    enter(call, gpu, handle != EMBEDDED)?;
    simulator().with(|world, now| {
        with_client(|client| {
            let alive = handle == EMBEDDED || world.engine_since(now) == since;
            let engine = client.engine.as_mut().filter(|engine| alive && engine.since_us == since);
            let Some(engine) = engine.filter(|_| client.connections.contains_key(&handle)) else {
                return Err(CONNECTION_NOT_VALID);
            };
            engine.catch_up(world, now);
            serve(engine, world, now)
        })
    })
}

/// The code of a result.
pub(crate) fn code(result: Result<(), i32>) -> i32 {
    result.err().unwrap_or(OK)
}
