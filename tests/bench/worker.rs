//! What agent and worker cost on a node of simulated GPUs, measured from outside and apart.
//!
//! In: a case of `tests/fixtures/bench` and the seconds of the window, as arguments. Out: a report for people; every
//! number is of the one run. The simulators work inside the worker; perf says with what share, where it is installed.
//! What can go wrong: no root, so no probes, which is said; a busy machine, whose load is said too.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "it talks to people")]

#[path = "process.rs"]
mod process;

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use process::{Cost, Proc};
use warpgauge_tests::harness::collector::Collector;
use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::node::Node;
use warpgauge_tests::harness::programs;
use warpgauge_tests::harness::received::{Attributes, Point};

/// Case, scenario, samples a second that must arrive.
const CASES: [(&str, &str, f64); 3] =
    [("idle", "h100x8", 0.0), ("gpu8", "h100x8", 480.0), ("mig56", "h100mig7x8", 3_360.0)];
/// First values, first export, and what only happens once are before the window.
const WARM_UP: Duration = Duration::from_secs(15);
/// The default metric interval.
const INTERVAL_MS: &str = "10000";
const MIB: f64 = 1_048_576.0;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().context("usage: bench-worker CASE SECONDS")?;
    let seconds: u64 = arguments.next().context("usage: bench-worker CASE SECONDS")?.parse()?;
    let case = CASES.iter().find(|case| case.0 == name).context("cases: idle, gpu8, mig56")?;
    run(*case, seconds)
}

/// What was measured of one process.
struct Measured {
    cost: Cost,
    resident_max: u64,
    pss: u64,
    /// Unit: ns.
    threads: BTreeMap<String, u64>,
}

fn run((case, scenario, wanted): (&str, &str, f64), seconds: u64) -> anyhow::Result<()> {
    let node = Node::new(&format!("bench-{case}"), scenario);
    let collector = Collector::built_in(node.path());
    let file = programs::workspace().join(format!("tests/fixtures/bench/{case}.yaml"));
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let setup = node.configured(&text).to(&collector.address);
    let mut running = setup.env("OTEL_METRIC_EXPORT_INTERVAL", INTERVAL_MS).start();
    let lock = node.path().join("state/worker.lock");
    let worker = wait_for("the worker", 30, || std::fs::read_to_string(&lock).ok()?.trim().parse().ok());
    let began = Instant::now();
    wait_for("the end of the warm-up", 60, || (WARM_UP < began.elapsed()).then_some(()));

    let from = unix_ns()?;
    let (measured, took) = measure([Proc::new(running.pid()), Proc::new(worker)], seconds)?;
    let until = unix_ns()?;
    let points: Vec<Point> = wait_for("the exports of the window", 30, || {
        let points = collector.points();
        points.iter().any(|p| until <= p.time).then_some(points)
    });
    anyhow::ensure!(running.is_running(), "the agent ended:\n{}", running.log());
    let warm = WARM_UP.as_secs();
    let simulators = process::share_in(worker, &["libdcgm_sim.so", "libnvml_sim.so"], node.path());
    println!("case {case}: {took:.1} s after a warm-up of {warm} s; load average {}", load());
    let received = report(&Said { points: &points, from, until }, &measured, took, wanted)?;
    match simulators {
        Some(share) => {
            println!("  simulators   {:.0} % of the worker's time is in their code (perf)", share * 100.0)
        }
        None => println!("  simulators   no perf here, so their share of the worker's time is not known"),
    }
    let near = (received - wanted).abs() <= wanted * 0.02 + 0.5;
    anyhow::ensure!(near, "{received} samples a second instead of {wanted}");
    anyhow::ensure!(running.terminate().success(), "the agent did not end well");
    Ok(())
}

/// Both processes over the same window, and its length in seconds.
fn measure(processes: [Proc; 2], seconds: u64) -> anyhow::Result<([Measured; 2], f64)> {
    let [agent, worker] = &processes;
    let (before, began) = ([agent.cost()?, worker.cost()?], Instant::now());
    let threads = [agent.threads(), worker.threads()];
    let (window, mut most) = (Duration::from_secs(seconds), [0, 0]);
    wait_for("the end of the window", seconds + 60, || {
        for (most, process) in most.iter_mut().zip(&processes) {
            *most = process.resident().unwrap_or(0).max(*most);
        }
        (window <= began.elapsed()).then_some(())
    });
    let took = began.elapsed().as_secs_f64();
    let of = |place: usize, process: &Proc| {
        let mut now: BTreeMap<String, u64> = BTreeMap::new();
        for (id, (name, ns)) in process.threads() {
            let before = threads[place].get(&id).map_or(0, |(_, ns)| *ns);
            *now.entry(name).or_default() += ns.saturating_sub(before);
        }
        let cost = process.cost()?.since(&before[place]);
        anyhow::Ok(Measured { cost, resident_max: most[place], pss: process.pss()?, threads: now })
    };
    Ok(([of(0, agent)?, of(1, worker)?], took))
}

