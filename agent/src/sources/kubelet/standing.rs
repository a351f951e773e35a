//! When the kubelet is asked, and what is told of its answers: a pure core.
//!
//! In: looks at its files, answers and failures, with their times. Out: whether it is to be asked now, and signals.
//! Always all pods are asked for: what changes on the disk says that devices were given, and not to whom.
//! A good answer stays until a better one comes; its age is told, and that the source is down is told once per reason.
//! What can go wrong: nothing; a kubelet that never answers leaves everything as it was.

use std::sync::Arc;
use std::time::Duration;

use super::answer::Answer;
use super::client::Call;
use super::failure::{Failure, Reason};
use super::places::Seen;
use crate::model::signal::{LateCall, SourceState};
use crate::model::{MonoNs, PodDevices, Signal};

/// The name in [`SourceState`].
pub const NAME: &str = "kubelet";
/// Between questions that events give rise to: a node where many pods start would ask all the time.
const EVENTS_APART: Duration = Duration::from_secs(1);

/// What is known of the kubelet.
#[derive(Debug)]
pub struct Standing {
    interval: Duration,
    /// When it was asked the last time, and what its files were like just before.
    asked: Option<(MonoNs, Seen)>,
    /// The last good answer.
    good: Option<(MonoNs, Arc<PodDevices>)>,
    /// What was told last: `Ok` is up.
    told: Option<Result<(), Reason>>,
}

impl Standing {
    /// Nothing was asked yet.
    pub fn new(interval: Duration) -> Self {
        Self { interval, asked: None, good: None, told: None }
    }

    /// Whether it is to be asked now; then it counts as asked.
    pub fn is_due(&mut self, now: MonoNs, seen: &Seen) -> bool {
        let is_due = self.asked.as_ref().is_none_or(|(at, before)| {
            let since = age(*at, now);
            self.interval <= since || (before != seen && EVENTS_APART <= since)
        });
        if is_due {
            self.asked = Some((now, seen.clone()));
        }
        is_due
    }

    /// Whether the socket is not the one that was asked the last time.
    pub fn is_other_socket(&self, seen: &Seen) -> bool {
        self.asked.as_ref().is_some_and(|(_, before)| before.socket != seen.socket)
    }

    /// A good answer: the whole of it is told each time, as what it means may have changed.
    pub fn answered(&mut self, at: MonoNs, answer: Answer) -> Vec<Signal> {
        let devices = match self.good.take() {
            Some((_, before)) if *before == answer.devices => before,
            _ => Arc::new(answer.devices),
        };
        self.good = Some((at, Arc::clone(&devices)));
        let up = self.tell(at, Ok(()), None);
        up.into_iter().chain([Signal::PodDevices { at, devices }]).collect()
    }

    /// No answer to the question of `began`.
    pub fn failed(&mut self, at: MonoNs, failure: &Failure, began: MonoNs) -> Option<Signal> {
        let late = (failure.reason == Reason::Slow).then(|| LateCall {
            call: Call::List.name().to_owned(),
            hw_id: None,
            began,
        });
        self.tell(at, Err(failure.reason), late)
    }

    /// Whether it has ever answered.
    pub fn has_answered(&self) -> bool {
        self.good.is_some()
    }

    /// How old the last good answer is.
    pub fn age(&self, now: MonoNs) -> Option<Duration> {
        self.good.as_ref().map(|(at, _)| age(*at, now))
    }

    fn tell(&mut self, at: MonoNs, state: Result<(), Reason>, late: Option<LateCall>) -> Option<Signal> {
        if self.told.replace(state) == Some(state) {
            return None;
        }
        let reason = state.err().map(|reason| reason.name().to_owned());
        let source = SourceState { name: NAME.to_owned(), up: state.is_ok(), reason, late };
        Some(Signal::Source { at, source })
    }
}

fn age(since: MonoNs, now: MonoNs) -> Duration {
    Duration::from_nanos(now.0.saturating_sub(since.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Grant;

    fn second(s: u64) -> MonoNs {
        MonoNs(s * 1_000_000_000)
    }

    fn answer(pod: &str) -> Answer {
        let grant = Grant { pod: pod.to_owned(), ..Grant::default() };
        Answer { devices: PodDevices { grants: vec![grant] }, ..Answer::default() }
    }

    /// What was told: up, or the reason; the pods.
    fn words(signals: impl IntoIterator<Item = Signal>) -> Vec<String> {
        let word = |signal| match signal {
            Signal::Source { source, .. } => source.reason.unwrap_or_else(|| "up".to_owned()),
            Signal::PodDevices { devices, .. } => devices.grants[0].pod.clone(),
            other => panic!("{other:?}"),
        };
        signals.into_iter().map(word).collect()
    }

    #[test]
    fn it_is_asked_in_intervals_and_on_events_and_not_all_the_time() {
        let dir = crate::test_dir::TestDir::new();
        let socket = dir.path().join("pod-resources/kubelet.sock");
        let nothing = Seen::look(&socket);
        std::fs::create_dir(dir.path().join("device-plugins")).unwrap();
        let event = Seen::look(&socket);
        let mut standing = Standing::new(Duration::from_secs(15));
        let times = [
            (100, &nothing, true), // at the start
            (101, &nothing, false),
            (114, &nothing, false),
            (115, &nothing, true), // the interval
            (116, &event, true),
            (116, &nothing, false), // too early after the one before
            (117, &nothing, true),
            (118, &nothing, false),
            (132, &nothing, true),
        ];
        for (s, seen, want) in times {
            assert_eq!(standing.is_due(second(s), seen), want, "{s}");
        }
        assert!(!standing.is_other_socket(&event), "the socket is what it was");
    }

    #[test]
    fn a_good_answer_stays_and_ages_while_each_reason_is_told_once() {
        let mut standing = Standing::new(Duration::from_secs(15));
        let failure = |reason| Failure::new(reason, "");
        assert_eq!(standing.age(second(1)), None);
        assert_eq!(words(standing.failed(second(1), &failure(Reason::NoSocket), second(1))), ["no_socket"]);
        assert!(!standing.has_answered());
        assert_eq!(words(standing.answered(second(10), answer("a"))), ["up", "a"]);
        assert_eq!(words(standing.answered(second(25), answer("a"))), ["a"]);
        let slow = standing.failed(second(50), &failure(Reason::Slow), second(40));
        let Some(Signal::Source { source, .. }) = &slow else { panic!("{slow:?}") };
        assert_eq!(
            source.late.as_ref().map(|late| (late.call.as_str(), late.began)),
            Some(("List", second(40)))
        );
        assert_eq!(standing.failed(second(65), &failure(Reason::Slow), second(55)), None);
        assert_eq!(standing.age(second(65)), Some(Duration::from_secs(40)));
        assert_eq!(words(standing.failed(second(70), &failure(Reason::Garbage), second(70))), ["garbage"]);
        assert_eq!(words(standing.answered(second(80), answer("b"))), ["up", "b"]);
        assert_eq!(standing.age(second(81)), Some(Duration::from_secs(1)));
    }

    #[test]
    fn an_answer_like_the_one_before_is_the_same_one() {
        let mut standing = Standing::new(Duration::from_secs(15));
        let mut devices = |pod| match standing.answered(second(1), answer(pod)).pop() {
            Some(Signal::PodDevices { devices, .. }) => devices,
            other => panic!("{other:?}"),
        };
        let (first, second, third) = (devices("a"), devices("a"), devices("b"));
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&second, &third));
    }
}
