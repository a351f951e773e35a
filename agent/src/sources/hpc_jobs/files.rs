//! The files of a job mapping directory, one per GPU or MIG instance, a job id per line.
//!
//! In: a directory that the scheduler's prolog and epilog write, as dcgm-exporter reads it. Out: [`Listing`].
//! Names: `0` is NVML's index of a GPU, `0.7` and `0-7` GPU instance 7 of it; other names are somebody else's files.
//! What can go wrong: a file that cannot be read costs the jobs of its GPU only; lines that are no job ids are left out
//! and counted. Sizes and numbers are bounded: a surplus is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

use crate::model::plain::is_plain;
use crate::model::{JobDevices, JobGrant};

/// Entries looked at: 16 GPUs with 7 instances each, under both names, and whatever else lies there.
const ENTRIES_MAX: usize = 4_096;
/// Largest file read.
const BYTES_MAX: u64 = 64 * 1024;
/// Jobs of one GPU.
const JOBS_MAX: usize = 256;
/// Longest job id, such as `4711_12.batch`.
const JOB_BYTES_MAX: usize = 64;

/// What the directory says.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Who has what.
    pub jobs: JobDevices,
    /// Files that could not be read, and why.
    pub unreadable: BTreeMap<String, String>,
    /// Lines that are no job ids.
    pub malformed: u64,
}

/// Reads all of it.
///
/// # Errors
/// The directory cannot be read.
pub fn read(directory: &Path) -> io::Result<Listing> {
    let mut jobs: BTreeMap<(u32, Option<u32>), BTreeSet<String>> = BTreeMap::new();
    let mut listing = Listing::default();
    for entry in std::fs::read_dir(directory)?.take(ENTRIES_MAX) {
        let entry = entry?.file_name();
        let Some((name, device)) = entry.to_str().and_then(|name| Some((name, device(name)?))) else {
            continue;
        };
        match text(&directory.join(name)) {
            Ok(text) => listing.malformed += add(&text, jobs.entry(device).or_default()),
            // it was there a moment ago: the job has ended
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => drop(listing.unreadable.insert(name.to_owned(), e.to_string())),
        }
    }
    jobs.retain(|_, jobs| !jobs.is_empty());
    let grant = |((gpu, instance), jobs): (_, BTreeSet<String>)| JobGrant {
        gpu,
        instance,
        jobs: jobs.into_iter().collect(),
    };
    listing.jobs.grants = jobs.into_iter().map(grant).collect();
    Ok(listing)
}

/// The GPU and the instance that a file is about.
fn device(name: &str) -> Option<(u32, Option<u32>)> {
    match name.split_once(['.', '-']) {
        None => Some((number(name)?, None)),
        Some((gpu, instance)) => Some((number(gpu)?, Some(number(instance)?))),
    }
}

/// Digits only: a sign is none.
fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// A pipe or a device under such a name must not hold the reader up.
fn text(path: &Path) -> io::Result<String> {
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Adds the jobs of a text; gives the number of lines that are none.
fn add(text: &str, jobs: &mut BTreeSet<String>) -> u64 {
    let mut malformed = 0;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let is_job = line.len() <= JOB_BYTES_MAX
            && line.chars().all(|c| is_plain(c) && !c.is_whitespace() && c != char::REPLACEMENT_CHARACTER);
        if is_job && (jobs.len() < JOBS_MAX || jobs.contains(line)) {
            jobs.insert(line.to_owned());
        } else {
            malformed += 1;
        }
    }
    malformed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir::TestDir;

    #[test]
    fn a_directory_with_the_dirt_of_real_life() {
        let dir = TestDir::new();
        let put = |name: &str, text: &[u8]| std::fs::write(dir.path().join(name), text).unwrap();
        put("0", b"4711\n\n4712\n");
        put("1", b"");
        put("2.0", b"4800\n");
        put("2-1", b"4801\n");
        put("0.swp", b"garbage");
        put("README", b"text");
        put("4", b"  4900_1.batch \r\n4900_1.batch\na b\n\xff\xfe\n\x1b[31m\n");
        put("+5", b"1");
        put("6-", b"1");
        put("-7", b"1");
        put("8.1.2", b"1");
        put("99999999999", b"1");
        put(".1", b"1");
        std::fs::create_dir(dir.path().join("3")).unwrap();
        std::os::unix::fs::symlink("loop", dir.path().join("loop")).unwrap();
        std::os::unix::fs::symlink("loop", dir.path().join("5")).unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join("6")).unwrap();
        std::os::unix::fs::symlink("0", dir.path().join("7")).unwrap();
        let listing = read(dir.path()).unwrap();
        let told: Vec<_> = listing
            .jobs
            .grants
            .iter()
            .map(|grant| (grant.gpu, grant.instance, grant.jobs.join(" ")))
            .collect();
        let want = [
            (0, None, "4711 4712"),
            (2, Some(0), "4800"),
            (2, Some(1), "4801"),
            (4, None, "4900_1.batch"),
            (7, None, "4711 4712"),
        ];
        assert_eq!(told, want.map(|(gpu, instance, jobs)| (gpu, instance, jobs.to_owned())));
        assert_eq!(listing.unreadable.keys().collect::<Vec<_>>(), ["3", "5"]);
        assert_eq!(listing.unreadable["3"], "it is not a regular file");
        assert_eq!(listing.malformed, 3);
        assert!(read(&dir.path().join("nowhere")).is_err());
    }

    #[test]
    fn endless_files_endless_ids_and_pipes_are_bounded() {
        let dir = TestDir::new();
        let many: String = (0..1_000).map(|n| format!("{n}\n")).collect();
        std::fs::write(dir.path().join("0"), many).unwrap();
        std::fs::write(dir.path().join("1"), "x".repeat(1_000_000)).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("2"), rustix::fs::Mode::RWXU).unwrap();
        let listing = read(dir.path()).unwrap();
        assert_eq!(listing.jobs.grants.len(), 1);
        assert_eq!((listing.jobs.grants[0].jobs.len(), listing.malformed), (JOBS_MAX, 745));
        assert_eq!(listing.unreadable.len(), 1, "the pipe");
    }
}
