//! What each XID means: the embedded table `data/xid_catalog.csv`.
//!
//! In: a code. Out: its [`Entry`]; `None` for codes that the table lacks, which pass through as numbers.
//! What can go wrong: a damaged row is left out, and a test fails. Sources: NVIDIA's XID catalogue and the driver's
//! public error headers up to branch 595.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

const TABLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/xid_catalog.csv"));

/// The meaning of one code.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Entry {
    /// The XID.
    pub code: u32,
    /// A short name.
    pub name: String,
    /// What it concerns: `application`, `bus`, `driver`, `fabric`, `firmware`, `hardware`, `info`, `memory`, `thermal`.
    pub class: String,
    /// `info`, `warning`, `error` or `critical`.
    pub severity: String,
    /// What to do: `none`, `restart_app`, `reset_gpu`, `restart_node`, `check_mechanicals`, `contact_support`, or
    /// `workflow` where the line's text or the codes beside it decide.
    pub action: String,
    /// What else is to know; may be empty.
    pub note: String,
}

/// The meaning of `code`, where the table has it.
pub fn lookup(code: u32) -> Option<&'static Entry> {
    table().get(&code)
}

/// All entries, by ascending code.
pub fn entries() -> impl Iterator<Item = &'static Entry> {
    table().values()
}

fn table() -> &'static BTreeMap<u32, Entry> {
    static PARSED: OnceLock<BTreeMap<u32, Entry>> = OnceLock::new();
    PARSED.get_or_init(|| rows().flatten().map(|entry| (entry.code, entry)).collect())
}

fn rows() -> impl Iterator<Item = Result<Entry, csv::Error>> {
    csv::Reader::from_reader(TABLE.as_bytes()).into_deserialize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_keeps_to_the_vocabulary() {
        const CLASSES: &[&str] =
            &["application", "bus", "driver", "fabric", "firmware", "hardware", "info", "memory", "thermal"];
        const SEVERITIES: &[&str] = &["info", "warning", "error", "critical"];
        const ACTIONS: &[&str] = &[
            "none",
            "restart_app",
            "reset_gpu",
            "restart_node",
            "check_mechanicals",
            "contact_support",
            "workflow",
        ];
        let rows: Vec<Entry> = rows().collect::<Result<_, _>>().unwrap();
        let codes: Vec<u32> = rows.iter().map(|row| row.code).collect();
        assert_eq!(codes, (1..=176).collect::<Vec<_>>());
        for row in &rows {
            assert!(CLASSES.contains(&row.class.as_str()), "{row:?}");
            assert!(SEVERITIES.contains(&row.severity.as_str()), "{row:?}");
            assert!(ACTIONS.contains(&row.action.as_str()), "{row:?}");
            assert!(!row.name.is_empty() && row.name.len() <= 48 && row.name.is_ascii(), "{row:?}");
        }
        assert!(entries().eq(rows.iter()));
    }

    #[test]
    fn codes_are_looked_up_and_unknown_ones_are_not_made_up() {
        let lost = lookup(79).unwrap();
        assert_eq!(
            (lost.class.as_str(), lost.severity.as_str(), lost.action.as_str()),
            ("bus", "critical", "restart_node")
        );
        assert_eq!((lookup(0), lookup(177), lookup(99_999)), (None, None, None));
    }
}
