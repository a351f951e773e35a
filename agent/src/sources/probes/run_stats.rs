//! How long and how often each kernel program has run, by the kernel's own count.
//!
//! In: the programs' descriptors. Out: costs between two looks. The kernel counts only while somebody wants it to, since
//! that costs two readings of the clock per run: a [`Sampler`] wants it for the length of a sample.
//! What can go wrong: to want it takes CAP_SYS_ADMIN; without it there are numbers only where an administrator has
//! switched `kernel.bpf_stats_enabled` on, and else none: that is said, and never taken for a cost of 0.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;

use aya::sys::{Stats, enable_stats};

use super::cost::Cost;
use crate::model::MonoNs;

/// What a program has used since it was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Total {
    time_ns: u64,
    runs: u64,
}

/// A sample that has begun.
pub struct Sampler {
    /// The kernel counts until this is closed; `None` where it does not do so for us.
    counting: Option<OwnedFd>,
    begun: MonoNs,
    totals: BTreeMap<String, Total>,
}

impl Sampler {
    /// Begins. `own`: procfs' directory of this process.
    pub fn begin<'a>(now: MonoNs, own: &Path, programs: impl Iterator<Item = (&'a str, RawFd)>) -> Self {
        let counting = enable_stats(Stats::RunTime).ok();
        Self { counting, begun: now, totals: totals(own, programs) }
    }

    /// Ends: costs by program, or `None` where the kernel did not count.
    pub fn end<'a>(
        self,
        now: MonoNs,
        own: &Path,
        programs: impl Iterator<Item = (&'a str, RawFd)>,
    ) -> Option<BTreeMap<String, Cost>> {
        let totals = totals(own, programs);
        let costs = costs(&self.totals, &totals, now.since(self.begun)?.as_secs_f64());
        let counted = self.counting.is_some() || costs.values().any(|cost| cost.runs > 0.0);
        counted.then_some(costs)
    }
}

/// A program that was loaded meanwhile is new, and its total is its cost.
fn costs(
    before: &BTreeMap<String, Total>,
    after: &BTreeMap<String, Total>,
    seconds: f64,
) -> BTreeMap<String, Cost> {
    let cost = |(name, now): (&String, &Total)| {
        let then = before.get(name).copied().unwrap_or_default();
        let of = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds.max(1e-3);
        let cost = Cost { cpus: of(now.time_ns, then.time_ns) / 1e9, runs: of(now.runs, then.runs) };
        (name.clone(), cost)
    };
    after.iter().map(cost).collect()
}

fn totals<'a>(own: &Path, programs: impl Iterator<Item = (&'a str, RawFd)>) -> BTreeMap<String, Total> {
    let total = |(name, fd): (&str, RawFd)| {
        let text = fs::read_to_string(own.join("fdinfo").join(fd.to_string())).ok()?;
        Some((name.to_owned(), parse(&text)?))
    };
    programs.filter_map(total).collect()
}

/// How often programs were not run since they were loaded, because the CPU was in another one: what they would have seen
/// is lost. The kernel counts it always, from 5.12 on.
pub fn recursion_misses(own: &Path, programs: impl Iterator<Item = RawFd>) -> u64 {
    let misses = |fd: RawFd| {
        let text = fs::read_to_string(own.join("fdinfo").join(fd.to_string())).ok()?;
        number(&text, "recursion_misses")
    };
    programs.filter_map(misses).fold(0, u64::saturating_add)
}

fn parse(text: &str) -> Option<Total> {
    Some(Total { time_ns: number(text, "run_time_ns")?, runs: number(text, "run_cnt")? })
}

/// A line of a program's fdinfo: `run_time_ns:\t12`.
fn number(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir::TestDir;

    #[test]
    fn misses_are_those_of_all_programs() {
        let dir = TestDir::new();
        fs::create_dir_all(dir.path().join("fdinfo")).unwrap();
        for (fd, text) in [
            (7, "prog_type:\t2\nrecursion_misses:\t3\n"),
            (8, "recursion_misses:\t18446744073709551615\n"),
            (9, "prog_type:\t2\n"), // an older kernel
        ] {
            fs::write(dir.path().join(format!("fdinfo/{fd}")), text).unwrap();
        }
        let misses = |fds: &[RawFd]| recursion_misses(dir.path(), fds.iter().copied());
        assert_eq!((misses(&[7, 9]), misses(&[7, 8]), misses(&[10])), (3, u64::MAX, 0));
    }

    #[test]
    fn a_cost_is_what_was_added() {
        let dir = TestDir::new();
        let write = |fd: u32, time: u64, runs: u64| {
            let text = format!(
                "pos:\t0\nprog_type:\t2\nrun_time_ns:\t{time}\nrun_cnt:\t{runs}\nrecursion_misses:\t0\n"
            );
            fs::create_dir_all(dir.path().join("fdinfo")).unwrap();
            fs::write(dir.path().join(format!("fdinfo/{fd}")), text).unwrap();
        };
        write(7, 1_000_000, 100);
        let programs = || [("kp_ioctl", 7), ("kp_open", 8)].into_iter();
        let sampler = Sampler { counting: None, ..Sampler::begin(MonoNs(5), dir.path(), programs()) };
        write(7, 21_000_000, 1100);
        write(8, 4_000_000, 8); // loaded meanwhile
        let costs = sampler.end(MonoNs(2_000_000_005), dir.path(), programs()).expect("somebody counts");
        assert_eq!(costs["kp_ioctl"], Cost { cpus: 0.01, runs: 500.0 });
        assert_eq!(costs["kp_open"], Cost { cpus: 0.002, runs: 4.0 });
        // nobody counts: that is not "costs nothing"
        let sampler = Sampler { counting: None, ..Sampler::begin(MonoNs(5), dir.path(), programs()) };
        assert_eq!(sampler.end(MonoNs(9), dir.path(), programs()), None);
    }

    #[test]
    fn other_descriptors_have_no_such_lines() {
        for text in ["", "pos:\t0\n", "run_time_ns:\tx\nrun_cnt:\t1\n", "run_time_ns:\t5\n"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
