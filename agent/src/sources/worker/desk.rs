//! Requests to the worker: who asks, and who gets the answers.
//!
//! In: requests of the control socket. Out: orders with an id, and the answers back to who asked.
//! What can go wrong: no worker, or one that does not answer: the asker is told, or sees the end of the answers, and
//! the order is withdrawn. One that was taken just before is done all the same; its effect is not forgotten.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc;

use super::clean;
use super::listed::Listed;
use crate::host::mono_now;
use crate::model::MonoNs;
use crate::model::plain::is_plain;
use crate::wire::order::{self, Request};
use crate::wire::report::Answer;

/// Requests that wait for the source.
const WAITING_MAX: usize = 16;
/// Requests that wait for the worker.
const PENDING_MAX: usize = 16;
/// Answers that wait for the asker.
const ANSWERS_MAX: usize = 256;
/// All answers to one request; the longest, the fields of all devices, has a few 100 kB. Unit: bytes.
const BYTES_MAX: usize = 4 << 20;
/// A worker that has not answered by then will not.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// An order that the worker has not begun by then is not done: sooner than the asker gives up.
const WITHDRAWN: Duration = Duration::from_secs(19);
/// Requests that nobody waits for any more, of which a late answer tells what became of them.
const GIVEN_UP_MAX: usize = 256;

/// What can be asked of the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Pause profiling.
    Pause,
    /// Resume profiling.
    Resume,
    /// Which fields there are.
    Fields,
    /// Which devices there are, and who runs on them: the source knows.
    Devices,
}

/// Where to ask. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Desk {
    tx: mpsc::Sender<Asked>,
}

/// A question, and where the answers go.
#[derive(Debug)]
pub struct Asked {
    question: Question,
    /// From then on it must not be done any more.
    until: MonoNs,
    answers: mpsc::Sender<Answer>,
}

/// The worker's side of a [`Desk`].
pub type Questions = mpsc::Receiver<Asked>;

/// A desk, and its other side.
pub fn desk() -> (Desk, Questions) {
    let (tx, rx) = mpsc::channel(WAITING_MAX);
    (Desk { tx }, rx)
}

impl Desk {
    /// Asks; the answers come out of the channel, which ends after the last one. `None`: nobody takes questions.
    pub async fn ask(&self, question: Question) -> Option<mpsc::Receiver<Answer>> {
        let (answers, rx) = mpsc::channel(ANSWERS_MAX);
        let until = mono_now().after(WITHDRAWN);
        self.tx.send(Asked { question, until, answers }).await.ok().map(|()| rx)
    }
}

impl Asked {
    /// What is asked.
    pub fn question(&self) -> Question {
        self.question
    }

    /// What the source knows itself is answered; any other question is handed back.
    pub fn unless_known(self, listed: impl FnOnce() -> Vec<Listed>) -> Option<Self> {
        if self.question != Question::Devices {
            return Some(self);
        }
        let lines: Vec<String> =
            listed().iter().filter_map(|device| serde_json::to_string(device).ok()).collect();
        let answer = Answer { id: 0, done: true, text: lines.join("\n"), more: false };
        // Who asked has gone.
        let _ = self.answers.try_send(answer);
        None
    }

    /// It cannot be answered.
    pub fn refuse(self, why: &str) {
        let answer = Answer { id: 0, done: false, text: why.to_owned(), more: false };
        // Who asked has gone.
        let _ = self.answers.try_send(answer);
    }
}

#[derive(Debug)]
struct Waiting {
    since: MonoNs,
    question: Question,
    /// `None`: who asked was told that it takes too long.
    answers: Option<mpsc::Sender<Answer>>,
    /// What its answers may still have. Unit: bytes.
    room: usize,
}

/// Requests that the present worker has not answered.
#[derive(Debug, Default)]
pub struct Pending {
    last_id: u64,
    waiting: BTreeMap<u64, Waiting>,
}

