//! From one record to at most one signal: what is skipped, refused, counted and dated.
//!
//! In: the bytes of a record, and when it was read. Out: a [`Signal`]; [`Delivery`] hears of every record. No input or
//! output here. What can go wrong: records that are damaged or too long, of a facility that is not believed, with
//! text that is not the driver's, or overwritten before they were read; each is counted, and for one reason only.

use std::sync::Arc;

use super::record::{self, Record};
use super::{credible, xid};
use crate::model::{Delivery, KmsgOffset, LogOrigin, MonoNs, Signal};
use crate::telemetry::{Counter, Telemetry};

/// What the source counts.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    /// Records read for the first time.
    pub(super) records: Counter,
    /// Reads that gave no record.
    pub(super) malformed: Counter,
    /// Times the kernel's buffer ran over before it was read.
    pub(super) overruns: Counter,
    /// Records that were overwritten before they were read: gaps in the numbers, less the reads that gave no record.
    pub(super) lost: Counter,
    /// Records that look like an XID, but not by somebody who is believed.
    pub(super) facility: Counter,
    /// Records of a believed facility that look like an XID, in text that somebody else may have chosen.
    not_credible: Counter,
    /// Records longer than any kernel prints.
    too_long: Counter,
}

impl Counts {
    pub(super) fn new(telemetry: &Telemetry) -> Self {
        let plain = |name| telemetry.counter(name, &[]);
        let ignored = |reason| telemetry.counter("warpgauge.kmsg.ignored", &[("reason", reason)]);
        Self {
            records: plain("warpgauge.kmsg.records"),
            malformed: plain("warpgauge.kmsg.malformed"),
            overruns: plain("warpgauge.kmsg.overruns"),
            lost: plain("warpgauge.kmsg.lost"),
            facility: ignored("facility"),
            not_credible: ignored("not_credible"),
            too_long: ignored("too_long"),
        }
    }
}

/// The core of the source. Lives as long as it does, over failures of the device.
#[derive(Debug)]
pub(super) struct Intake {
    pub(super) counts: Counts,
    facilities: Vec<u8>,
    delivery: Arc<Delivery>,
    offset: KmsgOffset,
    /// The first record that was not read yet; unknown until one was read.
    next: Option<u64>,
    backlog_until: u64,
    /// Reads since the last record that gave none, and were counted: their numbers are missing, but not lost.
    passed_over: u64,
}

impl Intake {
    pub(super) fn new(facilities: Vec<u8>, delivery: Arc<Delivery>, counts: Counts) -> Self {
        let offset = KmsgOffset::default();
        Self { counts, facilities, delivery, offset, next: None, backlog_until: 0, passed_over: 0 }
    }

    /// Who hears of every record.
    pub(super) fn delivery(&self) -> Arc<Delivery> {
        Arc::clone(&self.delivery)
    }

    /// Records below `resume` were settled by an earlier run; those below `backlog_until` are old.
    pub(super) fn begin(&mut self, resume: Option<u64>, backlog_until: u64) {
        (self.next, self.backlog_until) = (resume, backlog_until);
        if let Some(last) = resume.and_then(|resume| resume.checked_sub(1)) {
            self.delivery.read(last, false);
        }
    }

    /// A record that the buffer was too small for; the reader goes on behind it.
    pub(super) fn too_long(&mut self) {
        self.counts.too_long.add(1);
        self.passed_over += 1;
    }

    /// Takes one record, read at `now`; `live` where it was written while the reader waited.
    pub(super) fn take(&mut self, bytes: &[u8], now: MonoNs, live: bool) -> Option<Signal> {
        let Some(record) = record::parse(bytes) else {
            self.counts.malformed.add(1);
            self.passed_over += 1;
            return None;
        };
        let passed_over = std::mem::take(&mut self.passed_over);
        let next = self.next.unwrap_or(record.seq);
        if record.seq < next {
            return None;
        }
        self.counts.lost.add((record.seq - next).saturating_sub(passed_over));
        self.counts.records.add(1);
        self.next = Some(record.seq.saturating_add(1));
        if live {
            self.offset.observe(record.stamp, now);
        }
        let signal = self.signal(&record, now);
        self.delivery.read(record.seq, signal.is_some());
        signal
    }

