//! Pausing profiling, so that another profiler has the hardware.
//!
//! In: requests, and what was paused in an earlier connection. Out: what is paused, and how ([`PausedBy`]). What can go
//! wrong: the engine is paused for all of its clients, so it must be resumed whatever happened to our watches
//! meanwhile; and a new engine knows nothing of a pause.

use super::engine::{Answer, Dcgm, ReturnCode, is_gone};
use super::plan::{self, Want};
use super::profiling::PausedBy;
use super::session::Session;
use super::state;
use crate::model::{Absence, Part};
use crate::worker::moment::Moment;

impl<D: Dcgm> Session<'_, D> {
    /// Pauses profiling. Answers whether it was done, and how.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn pause(&mut self, now: Moment) -> Answer<(bool, String)> {
        let text = match self.caller.call("dcgmProfPause", "", D::pause) {
            Ok(()) => {
                self.set_paused(Some(PausedBy::Engine));
                "profiling is paused by the engine, for all its clients"
            }
            Err(code) if has_nothing_to_pause(code) => {
                // What is not watched is not read.
                self.set_paused(Some(PausedBy::Unwatched));
                for want in self.end_profiling()? {
                    self.withhold(&want);
                }
                self.refusals.tell(self.caller.link, now);
                "profiling fields are no longer watched; the engine has nothing to pause"
            }
            Err(code) if is_gone(code) => return Err(code),
            Err(code) => {
                return Ok((false, format!("the engine does not pause profiling: {}", state::code(code))));
            }
        };
        self.caller.link.send(state::paused());
        Ok((true, text.to_owned()))
    }

    /// Pauses a new connection's engine, where profiling is paused: it may be a new engine.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn hold_pause(&mut self) -> Answer<()> {
        let Some(was) = self.memory.paused.filter(|_| !self.task.only_look) else { return Ok(()) };
        let by = match self.caller.call("dcgmProfPause", "", D::pause) {
            Ok(()) => PausedBy::Engine,
            Err(code) if has_nothing_to_pause(code) => PausedBy::Unwatched,
            Err(code) if is_gone(code) => return Err(code),
            // Such as: it is paused already.
            Err(_) => was,
        };
        self.set_paused(Some(by));
        Ok(())
    }

    /// Goes on with profiling.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn resume(&mut self, now: Moment) -> Answer<(bool, String)> {
        let Some(by) = self.profiling.paused else {
            return Ok((true, "profiling was not paused".to_owned()));
        };
        if by == PausedBy::Engine {
            match self.caller.call("dcgmProfResume", "", D::resume) {
                Ok(()) => {}
                Err(code) if is_gone(code) => return Err(code),
                Err(code) if has_nothing_to_pause(code) => {}
                Err(code) => {
                    let text = format!("the engine does not resume profiling: {}", state::code(code));
                    return Ok((false, text));
                }
            }
        }
        self.set_paused(None);
        self.profiling.forget_all();
        // What was not watched because of the pause; a watch that was made anew meanwhile may have been refused for it.
        if self.refusals.list.iter().any(|r| r.absence == Absence::Paused) {
            self.end_profiling()?;
            self.refusals.forget_profiling();
            for want in plan::wants(self.task.groups, &self.found) {
                if want.profiling.is_some() {
                    self.watch_want(&want, now)?;
                }
            }
        }
        if let Some(report) = self.profiling_report() {
            self.caller.link.send(report);
        }
        let how = match by {
            PausedBy::Engine => "the engine profiles again",
            PausedBy::Unwatched => "profiling fields are watched again",
        };
        Ok((true, how.to_owned()))
    }

    fn set_paused(&mut self, by: Option<PausedBy>) {
        (self.profiling.paused, self.memory.paused) = (by, by);
    }

    /// Ends the watches of profiling fields; answers with what they were.
    fn end_profiling(&mut self) -> Answer<Vec<Want>> {
        let mut wants = Vec::new();
        let mut place = self.polls.len();
        while place > 0 {
            place -= 1;
            if self.polls.get(place).is_some_and(|poll| poll.profiling.is_some()) {
                let poll = self.polls.remove(place);
                poll.remember(&mut self.memory.slots);
                wants.push(Want {
                    entities: poll.unit.entities.clone(),
                    fields: poll.unit.fields.clone(),
                    every: poll.unit.every,
                    profiling: poll.profiling,
                });
                self.watcher.end(poll.unit)?;
            }
        }
        Ok(wants)
    }

    /// Whether profiling works, or why it works nowhere; nothing where it is not wanted.
    pub(super) fn profiling_report(&self) -> Option<crate::wire::report::Kind> {
        if self.profiling.paused.is_some() {
            return Some(state::paused());
        }
        if self.polls.iter().any(|poll| poll.profiling.is_some()) {
            return Some(state::profiling_up(""));
        }
        let is_profiling = |field: u16| {
            let of = |g: &plan::Group| g.fields.iter().any(|f| f.id == field && f.profiling);
            self.task.groups.iter().any(of)
        };
        let why =
            self.refusals.list.iter().find(|r| r.target.part == Part::Whole && is_profiling(r.field))?;
        Some(state::no_profiling(why.absence))
    }
}

/// An engine that reads profiling through NVML has no module to pause.
fn has_nothing_to_pause(code: ReturnCode) -> bool {
    code == ReturnCode::NOT_SUPPORTED || code == ReturnCode::MODULE_NOT_LOADED
}
