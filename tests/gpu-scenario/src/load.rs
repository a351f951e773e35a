//! Reads a scenario or a `.now` file.
//!
//! In: a path or text. Out: the checked data. What can go wrong: `FILE:LINE: message` says what to change; a file above
//! 1 MiB, or more GPUs and events than the limits here, is refused, so that any text is read in bounded memory.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::fault::Fault;
use crate::node::{GPUS_MAX, INSTANCES_MAX, Scenario};
use crate::overlay::Overlay;
use crate::version::Version;

/// Largest file.
pub const BYTES_MAX: u64 = 1024 * 1024;
const EVENTS_MAX: usize = 10_000;

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {message}")]
pub struct Error {
    /// Its name.
    pub file: String,
    /// Line, from 1.
    pub line: u64,
    /// What, and what to do.
    pub message: String,
}

/// Reads and checks a scenario file.
///
/// # Errors
/// The file cannot be read, or says what makes no sense.
pub fn scenario(path: &Path) -> Result<Scenario, Error> {
    let name = path.display().to_string();
    scenario_from(&name, &text_of(path)?)
}

/// Checks the text of a scenario file named `name`.
///
/// # Errors
/// The text says what makes no sense.
pub fn scenario_from(name: &str, text: &str) -> Result<Scenario, Error> {
    let scenario: Scenario = parse(name, text)?;
    match check(&scenario) {
        Some((key, message)) => Err(Error { file: name.into(), line: line_of(text, key), message }),
        None => Ok(scenario),
    }
}

/// Checks the text of a `.now` file named `name`.
///
/// # Errors
/// The text says what makes no sense.
pub fn overlay_from(name: &str, text: &str) -> Result<Overlay, Error> {
    parse(name, text)
}

/// The text of a file of bounded size.
pub(crate) fn text_of(path: &Path) -> Result<String, Error> {
    let wrong = |message: String| Error { file: path.display().to_string(), line: 1, message };
    let mut text = String::new();
    let file = File::open(path).map_err(|e| wrong(format!("cannot be read: {e}")))?;
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(|e| wrong(format!("cannot be read: {e}")))?;
    if BYTES_MAX < text.len() as u64 {
        return Err(wrong(format!("has more than {BYTES_MAX} bytes; make it shorter")));
    }
    Ok(text)
}

/// YAML → `T`; an empty text is the default.
pub(crate) fn parse<T: DeserializeOwned + Default>(name: &str, text: &str) -> Result<T, Error> {
    let only_comments = text.lines().all(|line| line.trim().is_empty() || line.trim().starts_with('#'));
    if only_comments {
        return Ok(T::default());
    }
    serde_saphyr::from_str::<T>(text).map_err(|e| Error {
        file: name.into(),
        line: e.location().map_or(1, |location| location.line()),
        message: e.without_snippet().to_string().lines().next().unwrap_or("not valid YAML").to_owned(),
    })
}

/// What serde cannot know: the key that is wrong, and why.
fn check(scenario: &Scenario) -> Option<(&'static str, String)> {
    if scenario.version != 1 {
        return Some(("version", "version: only 1 is known".into()));
    }
    if Version::parse(&scenario.library).is_none() {
        return Some(("library", "library: must be a version such as 4.6.0".into()));
    }
    if scenario.engine_version.as_ref().is_some_and(|v| Version::parse(v).is_none()) {
        return Some(("engine_version", "engine_version: must be a version such as 4.5.3".into()));
    }
    let gpus: u64 = scenario.gpus.iter().map(|gpu| u64::from(gpu.count.unwrap_or(1))).sum();
    if (GPUS_MAX as u64) < gpus {
        return Some(("gpus", format!("gpus: at most {GPUS_MAX}, these are {gpus}")));
    }
    let instances = scenario.gpus.iter().chain([&scenario.defaults]).filter_map(|gpu| gpu.mig.as_ref());
    if instances.into_iter().any(|mig| (INSTANCES_MAX as usize) < mig.len()) {
        return Some(("mig", format!("mig: at most {INSTANCES_MAX} instances on a GPU")));
    }
    for (key, events) in
        [("xids", scenario.xids.len()), ("health", scenario.health.len()), ("faults", scenario.faults.len())]
    {
        if EVENTS_MAX < events {
            return Some((key, format!("{key}: at most {EVENTS_MAX}")));
        }
    }
    let nameless = |fault: &Fault| match fault {
        Fault::Hang(in_call) | Fault::Slow(in_call) | Fault::Leak(in_call) => in_call.call.is_empty(),
        Fault::Crash(in_call) | Fault::Fail(in_call) => in_call.call.is_empty(),
        _ => false,
    };
    if scenario.faults.iter().any(nameless) {
        return Some(("faults", "faults: say which `call` (the C function's name, or \"*\")".into()));
    }
    None
}

/// First line that holds `key`.
fn line_of(text: &str, key: &str) -> u64 {
    let at = text.lines().position(|line| line.trim_start().starts_with(&format!("{key}:")));
    at.map_or(1, |at| at as u64 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        scenario_from("s.yaml", text).expect_err(text).to_string()
    }

    #[test]
    fn errors_name_file_and_line() {
        for (text, wanted) in [
            ("version: 1\nversoin: 2\n", "s.yaml:2: "),
            ("version: 2\n", "s.yaml:1: version: only 1"),
            ("gpus:\n- count: 40\n", "s.yaml:1: gpus: at most 32, these are 40"),
            ("version: 1\nlibrary: new\n", "s.yaml:2: library: must be"),
            ("version: 1\nfaults:\n- hang: {seconds: 1}\n", "s.yaml:2: faults: say which"),
            ("gpus:\n- fields:\n    150: {curve: {bend: 1}}\n", "s.yaml:3: "),
        ] {
            let found = error(text);
            assert!(found.starts_with(wanted), "{text:?} → {found}");
        }
    }

    #[test]
    fn an_empty_file_is_a_node_without_gpus() {
        assert!(scenario_from("s.yaml", "# nothing\n").expect("it parses").gpus.is_empty());
    }
}
