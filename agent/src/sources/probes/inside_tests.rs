//! Tests of the inside rule: one table of what procfs may show, and a look at this very thread.
//!
//! In: readings. Out: verdicts.

use super::super::thread_files::Stat;
use super::*;

const IOCTL: [u64; 1] = [16];
const SECOND: u64 = 1_000_000_000;

fn ioctl() -> Expected<'static> {
    Expected {
        syscalls: Syscalls::OneOf(&IOCTL),
        arguments: [Some((0, 7)), Some((1, 0xc020_462a))],
        ..Expected::default()
    }
}

fn close() -> Expected<'static> {
    Expected { syscalls: Syscalls::OneOf(&[3]), outlives_syscall: true, ..Expected::default() }
}

fn within(number: u64, fd: u64, op: u64) -> SyscallText {
    SyscallText::In { number, arguments: [fd, op, 0, 0, 0, 0] }
}

/// A thread with these times (in ticks), one second after a sample at zero.
fn seen(state: char, utime: u64, stime: u64, syscall: SyscallText) -> Reading {
    Reading { stat: Some(Stat { state, utime, stime, start: 5, parent: 1 }), syscall, gone: false }
}

fn verdict_of(reading: &Reading, expected: &Expected<'_>) -> Inside {
    let before = Sample { at: MonoNs(SECOND), utime: 0, stime: 0 };
    judge(reading, MonoNs(2 * SECOND), expected, Some(&before)).0
}

#[test]
fn a_readable_system_call_decides() {
    for (text, want) in [
        (within(16, 7, 0xc020_462a), Inside::Inside),
        (within(16, 0xffff_ffff_0000_0007, 0xc020_462a), Inside::Inside),
        (within(16, 8, 0xc020_462a), Inside::Outside),
        (within(16, 7, 0xc020_462b), Inside::Outside),
        (within(0, 7, 0xc020_462a), Inside::Outside),
        (SyscallText::NotInAny, Inside::Outside),
    ] {
        assert_eq!(verdict_of(&seen('S', 0, 0, text), &ioctl()), want, "{text:?}");
    }
}

#[test]
fn otherwise_state_and_times_decide() {
    for text in [SyscallText::Running, SyscallText::Unreadable] {
        for (state, utime, stime, want) in [
            ('R', 0, 98, Inside::Inside),
            ('R', 1, 50, Inside::Inside),
            ('R', 0, 49, Inside::Unknown),
            ('R', 11, 80, Inside::Unknown),
            ('R', 50, 50, Inside::Outside),
            ('R', 97, 0, Inside::Outside),
            ('R', 0, 0, Inside::Unknown),
            ('D', 0, 0, Inside::Inside),
            ('S', 0, 0, Inside::Unknown),
            ('T', 0, 0, Inside::Unknown),
            ('Z', 0, 0, Inside::Unknown),
        ] {
            let got = verdict_of(&seen(state, utime, stime, text), &ioctl());
            assert_eq!(got, want, "{text:?} {state} {utime} {stime}");
        }
    }
    let blind = Reading { stat: None, syscall: SyscallText::Unreadable, gone: false };
    assert_eq!(verdict_of(&blind, &ioctl()), Inside::Unknown);
}

#[test]
fn a_close_goes_on_behind_its_system_call() {
    assert_eq!(verdict_of(&seen('D', 0, 0, SyscallText::NotInAny), &close()), Inside::Inside);
    assert_eq!(verdict_of(&seen('S', 0, 0, SyscallText::NotInAny), &close()), Inside::Unknown);
    assert_eq!(verdict_of(&seen('S', 0, 0, within(3, 7, 0)), &close()), Inside::Inside);
    assert_eq!(verdict_of(&seen('S', 0, 0, within(1, 7, 0)), &close()), Inside::Outside);
}

