//! The vendors' libraries and what they give: asked of the running agent, or looked at by a worker of our own.
//!
//! In: the configuration. Out: checks of DCGM, NVML, GPUs, MIG, the worker and the control socket.
//! What can go wrong: a library hangs; after [`PATIENCE`] all that depends on it is `unknown`, with the call's name.

use std::time::{Duration, Instant};

use serde_json::Value as Json;

use super::{Check, vendor_checks};
use crate::config::Config;
use crate::control::client::{self, ClientError};
use crate::control::message::Request;
use crate::sources::worker::board::Standing;
use crate::sources::worker::listed::Listed;
use crate::sources::worker::look::{self, Ended, When};
use crate::sources::worker::orders;
use crate::sources::worker::spawn::Program;

/// What the libraries get. An embedded engine starts in about a second, a slow driver opens in a few.
const PATIENCE: Duration = Duration::from_secs(7);
/// What a running agent gets for each line.
const LINE: Duration = Duration::from_secs(3);

/// What was seen of the libraries.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// What is said of each source.
    pub(super) standings: Vec<Standing>,
    /// Lines of the answer on fields.
    pub(super) lines: Vec<Json>,
    /// Devices, and who runs on them.
    pub(super) devices: Vec<Listed>,
    /// Why there may be less than there is: a call that hangs, a crash.
    pub(super) obstacle: Option<String>,
}

/// Looks; it blocks for up to [`PATIENCE`] and a second.
pub fn checks(config: &Config) -> Vec<Check> {
    let mut checks = Vec::new();
    let agent = config.run_dir.as_deref().map(|dir| (dir, ask(dir, Request::Status)));
    let path = |dir: &std::path::Path| dir.join(crate::control::SOCKET).display().to_string();
    let seen = match agent {
        None => {
            checks.push(Check::off("control socket", "none is wanted, as configured"));
            None
        }
        Some((dir, Ok(lines))) => {
            checks.push(Check::yes("control socket", format!("{}: an agent answers", path(dir))));
            let standings =
                lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect::<Vec<Standing>>();
            checks.extend(standings.iter().find(|standing| standing.source == "probes").map(probe_budget));
            Some(of_agent(standings, ask(dir, Request::Fields)))
        }
        Some((dir, Err(error))) => {
            checks.push(control_socket(&path(dir), &error));
            // One that does not answer may have the driver: its lock tells.
            None
        }
    };
    let (seen, worker) = match seen {
        Some(seen) => {
            let worker = vendor_checks::worker_of_agent(&seen);
            (seen, worker)
        }
        None => own_look(config),
    };
    checks.push(worker);
    checks.extend(vendor_checks::libraries(&config.worker, &seen));
    checks
}

fn ask(dir: &std::path::Path, request: Request) -> Result<Vec<String>, ClientError> {
    let mut lines = Vec::new();
    client::ask_within(dir, request, LINE, |line| {
        lines.push(line.to_owned());
        Ok(())
    })?;
    Ok(lines)
}

fn control_socket(path: &str, error: &ClientError) -> Check {
    const NAME: &str = "control socket";
    match error {
        ClientError::NoAgent(_) => Check::off(NAME, format!("{path}: no agent runs here")),
        ClientError::NotPermitted(_) => {
            Check::no(NAME, error.to_string(), "ask as root, or as the user that the agent runs as")
        }
        _ => Check::unknown(NAME, error.to_string(), "look at the agent's log"),
    }
}

/// What the running agent has given up for its cost.
fn probe_budget(standing: &Standing) -> Check {
    const NAME: &str = "probe budget";
    match (standing.up, standing.reason.as_str()) {
        (true, _) => Check::yes(NAME, &standing.what),
        (false, "not_permitted") => Check::unknown(NAME, &standing.what, &standing.remedy),
        (false, _) => Check::no(NAME, &standing.what, &standing.remedy),
    }
}

