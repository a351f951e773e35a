//! The time that threads take: processor time, and where the kernel does not count that well, time.
//!
//! In: nothing. Out: ns. A kernel whose scheduler has no steady clock, as in an emulated machine, counts processor time in
//! ticks of some ms. There nothing else runs, so the time that goes by is as good: times the processors that were at work.
//! What can go wrong: a machine that does something else meanwhile; the best of several tries is taken.

use std::thread::available_parallelism;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// Of the current thread.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    processor_ns: i64,
    time: Instant,
}

/// What a thread took.
#[derive(Clone, Copy)]
pub(crate) struct Took {
    /// Unit: ns.
    processor: f64,
    began: Instant,
    ended: Instant,
}

impl Moment {
    pub(crate) fn now() -> Self {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Self { processor_ns: time.tv_sec * 1_000_000_000 + time.tv_nsec, time: Instant::now() }
    }

    pub(crate) fn until_now(self) -> Took {
        let now = Self::now();
        let processor = (now.processor_ns - self.processor_ns) as f64;
        Took { processor, began: self.time, ended: now.time }
    }
}

impl Took {
    /// Threads that began together. Unit: ns of processors.
    pub(crate) fn together(threads: &[Self]) -> f64 {
        let processors = available_parallelism().map_or(1, usize::from).min(threads.len());
        Self::on(processors, threads)
    }

    /// The same on so many processors.
    pub(crate) fn on(processors: usize, threads: &[Self]) -> f64 {
        if std::env::var_os("WARPGAUGE_VM").is_some() {
            // not each for itself: one may have begun when others were done
            let began = threads.iter().map(|took| took.began).min();
            let ended = threads.iter().map(|took| took.ended).max();
            let time = ended.zip(began).map_or(0.0, |(ended, began)| (ended - began).as_secs_f64());
            time * 1e9 * processors as f64
        } else {
            threads.iter().map(|took| took.processor).sum()
        }
    }
}
