//! Things that happen once: from the kernel programs' events to signals.
//!
//! In: events of the ring buffer. Out: uses of GPUs, roles, ends and new programs of processes, the driver's power, its
//! errors. What can go wrong: an event of a kind nobody knows is left out; more uses than are kept are said, but their
//! end is not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use warpgauge_ebpf::event::{Event, power, what};

use super::call_signal::{caller, printable};
use crate::model::signal::{DriverState, ModuleState, Uses};
use crate::model::{
    CgroupId, MonoNs, PciAddress, Pid, Process, ProcessRole, Signal, StartTicks, UseEvidence, Workload,
    XidReport,
};

/// A GPU's UUID.
type Uuid = [u8; 16];

/// Which GPUs each process is tied to by unified memory.
#[derive(Debug, Default)]
pub struct Events {
    uses: BTreeMap<u32, BTreeSet<Uuid>>,
}

/// What an event says of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Nothing.
    Nothing,
    /// It computes.
    Works,
    /// It runs another program.
    Execs,
    /// It has ended.
    Ended,
}

impl Events {
    /// Most processes, and GPUs of each, whose uses are kept.
    const PROCESSES_MAX: usize = 16_384;
    const GPUS_MAX: usize = 64;

    /// Tells what the event means.
    pub fn take(&mut self, event: &Event, emit: &mut impl FnMut(Signal)) -> Said {
        let (at, pid) = (MonoNs(event.at_ns), Pid(event.tgid));
        match event.what {
            what::REGISTER_GPU | what::REGISTER_VA_SPACE | what::REGISTER_CHANNEL => {
                let uuid = uuid(event);
                if self.begins(event.tgid, uuid) {
                    emit(uses(at, pid, &uuid, false));
                }
                return Said::Works;
            }
            what::UNREGISTER_GPU => {
                let uuid = uuid(event);
                if self.uses.get_mut(&event.tgid).is_some_and(|known| known.remove(&uuid)) {
                    emit(uses(at, pid, &uuid, true));
                }
            }
            what::WORKLOAD => return Said::Works,
            what::EXIT => {
                self.uses.remove(&event.tgid);
                emit(Signal::Exit { at, pid });
                return Said::Ended;
            }
            what::EXEC => {
                // its address space is another one: the former program's contexts went with the former one
                for uuid in self.uses.remove(&event.tgid).unwrap_or_default() {
                    emit(uses(at, pid, &uuid, true));
                }
                emit(Signal::Exec { at, pid });
                emit(Signal::Process { at, pid, process: Some(Box::new(process(event))) });
                return Said::Execs;
            }
            what::POWER => emit(power(at, event.code)),
            what::XID => {
                let pci = PciAddress::parse(&printable(&event.bytes));
                emit(Signal::XidReport { at, report: XidReport { pci, code: event.code } });
            }
            _ => {}
        }
        Said::Nothing
    }

    /// The process has ended, and no event told of it.
    pub fn forget(&mut self, tgid: u32) {
        self.uses.remove(&tgid);
    }

    /// It is not known yet.
    fn begins(&mut self, tgid: u32, uuid: Uuid) -> bool {
        if self.uses.len() >= Self::PROCESSES_MAX && !self.uses.contains_key(&tgid) {
            return true;
        }
        let known = self.uses.entry(tgid).or_default();
        known.len() >= Self::GPUS_MAX || known.insert(uuid)
    }
}

/// The role of a process, as a signal.
pub fn role(at: MonoNs, tgid: u32, role: ProcessRole) -> Signal {
    Signal::Role { at, pid: Pid(tgid), role }
}

fn uuid(event: &Event) -> Uuid {
    let mut uuid = Uuid::default();
    for (to, from) in uuid.iter_mut().zip(event.bytes) {
        *to = from;
    }
    uuid
}

