//! Why the kubelet gave no answer, in one word and in its own words.
//!
//! In: errors of the connection and of gRPC. Out: [`Failure`]. Pure functions.
//! What can go wrong: an error of a kind that is not known here is `failed`, with its words.

use std::error::Error;
use std::io::ErrorKind;
use std::time::Duration;

use tonic::{Code, Status};

use super::answer::Garbage;
use crate::model::plain::is_plain;

/// Longest text of the other side that is repeated. Unit: characters.
const WORDS_MAX: usize = 300;

/// A call that gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Why.
    pub reason: Reason,
    /// With the system's or the kubelet's own words.
    pub what: String,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is no socket: no Kubernetes node, or its folder is not mounted.
    NoSocket,
    /// The socket may not be opened.
    NotPermitted,
    /// There is a socket and nobody listens: the kubelet was stopped, or just starts.
    Refused,
    /// Alive, and late.
    Slow,
    /// The connection broke: the kubelet ended.
    Broken,
    /// Not the message, or not even the protocol.
    Garbage,
    /// A message beyond the limit.
    TooLarge,
    /// A kubelet without this version of the service, or without this call.
    NotServed,
    /// The kubelet answered with an error.
    Failed,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::NoSocket,
        Self::NotPermitted,
        Self::Refused,
        Self::Slow,
        Self::Broken,
        Self::Garbage,
        Self::TooLarge,
        Self::NotServed,
        Self::Failed,
    ];

    /// The word in `warpgauge.kubelet.failures{reason}` and in the state of the source.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoSocket => "no_socket",
            Self::NotPermitted => "not_permitted",
            Self::Refused => "refused",
            Self::Slow => "slow",
            Self::Broken => "broken",
            Self::Garbage => "garbage",
            Self::TooLarge => "too_large",
            Self::NotServed => "not_served",
            Self::Failed => "failed",
        }
    }

    /// What the operator can do.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::NoSocket => {
                "mount the node's /var/lib/kubelet/pod-resources, or name the socket by --pod-resources-kubelet-socket"
            }
            Self::NotPermitted => "run the agent as root: the socket is root's",
            Self::Refused => "look at the kubelet: systemctl status kubelet",
            Self::Slow | Self::Broken => "it is asked again; if it stays, look at the kubelet's log and load",
            Self::Garbage | Self::TooLarge => {
                "check that --pod-resources-kubelet-socket names the kubelet's own socket"
            }
            Self::NotServed => "update the kubelet: the service's version 1 is there since Kubernetes 1.20",
            Self::Failed => "look at the kubelet's log for its error",
        }
    }
}

impl Failure {
    /// With words that may have come from anybody.
    pub fn new(reason: Reason, what: &str) -> Self {
        Self { reason, what: what.chars().filter(|c| is_plain(*c)).take(WORDS_MAX).collect() }
    }

    /// A call that has not come back in time.
    pub fn slow(call: &str, timeout: Duration) -> Self {
        Self::new(Reason::Slow, &format!("{call} has not come back within {} ms", timeout.as_millis()))
    }

