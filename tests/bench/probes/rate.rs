//! Many calls from many threads, and whether each of them was counted.
//!
//! In: the ground, calls a second, seconds. Out: the rate that was reached, and the count of the kernel programs.
//! Calls made = calls counted + losses, to the last one; with a loss, or another sum, it is an error.
//! What can go wrong: the machine is too busy for the rate, which is said.

use std::fs::File;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use warpgauge::sources::probes::object::Loaded;
use warpgauge_ebpf::calls::kind;
use warpgauge_ebpf::loss::Loss;

use super::calls::ask;
use super::ways::{Ground, Way};

const THREADS: u32 = 64;
/// A thread that is ahead waits so long: it then has some calls to make at once.
const PAUSE: Duration = Duration::from_millis(2);

/// Runs it, with all probes as the agent attaches them.
pub(crate) fn run(ground: &Ground, rate: u64, seconds: u64) -> anyhow::Result<()> {
    let mut loaded = ground.load()?;
    ground.attach(&mut loaded, Way::All)?;
    let row = loaded.attached.choices().next().and_then(|choice| choice.tactic).context("no ioctl probe")?;
    let files = (0..THREADS).map(|_| File::open(&ground.watched)).collect::<Result<Vec<_>, _>>()?;
    let began = Instant::now();
    let made: Option<u64> = thread::scope(|scope| {
        let of_thread = rate as f64 / f64::from(THREADS);
        let lasts = Duration::from_secs(seconds);
        let start = |file| scope.spawn(move || calls(file, of_thread, lasts));
        let threads: Vec<_> = files.iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().ok()).sum()
    });
    let took = began.elapsed().as_secs_f64();
    let made = made.context("a thread panicked")?;
    ground.detach(&mut loaded);
    let (counted, losses) = (counted(&loaded)?, losses(&loaded)?);
    let reached = made as f64 / took;
    println!(
        "\nrate, {THREADS} threads, {took:.1} s, all probes (ioctl: {}): {reached:.0} calls/s of {rate} wanted\n  \
         {made} made, {counted} counted, lost: {losses:?}",
        row.name()
    );
    if reached < 0.99 * rate as f64 {
        println!("  the machine was too busy for the rate");
    }
    ensure!(losses.is_empty() && counted == made, "not every call was counted");
    Ok(())
}

/// As many as are due, until the time is over.
fn calls(file: &File, rate: f64, lasts: Duration) -> u64 {
    let (began, mut made) = (Instant::now(), 0);
    loop {
        let elapsed = began.elapsed().min(lasts);
        let due = (elapsed.as_secs_f64() * rate) as u64;
        while made < due {
            ask(file);
            made += 1;
        }
        if elapsed == lasts {
            return made;
        }
        thread::park_timeout(PAUSE);
    }
}

fn counted(loaded: &Loaded) -> anyhow::Result<u64> {
    let mut sum = 0;
    for entry in loaded.histograms.iter() {
        let (key, histogram) = entry?;
        // a command that the device does not know is counted without its number
        if (key.tgid, key.kind) == (std::process::id(), kind::IOCTL) {
            sum += histogram.slots.iter().map(|slot| u64::from(*slot)).sum::<u64>();
        }
    }
    Ok(sum)
}

fn losses(loaded: &Loaded) -> anyhow::Result<Vec<(&'static str, u64)>> {
    let mut found = Vec::new();
    for loss in Loss::ALL {
        let count = loaded.losses.get(&(loss as u32), 0)?;
        if count != 0 {
            found.push((loss.name(), count));
        }
    }
    Ok(found)
}
