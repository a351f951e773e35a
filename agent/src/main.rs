//! `warpgauge`: arguments → configuration → pipeline → exit status.
//!
//! In: the command line. Out: an agent that runs until SIGTERM or SIGINT, or a replay's findings.
//! Exit status: 0 fine, 1 problems found, 64 wrong usage, 78 configuration refused at start.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;
use warpgauge::config::{self, Config, flags::Flags};
use warpgauge::control::client;
use warpgauge::control::message::Request;
use warpgauge::doctor::map::PodName;
use warpgauge::doctor::{self, Verdict};
use warpgauge::export::ExportError;
use warpgauge::export::findings::Findings;
use warpgauge::export::otlp::resource::HostFacts;
use warpgauge::fields::{self, Selection};
use warpgauge::model::plain::is_plain;
use warpgauge::pipeline::PipelineError;
use warpgauge::runtime::{self, Starting};
use warpgauge::telemetry::Telemetry;
use warpgauge::{logging, pipeline, worker};

/// Problems were found.
const PROBLEMS: u8 = 1;
/// EX_USAGE of sysexits.h.
const USAGE: u8 = 64;
/// EX_CONFIG of sysexits.h.
const REFUSED: u8 = 78;

/// What no option says.
const MORE: &str = "\
Environment:
  OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4317 sends to a Collector (other OTEL_* variables as specified)
  WARPGAUGE_LOG sets the level of the agent's own log, such as warn or debug
  NODE_NAME is the node's name in Kubernetes

Exit status: 0 fine, 1 problems found, 64 wrong usage, 78 configuration refused at start";
/// Threads for work that blocks: look-ups of the collector's name by three connections, a round of sysfs, the loading of
/// the probes, the state directory, the driver's nodes that processes have open, job mapping files, the kubelet's folder,
/// an answer on the control socket. Each may hang, and none may hold up another.
const BLOCKING: usize = 10;
/// Threads of the doctor: one for each look, whatever hangs.
const LOOKS: usize = 9;

/// Which GPU lost time, why, and whose job was it?
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true, after_help = MORE)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Watch this node (also the default)
    #[command(after_help = MORE)]
    Run(Box<RunArgs>),
    /// What works on this node, what does not, why, and how to mend it
    Doctor(Box<DoctorArgs>),
    /// Let the driver be unloaded, or use it again
    Driver {
        #[command(subcommand)]
        action: DriverAction,
        #[command(flatten)]
        agent: AgentArgs,
    },
    /// Make room for a profiler such as Nsight, or take the counters back
    Profiling {
        #[command(subcommand)]
        action: ProfilingAction,
        #[command(flatten)]
        agent: AgentArgs,
    },
    /// What this DCGM and these GPUs give
    Fields(Box<FieldsArgs>),
    /// Holds the vendors' libraries; started by the agent
    #[command(hide = true)]
    Worker(worker::Arguments),
}

#[derive(Subcommand)]
enum DriverAction {
    /// Let go of the driver until it is taken again
    Release,
    /// Use the driver again
    Take,
}

#[derive(Subcommand)]
enum ProfilingAction {
    /// Stop sampling profiling fields
    Pause,
    /// Sample them again
    Resume,
}

/// Which agent is asked.
#[derive(Args)]
struct AgentArgs {
    /// Directory of the running agent's control socket
    #[arg(
        long,
        value_name = "DIR",
        env = "WARPGAUGE_RUN_DIR",
        default_value = "/run/warpgauge",
        global = true
    )]
    run_dir: PathBuf,
}

#[derive(Args)]
struct DoctorArgs {
    /// Instead: how each device and each process is mapped to a pod, container, job or service
    #[arg(value_enum, value_name = "map", hide_possible_values = true)]
    of: Option<DoctorOf>,
    /// Only the mapping of this pod, its devices, and who else is on them
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "of", value_parser = pod_name)]
    pod: Option<PodName>,
    #[command(flatten)]
    flags: Flags,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
    /// Longest time that any one look may take; loading the kernel programs needs more on a slow machine
    #[arg(long, value_name = "SECONDS", default_value_t = 9, value_parser = clap::value_parser!(u64).range(2..=600))]
    wait: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum DoctorOf {
    /// The mapping
    Map,
}

