//! From the kernel's record of a call to the pipeline's.
//!
//! In: an [`InFlight`] entry. Out: [`Signal::Call`], for its entry or its end.
//! What can go wrong: names hold whatever a workload chose; they are cut at the NUL and made text here, and stripped of
//! control characters, since they end up on terminals.

use warpgauge_ebpf::calls::{ANY_SYSCALL, InFlight, InFlightKey, NO_FD, Rm, flags, kind, major, minor};
use warpgauge_ebpf::lock::number;
use warpgauge_ebpf::rm::{ALLOC, CONTROL};

use crate::model::call::{LockWait, RmCall};
use crate::model::plain::is_plain;
use crate::model::{
    Call, CallKind, Caller, CgroupId, DeviceNode, Edge, MonoNs, Pid, Signal, StartTicks, Tid,
};

use super::inside::Expected;
use super::locks::{LockNames, lock_mode};
use super::majors::Majors;
use super::syscalls::{Syscalls, leading_to};

/// What numbers of the kernel's are called.
#[derive(Debug, Default)]
pub struct Names {
    /// Majors of devices.
    pub majors: Majors,
    /// Locks; those of the calls are known before they are asked for.
    pub locks: LockNames,
}

/// The entry into a call.
pub fn enter(key: &InFlightKey, call: &InFlight, names: &Names) -> Signal {
    signal(MonoNs(call.enter_ns), Edge::Enter, key, call, names)
}

/// The end of a call; without a return value it was not seen to end.
pub fn exit(at: MonoNs, ret: Option<i64>, key: &InFlightKey, call: &InFlight, names: &Names) -> Signal {
    let answered = call.rm.escape != 0 && call.rm.status != Rm::UNANSWERED;
    let status = (answered && ret.is_some()).then_some(call.rm.status);
    signal(at, Edge::Exit { ret, status, lost: ret.is_none() }, key, call, names)
}

fn signal(at: MonoNs, edge: Edge, key: &InFlightKey, call: &InFlight, names: &Names) -> Signal {
    let node = (call.kind == kind::OPEN).then(|| printable(&call.node)).filter(|node| !node.is_empty());
    let majors = &names.majors;
    let by_node = || node.as_deref().and_then(|node| majors.driver_of_node(node));
    let driver = majors.driver(major(call.dev)).or_else(by_node).or_else(|| driver_of(call.kind));
    let call = Call {
        pid: Pid(call.tgid),
        tid: Tid(key.tid),
        kind: call_kind(call.kind),
        op: if call.kind == kind::LOCK { 0 } else { call.op },
        driver: driver.map(str::to_owned),
        device: device(call.dev),
        node,
        function: function(call.kind).map(str::to_owned),
        rm: asked(&call.rm),
        lock: (call.kind == kind::LOCK).then(|| LockWait {
            lock: names.locks.name(number(call.object)),
            exclusive: lock_mode(call.op).is_exclusive(),
        }),
        edge,
        caller: Some(caller(&call.comm, call.start_ns, call.cgroup)),
    };
    Signal::Call { at, call: Box::new(call) }
}

/// The caller, as the kernel program saw it.
pub(super) fn caller(comm: &[u8], start_ns: u64, cgroup: u64) -> Caller {
    Caller { comm: printable(comm), start: StartTicks::from_boottime_ns(start_ns), cgroup: CgroupId(cgroup) }
}

/// The kernel's number for a kind, as the pipeline's.
pub fn call_kind(number: u32) -> CallKind {
    match number {
        kind::OPEN => CallKind::Open,
        kind::CLOSE => CallKind::Close,
        kind::MMAP => CallKind::Mmap,
        kind::POLL => CallKind::Poll,
        kind::FAULT => CallKind::Fault,
        kind::LOCK => CallKind::Lock,
        kind::RM | kind::INIT | kind::REGISTER | kind::SERVICE | kind::EVICT => CallKind::Driver,
        _ => CallKind::Ioctl,
    }
}

/// The driver's function that a kind stands for. Of those whose names differ by release, what they have in common.
pub fn function(number: u32) -> Option<&'static str> {
    match number {
        kind::RM => Some("rm_ioctl"),
        kind::INIT => Some("rm_init_adapter"),
        kind::REGISTER => Some("uvm_api_register"),
        kind::SERVICE => Some("uvm_service_faults"),
        kind::EVICT => Some("uvm_evict"),
        _ => None,
    }
}