fn of_agent(standings: Vec<Standing>, fields: Result<Vec<String>, ClientError>) -> Seen {
    let (lines, obstacle) = match fields {
        Ok(lines) => (parsed(&lines), None),
        // It told how its sources are, so it does answer; its libraries do not, or slowly.
        Err(ClientError::Broken { cause, .. }) if cause.kind() == std::io::ErrorKind::TimedOut => {
            let what = format!("the libraries have not told their fields within {} s", LINE.as_secs());
            (Vec::new(), Some(what))
        }
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    Seen { standings, lines, devices: Vec::new(), obstacle }
}

/// The devices and who runs on them, of the running agent or, where none answers, of a worker of our own.
pub fn devices(config: &Config) -> (Check, Vec<Listed>) {
    const NAME: &str = "devices";
    let (devices, from, why) = match config.run_dir.as_deref().map(|dir| ask(dir, Request::Devices)) {
        Some(Ok(lines)) => {
            let devices = lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
            (devices, "the running agent", String::new())
        }
        None | Some(Err(_)) => {
            let (seen, worker) = own_look(config);
            let said = seen.standings.iter().filter(|standing| !standing.up);
            let said = said.map(|standing| format!("; {}: {}", standing.source, standing.what));
            (
                seen.devices,
                "a worker of the doctor's own",
                format!("; {}{}", worker.what, said.collect::<String>()),
            )
        }
    };
    let migs = devices.iter().filter(|device: &&Listed| device.parent.is_some()).count();
    let what = format!("{} GPUs, {migs} MIG devices, told by {from}", devices.len() - migs);
    let check = if devices.is_empty() {
        Check::no(NAME, format!("{what}{why}"), "`warpgauge doctor` tells more")
    } else {
        Check::yes(NAME, what)
    };
    (check, devices)
}

/// A worker of our own, which watches nothing.
fn own_look(config: &Config) -> (Seen, Check) {
    const NAME: &str = "worker";
    if !config.worker.is_on() {
        return (Seen::default(), Check::off(NAME, "switched off by the configuration"));
    }
    let mut configure = orders::configure(&config.worker, &config.host);
    configure.only_look = true;
    let program = Program::own(look::lock_dir(config));
    let look = look::look(&program, &configure, When::AtOnce, Instant::now() + PATIENCE);
    let calls = look.hanging.join(", ");
    let (worker, obstacle) = match &look.ended {
        Ended::Complete => (Check::yes(NAME, "it starts, talks and ends"), None),
        Ended::Late => {
            let what = match calls.as_str() {
                "" => "a library has not answered in time".to_owned(),
                calls => format!("{calls} has not come back"),
            };
            let remedy = "look at the kernel log for XIDs and hung tasks; the agent itself goes on without";
            (Check::unknown(NAME, what.clone(), remedy), Some(what))
        }
        Ended::Crashed(how) => {
            let what = format!("it ended by itself: {how}");
            let remedy = "a vendor's library may crash: try another worker.engine, or worker.dcgm: false";
            (Check::no(NAME, what.clone(), remedy), Some(what))
        }
        Ended::Held(pid) => {
            let what = format!("process {pid} holds the worker's lock, and perhaps the driver");
            let remedy = "ask its agent (--run-dir); if none runs, that worker was given up: look at the kernel \
                          log, the GPU may need a reset";
            (Check::no(NAME, what.clone(), remedy), Some(what))
        }
        Ended::NotStarted(why) => {
            let what = format!("it cannot be started: {why}");
            (Check::no(NAME, what.clone(), "the node may be out of processes or memory"), Some(what))
        }
        Ended::Garbage(why) => {
            let what = format!("it is not understood: {why}");
            (Check::no(NAME, what.clone(), "start again; if it stays, report it"), Some(what))
        }
    };
    let (standings, lines) = (look.standings, parsed(&look.lines));
    let seen = Seen { standings, lines, devices: look.devices, obstacle };
    (seen, worker)
}

/// What is no JSON is left out: nothing depends on a single line.
fn parsed(lines: &[String]) -> Vec<Json> {
    lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;
    use crate::test_dir::TestDir;

    #[test]
    fn each_way_in_which_no_agent_answers_is_told_apart() {
        let path = || std::path::PathBuf::from("/run/x/control.sock");
        let broken = std::io::Error::other("timed out");
        for (error, want) in [
            (ClientError::NoAgent(path()), Verdict::Off),
            (ClientError::NotPermitted(path()), Verdict::No),
            (ClientError::Broken { path: path(), cause: broken }, Verdict::Unknown),
        ] {
            let check = control_socket("/run/x/control.sock", &error);
            assert_eq!(check.verdict, want, "{error}");
            assert!(check.what.contains("/run/x/control.sock"), "{}", check.what);
        }
    }

    #[test]
    fn an_agent_whose_libraries_are_slow_does_answer() {
        let late = std::io::Error::new(std::io::ErrorKind::TimedOut, "the agent does not answer");
        let path = std::path::PathBuf::from("/run/x/control.sock");
        let seen = of_agent(Vec::new(), Err(ClientError::Broken { path, cause: late }));
        assert_eq!(seen.obstacle.as_deref(), Some("the libraries have not told their fields within 3 s"));
    }

    #[test]
    fn switched_off_is_no_problem() {
        let dir = TestDir::new();
        let mut config = Config { run_dir: Some(dir.path().into()), state_dir: None, ..Config::default() };
        config.worker.enabled = false;
        let checks = checks(&config);
        let no = checks.iter().filter(|check| check.verdict == Verdict::No).count();
        assert_eq!(no, 0, "{checks:?}");
        let worker = checks.iter().find(|check| check.name == "worker").unwrap();
        assert_eq!(worker.verdict, Verdict::Off);
    }
}
