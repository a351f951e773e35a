//! Driver stalls: signals in, what was told out.
//!
//! A row of a test is a time in milliseconds and what happened; what comes out is `state duration-in-ms`.

use super::*;
use crate::model::call::{LockWait, RmCall};
use crate::model::signal::{SourceState, Uses};
use crate::model::{CallKind, Holder, LockHolders, Pid, ProcessRole, UseEvidence};

const TID: Tid = Tid(8);

/// What happens to thread 8 of process 7.
#[derive(Clone, Copy)]
enum Happens {
    Enter(CallKind),
    Exit(CallKind),
    Seen(Inside),
    Tick,
    ProbesDown,
    Monitor,
    End,
}
use Happens::{Enter, Exit, Monitor, ProbesDown, Seen};

fn signal(ms: u64, happens: Happens) -> Signal {
    let at = MonoNs(ms * 1_000_000);
    let call = |kind, edge| Signal::Call {
        at,
        call: Box::new(Call {
            pid: Pid(7),
            tid: TID,
            kind,
            op: 0x2a,
            driver: Some("nvidia".into()),
            device: None,
            node: None,
            function: None,
            rm: None,
            lock: None,
            edge,
            caller: None,
        }),
    };
    match happens {
        Enter(kind) => call(kind, Edge::Enter),
        Exit(kind) => call(kind, Edge::Exit { ret: Some(0), status: None, lost: false }),
        Seen(inside) => {
            let (state, wait, utime, stime) = (Some('D'), None, None, None);
            let state = ThreadState { state, wait, launcher: false, inside, utime, stime };
            Signal::Thread { at, pid: Pid(7), tid: TID, state }
        }
        Happens::Tick => Signal::Tick { at },
        ProbesDown => {
            let source =
                SourceState { name: "probes".into(), up: false, reason: Some("failed".into()), late: None };
            Signal::Source { at, source }
        }
        Monitor => {
            let (hw_id, evidence, role) = ("GPU-1".into(), UseEvidence::Nvml, "monitor".into());
            Signal::Uses { at, uses: Uses { pid: Pid(7), hw_id, evidence, role, end: false } }
        }
        Happens::End => Signal::End { at },
    }
}

fn told(config: CorrelateConfig, rows: &[(u64, Happens)]) -> Vec<String> {
    let mut stalls = DriverStalls::new(config, &Telemetry::default());
    let mut out = Vec::new();
    for (ms, happens) in rows {
        stalls.push(&signal(*ms, *happens), &mut out);
    }
    let text = |fact: &Fact| match fact {
        Fact::Finding(finding) => match &finding.kind {
            FindingKind::Stall(stall) => format!("{:?} {}", stall.state, stall.duration.as_millis()),
            FindingKind::Xid(_) => "xid".to_owned(),
            FindingKind::Status(_) => "status".to_owned(),
        },
        Fact::Reading(_) => "reading".to_owned(),
    };
    out.iter().map(text).collect()
}

fn config(operation: Option<(&str, u64)>) -> CorrelateConfig {
    let own = operation.map(|(name, ms)| (name.to_owned(), Duration::from_millis(ms)));
    CorrelateConfig { call_threshold: Duration::from_secs(1), call_thresholds: own.into_iter().collect() }
}

#[track_caller]
fn check(rows: &[(u64, Happens)], want: &[&str]) {
    assert_eq!(told(config(None), rows), want);
}

const IOCTL: CallKind = CallKind::Ioctl;
const IN: Happens = Seen(Inside::Inside);
const TICK: Happens = Happens::Tick;

#[test]
fn a_stall_opens_while_the_call_hangs_and_closes_with_its_length() {
    let rows = [(0, Enter(IOCTL)), (500, IN), (900, TICK), (1_000, IN), (2_000, IN), (2_500, Exit(IOCTL))];
    check(&rows, &["Begin 1000", "End 2500"]);
}

#[test]
fn a_short_call_is_none_and_a_missed_long_one_is_told_whole() {
    check(&[(0, Enter(IOCTL)), (300, IN), (999, Exit(IOCTL))], &[]);
    // Between two looks: its entry and its return arrive together, and the return is the proof.
    check(&[(0, Enter(IOCTL)), (1_200, Exit(IOCTL))], &["Begin 1200", "End 1200"]);
}

#[test]
fn without_a_look_at_the_thread_an_open_call_proves_nothing() {
    check(&[(0, Enter(IOCTL)), (5_000, TICK)], &[]);
    check(&[(0, Enter(IOCTL)), (900, Seen(Inside::Unknown)), (1_100, TICK)], &["Begin 1100"]);
    check(&[(0, Enter(IOCTL)), (1_100, Seen(Inside::Outside)), (1_200, TICK)], &[]);
}