#[derive(Args)]
struct FieldsArgs {
    /// Only fields with this in their number, name, unit or group
    filter: Option<String>,
    #[command(flatten)]
    flags: Flags,
    /// Only this device: hw.id, index or PCI address; its MIG instances come with it
    #[arg(long, value_name = "ID")]
    gpu: Option<String>,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct RunArgs {
    #[command(flatten)]
    flags: Flags,
    /// Take the signals of this file through the same stages instead of watching the node
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Write what a replay finds to this file, one JSON object per line [default: standard output]
    #[arg(long, value_name = "FILE", requires = "replay")]
    findings: Option<PathBuf>,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let status = if e.use_stderr() { USAGE } else { 0 };
            // Nothing to do when the terminal is gone.
            let _ = e.print();
            if e.kind() == ErrorKind::ArgumentConflict {
                let hint = "options stand after the command, such as `warpgauge doctor --config FILE`";
                let _ = writeln!(io::stderr(), "\nwarpgauge: {hint}"); // the same
            }
            return ExitCode::from(status);
        }
    };
    let ended = match cli.command {
        Some(Command::Run(args)) => run_or_replay(*args),
        Some(Command::Doctor(args)) => doctor(*args),
        Some(Command::Driver { action: DriverAction::Release, agent }) => ask(&agent, Request::DriverRelease),
        Some(Command::Driver { action: DriverAction::Take, agent }) => ask(&agent, Request::DriverTake),
        Some(Command::Profiling { action: ProfilingAction::Pause, agent }) => {
            ask(&agent, Request::ProfilingPause)
        }
        Some(Command::Profiling { action: ProfilingAction::Resume, agent }) => {
            ask(&agent, Request::ProfilingResume)
        }
        Some(Command::Fields(args)) => fields(*args),
        Some(Command::Worker(arguments)) => return worker::run(&arguments),
        None => run_or_replay(cli.run),
    };
    ended.unwrap_or_else(|e| {
        // Nothing to do when the terminal is gone.
        let _ = writeln!(io::stderr(), "warpgauge: {e:#}");
        ExitCode::from(PROBLEMS)
    })
}

fn run_or_replay(args: RunArgs) -> anyhow::Result<ExitCode> {
    match (load(args.flags), &args.replay) {
        (Err(refused), _) => Ok(refused),
        (Ok(config), Some(file)) => replay(&config, file, args.findings.as_deref()),
        (Ok(config), None) => run(config),
    }
}

/// The configuration, or the exit status after its problems were printed.
fn load(flags: Flags) -> Result<Config, ExitCode> {
    config::load(flags, |name| std::env::var(name).ok()).map_err(|problems| {
        let mut stderr = io::stderr().lock();
        for problem in problems {
            // Nothing to do when the terminal is gone.
            let _ = writeln!(stderr, "{}", printable(&problem));
        }
        ExitCode::from(REFUSED)
    })
}

fn doctor(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let config = match load(args.flags) {
        Ok(config) => config,
        Err(refused) => return Ok(refused),
    };
    let starting = Starting::begin();
    let runtime = runtime::build(&mut Builder::new_current_thread(), LOOKS)?;
    starting.done();
    let patience = Duration::from_secs(args.wait);
    if let Some(DoctorOf::Map) = args.of {
        let lines = runtime.block_on(doctor::map::lines(&config, args.pod, patience));
        runtime.shutdown_timeout(Duration::from_millis(100)); // as below
        let out = BufWriter::new(io::stdout().lock());
        if args.json { doctor::map::print::json(&lines, out) } else { doctor::map::print::text(&lines, out) }
            .context("cannot write to standard output")?;
        let problem = lines.iter().any(|line| !line.failures().is_empty());
        return Ok(if problem { ExitCode::from(PROBLEMS) } else { ExitCode::SUCCESS });
    }
    let checks = runtime.block_on(doctor::checks(&config, patience));
    // A look that hangs must not keep the doctor.
    runtime.shutdown_timeout(Duration::from_millis(100));
    let out = io::stdout().lock();
    let no_gpu = doctor::nodes::no_gpu_at_all(&config.host);
    if args.json { doctor::print::json(&checks, out) } else { doctor::print::text(&checks, no_gpu, out) }
        .context("cannot write to standard output")?;
    let problem = checks.iter().any(|check| check.verdict == Verdict::No);
    Ok(if problem { ExitCode::from(PROBLEMS) } else { ExitCode::SUCCESS })
}

