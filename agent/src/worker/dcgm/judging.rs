//! What is wrong with the values of a session as a whole: fields that spoil one another, profiling that stands still.
//!
//! In: what the polls saw. Out: units watched apart or anew, and words. What can go wrong: see [`super::conflict`] and
//! [`super::profiling`].

use std::time::Duration;

use super::conflict::Step;
use super::engine::{Answer, Dcgm, ModuleState, ModuleStatus};
use super::inventory::unless_gone;
use super::profiling::Verdict;
use super::session::Session;
use super::state;
use crate::worker::moment::Moment;

impl<D: Dcgm> Session<'_, D> {
    pub(super) fn resolve_conflicts(&mut self, now: Moment) -> Answer<()> {
        let Some(step) = self.conflicts.next(&self.polls, now.mono) else { return Ok(()) };
        match step {
            Step::Split(place) => {
                let poll = self.polls.remove(place);
                poll.remember(&mut self.memory.slots);
                let pair = self.conflicts.pair();
                let (entities, fields, every) =
                    (poll.unit.entities.clone(), poll.unit.fields.clone(), poll.unit.every);
                self.watcher.end(poll.unit)?;
                let (a, b) = fields.split_at(fields.len().div_ceil(2));
                for half in [a, b] {
                    let at = self.polls.len();
                    self.watch_plain(&entities, half, every, now)?;
                    self.polls.iter_mut().skip(at).for_each(|poll| poll.pair = Some(pair));
                }
            }
            Step::Join(a, b) => {
                let (second, first) = (self.polls.remove(a.max(b)), self.polls.remove(a.min(b)));
                let mut fields = first.unit.fields.clone();
                fields.extend(&second.unit.fields);
                let (entities, every) = (first.unit.entities.clone(), first.unit.every);
                self.watcher.end(first.unit)?;
                self.watcher.end(second.unit)?;
                let until = now.mono.after(self.conflicts.back_off());
                let at = self.polls.len();
                self.watch_plain(&entities, &fields, every, now)?;
                self.polls.iter_mut().skip(at).for_each(|poll| poll.whole_until = Some(until));
            }
            Step::Alone(place) => {
                if let Some(poll) = self.polls.get_mut(place) {
                    poll.pair = None;
                }
            }
            Step::Settle(a, b) => {
                let halves = self.polls.get(a).zip(self.polls.get(b));
                // Where one is blank still, it holds both of the pair: the search goes on in it.
                if let Some((a, b)) = halves.filter(|(a, b)| a.blank_reads == 0 && b.blank_reads == 0) {
                    self.caller.link.send(state::conflict(&a.unit.fields, &b.unit.fields));
                }
                for place in [a, b] {
                    if let Some(poll) = self.polls.get_mut(place) {
                        poll.pair = None;
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn judge_profiling(&mut self, now: Moment) -> Answer<()> {
        for place in 0..self.found.gpus.len() {
            let Some(&(gpu, _)) = self.found.gpus.get(place) else { break };
            let Some((every, missed)) = self.profiled(gpu) else { continue };
            let Some(verdict) = self.profiling.verdict(gpu, every, missed, now.mono) else { continue };
            let hw_id = self.found.hw_id(gpu);
            match verdict {
                Verdict::Mended if self.profiling.any_stuck() => {}
                Verdict::Mended => self.caller.link.send(state::profiling_up(&hw_id)),
                Verdict::Stuck | Verdict::StillStuck => {
                    // Another client, or a diagnosis, may have paused it: then it is not stuck, and is left alone.
                    let modules = self.caller.call("dcgmModuleGetStatuses", "", D::modules);
                    let is_paused = |module: &ModuleStatus| module.state == ModuleState::Paused;
                    if self.profiling.set_elsewhere(unless_gone(modules)?.iter().any(is_paused)) {
                        self.caller.link.send(state::paused_elsewhere());
                        continue;
                    }
                    self.caller.link.send(state::stuck(&hw_id));
                    let mut place = self.polls.len();
                    while place > 0 {
                        place -= 1;
                        if self.polls.get(place).is_some_and(|poll| poll.profiling == Some(gpu)) {
                            self.watch_anew(place, now)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The longest interval of a GPU's profiling fields, and the shortest time without a new value of them.
    fn profiled(&self, gpu: u32) -> Option<(Duration, Duration)> {
        let polls = self.polls.iter().filter(|poll| poll.profiling == Some(gpu));
        let each = polls.map(|poll| (poll.unit.every, poll.missed));
        each.reduce(|(every, missed), (e, m)| (every.max(e), missed.min(m)))
    }
}
