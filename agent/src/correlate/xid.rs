//! Findings from the errors (XIDs) that the driver reports.
//!
//! In: [`Signal::DriverLog`], [`Signal::XidReport`], and [`Signal::Gpu`] for the way from a PCI address to a device. Out:
//! one [`FindingKind::Xid`] per line, or per report that no line came for, with the catalogue's meaning. A pure core: no
//! clock, no input or output. What can go wrong: a code or an address that is not known; the finding is born all the
//! same and says so. More devices than are kept: the surplus is refused and counted.

use std::collections::HashMap;

use super::xid_catalog::{self, Entry};
use super::xid_check::XidCheck;
use crate::model::driver_log::XidLine;
use crate::model::signal::{DeviceState, XID_REPORTS};
use crate::model::{
    DriverLine, Fact, Finding, FindingKind, Gpu, LineKind, LogOrigin, MonoNs, PciAddress, Severity, Signal,
    Xid, XidReport, XidSource,
};
use crate::telemetry::{Counter, Telemetry};

/// The word for what the catalogue does not have.
const UNKNOWN: &str = "unknown";

/// The code that says "the recovery action changed": a state, not an event.
const RECOVERY_ACTION: u32 = 154;

/// Turns lines and reports into findings.
#[derive(Debug)]
pub struct XidFindings {
    devices: HashMap<PciAddress, String>,
    refused: Counter,
    check: XidCheck,
    /// Lines without a sequence number so far.
    unnumbered: u64,
}

impl XidFindings {
    /// Most devices kept.
    const DEVICES_MAX: usize = 256;

    /// No device is known; refusals are counted.
    pub fn new(telemetry: &Telemetry) -> Self {
        Self {
            devices: HashMap::new(),
            refused: telemetry.counter("warpgauge.correlate.refused", &[("reason", "xid_devices")]),
            check: XidCheck::new(telemetry),
            unnumbered: 0,
        }
    }

    /// Takes any signal; appends what it concludes.
    pub fn push(&mut self, signal: &Signal, out: &mut Vec<Fact>) {
        match signal {
            Signal::Gpu { gpu, .. } => self.learn(gpu),
            Signal::GpuState { hw_id, state: DeviceState::Gone, .. } => {
                self.devices.retain(|_, name| name != hw_id);
            }
            Signal::DriverLog { at, line } => {
                if !line.origin.backlog {
                    let LineKind::Xid(parts) = &line.kind;
                    self.check.line(*at, parts);
                }
                let id = self.id(line);
                out.push(self.finding(id, *at, line, XidSource::KernelLog));
            }
            Signal::XidReport { at, report } => {
                if let Some(report) = self.check.report(*at, *report) {
                    out.push(self.reported(*at, report));
                }
            }
            Signal::Tick { at } => {
                while let Some((at, report)) = self.check.decide(*at) {
                    out.push(self.reported(at, report));
                }
            }
            Signal::Source { at, source } if source.name == XID_REPORTS => {
                self.check.set_at_work(*at, source.up);
            }
            Signal::Source { at, source } if source.name == "probes" && !source.up => {
                self.check.set_at_work(*at, false);
            }
            _ => {} // nothing else says anything of an error
        }
    }

    /// A MIG instance has its board's address; the board is what the driver names.
    fn learn(&mut self, gpu: &Gpu) {
        let (Some(pci), None) = (gpu.pci, &gpu.parent) else { return };
        let pci = PciAddress { function: 0, ..pci };
        if self.devices.len() < Self::DEVICES_MAX || self.devices.contains_key(&pci) {
            self.devices.insert(pci, gpu.hw_id.clone());
        } else {
            self.refused.add(1);
        }
    }