fn pod_name(text: &str) -> Result<PodName, String> {
    let name = text.split_once('/').filter(|(namespace, pod)| !namespace.is_empty() && !pod.is_empty());
    let (namespace, pod) = name.ok_or("must be NAMESPACE/NAME, such as default/train-0")?;
    Ok((namespace.to_owned(), pod.to_owned()))
}

fn fields(args: FieldsArgs) -> anyhow::Result<ExitCode> {
    let config = match load(args.flags) {
        Ok(config) => config,
        Err(refused) => return Ok(refused),
    };
    let topology = args.filter.is_none();
    let selection = Selection { device: args.gpu, text: args.filter };
    let lines = match fields::lines(&config).and_then(|lines| selection.apply(lines)) {
        Ok(lines) => lines,
        Err(error) => {
            for line in error.to_string().lines() {
                // Nothing to do when the terminal is gone.
                let _ = writeln!(io::stderr(), "warpgauge: {}", printable(line));
            }
            return Ok(ExitCode::from(PROBLEMS));
        }
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let written = if args.json {
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))
    } else {
        fields::table::write(&lines, topology, &mut out)
    };
    written.and_then(|()| out.flush()).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Asks the running agent; its lines go to standard output.
fn ask(agent: &AgentArgs, request: Request) -> anyhow::Result<ExitCode> {
    let mut stdout = io::stdout().lock();
    let asked = client::ask(&agent.run_dir, request, |line| writeln!(stdout, "{line}"));
    match asked {
        Ok(last) if last.is_empty() => {}
        // Nothing to do when nobody reads it.
        Ok(last) => drop(writeln!(stdout, "{last}")),
        Err(error) => {
            // Nothing to do when the terminal is gone.
            let _ = writeln!(io::stderr(), "warpgauge: {}", printable(&error.to_string()));
            return Ok(ExitCode::from(PROBLEMS));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn run(config: Config) -> anyhow::Result<ExitCode> {
    let starting = Starting::begin();
    // Two threads: one may be in a slow read of /proc while the other serves the rest.
    let runtime =
        runtime::build(Builder::new_multi_thread().worker_threads(2).thread_name("warpgauge"), BLOCKING)?;
    let ended = runtime.block_on(async {
        let lookup = |name: &str| std::env::var(name).ok();
        let facts = HostFacts::read(&config.host, lookup);
        let telemetry = Telemetry::default();
        let logging = match logging::start(&config.export, &facts, lookup("WARPGAUGE_LOG"), &telemetry) {
            Ok(logging) => logging,
            Err(e) => return refused(&e),
        };
        starting.done();
        let stop = CancellationToken::new();
        tokio::spawn(on_signal(stop.clone()).context("cannot listen for SIGTERM")?);
        let ended = pipeline::run(config, facts, telemetry, stop).await;
        logging.finish().await;
        match ended {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(PipelineError::Export(e @ ExportError::Otlp(_))) => refused(&e),
            Err(e) => Err(e.into()),
        }
    });
    // A thread may hang in a disk that does not answer; it must not keep the agent.
    runtime.shutdown_timeout(Duration::from_millis(100));
    ended
}

fn refused(problem: &dyn std::error::Error) -> anyhow::Result<ExitCode> {
    writeln!(io::stderr(), "{}", printable(&problem.to_string()))?;
    Ok(ExitCode::from(REFUSED))
}

/// Problems quote what somebody wrote: without control and format characters it is harmless on a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if is_plain(c) { c } else { '\u{fffd}' }).collect()
}

/// Cancels `stop` at the first SIGTERM or SIGINT; at a second one the agent ends at once.
fn on_signal(stop: CancellationToken) -> io::Result<impl Future<Output = ()> + Send> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        stop.cancel();
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        // Without a last word: whatever hangs may be what it would go through.
        std::process::exit(i32::from(PROBLEMS));
    })
}

fn replay(config: &Config, file: &Path, findings_file: Option<&Path>) -> anyhow::Result<ExitCode> {
    let input = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    let mut findings = Findings::default();
    let bad = pipeline::replay(config, BufReader::new(input), |fact| findings.push(&fact))
        .with_context(|| format!("cannot read {}", file.display()))?;
    match findings_file {
        Some(path) => {
            let out = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
            findings
                .write(BufWriter::new(out))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        None => findings.write(io::stdout().lock()).context("cannot write to standard output")?,
    }
    for line in &bad {
        writeln!(io::stderr(), "{}:{}: {}", file.display(), line.line, printable(&line.problem))?;
    }
    Ok(if bad.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(PROBLEMS) })
}