/// The driver that a kind belongs to whatever the device; `None` for system calls.
fn driver_of(number: u32) -> Option<&'static str> {
    match number {
        kind::RM | kind::INIT | kind::LOCK => Some("nvidia"),
        kind::FAULT | kind::REGISTER | kind::SERVICE | kind::EVICT => Some("uvm"),
        _ => None,
    }
}

fn asked(rm: &Rm) -> Option<RmCall> {
    match rm.escape {
        CONTROL => Some(RmCall { cmd: Some(rm.code), class: None }),
        ALLOC => Some(RmCall { cmd: None, class: Some(rm.code) }),
        _ => None,
    }
}

/// A device number; `None` for 0, which no device has.
pub fn device(dev: u32) -> Option<DeviceNode> {
    (dev != 0).then_some(DeviceNode { major: major(dev), minor: minor(dev) })
}

/// What the thread must be seen doing to be inside the call. `own` is room for the call's number.
pub fn expected<'a>(call: &InFlight, own: &'a mut [u64; 1], dying: bool) -> Expected<'a> {
    let outlives_syscall = call.kind == kind::CLOSE;
    let sure = call.flags & flags::SURE_RETURN != 0;
    let op = (call.kind == kind::IOCTL).then_some((1, call.op));
    if call.syscall == ANY_SYSCALL || driver_of(call.kind).is_some() {
        return Expected {
            syscalls: leading_to(call.kind, sure),
            arguments: [op, None],
            outlives_syscall,
            dying,
            sure,
        };
    }
    *own = [u64::from(call.syscall)];
    let fd = (call.fd != NO_FD).then_some((if call.kind == kind::MMAP { 4 } else { 0 }, call.fd));
    Expected { syscalls: Syscalls::OneOf(own), arguments: [fd, op], outlives_syscall, dying, sure }
}

