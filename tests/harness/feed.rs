//! What a collector has received, read once and kept: a test that looks often does not read from the start each time.
//!
//! In: the folder that a [`Collector`](super::collector::Collector) writes to. Out: its records and points so far.
//! What can go wrong: nothing was received yet; then there is nothing.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::received::{Attributes, Point, Record, metrics, records};

/// The two files, and what was read of them.
#[derive(Debug)]
pub struct Feed {
    logs: Tail,
    metrics: Tail,
    records: Vec<Record>,
    points: Vec<Point>,
    latest: BTreeMap<(String, Attributes), Point>,
}

#[derive(Debug)]
struct Tail {
    file: PathBuf,
    read: u64,
}

impl Tail {
    /// Whole lines that were written since the last look.
    fn lines(&mut self) -> String {
        let mut text = String::new();
        let from = SeekFrom::Start(self.read);
        let more = File::open(&self.file).and_then(|mut file| {
            file.seek(from)?;
            file.read_to_string(&mut text)
        });
        let whole = more.map_or(0, |_| text.rfind('\n').map_or(0, |end| end + 1));
        text.truncate(whole);
        self.read += whole as u64;
        text
    }
}

impl Feed {
    /// Nothing read yet.
    pub fn new(dir: &Path) -> Self {
        let tail = |name| Tail { file: dir.join(name), read: 0 };
        Self {
            logs: tail("logs.jsonl"),
            metrics: tail("metrics.jsonl"),
            records: Vec::new(),
            points: Vec::new(),
            latest: BTreeMap::new(),
        }
    }

    /// Reads on.
    pub fn look(&mut self) {
        self.records.extend(records(&self.logs.lines()));
        for point in metrics(&self.metrics.lines()) {
            self.latest.insert((point.name.clone(), point.attributes.clone()), point.clone());
            self.points.push(point);
        }
    }

    /// All records, in the order in which they came.
    pub fn records(&mut self) -> &[Record] {
        self.look();
        &self.records
    }

    /// All points, in the order in which they came.
    pub fn points(&mut self) -> &[Point] {
        self.look();
        &self.points
    }

    /// The latest point of each series of a metric with these attributes (a subset); series that ended are not in it.
    pub fn latest(&mut self, name: &str, attributes: &[(&str, &str)]) -> Vec<Point> {
        self.look();
        let all = self.latest.values();
        all.filter(|p| p.name == name && p.has(attributes) && !p.value.is_nan()).cloned().collect()
    }

    /// The latest value of the one series of a metric with these attributes.
    pub fn value(&mut self, name: &str, attributes: &[(&str, &str)]) -> Option<f64> {
        let found = self.latest(name, attributes);
        let [one] = found.as_slice() else { return None };
        Some(one.value)
    }

    /// The `gpu.status` records that say this of a source or of a device.
    pub fn statuses(&mut self, of: (&str, &str), state: &str) -> Vec<Record> {
        let is = |r: &&Record| {
            r.event == "gpu.status" && r.get(of.0) == of.1 && r.get("gpu.status.state") == state
        };
        self.records().iter().filter(is).cloned().collect()
    }
}
