//! Driver stalls: signals in, what was told out.
//!
//! A row of a test is a time in milliseconds and what happened; what comes out is `state duration-in-ms`.

use super::*;
use crate::model::signal::{SourceState, Uses};
use crate::model::{CallKind, Pid};

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
            let (hw_id, evidence, role) = ("GPU-1".into(), "nvml".into(), "monitor".into());
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
