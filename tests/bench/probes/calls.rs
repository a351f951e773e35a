//! System calls in a loop, by one thread or many, and the processor time they take.
//!
//! In: which call, how many threads, the watched device. Out: ns of processor time per call, user and system: see [`clock`](super::clock).
//! The calls are those that `rustix` has in safe form: the driver takes block devices' `BLKSSZGET` as any command that it
//! does not know, up to its resource manager.
//! What can go wrong: a device cannot be opened.

use std::fs::File;
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use anyhow::Context as _;
use rustix::fs::ioctl_blksszget;
use rustix::io::ioctl_fionread;
use rustix::process::getppid;

use super::clock::{Moment, Took};

/// Nobody watches it, and it has no ioctl of its own: the cheapest there is, so the highest ratio.
pub(crate) const OTHER: &str = "/dev/null";
/// How long one try should take, which is less than the turn a busy machine gives others. Unit: ns of processor time.
const TRY_NS: f64 = 4e6;
/// The best of so many is the measurement: what disturbs only ever adds. An emulated processor's time has that of its
/// host's other work in it.
const TRIES: usize = 5;
const FIRST_CALLS: u64 = 2_000;

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// An ioctl of the watched device.
    Watched,
    /// The same command on another device.
    Other,
    /// A terminal's command, which the programs pass over by its type.
    Foreign,
    /// A system call that has nothing to do with devices.
    Unrelated,
}

impl Workload {
    pub(crate) const ALL: [Self; 4] = [Self::Watched, Self::Other, Self::Foreign, Self::Unrelated];

    fn name(self) -> &'static str {
        match self {
            Self::Watched => "ioctl, watched device",
            Self::Other => "ioctl, another device",
            Self::Foreign => "ioctl of a foreign type",
            Self::Unrelated => "getppid",
        }
    }
}

/// Threads that make the same call, each with a file of its own.
pub(crate) struct Crowd {
    workload: Workload,
    files: Vec<File>,
    /// Of each thread, in one measurement.
    calls: u64,
}

impl Crowd {
    pub(crate) fn new(workload: Workload, threads: usize, watched: &Path) -> anyhow::Result<Self> {
        let path = if workload == Workload::Watched { watched } else { Path::new(OTHER) };
        let open = |_| File::open(path).with_context(|| path.display().to_string());
        let files: Vec<File> = (0..threads).map(open).collect::<anyhow::Result<_>>()?;
        let mut crowd = Self { workload, files, calls: FIRST_CALLS };
        crowd.measure()?;
        let ns = crowd.measure()?;
        crowd.calls = (TRY_NS / ns / threads as f64).max(100.0) as u64;
        Ok(crowd)
    }

    pub(crate) fn name(&self) -> String {
        format!("{}, {} thr.", self.workload.name(), self.files.len())
    }

    /// Unit: ns of processor time per call.
    pub(crate) fn measure(&mut self) -> anyhow::Result<f64> {
        best(|| self.once())
    }

    fn once(&self) -> anyhow::Result<f64> {
        let start = Barrier::new(self.files.len());
        let (calls, workload) = (self.calls, self.workload);
        let one = |file: &File| {
            start.wait();
            let began = Moment::now();
            for _ in 0..calls {
                call(workload, file);
            }
            began.until_now()
        };
        let took: Option<Vec<Took>> = thread::scope(|scope| {
            let threads: Vec<_> = self.files.iter().map(|file| scope.spawn(move || one(file))).collect();
            threads.into_iter().map(|thread| thread.join().ok()).collect()
        });
        Ok(Took::together(&took.context("a thread panicked")?) / (calls * self.files.len() as u64) as f64)
    }
}

fn call(workload: Workload, file: &File) {
    match workload {
        Workload::Watched | Workload::Other => ask(file),
        // that the device refuses it is as good as any answer, here and below
        Workload::Foreign => drop(ioctl_fionread(file)),
        Workload::Unrelated => {
            std::hint::black_box(getppid());
        }
    }
}

/// One ioctl.
pub(crate) fn ask(file: &File) {
    let _ = ioctl_blksszget(file); // a device without blocks says so
}

/// The least of [`TRIES`].
pub(crate) fn best(mut once: impl FnMut() -> anyhow::Result<f64>) -> anyhow::Result<f64> {
    (0..TRIES).try_fold(f64::INFINITY, |least, _| Ok(least.min(once()?)))
}
