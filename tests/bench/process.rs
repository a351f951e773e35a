//! What a process uses, read from /proc by somebody else.
//!
//! In: a pid. Out: processor time, memory, and the time of each thread. What can go wrong: the process is gone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

/// Ticks a second of `stat`: USER_HZ is 100 on all supported architectures.
const TICKS: f64 = 100.0;

/// A process.
pub(crate) struct Proc(PathBuf);

/// Processor time. Unit: s, in steps of 10 ms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) user: f64,
    pub(crate) system: f64,
}

impl Cost {
    pub(crate) fn since(self, earlier: &Self) -> Self {
        Self { user: self.user - earlier.user, system: self.system - earlier.system }
    }

    /// Both together.
    pub(crate) fn seconds(self) -> f64 {
        self.user + self.system
    }
}

impl Proc {
    pub(crate) fn new(pid: u32) -> Self {
        Self(PathBuf::from(format!("/proc/{pid}")))
    }

    pub(crate) fn cost(&self) -> anyhow::Result<Cost> {
        let stat = self.read("stat")?;
        let after = stat.rsplit_once(')').context("stat")?.1;
        let mut ticks = after.split_ascii_whitespace().skip(11).map(str::parse::<f64>);
        let mut next = || anyhow::Ok(ticks.next().context("stat")?? / TICKS);
        Ok(Cost { user: next()?, system: next()? })
    }

    /// Resident memory. Unit: bytes.
    pub(crate) fn resident(&self) -> anyhow::Result<u64> {
        kib(&self.read("status")?, "VmRSS:")
    }

    /// Resident memory, pages that are shared counted by their share. Unit: bytes.
    pub(crate) fn pss(&self) -> anyhow::Result<u64> {
        kib(&self.read("smaps_rollup")?, "Pss:")
    }

    /// Name and processor time of each thread, by its id. Unit: ns.
    pub(crate) fn threads(&self) -> BTreeMap<String, (String, u64)> {
        let mut threads = BTreeMap::new();
        for task in std::fs::read_dir(self.0.join("task")).into_iter().flatten().flatten() {
            let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
            let ns: u64 = read("schedstat").split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
            let id = task.file_name().to_string_lossy().into_owned();
            threads.insert(id, (read("comm").trim().to_owned(), ns));
        }
        threads
    }

    fn read(&self, name: &str) -> anyhow::Result<String> {
        let path = self.0.join(name);
        std::fs::read_to_string(&path).with_context(|| format!("{}: the process is gone", path.display()))
    }
}

/// The share of a process's time in the code of these libraries, by 20 s of sampling; what they call in others is not
/// in it. `None` where perf is missing or may not look.
pub(crate) fn share_in(pid: u32, libraries: &[&str], dir: &Path) -> Option<f64> {
    let data = dir.join("perf.data").to_string_lossy().into_owned();
    let perf = |words: &[&str]| {
        let mut perf = Command::new("perf");
        let done = perf.args(words).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        done.status.success().then(|| String::from_utf8_lossy(&done.stdout).into_owned())
    };
    perf(&["record", "-q", "-F", "4999", "-o", &data, "-p", &pid.to_string(), "--", "sleep", "20"])?;
    let text = perf(&["report", "-q", "--stdio", "--sort", "dso", "-i", &data])?;
    let share = |line: &str| {
        let (percent, of) = line.trim().split_once('%')?;
        libraries.contains(&of.trim()).then(|| percent.trim().parse::<f64>().ok()).flatten()
    };
    let mut lines = text.lines().filter(|line| line.contains('%')).peekable();
    lines.peek()?;
    Some(lines.filter_map(share).sum::<f64>() / 100.0)
}

fn kib(text: &str, name: &str) -> anyhow::Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).with_context(|| name.to_owned())?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1_024)
}