#[test]
fn a_thread_found_outside_ends_the_episode_without_a_length() {
    let rows = [(0, Enter(IOCTL)), (1_100, IN), (3_000, Seen(Inside::Outside)), (9_000, TICK)];
    check(&rows, &["Begin 1100", "Unobserved 3000"]);
}

#[test]
fn a_stall_that_goes_on_is_repeated_each_minute() {
    let mut rows = vec![(0, Enter(IOCTL)), (1_000, IN)];
    rows.extend((1..=12).map(|n| (1_000 + n * 10_000, IN)));
    check(&rows, &["Begin 1000", "Update 61000", "Update 121000"]);
}

#[test]
fn an_episode_without_a_sign_of_life_ends_at_the_last_one() {
    let rows = [(0, Enter(IOCTL)), (1_100, IN), (5_000, IN), (34_900, TICK), (35_000, TICK), (99_000, TICK)];
    check(&rows, &["Begin 1100", "Unobserved 5000"]);
}

#[test]
fn when_nobody_watches_any_more_what_is_open_is_closed() {
    let rows = [(0, Enter(IOCTL)), (1_100, IN), (1_500, ProbesDown), (9_000, TICK)];
    check(&rows, &["Begin 1100", "Unobserved 1100"]);
    check(&[(0, Enter(IOCTL)), (1_100, IN), (1_500, Happens::End)], &["Begin 1100", "Unobserved 1100"]);
}

#[test]
fn a_thread_that_enters_again_has_returned_in_between() {
    let rows = [(0, Enter(IOCTL)), (1_100, IN), (2_000, Enter(IOCTL)), (2_200, Exit(IOCTL))];
    check(&rows, &["Begin 1100", "Unobserved 2000"]);
}

#[test]
fn nested_calls_are_one_stall_told_of_the_outermost() {
    let (driver, lock) = (CallKind::Driver, CallKind::Lock);
    let rows = [
        (0, Enter(IOCTL)),
        (10, Enter(driver)),
        (20, Enter(lock)),
        (1_500, IN),
        (1_600, Exit(lock)),
        (1_700, Exit(driver)),
        (1_800, Exit(IOCTL)),
    ];
    check(&rows, &["Begin 1500", "End 1800"]);
}

#[test]
fn a_monitor_is_no_victim() {
    check(&[(0, Monitor), (0, Enter(IOCTL)), (1_500, IN), (2_000, Exit(IOCTL))], &[]);
}

#[test]
fn an_operation_may_have_its_own_threshold() {
    let rows = [(0, Enter(IOCTL)), (1_500, IN), (2_500, IN), (3_000, Exit(IOCTL))];
    assert_eq!(told(config(Some(("NV_ESC_RM_CONTROL", 2_000))), &rows), ["Begin 2500", "End 3000"]);
    assert_eq!(told(config(Some(("NV_ESC_RM_ALLOC", 2_000))), &rows), ["Begin 1500", "End 3000"]);
}

/// A thread's edge of a call, in milliseconds; the rest is changed by the test.
fn edge(ms: u64, tid: u32, kind: CallKind, edge: Edge, change: impl FnOnce(&mut Call)) -> Signal {
    let Signal::Call { mut call, .. } = signal(ms, Enter(kind)) else { panic!("a call") };
    (call.tid, call.edge) = (Tid(tid), edge);
    change(&mut call);
    Signal::Call { at: MonoNs(ms * 1_000_000), call }
}

const OUT: Edge = Edge::Exit { ret: Some(0), status: None, lost: false };

fn lock(ms: u64, tid: u32, what: Edge) -> Signal {
    edge(ms, tid, CallKind::Lock, what, |call| {
        call.lock = Some(LockWait { lock: "rm_api".into(), exclusive: true });
    })
}

