//! The sources that live in the worker (`dcgm`, `nvml`, `profiling`): what is said of each, and when it changes.
//!
//! In: what the worker reports, which calls are late, and that there is no worker. Out: [`Change`]s, each once. Pure.
//! What overrides what: no worker, then a late call, then the worker's own word; a wanted source of which nothing was
//! said for a while is slow.
//! What can go wrong: a state whose name is none of the three; it is refused.

use crate::model::Origin;
use crate::model::signal::{LateCall, SourceState};
use crate::wire::report;

use super::clean::{text, word};
use super::desk::Question;

/// The reason of a source whose calls are late.
const SLOW: &str = "slow";
/// What is done about it.
const PATIENT: &str = "nothing yet: slow calls often come back; look at the kernel log for XIDs";

/// What the state of a source became.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// For the stages.
    pub source: SourceState,
    /// `dcgm`, `nvml` or `profiling`.
    pub name: &'static str,
    /// What is missing, or how it is up; for people.
    pub what: String,
    /// What the operator can do.
    pub remedy: String,
    /// The vendor's library with its release; empty where none was opened.
    pub library: String,
    /// Another state or reason than was told; else only the words are new.
    pub is_news: bool,
}

/// The three states.
#[derive(Debug)]
pub struct States {
    known: [Known; 3],
    /// Why there is no worker.
    without_worker: Option<Without>,
    /// The worker has had its time to say something of each wanted source.
    overdue: bool,
}

/// Why there is no worker, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Without {
    /// Of which process; 0: of none.
    pub pid: u32,
    /// A short word.
    pub reason: &'static str,
    /// For people.
    pub what: &'static str,
    /// The system's own words; may be empty.
    pub detail: String,
    /// The next one is started so much later, at the time of telling; 0: that is not known. Unit: seconds.
    pub again_s: u64,
    /// What the operator can do.
    pub remedy: &'static str,
}

#[derive(Debug)]
struct Known {
    name: &'static str,
    /// It is told about even before the worker has said anything of it.
    expected: bool,
    reported: Option<report::State>,
    late: Option<LateCall>,
    told: Option<SourceState>,
    words: String,
}

impl Without {
    /// Nothing is known but these words.
    pub const fn of(reason: &'static str, what: &'static str, remedy: &'static str) -> Self {
        Self { pid: 0, reason, what, detail: String::new(), again_s: 0, remedy }
    }

    /// For people, with the process, the system's words, and when it is tried again.
    pub fn words(&self) -> String {
        let mut words = self.what.to_owned();
        if !self.detail.is_empty() {
            words.push_str(": ");
            words.push_str(&self.detail);
        }
        if self.pid != 0 {
            words.push_str(&format!(" (process {})", self.pid));
        }
        if self.again_s != 0 {
            words.push_str(&format!("; again in {} s", self.again_s));
        }
        words
    }
}

impl States {
    /// Nothing known; `dcgm` and `nvml` say what is configured.
    pub fn new(dcgm: bool, nvml: bool) -> Self {
        let known = [("dcgm", dcgm), ("nvml", nvml), ("profiling", false)];
        let known = known.map(|(name, expected)| Known {
            name,
            expected,
            reported: None,
            late: None,
            told: None,
            words: String::new(),
        });
        Self { known, without_worker: None, overdue: false }
    }

    /// A new worker was started: what the last one said is void.
    pub fn begin(&mut self) {
        (self.without_worker, self.overdue) = (None, false);
        for known in &mut self.known {
            (known.reported, known.late) = (None, None);
        }
    }

    /// There is no worker.
    pub fn none(&mut self, why: Without) {
        self.without_worker = Some(why);
    }

    /// The worker's word. False when there is no such source.
    pub fn report(&mut self, state: report::State) -> bool {
        let known = self.known.iter_mut().find(|known| known.name == state.name);
        known.map(|known| known.reported = Some(state)).is_some()
    }

    /// Which call of a library is late.
    pub fn late(&mut self, origin: Origin, call: Option<LateCall>) {
        if let Some(known) = self.known.iter_mut().find(|known| known.name == origin.name()) {
            known.late = call;
        }
    }

    /// The worker has had its time: a wanted source that it has said nothing of is slow.
    pub fn overdue(&mut self) {
        self.overdue = true;
    }

