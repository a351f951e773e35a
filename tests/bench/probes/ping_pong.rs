//! What a switch between two threads costs with the scheduler's programs attached.
//!
//! In: the ground, rounds. Out: a table. Two threads on one processor hand a byte to and fro through pipes: every byte is
//! one switch. Time is processor time of both, which has all of a switch but what the kernel charges to nobody.
//! What can go wrong: no processor to be bound to; the kernel refuses the programs.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::sync::Barrier;
use std::thread;

use anyhow::Context as _;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::calls::best;
use super::clock::{Moment, Took};
use super::rounds::Rounds;
use super::ways::Ground;

const ROUND_TRIPS: u32 = 500;
/// Far in the future. Unit: ns.
const FOR_EVER: u64 = u64::MAX;

/// Runs it.
pub(crate) fn run(ground: &Ground, rounds: u64) -> anyhow::Result<()> {
    let mut loaded = ground.load()?;
    ground.choose_scheduler(&mut loaded);
    let mut table = Rounds::new(vec!["switch, two threads, one processor".to_owned()]);
    let own = std::process::id();
    measure()?;
    for _ in 0..rounds {
        for (way, armed) in [("armed for another", 1), ("armed for it", own)] {
            table.plain(vec![measure()?]);
            loaded.armed.insert(armed, FOR_EVER, 0)?;
            loaded.arm_scheduler()?;
            let with = measure();
            loaded.disarm_scheduler();
            loaded.armed.remove(&armed)?;
            table.with(way, vec![with?]);
        }
        table.plain(vec![measure()?]);
        table.end_round();
    }
    println!("\n{}", table.text("per switch"));
    Ok(())
}

/// Unit: ns of processor time per switch.
fn measure() -> anyhow::Result<f64> {
    best(once)
}

fn once() -> anyhow::Result<f64> {
    let (there, back) = (pipe()?, pipe()?);
    let start = Barrier::new(2);
    let took = thread::scope(|scope| {
        let one = scope.spawn(|| hand(&start, there.0, back.1, false));
        let other = scope.spawn(|| hand(&start, back.0, there.1, true));
        let joined = [one, other].map(|thread| thread.join().ok().context("a thread panicked")?);
        joined.into_iter().collect::<anyhow::Result<Vec<Took>>>()
    })?;
    Ok(Took::on(1, &took) / f64::from(2 * ROUND_TRIPS))
}

/// Gives on what comes, and begins if it is the first.
fn hand(start: &Barrier, mut from: PipeReader, mut to: PipeWriter, first: bool) -> anyhow::Result<Took> {
    let allowed = sched_getaffinity(None)?;
    let cpu = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).context("no processor")?;
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one)?;
    start.wait();
    let began = Moment::now();
    let mut byte = [0];
    for _ in 0..ROUND_TRIPS {
        if first {
            to.write_all(&byte)?;
        }
        from.read_exact(&mut byte)?;
        if !first {
            to.write_all(&byte)?;
        }
    }
    Ok(began.until_now())
}
