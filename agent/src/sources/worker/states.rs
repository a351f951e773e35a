//! The sources that live in the worker (`dcgm`, `nvml`, `profiling`): what is said of each, and when it changes.
//!
//! In: what the worker reports, which calls are late, and that there is no worker. Out: [`Change`]s, each once. Pure.
//! What overrides what: no worker, then a late call, then the worker's own word.
//! What can go wrong: a state whose name is none of the three; it is refused.

use crate::model::Origin;
use crate::model::signal::{LateCall, SourceState};
use crate::wire::report;

use super::clean::{text, word};

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
}

/// The three states.
#[derive(Debug)]
pub struct States {
    known: [Known; 3],
    /// Why there is no worker.
    without_worker: Option<Without>,
}

/// Why there is no worker, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Without {
    /// Of which process; 0: of none.
    pub pid: u32,
    /// A short word.
    pub reason: &'static str,
    /// For people.
    pub what: &'static str,
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
}

impl Without {
    /// For people, with the process.
    pub fn words(&self) -> String {
        match self.pid {
            0 => self.what.to_owned(),
            pid => format!("{} (process {pid})", self.what),
        }
    }
}

impl States {
    /// Nothing known; `dcgm` and `nvml` say what is configured.
    pub fn new(dcgm: bool, nvml: bool) -> Self {
        let known = [("dcgm", dcgm), ("nvml", nvml), ("profiling", false)];
        let known =
            known.map(|(name, expected)| Known { name, expected, reported: None, late: None, told: None });
        Self { known, without_worker: None }
    }

    /// A new worker was started: what the last one said is void.
    pub fn begin(&mut self) {
        self.without_worker = None;
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

    /// What is different from what was told, which counts as told now.
    pub fn changes(&mut self) -> Vec<Change> {
        let without = self.without_worker;
        self.known.iter_mut().filter_map(|known| known.change(without)).collect()
    }
}

impl Known {
    fn change(&mut self, without: Option<Without>) -> Option<Change> {
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
            let device = late.hw_id.as_deref().map_or(String::new(), |hw_id| format!(" for {hw_id}"));
            let what = format!("{}{device} has not come back", late.call);
            let remedy = "nothing yet: slow calls often come back; look at the kernel log for XIDs";
            (state(false, Some("slow".to_owned()), Some(late.clone())), what, remedy.to_owned())
        } else {
            let said = self.reported.as_ref()?;
            let reason = (!said.up).then(|| word(&said.reason).unwrap_or_else(|| "down".to_owned()));
            let what = text(if said.up { &said.how } else { &said.what }).unwrap_or_default();
            (state(said.up, reason, None), what, text(&said.remedy).unwrap_or_default())
        };
        if self.told.as_ref() == Some(&source) {
            return None;
        }
        self.told = Some(source.clone());
        let library = self.reported.as_ref().and_then(|said| text(&said.library)).unwrap_or_default();
        Some(Change { source, name: self.name, what, remedy, library })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MonoNs;

    fn says(name: &str, up: bool, reason: &str) -> report::State {
        report::State { name: name.to_owned(), up, reason: reason.to_owned(), ..report::State::default() }
    }

    const GONE: Without = Without { pid: 0, reason: "down", what: "it ended", remedy: "none" };

    fn told(states: &mut States) -> Vec<(&'static str, bool, String)> {
        let changes = states.changes().into_iter();
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
