//! Which engine: the one that answers, or as told.
//!
//! In: the configured word. Out: what to try, in order, and how long to wait between tries. What can go wrong: a word
//! that is no address; connecting to it fails, and that is reported.

use std::time::Duration;

/// The socket of a host engine that was started with its default.
const SOCKET: &str = "unix:///tmp/nv-hostengine";
const LOCAL: &str = "localhost:5555";
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// A host engine that was there gets this long to come back before one is embedded in its place.
const GRACE: Duration = Duration::from_secs(30);

/// An engine to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Host(String),
    Embedded,
}

impl Choice {
    /// As `State.how` says it.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Embedded => "embedded".to_owned(),
            Self::Host(address) if address.contains("://") => address.clone(),
            Self::Host(address) => format!("tcp://{address}"),
        }
    }
}

/// Stands for every host engine that `auto` knows.
const ALL: &str = "*";

/// What to try, in order. `had_host`: how long ago a host engine of `auto` went away; `skip`: names of what `auto` does
/// not try, since connecting to it has hung; [`ALL`] for every host engine.
pub(super) fn candidates(engine: &str, had_host: Option<Duration>, skip: &[String]) -> Vec<Choice> {
    let host = |address: &str| Choice::Host(address.to_owned());
    match engine.trim() {
        "" | "auto" => {
            let mut all = vec![host(SOCKET), host(LOCAL)];
            all.retain(|choice| !skip.iter().any(|skip| skip == ALL || *skip == choice.name()));
            if had_host.is_none_or(|ago| ago >= GRACE) {
                all.push(Choice::Embedded);
            }
            all
        }
        "embedded" => vec![Choice::Embedded],
        address => vec![host(address)],
    }
}

/// The wait before the next round of tries.
pub(super) fn wait(rounds: u32) -> Duration {
    FIRST_WAIT.saturating_mul(2_u32.saturating_pow(rounds.min(8))).min(LONGEST_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_answers_comes_before_one_of_our_own() {
        let check_without = |engine: &str, had_host: Option<u64>, skip: &str, want: &[&str]| {
            let skip = [skip.to_owned()];
            let had_host = had_host.map(Duration::from_secs);
            let got: Vec<String> = candidates(engine, had_host, &skip).iter().map(Choice::name).collect();
            assert_eq!(got, want, "{engine}");
        };
        let check =
            |engine: &str, had_host: Option<u64>, want: &[&str]| check_without(engine, had_host, "", want);
        check_without("auto", None, "tcp://localhost:5555", &["unix:///tmp/nv-hostengine", "embedded"]);
        check_without("auto", None, "*", &["embedded"]);
        check_without("node7:5555", None, "*", &["tcp://node7:5555"]);
        check_without("node7:5555", None, "tcp://node7:5555", &["tcp://node7:5555"]);
        check("auto", None, &["unix:///tmp/nv-hostengine", "tcp://localhost:5555", "embedded"]);
        check("auto", Some(5), &["unix:///tmp/nv-hostengine", "tcp://localhost:5555"]);
        check("auto", Some(30), &["unix:///tmp/nv-hostengine", "tcp://localhost:5555", "embedded"]);
        check("embedded", Some(5), &["embedded"]);
        check("node7:5555", None, &["tcp://node7:5555"]);
        check("vsock://2:5555", None, &["vsock://2:5555"]);
    }

    #[test]
    fn tries_are_a_quarter_to_one_second_apart() {
        let waits: Vec<u128> = (0..5).map(|round| wait(round).as_millis()).collect();
        assert_eq!(waits, [250, 500, 1_000, 1_000, 1_000]);
        assert_eq!(wait(u32::MAX), LONGEST_WAIT);
    }
}