    /// Why nobody can answer this question now, and what to do; `None`: it may be asked.
    pub fn refusal(&self, question: Question) -> Option<String> {
        let [dcgm, nvml, _] = &self.known;
        let who = match question {
            Question::Pause | Question::Resume => dcgm,
            // As the worker chooses: NVML knows the basic fields.
            Question::Fields if nvml.expected && !dcgm.is_up() => nvml,
            Question::Fields => dcgm,
            Question::Devices => return None, // the source knows
        };
        if let Some(late) = &who.late {
            return Some(format!("{}: {}; ask again when it has", who.name, late_words(late)));
        }
        let asked = if question == Question::Fields { &[dcgm, nvml][..] } else { &[dcgm][..] };
        let down: Option<Vec<String>> =
            asked.iter().filter(|known| known.expected).map(|known| known.down()).collect();
        down.filter(|down| !down.is_empty()).map(|down| down.join("\n"))
    }

    /// What is different from what was told, which counts as told now.
    pub fn changes(&mut self) -> Vec<Change> {
        let (without, overdue) = (self.without_worker.as_ref(), self.overdue);
        self.known.iter_mut().filter_map(|known| known.change(without, overdue)).collect()
    }
}

fn late_words(late: &LateCall) -> String {
    let device = late.hw_id.as_deref().map_or(String::new(), |hw_id| format!(" for {hw_id}"));
    format!("{}{device} has not come back", late.call)
}

impl Known {
    fn is_up(&self) -> bool {
        self.reported.as_ref().is_some_and(|said| said.up)
    }

    /// Why it is down, by the worker's word.
    fn down(&self) -> Option<String> {
        let said = self.reported.as_ref().filter(|said| !said.up)?;
        let [what, remedy] = [&said.what, &said.remedy].map(|words| text(words).unwrap_or_default());
        Some(format!("{}: {what}; {remedy}", self.name))
    }

