//! The kernel log's XIDs and those of the probe on the driver's own function, held against each other.
//!
//! In: lines of the log, reports of the probe, the passing of time. Out: counts of what both, or only one of them, has
//! told; and the reports that no line came for, since then the driver may have been told not to print. One of both may
//! lack the address (the probe could not read it): then code and time decide.
//! What can go wrong: more undecided ones than are kept; they are counted as refused, and a report is told at once.

use std::collections::VecDeque;
use std::time::Duration;

use crate::model::driver_log::XidLine;
use crate::model::{MonoNs, PciAddress, XidReport};
use crate::telemetry::{Counter, Telemetry};

/// Undecided lines and reports.
#[derive(Debug)]
pub struct XidCheck {
    /// Since when the probe is known to be at work; `None` while it is not.
    at_work: Option<MonoNs>,
    lines: VecDeque<Seen>,
    reports: VecDeque<(Seen, XidReport)>,
    both: Counter,
    log_only: Counter,
    probe_only: Counter,
    refused: Counter,
}

/// An error: which, where and when. The log's address has no function, the probe's has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    at: MonoNs,
    slot: Option<(u32, u8, u8)>,
    code: u32,
}

impl Seen {
    fn new(at: MonoNs, pci: Option<PciAddress>, code: u32) -> Self {
        Self { at, slot: pci.map(|pci| (pci.domain, pci.bus, pci.device)), code }
    }

    /// Whether both are of one error, for all that is known.
    fn may_be(&self, other: &Self) -> bool {
        let apart = self.at.since(other.at).or_else(|| other.at.since(self.at)).unwrap_or_default();
        let same_slot = self.slot == other.slot || self.slot.is_none() || other.slot.is_none();
        same_slot && self.code == other.code && apart <= XidCheck::WINDOW
    }

    /// The place of the first that may be this one; of those, one with the same address before one without.
    fn place_in<'a>(&self, others: impl Iterator<Item = &'a Self>) -> Option<usize> {
        let matching = others.enumerate().filter(|(_, other)| self.may_be(other));
        matching.min_by_key(|(_, other)| other.slot != self.slot).map(|(place, _)| place)
    }
}

impl XidCheck {
    /// Line and report of one error are at most this far apart: they are written by one function, but read by two
    /// clocks.
    const WINDOW: Duration = Duration::from_secs(5);
    /// What has no counterpart by then will not get one.
    const PATIENCE: Duration = Duration::from_secs(6);
    /// Most undecided ones of each kind.
    const UNDECIDED_MAX: usize = 1_024;

    /// Nothing is undecided, and the probe is not at work.
    pub fn new(telemetry: &Telemetry) -> Self {
        let result = |result| telemetry.counter("warpgauge.xid.cross_check", &[("result", result)]);
        Self {
            at_work: None,
            lines: VecDeque::new(),
            reports: VecDeque::new(),
            both: result("both"),
            log_only: result("log_only"),
            probe_only: result("probe_only"),
            refused: telemetry.counter("warpgauge.correlate.refused", &[("reason", "xid_cross_check")]),
        }
    }

    /// The probe is at work from now on, or is not any more; what the log said meanwhile says nothing of the probe.
    pub fn set_at_work(&mut self, at: MonoNs, is: bool) {
        if is {
            self.at_work.get_or_insert(at);
        } else {
            self.at_work = None;
            self.lines.clear();
        }
    }

    /// A line of the log.
    pub fn line(&mut self, at: MonoNs, line: &XidLine) {
        let seen = Seen::new(at, line.pci, line.code);
        if let Some(place) = seen.place_in(self.reports.iter().map(|(report, _)| report)) {
            self.reports.remove(place);
            self.both.add(1);
        } else if line.pci.is_none() || self.at_work.is_none_or(|since| at < since) {
            // nobody was there to report it; or no report can be told to be of another error
        } else if self.lines.len() < Self::UNDECIDED_MAX {
            self.lines.push_back(seen);
        } else {
            self.refused.add(1);
        }
    }

    /// A report of the probe. Gives it back where it is to be told at once.
    pub fn report(&mut self, at: MonoNs, report: XidReport) -> Option<XidReport> {
        self.at_work.get_or_insert(at);
        let seen = Seen::new(at, report.pci, report.code);
        if let Some(place) = seen.place_in(self.lines.iter()) {
            self.lines.remove(place);
            self.both.add(1);
        } else if self.reports.len() < Self::UNDECIDED_MAX {
            self.reports.push_back((seen, report));
        } else {
            self.refused.add(1);
            return Some(report);
        }
        None
    }