/// As NVIDIA prints it: the bytes in their order, in groups of 4, 2, 2, 2 and 6.
fn hw_id(uuid: &Uuid) -> String {
    let mut text = String::from("GPU");
    for (place, byte) in uuid.iter().enumerate() {
        if matches!(place, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
    }
    text
}

fn uses(at: MonoNs, pid: Pid, uuid: &Uuid, end: bool) -> Signal {
    let (evidence, role) = (UseEvidence::UvmChannel, "workload".to_owned());
    Signal::Uses { at, uses: Uses { pid, hw_id: hw_id(uuid), evidence, role, end } }
}

/// It runs another program now: its name has changed, its number, begin and cgroup have not.
fn process(event: &Event) -> Process {
    let caller = caller(&event.comm, event.start_ns, event.cgroup);
    Process {
        start: Some(StartTicks::from_boottime_ns(event.start_ns)),
        comm: Some(caller.comm),
        cgroup_id: (event.cgroup != 0).then_some(CgroupId(event.cgroup)),
        cgroup: None,
        workload: Workload::default(),
    }
}

fn power(at: MonoNs, state: u32) -> Signal {
    let state = if state == power::RUNNING { ModuleState::Loaded } else { ModuleState::Suspending };
    Signal::Driver { at, driver: DriverState { version: None, flavour: None, state } }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: Uuid =
        [0x9f, 0x8e, 0x7d, 0x6c, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0x0c];
    const GPU: &str = "GPU-9f8e7d6c-1122-3344-5566-778899aabb0c";

    fn event(what: u32) -> Event {
        let mut event =
            Event { at_ns: 5, start_ns: 70_000_000, cgroup: 9, tgid: 77, what, ..Event::default() };
        event.comm[..6].copy_from_slice(b"py\x1b[1m");
        event.bytes[..16].copy_from_slice(&UUID);
        event
    }

    /// What a row of events says, one word each.
    fn said(events: &[Event]) -> Vec<String> {
        let (mut core, mut out) = (Events::default(), Vec::new());
        for event in events {
            core.take(event, &mut |signal| {
                assert_eq!(signal.at(), MonoNs(5));
                out.push(match signal {
                    Signal::Uses { uses, .. } => {
                        assert_eq!(
                            (uses.evidence, uses.role.as_str()),
                            (UseEvidence::UvmChannel, "workload")
                        );
                        format!("{} {} {}", if uses.end { "end" } else { "uses" }, uses.pid.0, uses.hw_id)
                    }
                    Signal::Exit { pid, .. } => format!("exit {}", pid.0),
                    Signal::Exec { pid, .. } => format!("leaves {}", pid.0),
                    Signal::Process { process: Some(process), .. } => {
                        format!("exec {:?} {:?} {:?}", process.comm, process.start, process.cgroup_id)
                    }
                    Signal::Driver { driver, .. } => format!("{:?}", driver.state),
                    Signal::XidReport { report, .. } => {
                        format!("{} {:?}", report.code, report.pci.map(|pci| pci.to_string()))
                    }
                    other => panic!("{other:?}"),
                });
            });
        }
        out
    }

    #[test]
    fn a_process_uses_a_gpu_from_its_registration_until_it_lets_go() {
        let channel = event(what::REGISTER_CHANNEL);
        let rows = [event(what::REGISTER_GPU), event(what::REGISTER_VA_SPACE), channel, channel];
        assert_eq!(said(&rows), [format!("uses 77 {GPU}")], "said once");
        let rows = [channel, event(what::UNREGISTER_GPU), event(what::UNREGISTER_GPU), channel];
        assert_eq!(
            said(&rows),
            [format!("uses 77 {GPU}"), format!("end 77 {GPU}"), format!("uses 77 {GPU}")]
        );
        assert_eq!(said(&[channel, event(what::EXIT), event(what::UNREGISTER_GPU)])[1..], ["exit 77"]);
    }

    #[test]
    fn another_program_has_to_register_anew() {
        let channel = event(what::REGISTER_CHANNEL);
        let mut other = channel;
        other.bytes[0] = 0xff;
        let said = said(&[channel, other, event(what::EXEC), event(what::UNREGISTER_GPU), channel]);
        let words: Vec<&str> = said.iter().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(words, ["uses", "uses", "end", "end", "leaves", "exec", "uses"]);
        assert_eq!((&said[2], &said[6]), (&format!("end 77 {GPU}"), &format!("uses 77 {GPU}")));
    }

    #[test]
    fn processes_power_and_errors() {
        let with = |what, code, bytes: &[u8]| {
            let mut event = Event { code, bytes: [0; 32], ..event(what) };
            event.bytes[..bytes.len()].copy_from_slice(bytes);
            event
        };
        let rows = [
            event(what::EXEC),
            with(what::POWER, power::STANDBY, b""),
            with(what::POWER, power::HIBERNATE, b""),
            with(what::POWER, power::RUNNING, b""),
            with(what::XID, 79, b"0000:3b:00.0"),
            with(what::XID, 31, b"no address"),
            event(99),
        ];
        let exec = "exec Some(\"py[1m\") Some(StartTicks(7)) Some(CgroupId(9))";
        let xids = ["79 Some(\"0000:3b:00.0\")", "31 None"];
        assert_eq!(said(&rows), ["leaves 77", exec, "Suspending", "Suspending", "Loaded", xids[0], xids[1]]);
    }

    #[test]
    fn what_an_event_says_of_its_process() {
        for (what, want) in [
            (what::REGISTER_CHANNEL, Said::Works),
            (what::WORKLOAD, Said::Works),
            (what::EXIT, Said::Ended),
            (what::EXEC, Said::Execs),
            (what::XID, Said::Nothing),
        ] {
            assert_eq!(Events::default().take(&event(what), &mut |_| {}), want, "{what}");
        }
    }

    #[test]
    fn there_is_an_end_to_what_is_kept() {
        let mut core = Events::default();
        for tgid in 0..Events::PROCESSES_MAX as u32 + 5 {
            core.take(&Event { tgid, ..event(what::REGISTER_GPU) }, &mut |_| {});
        }
        assert_eq!(core.uses.len(), Events::PROCESSES_MAX);
    }
}