    fn change(&mut self, without: Option<&Without>, overdue: bool) -> Option<Change> {
        let state = |up: bool, reason: Option<String>, late: Option<LateCall>| SourceState {
            name: self.name.to_owned(),
            up,
            reason,
            late,
        };
        let (source, what, remedy) = if let Some(why) = without {
            if !self.expected && self.told.is_none() {
                return None;
            }
            (state(false, Some(why.reason.to_owned()), None), why.words(), why.remedy.to_owned())
        } else if let Some(late) = self.late.as_ref().filter(|_| self.expected || self.reported.is_some()) {
            let what = late_words(late);
            (state(false, Some(SLOW.to_owned()), Some(late.clone())), what, PATIENT.to_owned())
        } else if self.expected && self.reported.is_none() && overdue {
            let what = "nothing was heard of it yet: its calls come back, but slowly".to_owned();
            (state(false, Some(SLOW.to_owned()), None), what, PATIENT.to_owned())
        } else {
            let said = self.reported.as_ref()?;
            let reason = (!said.up).then(|| word(&said.reason).unwrap_or_else(|| "down".to_owned()));
            let what = text(if said.up { &said.how } else { &said.what }).unwrap_or_default();
            (state(said.up, reason, None), what, text(&said.remedy).unwrap_or_default())
        };
        let is_news = self.told.as_ref() != Some(&source);
        if !is_news && self.words == what {
            return None;
        }
        (self.told, self.words) = (Some(source.clone()), what.clone());
        let library = self.reported.as_ref().and_then(|said| text(&said.library)).unwrap_or_default();
        Some(Change { source, name: self.name, what, remedy, library, is_news })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MonoNs;

    fn says(name: &str, up: bool, reason: &str) -> report::State {
        report::State { name: name.to_owned(), up, reason: reason.to_owned(), ..report::State::default() }
    }

    const GONE: Without = Without::of("down", "it ended", "none");

    fn told(states: &mut States) -> Vec<(&'static str, bool, String)> {
        let changes = states.changes().into_iter().filter(|change| change.is_news);
        changes.map(|c| (c.name, c.source.up, c.source.reason.unwrap_or_default())).collect()
    }

    #[test]
    fn each_change_is_told_once_and_the_stronger_reason_wins() {
        let mut states = States::new(true, true);
        assert_eq!(told(&mut states), []);
        assert!(states.report(says("dcgm", true, "")) && states.report(says("nvml", false, "no_driver")));
        let want = [("dcgm", true, String::new()), ("nvml", false, "no_driver".to_owned())];
        assert_eq!(told(&mut states), want);
        assert_eq!(told(&mut states), []);
        let call = LateCall { call: "f".to_owned(), hw_id: None, began: MonoNs(1) };
        states.late(Origin::Dcgm, Some(call.clone()));
        let slow = states.changes();
        assert_eq!((slow.len(), slow[0].source.late.as_ref()), (1, Some(&call)));
        states.late(Origin::Dcgm, None);
        assert_eq!(told(&mut states), [("dcgm", true, String::new())], "NVML is left alone throughout");
        states.none(GONE);
        let want = [("dcgm", false, "down".to_owned()), ("nvml", false, "down".to_owned())];
        assert_eq!(told(&mut states), want);
        states.begin();
        assert_eq!(told(&mut states), [], "a new worker has to say something first");
        states.report(says("dcgm", true, ""));
        assert_eq!(told(&mut states), [("dcgm", true, String::new())]);
    }

    #[test]
    fn a_wanted_source_of_which_nothing_is_heard_is_slow() {
        let mut states = States::new(true, true);
        states.report(says("nvml", true, ""));
        states.changes();
        states.overdue();
        let slow = states.changes();
        assert_eq!((slow.len(), slow[0].name, slow[0].source.reason.as_deref()), (1, "dcgm", Some("slow")));
        assert_eq!(slow[0].source.late, None, "no call is late by itself");
        states.report(says("dcgm", true, ""));
        assert_eq!(told(&mut states), [("dcgm", true, String::new())]);
        states.begin();
        assert_eq!(told(&mut states), [], "the next worker has its time as well");
        let mut nvml_only = States::new(false, true);
        nvml_only.overdue();
        assert_eq!(told(&mut nvml_only), [("nvml", false, "slow".to_owned())], "the others are not wanted");
    }

    #[test]
    fn new_words_are_told_as_such() {
        let mut states = States::new(true, false);
        let again = |again_s| Without { again_s, detail: "no pids".to_owned(), ..GONE };
        states.none(again(2));
        let first = states.changes().remove(0);
        assert_eq!((first.is_news, &*first.what), (true, "it ended: no pids; again in 2 s"));
        states.none(again(1));
        let next = states.changes().remove(0);
        assert_eq!((next.is_news, &*next.what), (false, "it ended: no pids; again in 1 s"));
        assert_eq!(states.changes(), []);
    }

    #[test]
    fn what_cannot_be_answered_is_refused_at_once() {
        let mut states = States::new(true, true);
        let refusal = |states: &States, question| states.refusal(question).unwrap_or_default();
        for question in [Question::Pause, Question::Resume, Question::Fields] {
            assert_eq!(refusal(&states, question), "", "the worker knows better");
        }
        states.report(says("dcgm", true, ""));
        let call = LateCall { call: "f".to_owned(), hw_id: Some("GPU-1".to_owned()), began: MonoNs(1) };
        states.late(Origin::Dcgm, Some(call.clone()));
        for question in [Question::Pause, Question::Resume, Question::Fields] {
            let want = "dcgm: f for GPU-1 has not come back; ask again when it has";
            assert_eq!(refusal(&states, question), want);
        }
        states.late(Origin::Dcgm, None);
        let down = |name, what: &str| report::State {
            what: what.to_owned(),
            remedy: "mend it".to_owned(),
            ..says(name, false, "no_library")
        };
        states.report(down("dcgm", "no libdcgm"));
        assert_eq!(refusal(&states, Question::Pause), "dcgm: no libdcgm; mend it");
        assert_eq!(refusal(&states, Question::Fields), "", "NVML may tell some");
        states.late(Origin::Nvml, Some(call));
        assert!(refusal(&states, Question::Fields).starts_with("nvml: f for GPU-1 has not"));
        states.late(Origin::Nvml, None);
        states.report(down("nvml", "no NVML"));
        let both = "dcgm: no libdcgm; mend it\nnvml: no NVML; mend it";
        assert_eq!(refusal(&states, Question::Fields), both);
    }

    #[test]
    fn profiling_is_told_once_it_was_heard_of_and_strange_names_never() {
        let mut states = States::new(false, true);
        states.none(GONE);
        assert_eq!(told(&mut states), [("nvml", false, "down".to_owned())], "DCGM is not configured");
        let silent = LateCall { call: "worker silent".to_owned(), hw_id: None, began: MonoNs(1) };
        states.late(Origin::Dcgm, Some(silent));
        assert_eq!(told(&mut states), [], "and not late either");
        states.begin();
        states.report(says("profiling", false, "stuck\u{1b}[31m or worse"));
        assert_eq!(told(&mut states), [("profiling", false, "down".to_owned())], "no word: not passed on");
        states.none(GONE);
        assert!(!states.report(says("probes", true, "")));
        assert_eq!(told(&mut states), []);
    }
}