#[test]
fn a_fault_may_happen_in_any_system_call_and_outside_of_all() {
    let fault = Expected { syscalls: Syscalls::Any, ..Expected::default() };
    for text in [SyscallText::NotInAny, SyscallText::Running, within(202, 0, 0)] {
        assert_eq!(verdict_of(&seen('D', 0, 0, text), &fault), Inside::Inside, "{text:?}");
        assert_eq!(verdict_of(&seen('R', 0, 90, text), &fault), Inside::Inside, "{text:?}");
        assert_eq!(verdict_of(&seen('S', 0, 0, text), &fault), Inside::Unknown, "{text:?}");
        assert_eq!(verdict_of(&seen('R', 90, 0, text), &fault), Inside::Outside, "{text:?}");
    }
}

#[test]
fn where_no_return_is_missed_only_a_proof_is_outside() {
    let sure = Expected { sure: true, ..ioctl() };
    for (reading, want) in [
        (seen('R', 90, 0, SyscallText::Running), Inside::Unknown),
        (seen('R', 90, 0, SyscallText::Unreadable), Inside::Unknown),
        (seen('R', 0, 90, SyscallText::Running), Inside::Inside),
        (seen('S', 0, 0, within(16, 7, 0xc020_462a)), Inside::Inside),
        (seen('S', 0, 0, within(0, 7, 0)), Inside::Outside),
        (seen('S', 0, 0, SyscallText::NotInAny), Inside::Outside),
    ] {
        assert_eq!(verdict_of(&reading, &sure), want, "{reading:?}");
    }
    let gone = Reading { stat: None, syscall: SyscallText::Unreadable, gone: true };
    assert_eq!(verdict_of(&gone, &sure), Inside::Unknown);
    assert_eq!(verdict_of(&gone, &Expected { dying: true, ..sure }), Inside::Outside);
    let fault = Expected { syscalls: Syscalls::Any, sure: true, ..Expected::default() };
    assert_eq!(verdict_of(&seen('R', 90, 0, within(202, 0, 0)), &fault), Inside::Unknown);
}

#[test]
fn a_dying_thread_is_outside_only_when_it_is_gone() {
    let dying = Expected { dying: true, ..ioctl() };
    let gone = Reading { stat: None, syscall: SyscallText::Unreadable, gone: true };
    assert_eq!(verdict_of(&gone, &dying), Inside::Outside);
    assert_eq!(verdict_of(&gone, &ioctl()), Inside::Unknown);
    assert_eq!(verdict_of(&seen('D', 0, 0, within(231, 0, 0)), &dying), Inside::Inside);
    for text in [within(231, 0, 0), SyscallText::NotInAny, SyscallText::Running] {
        assert_eq!(verdict_of(&seen('R', 90, 0, text), &dying), Inside::Unknown, "{text:?}");
    }
}

#[test]
fn an_early_look_neither_judges_by_times_nor_replaces_the_sample() {
    let before = Sample { at: MonoNs(SECOND), utime: 0, stime: 0 };
    let spinning = seen('R', 0, 9, SyscallText::Running);
    let early = judge(&spinning, MonoNs(SECOND + 90_000_000), &ioctl(), Some(&before));
    assert_eq!(early, (Inside::Unknown, Some(before)));
    let later = judge(&spinning, MonoNs(SECOND + 100_000_000), &ioctl(), Some(&before));
    assert_eq!(later.0, Inside::Inside);
    assert_eq!(later.1.map(|s| s.stime), Some(9));
    let first = judge(&spinning, MonoNs(SECOND), &ioctl(), None);
    assert_eq!(first, (Inside::Unknown, Some(Sample { at: MonoNs(SECOND), utime: 0, stime: 9 })));
}

#[test]
fn a_live_thread_that_computes_is_not_inside() {
    let host = HostRoot::default();
    let pid = Pid(std::process::id());
    // a thread looking at itself runs; its system call is not shown
    let (inside, sample) = check(&host, pid, Tid(pid.0), &ioctl(), None);
    assert_ne!(inside, Inside::Inside);
    assert!(sample.is_some());
    let nobody = check(&host, Pid(u32::MAX), Tid(u32::MAX), &ioctl(), None);
    assert_eq!(nobody, (Inside::Unknown, None));
}
