//! Findings from the driver's XID lines.
//!
//! In: [`Signal::DriverLog`], and [`Signal::Gpu`] for the way from a PCI address to a device. Out: one
//! [`FindingKind::Xid`] per line, with the catalogue's meaning. A pure core: no clock, no input or output.
//! What can go wrong: a code or an address that is not known; the finding is born all the same and says so.

use std::collections::HashMap;

use super::xid_catalog::{self, Entry};
use crate::model::driver_log::XidLine;
use crate::model::{
    DriverLine, Fact, Finding, FindingKind, Gpu, LineKind, MonoNs, PciAddress, Severity, Signal, Xid,
};

/// The word for what the catalogue does not have.
const UNKNOWN: &str = "unknown";

/// The code that says "the recovery action changed": a state, not an event.
const RECOVERY_ACTION: u32 = 154;

/// Turns lines into findings.
#[derive(Debug, Default)]
pub struct XidFindings {
    devices: HashMap<PciAddress, String>,
    /// Lines without a sequence number so far.
    unnumbered: u64,
}

impl XidFindings {
    /// Takes any signal; appends what it concludes.
    pub fn push(&mut self, signal: &Signal, out: &mut Vec<Fact>) {
        if let Signal::Gpu { gpu, .. } = signal {
            self.learn(gpu);
        } else if let Signal::DriverLog { at, line } = signal {
            out.push(Fact::Finding(Box::new(self.finding(*at, line))));
        }
    }

    /// A MIG instance has its board's address; the board is what the driver names.
    fn learn(&mut self, gpu: &Gpu) {
        if let (Some(pci), None) = (gpu.pci, &gpu.parent) {
            self.devices.insert(pci, gpu.hw_id.clone());
        }
    }

    fn finding(&mut self, at: MonoNs, line: &DriverLine) -> Finding {
        let LineKind::Xid(parts) = &line.kind;
        let entry = xid_catalog::lookup(parts.code);
        let word = |of: fn(&Entry) -> &String| entry.map_or(UNKNOWN, |entry| of(entry)).to_owned();
        let (name, class) = (word(|e| &e.name), word(|e| &e.class));
        let severity = if all_is_well_again(parts) { "info".to_owned() } else { word(|e| &e.severity) };
        let xid = Xid {
            code: parts.code,
            pci: parts.pci,
            hw_id: parts.pci.and_then(|pci| self.devices.get(&pci).cloned()),
            name,
            class,
            action: word(|e| &e.action),
            pid: parts.pid,
            line: Box::new(line.clone()),
            severity,
        };
        Finding { id: self.id(line), at, severity: loudness(&xid.severity), kind: FindingKind::Xid(xid) }
    }

    /// The same line has the same id in every run on one boot.
    fn id(&mut self, line: &DriverLine) -> String {
        if let Some(seq) = line.origin.seq {
            return format!("xid-{seq}");
        }
        self.unnumbered += 1;
        format!("xid-line-{}", self.unnumbered)
    }
}

/// XID 154 whose new action is none.
fn all_is_well_again(parts: &XidLine) -> bool {
    parts.code == RECOVERY_ACTION && parts.recovery_value == Some(0)
}

/// The record's severity for the catalogue's word; what is not known deserves a look.
fn loudness(word: &str) -> Severity {
    match word {
        "info" => Severity::Info,
        "error" => Severity::Error,
        "critical" => Severity::Fatal,
        _ => Severity::Warn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LogOrigin, Pid};

    const PCI: PciAddress = PciAddress { domain: 0, bus: 0x3b, device: 0, function: 0 };

    fn gpu(hw_id: &str, parent: Option<&str>) -> Signal {
        let gpu = Gpu {
            hw_id: hw_id.to_owned(),
            index: Some(0),
            minor: Some(0),
            pci: Some(PCI),
            model: None,
            parent: parent.map(str::to_owned),
            details: Box::default(),
        };
        Signal::Gpu { at: MonoNs(0), gpu }
    }

    fn line(seq: Option<u64>, parts: XidLine) -> Signal {
        let origin = LogOrigin { seq, level: Some(4), backlog: false };
        let line = DriverLine { kind: LineKind::Xid(parts), raw: "raw".to_owned(), origin };
        Signal::DriverLog { at: MonoNs(5), line: Box::new(line) }
    }

    fn xid(code: u32) -> XidLine {
        XidLine { code, pci: Some(PCI), pid: Some(Pid(77)), ..XidLine::default() }
    }

    fn findings(signals: &[Signal]) -> Vec<Finding> {
        let (mut core, mut out) = (XidFindings::default(), Vec::new());
        signals.iter().for_each(|signal| core.push(signal, &mut out));
        let finding = |fact| match fact {
            Fact::Finding(finding) => *finding,
            Fact::Reading(signal) => panic!("{signal:?}"),
        };
        out.into_iter().map(finding).collect()
    }

    #[test]
    fn a_line_gets_the_meaning_of_its_code() {
        #[track_caller]
        fn check(parts: XidLine, want: (Severity, &str, &str, &str)) {
            let found = findings(&[line(Some(9), parts.clone())]).remove(0);
            let FindingKind::Xid(xid) = &found.kind else { panic!("{found:?}") };
            let got = (found.severity, xid.severity.as_str(), xid.class.as_str(), xid.action.as_str());
            assert_eq!(got, want, "{parts:?}");
            assert_eq!(
                (found.id.as_str(), found.at, xid.code, xid.pid),
                ("xid-9", MonoNs(5), parts.code, parts.pid)
            );
        }
        check(xid(79), (Severity::Fatal, "critical", "bus", "restart_node"));
        check(xid(31), (Severity::Error, "error", "application", "restart_app"));
        check(xid(63), (Severity::Warn, "warning", "memory", "none"));
        check(xid(14), (Severity::Info, "info", "info", "none"));
        check(xid(99_999), (Severity::Warn, "unknown", "unknown", "unknown"));
        let recovery = |value| XidLine { recovery_value: value, ..xid(154) };
        check(recovery(Some(4)), (Severity::Warn, "warning", "info", "workflow"));
        check(recovery(Some(0)), (Severity::Info, "info", "info", "workflow"));
        check(recovery(None), (Severity::Warn, "warning", "info", "workflow"));
    }

    #[test]
    fn the_device_is_the_board_at_the_address() {
        let hw_ids = |signals: &[Signal]| -> Vec<Option<String>> {
            let of = |finding: Finding| match finding.kind {
                FindingKind::Xid(xid) => xid.hw_id,
                other => panic!("{other:?}"),
            };
            findings(signals).into_iter().map(of).collect()
        };
        let (one, two) = (Some("GPU-1".to_owned()), Some("GPU-2".to_owned()));
        let elsewhere = XidLine { pci: Some(PciAddress { bus: 1, ..PCI }), ..xid(79) };
        let got = hw_ids(&[
            line(Some(1), xid(79)),
            gpu("GPU-1", None),
            gpu("MIG-1", Some("GPU-1")),
            line(Some(2), xid(79)),
            line(Some(3), elsewhere),
            gpu("GPU-2", None),
            line(Some(4), xid(79)),
        ]);
        assert_eq!(got, [None, one, None, two]);
    }

    #[test]
    fn lines_without_a_number_are_counted_instead() {
        let ids: Vec<String> = findings(&[line(None, xid(31)), line(Some(1), xid(31)), line(None, xid(31))])
            .into_iter()
            .map(|finding| finding.id)
            .collect();
        assert_eq!(ids, ["xid-line-1", "xid-1", "xid-line-2"]);
    }
}