impl Pending {
    /// The order for a question; `None`: too many, refused.
    pub fn order(&mut self, now: MonoNs, asked: Asked) -> Option<order::Kind> {
        for asker in self.waiting.values_mut() {
            if now.since(asker.since).is_some_and(|waited| waited >= PATIENCE) {
                asker.answers = None;
            }
        }
        if self.waiting.values().filter(|asker| asker.answers.is_some()).count() >= PENDING_MAX {
            asked.refuse("too many requests at once");
            return None;
        }
        while self.waiting.len() >= GIVEN_UP_MAX + PENDING_MAX {
            self.waiting.pop_first();
        }
        self.last_id += 1;
        let id = self.last_id;
        let Asked { question, until, answers } = asked;
        let request = Request { id, until_ns: until.0 };
        let order = match question {
            Question::Pause => order::Kind::Pause(request),
            Question::Resume => order::Kind::Resume(request),
            Question::Fields => order::Kind::Fields(request),
            Question::Devices => return None, // no order: it was answered before
        };
        let answers = Some(answers);
        self.waiting.insert(id, Waiting { since: now, question, answers, room: BYTES_MAX });
        Some(order)
    }

    /// An answer: `text` may be JSON lines, of which nothing is cut off but control characters. Gives whether profiling
    /// is paused now, where that is what was done.
    pub fn answer(&mut self, mut answer: Answer) -> Option<bool> {
        let asker = self.waiting.get_mut(&answer.id)?;
        let Some(room) = asker.room.checked_sub(answer.text.len()) else {
            answer.text = format!("the worker's answer has more than {BYTES_MAX} bytes");
            (answer.done, answer.more) = (false, false);
            if let Some(answers) = &asker.answers {
                // Who asked has gone, or sees the end of the answers.
                let _ = answers.try_send(answer.clone());
            }
            self.waiting.remove(&answer.id);
            return None;
        };
        asker.room = room;
        let paused = match asker.question {
            Question::Pause => Some(true),
            Question::Resume => Some(false),
            Question::Fields | Question::Devices => None,
        };
        let paused = paused.filter(|_| answer.done && !answer.more);
        let (id, more) = (answer.id, answer.more);
        answer.text.retain(|c| c == '\n' || is_plain(c));
        let lost = asker.answers.as_ref().is_some_and(|answers| answers.try_send(answer).is_err());
        if lost || !more {
            self.waiting.remove(&id);
        }
        paused
    }