/// Text of a workload, up to its end, without control characters.
pub(super) fn printable(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default());
    text.chars().filter(|c| is_plain(*c)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(kind: u32) -> InFlight {
        let mut comm = [0; 16];
        comm[..7].copy_from_slice(b"py\x1b[1mX");
        let mut node = [0; 24];
        node[..7].copy_from_slice(b"nvidia0");
        InFlight {
            enter_ns: 5_000_000_000,
            cgroup: 9,
            start_ns: 1_230_000_000,
            tgid: 77,
            dev: 195 << 20 | 255,
            op: 0xc020_462a,
            kind,
            syscall: 16,
            fd: 7,
            comm,
            node,
            ..InFlight::default()
        }
    }

    fn nvidia() -> Names {
        Names { majors: Majors::of_nvidia(""), ..Names::default() }
    }

    fn of(signal: Signal) -> (MonoNs, Call) {
        let Signal::Call { at, call } = signal else { panic!("{signal:?}") };
        (at, *call)
    }

    #[test]
    fn everything_the_kernel_knew_arrives() {
        let key = InFlightKey { tid: 78, layer: 0 };
        let (at, got) = of(enter(&key, &call(kind::IOCTL), &nvidia()));
        assert_eq!(at, MonoNs(5_000_000_000));
        assert_eq!((got.pid, got.tid, got.kind, got.op), (Pid(77), Tid(78), CallKind::Ioctl, 0xc020_462a));
        assert_eq!(got.device, Some(DeviceNode { major: 195, minor: 255 }));
        assert_eq!((got.driver.as_deref(), got.node), (Some("nvidia"), None));
        let caller = got.caller.expect("known");
        assert_eq!(
            (caller.comm.as_str(), caller.start, caller.cgroup),
            ("py[1mX", StartTicks(123), CgroupId(9))
        );
    }

    #[test]
    fn an_open_is_known_by_its_node() {
        let key = InFlightKey { tid: 78, layer: 0 };
        let opening = InFlight { dev: 0, op: 0, fd: NO_FD, ..call(kind::OPEN) };
        let (_, got) = of(enter(&key, &opening, &nvidia()));
        assert_eq!(
            (got.device, got.node.as_deref(), got.driver.as_deref()),
            (None, Some("nvidia0"), Some("nvidia"))
        );
        let (at, failed) = of(exit(MonoNs(6), Some(-5), &key, &opening, &nvidia()));
        assert_eq!((at, failed.edge), (MonoNs(6), Edge::Exit { ret: Some(-5), status: None, lost: false }));
    }

    #[test]
    fn an_end_without_a_return_value_is_a_lost_one() {
        let key = InFlightKey { tid: 78, layer: 0 };
        let (_, got) = of(exit(MonoNs(6), None, &key, &call(kind::CLOSE), &nvidia()));
        assert_eq!(got.edge, Edge::Exit { ret: None, status: None, lost: true });
    }

    #[test]
    fn the_arguments_that_identify_a_call() {
        let mut room = [0];
        for (kind, want) in [
            (kind::IOCTL, [Some((0, 7)), Some((1, 0xc020_462a))]),
            (kind::MMAP, [Some((4, 7)), None]),
            (kind::CLOSE, [Some((0, 7)), None]),
        ] {
            let got = expected(&call(kind), &mut room, false);
            assert_eq!((got.arguments, got.syscalls), (want, Syscalls::OneOf(&[16])), "{kind}");
        }
        let opening = InFlight { fd: NO_FD, ..call(kind::OPEN) };
        assert_eq!(expected(&opening, &mut room, true).arguments, [None, None]);
    }

    #[test]
    fn at_the_drivers_own_function_any_system_call_of_the_kind_will_do() {
        let mut room = [0];
        let entry = |kind| InFlight { syscall: ANY_SYSCALL, fd: 7, flags: flags::SURE_RETURN, ..call(kind) };
        for (kind, arguments) in [
            (kind::IOCTL, [Some((1, 0xc020_462a)), None]),
            (kind::OPEN, [None, None]),
            (kind::CLOSE, [None, None]),
            (kind::FAULT, [None, None]),
        ] {
            let got = expected(&entry(kind), &mut room, false);
            assert_eq!(
                (got.arguments, got.syscalls, got.sure),
                (arguments, leading_to(kind, true), true),
                "{kind}"
            );
        }
        // what is inside the driver has no descriptor, whatever stands there
        let rm = InFlight { syscall: 0, ..call(kind::RM) };
        assert_eq!(expected(&rm, &mut room, false).arguments, [None, None]);
    }

    #[test]
    fn what_the_resource_manager_was_asked_and_answered() {
        let key = InFlightKey { tid: 78, layer: 0 };
        for (escape, code, status, want) in [
            (0, 0, 0, (None, None)),
            (CONTROL, 0x2080_0110, 0x0f, (Some((Some(0x2080_0110), None)), Some(0x0f))),
            (ALLOC, 0xcbc0, 0, (Some((None, Some(0xcbc0))), Some(0))),
            (CONTROL, 7, Rm::UNANSWERED, (Some((Some(7), None)), None)),
            (0x29, 0, 3, (None, Some(3))),
        ] {
            let rm = Rm { escape, code, status };
            let (_, got) =
                of(exit(MonoNs(6), Some(0), &key, &InFlight { rm, ..call(kind::IOCTL) }, &nvidia()));
            let Edge::Exit { status, .. } = got.edge else { panic!("{got:?}") };
            assert_eq!((got.rm.map(|rm| (rm.cmd, rm.class)), status), want, "{escape:#x}");
        }
    }

    #[test]
    fn each_layer_says_what_it_is_and_no_address_leaves() {
        let words = |kind, op| {
            let mut names = nvidia();
            names.locks.learn(number(0xffff_8880_0000_1000), MonoNs(1));
            let inner = InFlight { kind, op, dev: 0, object: 0xffff_8880_0000_1000, ..call(kind) };
            let (_, got) = of(enter(&InFlightKey { tid: 78, layer: 2 }, &inner, &names));
            let lock = got.lock.map(|wait| format!("{} {}", wait.lock, wait.exclusive));
            (got.kind.name(), got.function, got.driver, lock)
        };
        let some = |text: &str| Some(text.to_owned());
        for (kind, op, want) in [
            (kind::FAULT, 0, ("fault", None, some("uvm"), None)),
            (kind::RM, 0, ("driver", some("rm_ioctl"), some("nvidia"), None)),
            (kind::INIT, 0, ("driver", some("rm_init_adapter"), some("nvidia"), None)),
            (kind::LOCK, 0, ("lock", None, some("nvidia"), some("lock-1 false"))),
            (kind::LOCK, 1, ("lock", None, some("nvidia"), some("lock-1 true"))),
            (kind::POLL, 0, ("poll", None, None, None)),
        ] {
            assert_eq!(words(kind, op), want, "{kind}");
        }
    }
}
