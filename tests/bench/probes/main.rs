//! What the driver probes cost the calls of others: everything as a ratio to no probe at all, of one run.
//!
//! In: rounds, and the seconds of the rate (0: none), as arguments; root. Out: tables for people.
//! A round measures without probes, then with one way of attaching them, then without again, and so on: a machine that is
//! busy with something else slows both neighbours down. Time is that of `clock`.
//! What can go wrong: no rights, no BTF, no device; or a way that this kernel refuses, which is left out and said.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "it talks to people")]

mod calls;
mod clock;
mod ping_pong;
mod rate;
mod rounds;
mod ways;

use anyhow::Context as _;
use warpgauge::host::cgroup_hierarchy::Version;
use warpgauge::sources::probes::object::Settings;
use warpgauge::sources::probes::verify::every_program;

use calls::Workload;
use rounds::Rounds;
use ways::{Ground, Way};

const USAGE: &str = "usage: bench-probes ROUNDS SECONDS";
/// The crowd of the second column.
const MANY: usize = 16;
/// What the rate is to be. Unit: calls a second.
const RATE: u64 = 100_000;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().context(USAGE)?.parse::<u64>().context(USAGE);
    let (rounds, seconds) = (next()?, next()?);
    let ground = Ground::look()?;
    println!("kernel {}, load average {}", ground.release, load());
    println!("watched: {}; another device: {}", ground.watched.display(), calls::OTHER);
    ratios(&ground, rounds)?;
    ping_pong::run(&ground, rounds)?;
    if seconds != 0 {
        rate::run(&ground, RATE, seconds)?;
    }
    sizes(&ground)
}

fn ratios(ground: &Ground, rounds: u64) -> anyhow::Result<()> {
    let mut workloads = Vec::new();
    for threads in [1, MANY] {
        for workload in Workload::ALL {
            workloads.push(calls::Crowd::new(workload, threads, &ground.watched)?);
        }
    }
    let mut loaded = ground.load()?;
    let mut table = Rounds::new(workloads.iter().map(calls::Crowd::name).collect());
    let ways: Vec<Way> = Way::ALL.into_iter().filter(|way| ground.takes(&mut loaded, *way)).collect();
    for _ in 0..rounds {
        for way in &ways {
            table.plain(measured(&mut workloads)?);
            ground.attach(&mut loaded, *way)?;
            let with = measured(&mut workloads);
            ground.detach(&mut loaded);
            table.with(way.name(), with?);
        }
        table.plain(measured(&mut workloads)?);
        table.end_round();
    }
    println!("\n{}", table.text("per call"));
    Ok(())
}

/// Unit: ns per call.
fn measured(crowds: &mut [calls::Crowd]) -> anyhow::Result<Vec<f64>> {
    crowds.iter_mut().map(calls::Crowd::measure).collect()
}

/// With the cgroup's id from either hierarchy.
fn sizes(ground: &Ground) -> anyhow::Result<()> {
    let of = |hierarchy| {
        let settings = Settings { hierarchy, ..ground.settings };
        anyhow::Ok(every_program(&ground.offsets(hierarchy)?, &settings)?)
    };
    println!("\n{:<26} verified  instructions  machine code, B (each: v2, v1)", "program");
    for (v2, v1) in of(Version::V2)?.into_iter().zip(of(Version::V1)?) {
        let program = v2.program;
        let (v2, v1) = (v2.outcome.context(program)?, v1.outcome.context(program)?);
        let text = |n: Option<u32>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let verified = [v2.verified, v1.verified].map(text).join(" ");
        let instructions = [v2.instructions, v1.instructions].map(text).join(" ");
        println!("{program:<26} {verified} {instructions} {} {}", v2.machine_code, v1.machine_code);
    }
    Ok(())
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}