    /// The finding of an error that the kernel log does not have.
    fn reported(&self, at: MonoNs, report: XidReport) -> Fact {
        let device = report.pci.map_or_else(|| "unknown device".to_owned(), |pci| format!("PCI:{pci}"));
        let line = DriverLine {
            kind: LineKind::Xid(XidLine { code: report.code, pci: report.pci, ..XidLine::default() }),
            raw: format!(
                "Xid ({device}): {}, reported inside the driver; the kernel log has no line of it",
                report.code
            ),
            origin: LogOrigin::default(),
        };
        self.finding(format!("xid-report-{}-{}", report.code, at.0), at, &line, XidSource::DriverProbe)
    }

    fn finding(&self, id: String, at: MonoNs, line: &DriverLine, source: XidSource) -> Fact {
        let LineKind::Xid(parts) = &line.kind;
        let entry = xid_catalog::lookup(parts.code);
        let word = |of: fn(&Entry) -> &String| entry.map_or(UNKNOWN, |entry| of(entry)).to_owned();
        let (name, class) = (word(|e| &e.name), word(|e| &e.class));
        let severity = if all_is_well_again(parts) { "info".to_owned() } else { word(|e| &e.severity) };
        let board = |pci: PciAddress| self.devices.get(&PciAddress { function: 0, ..pci }).cloned();
        let xid = Xid {
            code: parts.code,
            pci: parts.pci,
            hw_id: parts.pci.and_then(board),
            name,
            class,
            action: word(|e| &e.action),
            pid: parts.pid,
            source,
            line: Box::new(line.clone()),
            severity,
        };
        let severity = loudness(&xid.severity);
        Fact::Finding(Box::new(Finding { id, at, severity, kind: FindingKind::Xid(xid) }))
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
    use crate::model::Pid;

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
        let (mut core, mut out) = (XidFindings::new(&Telemetry::default()), Vec::new());
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

    #[test]
    fn an_error_that_is_not_printed_is_told_by_the_probe_and_one_that_is_only_once() {
        let report = |s: u64, function| {
            let report = XidReport { pci: Some(PciAddress { function, ..PCI }), code: 79 };
            Signal::XidReport { at: MonoNs(s * 1_000_000_000), report }
        };
        let tick = |s: u64| Signal::Tick { at: MonoNs(s * 1_000_000_000) };
        let told = |signals: &[Signal]| -> Vec<(&'static str, Option<String>, u64)> {
            let of = |finding: Finding| match finding.kind {
                FindingKind::Xid(xid) => (xid.source.name(), xid.hw_id, finding.at.0),
                other => panic!("{other:?}"),
            };
            findings(signals).into_iter().map(of).collect()
        };
        let known = Some("GPU-1".to_owned());
        let printed = told(&[gpu("GPU-1", None), report(1, 0), line(Some(1), xid(79)), tick(9)]);
        assert_eq!(printed, [("kernel_log", known.clone(), 5)]);
        let silent = told(&[gpu("GPU-1", None), report(1, 1), tick(2), tick(9), tick(10)]);
        assert_eq!(silent, [("driver_probe", known, 1_000_000_000)]);
    }

    #[test]
    fn devices_that_are_gone_are_forgotten_and_too_many_are_refused() {
        let telemetry = Telemetry::default();
        let (mut core, mut out) = (XidFindings::new(&telemetry), Vec::new());
        let mut learn = |n: usize, core: &mut XidFindings| {
            let Signal::Gpu { at, mut gpu } = gpu(&format!("GPU-{n}"), None) else { panic!("a GPU") };
            gpu.pci = Some(PciAddress { domain: n as u32, ..PCI });
            core.push(&Signal::Gpu { at, gpu }, &mut out);
        };
        (0..XidFindings::DEVICES_MAX + 2).for_each(|n| learn(n, &mut core));
        let refused = telemetry.counter("warpgauge.correlate.refused", &[("reason", "xid_devices")]);
        assert_eq!((core.devices.len(), refused.get()), (XidFindings::DEVICES_MAX, 2));
        let gone = Signal::GpuState { at: MonoNs(1), hw_id: "GPU-3".into(), state: DeviceState::Gone };
        core.push(&gone, &mut Vec::new());
        assert_eq!(core.devices.len(), XidFindings::DEVICES_MAX - 1);
    }
}
