//! What client and agent say to each other: one JSON object per line.
//!
//! In: nothing. Out: [`Request`] and [`Reply`]. What can go wrong: a line that is none; the error says what would be.

use serde::{Deserialize, Serialize};

/// Longest request in bytes.
pub const REQUEST_MAX: usize = 4_096;

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Request {
    /// Let go of the driver until it is taken again.
    DriverRelease,
    /// Use the driver again.
    DriverTake,
    /// Pause profiling, for a profiler that needs the counters.
    ProfilingPause,
    /// Resume profiling.
    ProfilingResume,
    /// Which fields there are, and what they give: each line of the answer is a JSON object.
    Fields,
    /// Which devices there are, and who runs on them: each line of the answer is a `Listed` as JSON.
    Devices,
    /// What is said of the worker and its sources: each line of the answer is a `Standing` as JSON.
    Status,
}

/// One line of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// A part of it; more follows.
    Line(String),
    /// The last one: it was done.
    Done(String),
    /// The last one: it was not done, and why.
    NotDone(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_as_documented() {
        let line = |request| serde_json::to_string(&request).unwrap();
        assert_eq!(line(Request::DriverRelease), r#"{"command":"driver_release"}"#);
        for request in [
            Request::DriverRelease,
            Request::DriverTake,
            Request::ProfilingPause,
            Request::ProfilingResume,
            Request::Fields,
            Request::Devices,
            Request::Status,
        ] {
            assert_eq!(serde_json::from_str::<Request>(&line(request)).unwrap(), request);
        }
        for bad in ["", "{}", r#"{"command":"stop"}"#, "[1]", r#"{"command":7}"#] {
            assert!(serde_json::from_str::<Request>(bad).is_err(), "{bad}");
        }
        let reply = Reply::NotDone("there is no worker".to_owned());
        assert_eq!(serde_json::to_string(&reply).unwrap(), r#"{"not_done":"there is no worker"}"#);
    }
}
