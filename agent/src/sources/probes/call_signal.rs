//! From the kernel's record of a call to the pipeline's.
//!
//! In: an [`InFlight`] entry. Out: [`Signal::Call`], for its entry or its end.
//! What can go wrong: names hold whatever a workload chose; they are cut at the NUL and made text here, and stripped of
//! control characters, since they end up on terminals.

use warpgauge_ebpf::calls::{InFlight, InFlightKey, NO_FD, kind, major, minor};

use crate::model::{
    Call, CallKind, Caller, CgroupId, DeviceNode, Edge, MonoNs, Pid, Signal, StartTicks, Tid,
};

use super::inside::Expected;
use super::majors::Majors;

/// The entry into a call.
pub fn enter(key: &InFlightKey, call: &InFlight, majors: &Majors) -> Signal {
    signal(MonoNs(call.enter_ns), Edge::Enter, key, call, majors)
}

/// The end of a call; without a return value it was not seen to end.
pub fn exit(at: MonoNs, ret: Option<i64>, key: &InFlightKey, call: &InFlight, majors: &Majors) -> Signal {
    signal(at, Edge::Exit { ret, status: None, lost: ret.is_none() }, key, call, majors)
}

fn signal(at: MonoNs, edge: Edge, key: &InFlightKey, call: &InFlight, majors: &Majors) -> Signal {
    let node = (call.kind == kind::OPEN).then(|| printable(&call.node)).filter(|node| !node.is_empty());
    let by_node = || node.as_deref().and_then(|node| majors.driver_of_node(node));
    let driver = majors.driver(major(call.dev)).or_else(by_node).map(str::to_owned);
    let caller = Caller {
        comm: printable(&call.comm),
        start: StartTicks::from_boottime_ns(call.start_ns),
        cgroup: CgroupId(call.cgroup),
    };
    let call = Call {
        pid: Pid(call.tgid),
        tid: Tid(key.tid),
        kind: call_kind(call.kind),
        op: call.op,
        driver,
        device: device(call.dev),
        node,
        function: None,
        rm: None,
        lock: None,
        edge,
        caller: Some(caller),
    };
    Signal::Call { at, call: Box::new(call) }
}

/// The kernel's number for a kind, as the pipeline's.
pub fn call_kind(number: u32) -> CallKind {
    match number {
        kind::OPEN => CallKind::Open,
        kind::CLOSE => CallKind::Close,
        kind::MMAP => CallKind::Mmap,
        _ => CallKind::Ioctl,
    }
}

/// A device number; `None` for 0, which no device has.
pub fn device(dev: u32) -> Option<DeviceNode> {
    (dev != 0).then_some(DeviceNode { major: major(dev), minor: minor(dev) })
}

/// What the thread must be seen doing to be inside the call. `syscalls` is room for the call's number.
pub fn expected<'a>(call: &InFlight, syscalls: &'a mut [u64; 1], dying: bool) -> Expected<'a> {
    *syscalls = [u64::from(call.syscall)];
    let fd = (call.fd != NO_FD).then_some((if call.kind == kind::MMAP { 4 } else { 0 }, call.fd));
    let op = (call.kind == kind::IOCTL).then_some((1, call.op));
    Expected { syscalls, arguments: [fd, op], outlives_syscall: call.kind == kind::CLOSE, dying }
}

/// Text of a workload, up to its end, without control characters.
pub(super) fn printable(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default());
    text.chars().filter(|c| !c.is_control()).collect()
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

    fn of(signal: Signal) -> (MonoNs, Call) {
        let Signal::Call { at, call } = signal else { panic!("{signal:?}") };
        (at, *call)
    }

    #[test]
    fn everything_the_kernel_knew_arrives() {
        let key = InFlightKey { tid: 78, layer: 0 };
        let (at, got) = of(enter(&key, &call(kind::IOCTL), &Majors::of_nvidia("")));
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
        let (_, got) = of(enter(&key, &opening, &Majors::of_nvidia("")));
        assert_eq!(
            (got.device, got.node.as_deref(), got.driver.as_deref()),
            (None, Some("nvidia0"), Some("nvidia"))
        );
        let (at, failed) = of(exit(MonoNs(6), Some(-5), &key, &opening, &Majors::of_nvidia("")));
        assert_eq!((at, failed.edge), (MonoNs(6), Edge::Exit { ret: Some(-5), status: None, lost: false }));
    }

    #[test]
    fn an_end_without_a_return_value_is_a_lost_one() {
        let key = InFlightKey { tid: 78, layer: 0 };
        let (_, got) = of(exit(MonoNs(6), None, &key, &call(kind::CLOSE), &Majors::of_nvidia("")));
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
            assert_eq!((got.arguments, got.syscalls), (want, [16u64].as_slice()), "{kind}");
        }
        let opening = InFlight { fd: NO_FD, ..call(kind::OPEN) };
        assert_eq!(expected(&opening, &mut room, true).arguments, [None, None]);
    }
}