/// NVML was asked when a library was imported; 30 s later the process is on its way to a context.
#[test]
fn a_process_that_hangs_before_its_first_engine_is_told_with_less_confidence() {
    let told = |role: ProcessRole, op: u32| -> Vec<(String, bool)> {
        let (mut stalls, mut out) = (DriverStalls::new(config(None), &Telemetry::default()), Vec::new());
        let op = |call: &mut Call| call.op = op;
        let rows = [
            Signal::Role { at: MonoNs(0), pid: Pid(7), role },
            edge(30_000, 8, IOCTL, Edge::Enter, op),
            signal(31_500, IN),
            edge(32_000, 8, IOCTL, OUT, op),
        ];
        rows.iter().for_each(|signal| stalls.push(signal, &mut out));
        let of = |fact: &Fact| {
            let Fact::Finding(finding) = fact else { panic!("{fact:?}") };
            let FindingKind::Stall(stall) = &finding.kind else { panic!("{finding:?}") };
            let says_why = stall.evidence.iter().any(|line| line == stall_finding::PRESUMED_MONITOR);
            (format!("{:?} {}", stall.state, stall.confidence.name()), says_why)
        };
        out.iter().map(of).collect()
    };
    let both =
        |word: &str, says_why| [(format!("Begin {word}"), says_why), (format!("End {word}"), says_why)];
    let (alloc, control) = (0xc030_462b, 0xc020_462a);
    assert_eq!(told(ProcessRole::Monitor, alloc), both("low", true));
    assert_eq!(told(ProcessRole::Monitor, control), [], "what monitors ask over and over");
    assert_eq!(told(ProcessRole::Agent, alloc), []);
    assert_eq!(told(ProcessRole::Workload, control), both("high", false));
}

/// What was told: state, cause, and the holder's thread.
fn causes(signals: &[Signal]) -> Vec<String> {
    let (mut stalls, mut out) = (DriverStalls::new(config(None), &Telemetry::default()), Vec::new());
    signals.iter().for_each(|signal| stalls.push(signal, &mut out));
    let text = |fact: &Fact| {
        let Fact::Finding(finding) = fact else { panic!("{fact:?}") };
        let FindingKind::Stall(stall) = &finding.kind else { panic!("{finding:?}") };
        let holder = stall.holder.as_ref().map(|holder| format!(" {}", holder.tid.0)).unwrap_or_default();
        format!("{:?} {}{holder}", stall.state, stall.cause.name())
    };
    out.iter().map(text).collect()
}

/// Thread 8 calls at 0 and waits for the lock from 1 ms to 2000 ms; what others do comes in between, in order of time.
fn waiting(others: &[Signal]) -> Vec<String> {
    let ioctl = |ms, what| edge(ms, 8, IOCTL, what, |_| {});
    let own = [
        ioctl(0, Edge::Enter),
        lock(1, 8, Edge::Enter),
        signal(500, IN),
        signal(1_500, IN),
        lock(2_000, 8, OUT),
        ioctl(2_100, OUT),
    ];
    let mut all: Vec<Signal> = others.iter().cloned().chain(own).collect();
    all.sort_by_key(Signal::at);
    causes(&all)
}

/// Who has the lock, all of them alone, since 0.
fn list(ms: u64, tids: &[u32]) -> Signal {
    let holder =
        |tid: &u32| Holder { pid: Pid(70), tid: Tid(*tid), caller: None, since: MonoNs(0), exclusive: true };
    let holders = LockHolders { lock: "rm_api".into(), holders: tids.iter().map(holder).collect() };
    Signal::LockHolders { at: MonoNs(ms * 1_000_000), holders: Box::new(holders) }
}

#[test]
fn a_wait_for_a_lock_is_put_down_to_who_has_it() {
    let told = |cause: &str| [format!("Begin {cause}"), format!("End {cause}")];
    assert_eq!(waiting(&[]), told("driver_call"), "a holder nobody knows proves nothing");
    assert_eq!(waiting(&[list(1, &[9])]), told("driver_lock 9"), "as the wait began");
    assert_eq!(waiting(&[list(400, &[9])]), told("driver_lock 9"));
    assert_eq!(waiting(&[list(400, &[8])]), told("driver_call"), "not itself");
    assert_eq!(
        waiting(&[list(400, &[9]), list(1_900, &[])]),
        told("driver_lock 9"),
        "it had it all the time"
    );
    assert_eq!(waiting(&[list(400, &[9]), list(1_400, &[])]), told("driver_lock 9"));
    assert_eq!(waiting(&[list(400, &[9]), list(1_600, &[10])]), told("driver_lock 9"), "whom it was told of");
    assert_eq!(waiting(&[list(400, &[9]), list(1_400, &[10])]), told("driver_lock 10"));
    let exit = Signal::Exit { at: MonoNs(700_000_000), pid: Pid(70) };
    assert_eq!(waiting(&[list(400, &[9]), exit]), told("dead_holder 9"));
}

