//! When a request is sent again: the retry rules of the OTLP specification.
//!
//! In: the gRPC status of a failed request. Out: a [`Verdict`], and the time to wait.
//! What can go wrong: a broken connection has a status made on this side, whose code says little; it is always retried.

use std::error::Error;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use prost::Message;
use tonic::{Code, Status};

/// What to do with a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send it again; not before this long, where the receiver said so.
    Retry(Option<Duration>),
    /// The receiver will never take it.
    Refused,
}

/// Judges a failed request.
pub fn judge(status: &Status) -> Verdict {
    let told = retry_delay(status.details());
    match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => Verdict::Retry(told),
        Code::ResourceExhausted if told.is_some() => Verdict::Retry(told),
        // A status with a source was not sent by the receiver: the connection broke.
        _ if status.source().is_some() => Verdict::Retry(None),
        _ => Verdict::Refused,
    }
}

/// How the waits grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The first wait.
    pub first: Duration,
    /// The longest wait that nobody asked for.
    pub longest: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self { first: Duration::from_secs(1), longest: Duration::from_secs(30) }
    }
}

/// A receiver may ask for a long wait, but not silence the agent.
const LONGEST_TOLD: Duration = Duration::from_secs(600);

/// Exponential backoff with jitter.
#[derive(Debug)]
pub struct Backoff {
    policy: Policy,
    next: Duration,
}

impl Backoff {
    /// At its beginning.
    pub fn new(policy: Policy) -> Self {
        Self { policy, next: policy.first }
    }

    /// The receiver answered.
    pub fn reset(&mut self) {
        self.next = self.policy.first;
    }

    /// From now on waits are no longer than this: there is little time left.
    pub fn hurry(&mut self, longest: Duration) {
        self.policy.longest = self.policy.longest.min(longest);
        self.next = self.policy.first.min(longest);
    }

    /// The next wait: between half and all of a doubling time, and at least what the receiver asked for.
    pub fn wait(&mut self, told: Option<Duration>) -> Duration {
        let wait = self.next.mul_f64(0.5 + 0.5 * chance());
        self.next = self.next.saturating_mul(2).min(self.policy.longest);
        wait.max(told.unwrap_or_default().min(LONGEST_TOLD))
    }
}

/// A number in [0, 1). The seed of a hasher is the only randomness of the standard library.
fn chance() -> f64 {
    let bits = RandomState::new().build_hasher().finish() >> 11;
    bits as f64 / (1_u64 << 53) as f64
}

/// `google.rpc.Status`, as far as it is needed.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`
#[derive(Clone, PartialEq, prost::Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`
#[derive(Clone, PartialEq, prost::Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Delay>,
}

/// `google.protobuf.Duration`
#[derive(Clone, PartialEq, prost::Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// The RetryInfo of a status: `Some` even when it asks for no wait.
fn retry_delay(details: &[u8]) -> Option<Duration> {
    let status = RpcStatus::decode(details).ok()?;
    let info = status.details.iter().find(|any| any.type_url.ends_with("/google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(info.value.as_slice()).ok()?.retry_delay.unwrap_or_default();
    let (seconds, nanos) = (u64::try_from(delay.seconds).ok()?, u32::try_from(delay.nanos).ok()?);
    Some(Duration::from_secs(seconds).saturating_add(Duration::from_nanos(u64::from(nanos))))
}

/// A status with RetryInfo, as receivers send it.
#[cfg(test)]
pub(crate) fn throttled(code: Code, delay: Duration) -> Status {
    let delay = Delay { seconds: delay.as_secs() as i64, nanos: delay.subsec_nanos() as i32 };
    let value = RetryInfo { retry_delay: Some(delay) }.encode_to_vec();
    let info = Any { type_url: "type.googleapis.com/google.rpc.RetryInfo".into(), value };
    Status::with_details(code, "slow down", RpcStatus { details: vec![info] }.encode_to_vec().into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn codes_are_judged_as_the_specification_says() {
        for (code, want) in [
            (Code::Cancelled, Verdict::Retry(None)),
            (Code::DeadlineExceeded, Verdict::Retry(None)),
            (Code::Aborted, Verdict::Retry(None)),
            (Code::OutOfRange, Verdict::Retry(None)),
            (Code::Unavailable, Verdict::Retry(None)),
            (Code::DataLoss, Verdict::Retry(None)),
            (Code::ResourceExhausted, Verdict::Refused),
            (Code::InvalidArgument, Verdict::Refused),
            (Code::Unauthenticated, Verdict::Refused),
            (Code::PermissionDenied, Verdict::Refused),
            (Code::Unimplemented, Verdict::Refused),
            (Code::Internal, Verdict::Refused),
            (Code::Unknown, Verdict::Refused),
        ] {
            assert_eq!(judge(&Status::new(code, "")), want, "{code:?}");
        }
        let asked = Duration::from_millis(2_500);
        for code in [Code::ResourceExhausted, Code::Unavailable] {
            assert_eq!(judge(&throttled(code, asked)), Verdict::Retry(Some(asked)), "{code:?}");
        }
        let mut broken = Status::unknown("transport error");
        broken.set_source(Arc::new(std::io::Error::from(std::io::ErrorKind::ConnectionReset)));
        assert_eq!(judge(&broken), Verdict::Retry(None), "made on this side");
        let garbage = Status::with_details(Code::ResourceExhausted, "", vec![0xff; 9].into());
        assert_eq!(judge(&garbage), Verdict::Refused);
    }

    #[test]
    fn waits_double_up_to_the_longest_and_obey_the_receiver() {
        let seconds = Duration::from_secs;
        let mut backoff = Backoff::new(Policy::default());
        for base in [1, 2, 4, 8, 16, 30, 30] {
            let wait = backoff.wait(None);
            assert!(wait >= seconds(base) / 2 && wait <= seconds(base), "{base} s: {wait:?}");
        }
        assert_eq!(backoff.wait(Some(seconds(77))), seconds(77));
        assert_eq!(backoff.wait(Some(seconds(u64::MAX))), LONGEST_TOLD);
        backoff.reset();
        assert!(backoff.wait(None) <= seconds(1));
        backoff.hurry(Duration::from_millis(250));
        assert!(backoff.wait(None) <= Duration::from_millis(250));
    }
}