    /// A connection that could not be made.
    pub fn of_connecting(error: &(dyn Error + 'static)) -> Self {
        Self::new(of_transport(error), &words(error))
    }

    /// A call that came back with an error, of the kubelet or of this side's reading.
    pub fn of_status(status: &Status) -> Self {
        /// tonic's words for the limit that was set; the kubelet's own refusals have others.
        const LIMIT: &str = "decoded message length too large";
        let reason = match (status.code(), status.source()) {
            (Code::OutOfRange, _) if status.message().contains(LIMIT) => Reason::TooLarge,
            (_, Some(source)) => of_transport(source),
            (Code::Unimplemented, _) => Reason::NotServed,
            (Code::DeadlineExceeded, _) => Reason::Slow,
            (Code::PermissionDenied, _) => Reason::NotPermitted,
            // made on this side: a kubelet that cannot do it says Unavailable or Unknown
            (Code::Internal, _) => Reason::Garbage,
            _ => Reason::Failed,
        };
        let source = status.source().map(|source| format!(": {}", words(source))).unwrap_or_default();
        Self::new(reason, &format!("{:?}: {}{source}", status.code(), status.message()))
    }
}

impl From<Garbage> for Failure {
    fn from(garbage: Garbage) -> Self {
        Self::new(Reason::Garbage, &garbage.to_string())
    }
}

/// A connection fails with an error of the system, or because what comes over it is not HTTP/2.
fn of_transport(error: &(dyn Error + 'static)) -> Reason {
    /// h2's words for bytes that are no frames, or no frames that belong there.
    const NO_HTTP2: [&str; 4] =
        ["protocol error", "PROTOCOL_ERROR", "frame with invalid size", "FRAME_SIZE_ERROR"];
    match io_kind(error) {
        Some(ErrorKind::NotFound) => Reason::NoSocket,
        Some(ErrorKind::PermissionDenied) => Reason::NotPermitted,
        Some(ErrorKind::ConnectionRefused) => Reason::Refused,
        Some(ErrorKind::InvalidData) => Reason::Garbage,
        _ if NO_HTTP2.iter().any(|said| words(error).contains(said)) => Reason::Garbage,
        _ => Reason::Broken,
    }
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}

fn io_kind(error: &(dyn Error + 'static)) -> Option<ErrorKind> {
    chain(error).find_map(|error| error.downcast_ref::<std::io::Error>()).map(std::io::Error::kind)
}

/// The words of an error and of what caused it, each once.
fn words(error: &(dyn Error + 'static)) -> String {
    let mut all: Vec<String> = Vec::new();
    for error in chain(error).take(8) {
        let text = error.to_string();
        if !all.iter().any(|said| said.contains(&text)) {
            all.push(text);
        }
    }
    all.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_kubelet_and_of_the_system_have_their_reasons() {
        let with = |code, message: &str| Failure::of_status(&Status::new(code, message)).reason;
        for (code, message, want) in [
            (Code::Unimplemented, "unknown service v1.PodResourcesLister", Reason::NotServed),
            (Code::DeadlineExceeded, "", Reason::Slow),
            (Code::PermissionDenied, "", Reason::NotPermitted),
            (Code::ResourceExhausted, "rejected by rate limit", Reason::Failed),
            (Code::Unknown, "pods are not synced", Reason::Failed),
            (Code::Internal, "protocol error: invalid compression flag", Reason::Garbage),
            (Code::OutOfRange, "Error, decoded message length too large: found 9 bytes", Reason::TooLarge),
            (Code::OutOfRange, "out of pods", Reason::Failed),
        ] {
            assert_eq!(with(code, message), want, "{code:?} {message}");
        }
        for (kind, want) in [
            (ErrorKind::NotFound, Reason::NoSocket),
            (ErrorKind::PermissionDenied, Reason::NotPermitted),
            (ErrorKind::ConnectionRefused, Reason::Refused),
            (ErrorKind::BrokenPipe, Reason::Broken),
            (ErrorKind::Other, Reason::Broken),
        ] {
            assert_eq!(Failure::of_connecting(&std::io::Error::from(kind)).reason, want, "{kind:?}");
        }
    }

    #[test]
    fn foreign_words_are_plain_and_short() {
        let failure = Failure::new(Reason::Failed, &format!("a\u{1b}[31m\nb{}", "c".repeat(1_000)));
        assert!(failure.what.starts_with("a[31mbccc") && failure.what.len() == WORDS_MAX, "{}", failure.what);
    }

    #[test]
    fn every_reason_has_a_word_of_its_own_and_a_remedy() {
        let words: std::collections::BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(words.len(), Reason::ALL.len());
        assert!(Reason::ALL.iter().all(|reason| !reason.remedy().is_empty()));
    }
}