    fn signal(&self, record: &Record<'_>, now: MonoNs) -> Option<Signal> {
        if !has_mark(record.text) {
            return None;
        }
        let origin = LogOrigin {
            seq: Some(record.seq),
            level: Some(record.level),
            backlog: record.seq < self.backlog_until,
        };
        let message = record.message();
        let (line, place) = xid::driver_line_at(&message, origin)?;
        if !self.facilities.contains(&record.facility) {
            self.counts.facility.add(1);
            return None;
        }
        if !credible::is_credible(&message[..place], &line.kind) {
            self.counts.not_credible.add(1);
            return None;
        }
        // Until a live record has told how far the log's clock is ahead, a stamp may lie in the future.
        let at = self.offset.mono(record.stamp).min(now);
        Some(Signal::DriverLog { at, line: Box::new(line) })
    }
}

/// Whether the mark of a driver's line is in there; it has no character that the kernel escapes.
fn has_mark(text: &[u8]) -> bool {
    let slow = || text.windows(xid::MARK.len()).any(|window| window == xid::MARK.as_bytes());
    std::str::from_utf8(text).map_or_else(|_| slow(), |text| text.contains(xid::MARK))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LineKind;

    /// Long after every stamp of these tests.
    const LATE: MonoNs = MonoNs(1 << 60);

    /// Takes records, live at the time `live` or waiting until [`LATE`]; gives code, seq, backlog, time in µs.
    struct Case {
        intake: Intake,
        telemetry: Telemetry,
        delivery: Arc<Delivery>,
    }

    impl Case {
        fn new(resume: Option<u64>, backlog_until: u64) -> Self {
            let (telemetry, delivery) = (Telemetry::default(), Arc::new(Delivery::default()));
            let mut intake = Intake::new(vec![0], Arc::clone(&delivery), Counts::new(&telemetry));
            intake.begin(resume, backlog_until);
            Self { intake, telemetry, delivery }
        }

        #[track_caller]
        fn check(&mut self, record: &str, live: Option<MonoNs>, want: Option<(u32, u64, bool, u64)>) {
            let got =
                self.intake.take(record.as_bytes(), live.unwrap_or(LATE), live.is_some()).map(|signal| {
                    let Signal::DriverLog { at, line } = signal else { panic!("{signal:?}") };
                    let LineKind::Xid(xid) = &line.kind;
                    (xid.code, line.origin.seq.unwrap(), line.origin.backlog, at.0 / 1_000)
                });
            assert_eq!(got, want, "{record}");
        }

        #[track_caller]
        fn counted(&self, want: &[(&str, u64)]) {
            let got: Vec<_> = self.telemetry.read().into_iter().filter(|(_, _, n)| *n > 0).collect();
            let got: Vec<_> = got
                .iter()
                .map(|(name, attributes, n)| {
                    let reason =
                        attributes.first().map(|(_, reason)| format!("/{reason}")).unwrap_or_default();
                    (format!("{}{reason}", name.trim_start_matches("warpgauge.kmsg.")), *n)
                })
                .collect();
            let want: Vec<_> = want.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
            assert_eq!(got, want);
        }
    }

    #[test]
    fn old_lines_are_backlog_and_live_ones_set_the_clock() {
        let mut case = Case::new(None, 1203);
        case.check(
            "3,1201,86400000000,-;NVRM: Xid (PCI:0000:4e:00): 119, pid=1, name=x, Timeout after 45s",
            None,
            Some((119, 1201, true, 86_400_000_000)),
        );
        case.check("4,1202,86400000100,c;  continuation text", None, None);
        let read_at = MonoNs(259_203_000_000_000);
        case.check(
            "3,1203,259200000000,-;NVRM: Xid (PCI:0000:4e:00): 31, pid=2, name=y, Ch 00000001",
            Some(read_at),
            Some((31, 1203, false, 259_203_000_000)),
        );
        assert_eq!(case.delivery.resume_at(), Some(1201));
        case.delivery.settle(1201);
        case.delivery.settle(1203);
        assert_eq!(case.delivery.resume_at(), Some(1204));
        case.counted(&[("records", 3)]);
    }

    #[test]
    fn a_second_run_skips_what_was_settled_and_counts_what_is_gone() {
        let mut case = Case::new(Some(12), 14);
        assert_eq!(case.delivery.resume_at(), Some(12));
        let line = |seq| format!("4,{seq},5,-;NVRM: Xid (PCI:0000:4e:00): 79, x");
        case.check(&line(11), None, None);
        case.check(&line(13), None, Some((79, 13, true, 5)));
        case.check(&line(14), None, Some((79, 14, false, 5)));
        case.check(&line(14), None, None);
        case.check(&line(17), None, Some((79, 17, false, 5)));
        case.counted(&[("lost", 3), ("records", 3)]);
    }

    #[test]
    fn user_space_is_not_believed_and_damage_is_counted() {
        let mut case = Case::new(None, 0);
        case.check("14,1,5,-;NVRM: Xid (PCI:0000:4e:00): 79, x", None, None);
        case.check("14,2,5,-;Xid (nothing", None, None);
        case.check("nonsense", None, None);
        assert_eq!(case.delivery.resume_at(), Some(3));
        case.counted(&[("ignored/facility", 1), ("malformed", 1), ("records", 2)]);
    }

    #[test]
    fn what_somebody_else_may_have_chosen_is_not_believed() {
        let mut case = Case::new(None, 0);
        case.check(
            "6,1,5,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,mems_allowed=0,\
             oom_memcg=/kubepods/NVRM: Xid (PCI:0000:3b:00): 79, pid=1,task_memcg=/x,task=python3,pid=77,uid=0",
            None,
            None,
        );
        case.check("6,2,5,-;usb 1-1: Product: NVRM: Xid (PCI:0000:3b:00): 79, x", None, None);
        case.check("12,3,5,-;usb 1-1: Product: NVRM: Xid (PCI:0000:3b:00): 79, x", None, None);
        case.check(
            "4,4,5,-;mlx5_core 0000:ab:00.0: probing NVRM: Xid (PCI:0000:17:00): 79, x",
            None,
            Some((79, 4, false, 5)),
        );
        assert_eq!(case.delivery.resume_at(), Some(4), "the refused ones are done with");
        case.counted(&[("ignored/facility", 1), ("ignored/not_credible", 2), ("records", 4)]);
    }

    #[test]
    fn no_line_is_dated_into_the_future() {
        let mut case = Case::new(None, 3);
        let line = |seq, us| format!("4,{seq},{us},-;NVRM: Xid (PCI:0000:4e:00): 79, x");
        let early = |us: u64| MonoNs(us * 1_000);
        let take = |case: &mut Case, seq, stamp, now, live| match case.intake.take(
            line(seq, stamp).as_bytes(),
            early(now),
            live,
        ) {
            Some(Signal::DriverLog { at, .. }) => at.0 / 1_000,
            other => panic!("{other:?}"),
        };
        assert_eq!(take(&mut case, 1, 9_000, 5_000, false), 5_000, "the log's clock is 4 ms ahead");
        assert_eq!(take(&mut case, 2, 1_000, 5_000, false), 1_000, "nobody knows yet");
        assert_eq!(take(&mut case, 3, 9_500, 5_500, true), 5_500);
        assert_eq!(take(&mut case, 4, 9_600, 6_000, false), 5_600, "now it is known");
    }

    #[test]
    fn a_record_is_counted_for_one_reason_only() {
        let mut case = Case::new(Some(5), 0);
        let other = |seq| format!("6,{seq},5,-;usb 1-1: new device");
        case.check("damaged, with a number below 5", None, None);
        case.check(&other(4), None, None);
        case.check(&other(5), None, None);
        case.check("damaged 6", None, None);
        case.intake.too_long(); // 7
        case.check(&other(8), None, None);
        case.counted(&[("ignored/too_long", 1), ("malformed", 2), ("records", 2)]);
        case.intake.too_long(); // 9; then 10 and 11 are overwritten
        case.check(&other(12), None, None);
        case.check("no record at all, and no number is missing", None, None);
        case.check(&other(13), None, None);
        case.check(&other(15), None, None);
        case.check("damaged 16", None, None);
        case.check(&other(18), None, None);
        case.counted(&[("ignored/too_long", 2), ("lost", 4), ("malformed", 4), ("records", 6)]);
    }
}