/// Whoever came out of a wait, or was on a list before this one, may have let go since: that is not told.
#[test]
fn who_had_a_lock_before_the_wait_is_not_blamed_for_it() {
    let told = |cause: &str| [format!("Begin {cause}"), format!("End {cause}")];
    assert_eq!(waiting(&[lock(0, 9, OUT)]), told("driver_call"));
    assert_eq!(waiting(&[list(0, &[9])]), told("driver_call"));
    // what was over before anybody looked is told at once, before the lists of that look, or after those of an earlier one
    let over = [
        edge(3_000, 8, IOCTL, Edge::Enter, |_| {}),
        lock(3_001, 8, Edge::Enter),
        lock(4_500, 8, OUT),
        edge(4_501, 8, IOCTL, OUT, |_| {}),
    ];
    let among = |before: &[Signal], after: &[Signal]| causes(&[before, &over, after].concat());
    let former = [list(1_000, &[9]), lock(1_200, 10, OUT)];
    assert_eq!(among(&former, &[]), told("driver_call"));
    assert_eq!(among(&[], &[list(5_000, &[11])]), told("driver_call"));
    assert_eq!(among(&former, &[list(5_000, &[11])]), told("driver_call"));
    assert_eq!(among(&[list(4_000, &[9])], &[]), told("driver_lock 9"), "somebody looked meanwhile");
}

#[test]
fn a_short_wait_within_a_long_call_is_not_its_cause() {
    let ioctl = |ms, what| edge(ms, 8, IOCTL, what, |_| {});
    let rows = [
        ioctl(0, Edge::Enter),
        list(1, &[9]),
        lock(1, 8, Edge::Enter),
        signal(300, IN),
        lock(400, 8, OUT),
        signal(1_500, IN),
        ioctl(2_100, OUT),
    ];
    assert_eq!(causes(&rows), ["Begin driver_call", "End driver_call"]);
}

/// An open of nvidia0 from `ms` on for so long, with the GPU brought up in it or not.
fn open(ms: u64, length_ms: u64, brings_up: bool) -> Vec<Signal> {
    let named = |call: &mut Call| call.node = Some("nvidia0".into());
    let function = |call: &mut Call| call.function = Some("rm_init_adapter".into());
    let mut rows = vec![edge(ms, 8, CallKind::Open, Edge::Enter, named)];
    if brings_up {
        rows.push(edge(ms + 1, 8, CallKind::Driver, Edge::Enter, function));
    }
    rows.extend((1..=length_ms / 500).map(|n| signal(ms + n * 500, IN)));
    if brings_up {
        rows.push(edge(ms + length_ms - 1, 8, CallKind::Driver, OUT, function));
    }
    rows.push(edge(ms + length_ms, 8, CallKind::Open, OUT, named));
    rows
}

#[test]
fn the_first_open_of_a_device_may_take_long_once() {
    let told = |cause: &str| vec![format!("Begin {cause}"), format!("End {cause}")];
    assert_eq!(causes(&open(0, 3_000, false)), told("driver_call"));
    assert_eq!(causes(&open(0, 3_000, true)), [""; 0]);
    assert_eq!(causes(&open(0, 11_000, true)), told("slow_open"));
    let again = [open(0, 3_000, true), open(60_000, 3_000, true)].concat();
    assert_eq!(causes(&again), told("slow_open"));
    let much_later = [open(0, 3_000, true), open(3_700_000, 3_000, true)].concat();
    assert_eq!(causes(&much_later), [""; 0]);
}

#[test]
fn a_fault_within_the_drivers_function_is_inside_of_it() {
    let (driver, fault) = (CallKind::Driver, CallKind::Fault);
    let rows =
        [(0, Enter(driver)), (10, Enter(fault)), (1_500, IN), (1_600, Exit(fault)), (1_800, Exit(driver))];
    check(&rows, &["Begin 1500", "End 1800"]);
    check(&[(0, Enter(fault)), (1_500, IN), (1_600, Exit(fault))], &["Begin 1500", "End 1600"]);
}

#[test]
fn what_the_resource_manager_answered_is_said() {
    let mut stalls = DriverStalls::new(config(None), &Telemetry::default());
    let mut out = Vec::new();
    let asked = |call: &mut Call| call.rm = Some(RmCall { cmd: Some(0x2080_014a), class: None });
    stalls.push(&edge(0, 8, IOCTL, Edge::Enter, asked), &mut out);
    let answered = Edge::Exit { ret: Some(0), status: Some(0x0f), lost: false };
    stalls.push(&edge(2_000, 8, IOCTL, answered, |_| {}), &mut out);
    let Some(Fact::Finding(end)) = out.pop() else { panic!("{out:?}") };
    let FindingKind::Stall(stall) = end.kind else { panic!("a stall") };
    let call = stall.call.expect("the call");
    assert_eq!((call.ret, call.status), (Some(0), Some(0x0f)));
    let want = [
        "ioctl returned after 2.000 s",
        "the resource manager was asked for NV2080_CTRL_CMD_GPU_GET_GID_INFO",
        "the resource manager answered NV_ERR_GPU_IS_LOST",
    ];
    assert_eq!(stall.evidence, want);
}
