//! Log records of what answers and what does not: sources of measurements, devices.
//!
//! In: a finding of a status. Out: its [`Record`], with the event name `gpu.status`: one when the episode begins, one
//! when it ends, under one `gpu.status.id`. Nothing can go wrong.

use std::fmt::Write;

use super::record::{Attribute, Record};
use crate::model::{Finding, Status, WallAnchor};

/// The record of a status.
pub fn of(boot_id: &str, finding: &Finding, status: &Status, now: WallAnchor) -> Record {
    let phase = if status.end.is_some() { "end" } else { "begin" };
    let until = status.end.unwrap_or(finding.at);
    let duration = until.since(status.since).unwrap_or_default().as_secs_f64();
    let mut attributes = vec![
        ("gpu.status.id", word(&finding.id)),
        ("gpu.status.phase", word(phase)),
        ("gpu.status.state", word(status.state.name())),
        ("gpu.status.duration", Attribute::Double(duration)),
        ("log.record.uid", word(&format!("{boot_id}:{}:{phase}", finding.id))),
    ];
    for (name, value) in [
        ("gpu.status.source", status.source),
        ("gpu.status.reason", status.reason.as_deref()),
        ("gpu.vendor.call", status.call.as_deref()),
        ("hw.id", status.hw_id.as_deref()),
    ] {
        attributes.extend(value.map(|value| (name, word(value))));
    }
    let (event_name, severity, time) = ("gpu.status", finding.severity, now.wall(finding.at));
    let body = sentence(status);
    Record { event_name, severity, time, observed: now.wall, body, attributes, seq: None }
}

fn word(value: &str) -> Attribute {
    Attribute::Text(value.to_owned())
}

/// Who is what, and since when.
fn sentence(status: &Status) -> String {
    let mut text = format!("{} is {}", status.of(), status.state.name());
    // Writing to a String cannot fail.
    if let Some(end) = status.end {
        let seconds = end.since(status.since).unwrap_or_default().as_secs_f64();
        let _ = write!(text, " after {seconds:.1} s");
        return text; // the reason and the call are those of the begin
    }
    for (before, word) in [("reason", &status.reason), ("call", &status.call)] {
        if let Some(word) = word {
            let _ = write!(text, ", {before} {word}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::samples::{self, NOW};
    use crate::model::{FindingKind, Severity};

    #[test]
    fn a_status_says_who_is_what_and_since_when() {
        let [begin, end] = [false, true].map(|over| {
            let finding = samples::status(over).item;
            let FindingKind::Status(status) = &finding.kind else { panic!("{finding:?}") };
            of("boot", &finding, status, NOW)
        });
        assert_eq!((begin.event_name, begin.severity), ("gpu.status", Severity::Warn));
        assert_eq!(begin.body, "dcgm is slow, reason slow, call dcgmUpdateAllFields");
        assert_eq!(end.body, "dcgm is up after 4.5 s");
        for (record, name, want) in [
            (&begin, "gpu.status.state", word("slow")),
            (&begin, "gpu.status.source", word("dcgm")),
            (&begin, "gpu.status.phase", word("begin")),
            (&begin, "gpu.vendor.call", word("dcgmUpdateAllFields")),
            (&begin, "hw.id", word("GPU-1")),
            (&begin, "gpu.status.duration", Attribute::Double(3.0)),
            (&begin, "log.record.uid", word("boot:status-1:begin")),
            (&end, "gpu.status.state", word("up")),
            (&end, "gpu.status.duration", Attribute::Double(4.5)),
            (&end, "log.record.uid", word("boot:status-1:end")),
        ] {
            let found: Vec<_> = record.attributes.iter().filter(|(n, _)| *n == name).collect();
            assert_eq!(found, [&(name, want)]);
        }
    }
}