    /// The worker is gone.
    pub fn refuse_all(&mut self, why: &str) {
        let text = clean::text(why).unwrap_or_default();
        for (id, Waiting { answers, .. }) in std::mem::take(&mut self.waiting) {
            let Some(answers) = answers else { continue };
            // Who asked has gone, or sees the end of the answers.
            let _ = answers.try_send(Answer { id, done: false, text: text.clone(), more: false });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn asked(desk: &Desk, questions: &mut Questions) -> (Asked, mpsc::Receiver<Answer>) {
        let answers = desk.ask(Question::Fields).await.unwrap();
        (questions.recv().await.unwrap(), answers)
    }

    fn answer(id: u64, text: &str, more: bool) -> Answer {
        Answer { id, done: true, text: text.to_owned(), more }
    }

    #[tokio::test]
    async fn answers_go_to_who_asked_until_the_last_one() {
        let (desk, mut questions) = desk();
        let mut pending = Pending::default();
        let (first, mut to_first) = asked(&desk, &mut questions).await;
        let (second, mut to_second) = asked(&desk, &mut questions).await;
        let order = |id, asked: &Asked| {
            assert!(mono_now().after(WITHDRAWN) >= asked.until && WITHDRAWN < PATIENCE);
            Some(order::Kind::Fields(Request { id, until_ns: asked.until.0 }))
        };
        let (to_be_first, to_be_second) = (order(1, &first), order(2, &second));
        assert_eq!(pending.order(MonoNs(0), first), to_be_first);
        assert_eq!(pending.order(MonoNs(0), second), to_be_second);
        pending.answer(answer(1, "{}\n\u{1b}{}", true));
        pending.answer(answer(1, "", false));
        pending.answer(answer(1, "too late", false));
        pending.answer(answer(9, "nobody's", false));
        assert_eq!(to_first.recv().await.map(|a| a.text).as_deref(), Some("{}\n{}"));
        assert_eq!(to_first.recv().await.map(|a| a.more), Some(false));
        assert_eq!(to_first.recv().await, None);
        pending.refuse_all("the worker ended");
        assert_eq!(
            to_second.recv().await.map(|a| (a.done, a.text)),
            Some((false, "the worker ended".into()))
        );
    }

    #[tokio::test]
    async fn an_answer_without_end_is_refused() {
        let (desk, mut questions) = desk();
        let mut pending = Pending::default();
        let (question, mut answers) = asked(&desk, &mut questions).await;
        pending.order(MonoNs(0), question).unwrap();
        let mebibyte = "x".repeat(1 << 20);
        (0..6).for_each(|_| assert_eq!(pending.answer(answer(1, &mebibyte, true)), None));
        for _ in 0..4 {
            assert_eq!(answers.recv().await.map(|a| a.text.len()), Some(1 << 20));
        }
        let last = answers.recv().await.unwrap();
        assert!(!last.done && !last.more && last.text.contains("more than 4194304 bytes"), "{}", last.text);
        assert_eq!(answers.recv().await, None);
    }

    #[tokio::test]
    async fn it_is_known_whether_profiling_is_paused() {
        let (desk, mut questions) = desk();
        let mut pending = Pending::default();
        for (question, done, want) in [
            (Question::Pause, false, None),
            (Question::Pause, true, Some(true)),
            (Question::Fields, true, None),
            (Question::Resume, true, Some(false)),
        ] {
            let _answers = desk.ask(question).await.unwrap();
            pending.order(MonoNs(0), questions.recv().await.unwrap());
            let answer = Answer { done, ..answer(pending.last_id, "", false) };
            assert_eq!(pending.answer(answer), want, "{question:?} {done}");
        }
        assert_eq!(pending.answer(answer(99, "", false)), None, "nobody asked");
    }

    #[tokio::test]
    async fn what_a_late_answer_did_is_known_though_nobody_waits_for_it() {
        let (desk, mut questions) = desk();
        let mut pending = Pending::default();
        let mut answers = desk.ask(Question::Pause).await.unwrap();
        pending.order(MonoNs(0), questions.recv().await.unwrap()).unwrap();
        let (other, _answers) = asked(&desk, &mut questions).await;
        pending.order(MonoNs(0).after(PATIENCE), other).unwrap();
        assert_eq!(answers.recv().await, None, "the asker was told that it took too long");
        assert_eq!(pending.answer(answer(1, "", false)), Some(true), "it is paused all the same");
        assert_eq!(pending.answer(answer(1, "", false)), None, "once");
    }

    #[tokio::test]
    async fn requests_are_bounded_and_forgotten_in_time() {
        let (desk, mut questions) = desk();
        let mut pending = Pending::default();
        let mut kept = Vec::new();
        for n in 0..PENDING_MAX + 2 {
            let (asked, answers) = asked(&desk, &mut questions).await;
            kept.push(answers);
            assert_eq!(pending.order(MonoNs(0), asked).is_some(), n < PENDING_MAX);
        }
        let said = kept.last_mut().unwrap().recv().await.unwrap();
        assert_eq!((said.done, &*said.text), (false, "too many requests at once"));
        let (asked, _answers) = asked(&desk, &mut questions).await;
        assert!(pending.order(MonoNs(0).after(PATIENCE), asked).is_some());
        assert_eq!(kept[0].recv().await, None, "the asker sees the end");
        for n in 2..1_000 {
            let (asked, _answers) = self::asked(&desk, &mut questions).await;
            pending.order(MonoNs(0).after(PATIENCE * n), asked).unwrap();
        }
        assert_eq!(pending.waiting.len(), GIVEN_UP_MAX + PENDING_MAX, "who gave up is forgotten one day");
    }
}
