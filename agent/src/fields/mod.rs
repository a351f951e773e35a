//! `warpgauge fields`: what this DCGM and these GPUs give, field by field.
//!
//! In: the running agent's answer, or that of a worker of our own which watches for some seconds. Out: JSON lines, or
//! a table ([`table`]). What can go wrong: no source is up, or a call hangs; the error says which, and what to do.

pub mod select;
pub mod table;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use crate::config::Config;
use crate::control::client::{self, ClientError};
use crate::control::message::Request;
use crate::sources::worker::look::{self, Ended, Look, When};
use crate::sources::worker::orders;
use crate::sources::worker::spawn::Program;
pub use select::Selection;

/// Profiling fields have their first value after two samples.
const SETTLE: Duration = Duration::from_millis(2_500);
/// What a worker of our own gets.
const PATIENCE: Duration = Duration::from_secs(15);

/// Where there is more to know.
const SEE_DOCTOR: &str = "see `warpgauge doctor`";

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum FieldsError {
    /// The agent runs, but says no.
    #[error("{0}\n{SEE_DOCTOR}")]
    Agent(#[from] ClientError),
    /// A worker of our own had nothing to tell.
    #[error("{0}")]
    Look(String),
    /// No field fits the filter.
    #[error("no field has `{0}` in its number, name, unit or group; `warpgauge fields` without it lists all")]
    NoField(String),
    /// No device of this name.
    #[error("no device {0}; there are: {1}")]
    NoDevice(String, String),
}

/// The lines, from the agent of `config.run_dir` or, where none runs, by a look of our own.
///
/// # Errors
/// [`FieldsError`]: nobody can tell.
pub fn lines(config: &Config) -> Result<Vec<Json>, FieldsError> {
    let asked = config.run_dir.as_deref().map(ask);
    let lines = match asked {
        Some(Ok(lines)) => lines,
        None | Some(Err(ClientError::NoAgent(_))) => look(config)?,
        Some(Err(error)) => return Err(error.into()),
    };
    Ok(lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

fn ask(dir: &Path) -> Result<Vec<String>, ClientError> {
    let mut lines = Vec::new();
    client::ask(dir, Request::Fields, |line| {
        lines.push(line.to_owned());
        Ok(())
    })?;
    Ok(lines)
}

/// A worker of our own watches what is configured, as the agent would.
fn look(config: &Config) -> Result<Vec<String>, FieldsError> {
    if !config.worker.is_on() {
        let why = "the worker is switched off by the configuration; set worker.enabled to true";
        return Err(FieldsError::Look(why.to_owned()));
    }
    let mut configure = orders::configure(&config.worker, &config.host);
    configure.health_interval_ms = 0;
    let program = Program::own(look::lock_dir(config));
    let look = look::look(&program, &configure, When::AfterValues(SETTLE), Instant::now() + PATIENCE);
    if look.lines.is_empty() { Err(FieldsError::Look(why(&look))) } else { Ok(look.lines) }
}

fn why(look: &Look) -> String {
    let obstacle = match &look.ended {
        Ended::Complete => {
            let said = look.standings.iter().map(|s| format!("{}: {}; {}", s.source, s.what, s.remedy));
            let said = said.chain([format!("so no field can be told; {SEE_DOCTOR}")]);
            return said.collect::<Vec<_>>().join("\n");
        }
        Ended::Late if look.hanging.is_empty() => format!("no answer within {} s", PATIENCE.as_secs()),
        Ended::Late => format!("{} has not come back", look.hanging.join(", ")),
        Ended::Crashed(how) => format!("a vendor's library crashed: {how}"),
        Ended::Held(pid) => format!("process {pid} holds the worker's lock; name its agent by --run-dir"),
        Ended::NotStarted(why) | Ended::Garbage(why) => why.clone(),
    };
    format!("{obstacle}; `warpgauge doctor` tells more")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::worker::board::Standing;

    #[test]
    fn without_an_answer_the_error_says_what_was_in_the_way() {
        let of = |ended: Ended, hanging: &[&str]| {
            let said = Standing {
                source: "dcgm".into(),
                what: "no libdcgm".into(),
                remedy: "install it".into(),
                ..Standing::default()
            };
            why(&Look {
                standings: vec![said],
                lines: Vec::new(),
                devices: Vec::new(),
                hanging: hanging.iter().map(|call| (*call).to_owned()).collect(),
                ended,
            })
        };
        for (ended, hanging, want) in [
            (
                Ended::Complete,
                &[][..],
                "dcgm: no libdcgm; install it\nso no field can be told; see `warpgauge doctor`",
            ),
            (Ended::Late, &["dcgmInit"], "dcgmInit has not come back; `warpgauge doctor` tells more"),
            (Ended::Late, &[], "no answer within 15 s; `warpgauge doctor` tells more"),
            (Ended::Held(7), &[], "process 7 holds the worker's lock"),
            (Ended::Crashed("signal 11".into()), &[], "a vendor's library crashed: signal 11"),
        ] {
            let text = of(ended, hanging);
            assert!(text.starts_with(want), "{text}");
        }
    }

    #[test]
    fn a_worker_that_is_off_is_said() {
        let mut config = Config { run_dir: None, ..Config::default() };
        config.worker.enabled = false;
        assert!(lines(&config).unwrap_err().to_string().contains("worker.enabled"));
    }
}