/// Tells it; returns the samples that came into the agent each second.
fn report(said: &Said<'_>, [agent, worker]: &[Measured; 2], took: f64, wanted: f64) -> anyhow::Result<f64> {
    let received = said.rate("warpgauge.samples.received", &[("source", "dcgm")])?;
    let sent = said.rate("warpgauge.metric.points", &[("state", "acknowledged")])?;
    println!(
        "  samples      {received:.1} /s came into the agent, {wanted} were to; {sent:.0} points/s acknowledged"
    );
    let losses = ["warpgauge.signals.dropped", "warpgauge.worker.frames.dropped", "warpgauge.series.refused"];
    let lost: f64 = losses.iter().map(|name| said.latest(name, &[])).sum();
    println!("  lost         {lost} signals, frames and series");
    show("agent", took, agent);
    show("worker", took, worker);
    let on = said.latest("warpgauge.probe.info", &[("probe", "ioctl")]) >= 1.0;
    let maps = said.latest("warpgauge.probe.map.bytes", &[]);
    let probes = if on { "on" } else { "OFF: no right or no BTF here" };
    println!("  probes       {probes}; maps {:.1} MiB", maps / MIB);
    let all = (agent.resident_max + worker.resident_max) as f64 + maps;
    println!("  together     {:.1} MiB resident, maps included (P2: at most 256)", all / MIB);
    let (share, resident) = (agent.cost.seconds() / took * 100.0, agent.resident_max as f64 / MIB);
    println!(
        "  agent        {share:.3} % of a core (P1: at most 1, aim 0.3), {resident:.1} MiB (P2: at most 48)"
    );
    Ok(received)
}

fn show(who: &str, took: f64, of: &Measured) {
    let share = |seconds: f64| seconds / took * 100.0;
    let Measured { cost, resident_max, pss, threads } = of;
    println!(
        "  {who:<12} {:.3} % of a core ({:.3} user + {:.3} system); RSS at most {:.1} MiB, PSS {:.1} MiB",
        share(cost.seconds()),
        share(cost.user),
        share(cost.system),
        *resident_max as f64 / MIB,
        *pss as f64 / MIB
    );
    for (thread, ns) in threads.iter().filter(|(_, ns)| **ns > 0) {
        println!("    thread     {thread:<18} {:7.3} % of a core", share(*ns as f64 / 1e9));
    }
}

/// What the agent exported.
struct Said<'a> {
    points: &'a [Point],
    from: u64,
    until: u64,
}

impl Said<'_> {
    /// Growth a second between the first and the last point of each series inside the window, summed over the series.
    fn rate(&self, name: &str, of: &[(&str, &str)]) -> anyhow::Result<f64> {
        let mut series: BTreeMap<&Attributes, (&Point, &Point)> = BTreeMap::new();
        let inside = |p: &&Point| p.name == name && p.has(of) && (self.from..self.until).contains(&p.time);
        for point in self.points.iter().filter(inside) {
            series.entry(&point.attributes).or_insert((point, point)).1 = point;
        }
        let grown = series.values().filter(|(first, last)| first.time < last.time);
        let rates = grown.map(|(first, last)| {
            (last.value - first.value) / (last.time.saturating_sub(first.time) as f64 / 1e9)
        });
        let rates: Vec<f64> = rates.collect();
        anyhow::ensure!(!rates.is_empty(), "fewer than two exports with {name}: take a longer window");
        Ok(rates.iter().sum())
    }

    /// The latest values, summed over the series; 0 where there is none.
    fn latest(&self, name: &str, of: &[(&str, &str)]) -> f64 {
        let mut latest = BTreeMap::new();
        for point in self.points.iter().filter(|p| p.name == name && p.has(of)) {
            latest.insert(&point.attributes, point.value);
        }
        latest.values().sum()
    }
}

fn unix_ns() -> anyhow::Result<u64> {
    Ok(u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())?)
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}