    /// Time has passed: what nobody else has told is decided. Gives the next report that no line came for.
    pub fn decide(&mut self, now: MonoNs) -> Option<(MonoNs, XidReport)> {
        let over = |seen: &Seen| now.since(seen.at).is_some_and(|age| age > Self::PATIENCE);
        let before = self.lines.len();
        self.lines.retain(|line| !over(line));
        self.log_only.add((before - self.lines.len()) as u64);
        let place = self.reports.iter().position(|(seen, _)| over(seen))?;
        let (seen, report) = self.reports.remove(place)?;
        self.probe_only.add(1);
        Some((seen.at, report))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// What happens, by seconds: a line (`l`) or a report (`r`) with a code and an address; the probe comes or goes.
    enum Happens {
        Line(u64, u32, &'static str),
        Report(u64, u32, &'static str),
        Probe(u64, bool),
    }
    use Happens::{Line, Probe, Report};

    /// Counts of both, log only and probe only, and the codes that were told, after a minute.
    #[track_caller]
    fn check(happens: &[Happens], want: ([u64; 3], &[u32])) {
        let telemetry = Telemetry::default();
        let mut check = XidCheck::new(&telemetry);
        let mut told = Vec::new();
        for one in happens {
            match *one {
                Line(s, code, pci) => {
                    let line = XidLine { code, pci: PciAddress::parse(pci), ..XidLine::default() };
                    check.line(MonoNs(s * SECOND), &line);
                }
                Report(s, code, pci) => {
                    let report = XidReport { pci: PciAddress::parse(pci), code };
                    told.extend(check.report(MonoNs(s * SECOND), report).map(|report| report.code));
                }
                Probe(s, is) => check.set_at_work(MonoNs(s * SECOND), is),
            }
        }
        while let Some((_, report)) = check.decide(MonoNs(60 * SECOND)) {
            told.push(report.code);
        }
        let counts = [&check.both, &check.log_only, &check.probe_only].map(Counter::get);
        assert_eq!((counts, told.as_slice()), want);
        assert!(check.lines.is_empty() && check.reports.is_empty());
    }

    #[test]
    fn line_and_report_of_one_error_are_one() {
        check(&[Line(5, 79, "0000:3b:00"), Report(5, 79, "0000:3b:00.0")], ([0, 0, 1], &[79]));
        check(&[Probe(1, true), Line(5, 79, "0000:3b:00"), Report(6, 79, "0000:3b:00.0")], ([1, 0, 0], &[]));
        check(&[Report(5, 79, "0000:3b:00.1"), Line(9, 79, "0000:3b:00")], ([1, 0, 0], &[]));
        // the log's clock may be behind
        check(&[Report(5, 79, "0000:3b:00.0"), Line(3, 79, "0000:3b:00")], ([1, 0, 0], &[]));
    }

    #[test]
    fn another_device_code_or_time_is_another_error() {
        let report = || Report(5, 79, "0000:3b:00.0");
        for line in [Line(5, 79, "0000:3c:00"), Line(5, 31, "0000:3b:00"), Line(11, 79, "0000:3b:00")] {
            check(&[report(), line], ([0, 1, 1], &[79]));
        }
        let twice = [report(), report(), Line(5, 79, "0000:3b:00")];
        check(&twice, ([1, 0, 1], &[79]));
    }

    #[test]
    fn only_what_the_probe_could_have_seen_is_held_against_it() {
        check(&[Line(5, 79, "0000:3b:00")], ([0; 3], &[]));
        check(&[Probe(1, true), Line(5, 79, "0000:3b:00")], ([0, 1, 0], &[]));
        check(&[Probe(6, true), Line(5, 79, "0000:3b:00")], ([0; 3], &[]));
        check(&[Probe(1, true), Line(5, 79, "0000:3b:00"), Probe(6, false)], ([0; 3], &[]));
        check(&[Probe(1, true), Line(5, 79, "")], ([0; 3], &[]));
        check(&[Report(5, 79, "")], ([0, 0, 1], &[79]));
    }

    #[test]
    fn a_report_without_an_address_is_of_the_line_with_its_code() {
        let unread = |s| Report(s, 79, "");
        check(&[unread(5), Line(5, 79, "0000:3b:00")], ([1, 0, 0], &[]));
        check(&[Probe(1, true), Line(5, 79, "0000:3b:00"), unread(6)], ([1, 0, 0], &[]));
        for line in [Line(5, 31, "0000:3b:00"), Line(11, 79, "0000:3b:00")] {
            check(&[unread(5), line], ([0, 1, 1], &[79]));
        }
        // one line is of one report, and rather of the one with its address
        let both = [unread(5), Report(5, 79, "0000:3b:00.0"), Line(5, 79, "0000:3b:00")];
        check(&both, ([1, 0, 1], &[79]));
        let [one, other] = [Line(5, 79, "0000:3b:00"), Line(5, 79, "0000:3c:00")];
        check(&[unread(5), Report(5, 79, "0000:3b:00.0"), one, other], ([2, 0, 0], &[]));
        // a line without one is of a report that has it
        check(&[Report(5, 79, "0000:3b:00.0"), Line(6, 79, "")], ([1, 0, 0], &[]));
    }

    #[test]
    fn nothing_is_decided_before_its_time() {
        let mut check = XidCheck::new(&Telemetry::default());
        let pci = PciAddress::parse("3b:00");
        assert_eq!(check.report(MonoNs(SECOND), XidReport { pci, code: 79 }), None);
        assert_eq!(check.decide(MonoNs(7 * SECOND)), None);
        let want = Some((MonoNs(SECOND), XidReport { pci, code: 79 }));
        assert_eq!(check.decide(MonoNs(7 * SECOND + 1)), want);
    }

    #[test]
    fn a_storm_is_bounded_and_every_report_of_it_is_told() {
        let telemetry = Telemetry::default();
        let mut check = XidCheck::new(&telemetry);
        let report = XidReport { pci: PciAddress::parse("3b:00"), code: 31 };
        let at_once = (0..XidCheck::UNDECIDED_MAX + 5).filter(|_| check.report(MonoNs(0), report).is_some());
        assert_eq!((at_once.count(), check.reports.len()), (5, XidCheck::UNDECIDED_MAX));
    }
}
