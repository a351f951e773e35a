//! One connection to an engine, from the first list to the last reading.
//!
//! In: what to watch, and the time. Out: reports. [`Session::step`] does what is due and says when the next thing is.
//! What can go wrong: the connection is gone ([`super::engine::is_gone`]); the session ends and its ids are of no use
//! any more. Everything else is told as an absence and tried again.

use std::time::Duration;

use super::conflict::{Conflicts, Step};
use super::engine::{Answer, Caller, Dcgm, Entity, GpuState, ReturnCode, is_gone};
use super::health::Health;
use super::identity::Identity;
use super::inventory::{self, Inventory, Names, Outline, unless_gone};
use super::plan::Group;
use super::poll::{Poll, Slots};
use super::profiling::{Profiling, Verdict};
use super::readings::of_code;
use super::refusals::{RETRY, Refusals};
use super::watch::{Unit, Watcher};
use super::xid::{Told, Xids};
use super::{bind::Bind, state};
use crate::model::MonoNs;
use crate::wire::report::Kind;
use crate::worker::keys::Keys;
use crate::worker::moment::Moment;

/// How often the lists are compared.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// What outlives a connection: nothing of a device's identity is lost when the engine is made anew.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) keys: Keys,
    pub(super) slots: Slots,
    pub(super) told: Told,
}

/// What is to be done on a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task<'a> {
    pub(super) groups: &'a [Group],
    pub(super) health_every: Duration,
    pub(super) only_look: bool,
    /// As the inventory says it.
    pub(super) version: &'a str,
}

/// A connection at work.
#[derive(Debug)]
pub(super) struct Session<'a, D: Dcgm> {
    pub(super) caller: Caller<'a, D>,
    pub(super) watcher: Watcher<'a, D>,
    pub(super) task: Task<'a>,
    pub(super) memory: &'a mut Memory,
    names: Names,
    outline: Outline,
    pub(super) found: Inventory,
    identity: Option<Identity<D>>,
    pub(super) polls: Vec<Poll<D>>,
    pub(super) refusals: Refusals,
    xids: Option<Xids<D>>,
    health: Option<Health<D>>,
    bind: Option<Bind<D>>,
    pub(super) profiling: Profiling,
    conflicts: Conflicts,
    look_due: MonoNs,
    opened_us: i64,
}

impl<'a, D: Dcgm> Session<'a, D> {
    /// Lists everything and watches what is to be watched. `prefix` is used by no other connection to this engine.
    ///
    /// # Errors
    /// The connection is gone, or the engine is too old for the library.
    pub(super) fn open(
        caller: Caller<'a, D>,
        task: Task<'a>,
        memory: &'a mut Memory,
        prefix: String,
        now: Moment,
    ) -> Answer<Self> {
        let mut session = Self {
            caller,
            watcher: Watcher::new(caller, prefix),
            task,
            memory,
            names: Names::default(),
            outline: Outline::default(),
            found: Inventory::default(),
            identity: None,
            polls: Vec::new(),
            refusals: Refusals::default(),
            xids: None,
            health: None,
            bind: None,
            profiling: Profiling::default(),
            conflicts: Conflicts::default(),
            look_due: now.mono.after(LOOK_EVERY),
            opened_us: now.wall_us,
        };
        let outline = inventory::outline(&caller)?;
        session.build(outline, now)?;
        Ok(session)
    }

    /// Does what is due; answers when the next thing is.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn step(&mut self, clock: &dyn Fn() -> Moment) -> Answer<MonoNs> {
        let now = clock();
        if now.mono >= self.look_due {
            self.look(now)?;
        }
        self.read_polls(clock)?;
        self.resolve_conflicts(clock())?;
        self.judge_profiling(clock())?;
        if let Some(xids) = self.xids.as_mut().filter(|xids| now.mono >= xids.due) {
            unless_gone(xids.read(&self.caller, &self.found, &mut self.memory.told, clock()))?;
        }
        if let Some(bind) = self.bind.as_mut().filter(|bind| now.mono >= bind.due) {
            unless_gone(bind.read(&self.caller, clock()))?;
        }
        if let Some(health) = self.health.as_mut().filter(|health| now.mono >= health.due) {
            unless_gone(health.check(&self.caller, &self.found, clock()))?;
        }
        if now.mono >= self.refusals.retry && !self.task.only_look {
            self.retry(clock())?;
        }
        self.refusals.tell(self.caller.link, clock());
        Ok(self.next_due())
    }

    /// There is a GPU.
    pub(super) fn has_gpu(&self) -> bool {
        !self.found.gpus.is_empty()
    }

    /// Ends every watch, so that the engine has nothing to do for us any more.
    ///
    /// # Errors
    /// The connection is gone, and the watches with it.
    pub(super) fn end(&mut self) -> Answer<()> {
        self.remember();
        let watcher = &self.watcher;
        self.polls.drain(..).try_for_each(|poll| watcher.end(poll.unit))?;
        let others = [self.xids.take().map(Xids::into_unit), self.bind.take().map(Bind::into_unit)];
        others.into_iter().flatten().try_for_each(|unit: Unit<D>| watcher.end(unit))?;
        self.health.take().map_or(Ok(()), |health| health.end(&self.caller))?;
        self.identity.take().map_or(Ok(()), |identity| identity.end(watcher))
    }

    /// Keeps what was told of each value for the watch that follows.
    pub(super) fn remember(&mut self) {
        for poll in &self.polls {
            poll.remember(&mut self.memory.slots);
        }
    }

    fn next_due(&self) -> MonoNs {
        let polls = self.polls.iter().map(|poll| poll.due);
        let others = [
            self.xids.as_ref().map(|xids| xids.due),
            self.bind.as_ref().map(|bind| bind.due),
            self.health.as_ref().map(|health| health.due),
        ];
        polls.chain(others.into_iter().flatten()).min().map_or(self.look_due, |due| due.min(self.look_due))
    }

    /// Compares the lists, and makes everything anew when there is another device.
    fn look(&mut self, now: Moment) -> Answer<()> {
        self.look_due = now.mono.after(LOOK_EVERY);
        let outline = inventory::outline(&self.caller)?;
        let same_devices = outline.mig == self.outline.mig
            && outline.switches == self.outline.switches
            && outline.gpus.iter().map(|g| g.0).eq(self.outline.gpus.iter().map(|g| g.0));
        if same_devices {
            if outline.gpus == self.outline.gpus && self.found.is_complete(&outline) {
                return Ok(());
            }
            let was: Vec<Entity> = self.found.targets.keys().copied().collect();
            let is_back = outline
                .gpus
                .iter()
                .any(|(gpu, state)| *state == GpuState::Ok && self.found.state(Some(*gpu)) != GpuState::Ok);
            if is_back {
                // What could not be watched on it while it was lost can be now.
                self.end()?;
                return self.build(outline, now);
            }
            self.outline = outline;
            self.list_again()?;
            if self.found.targets.keys().eq(&was) {
                return Ok(());
            }
            // A device has its name at last.
            self.end()?;
            let outline = self.outline.clone();
            return self.build(outline, now);
        }
        self.end()?;
        self.build(outline, now)
    }

    fn list_again(&mut self) -> Answer<()> {
        let texts = match &self.identity {
            Some(identity) => identity.read(&self.watcher)?,
            None => inventory::Texts::new(),
        };
        let (names, keys) = (&mut self.names, &mut self.memory.keys);
        self.found = inventory::enumerate(&self.caller, &self.outline, &texts, names, keys)?;
        self.caller.link.send(Kind::Inventory(self.found.report(self.task.version)));
        for (gpu, _) in self.outline.gpus.iter().filter(|(_, state)| *state != GpuState::Ok) {
            self.profiling.forget(*gpu);
        }
        Ok(())
    }

    /// Lists the devices and watches them; nothing is watched before.
    fn build(&mut self, outline: Outline, now: Moment) -> Answer<()> {
        self.outline = outline;
        let identity = Identity::watch(&mut self.watcher, &self.outline)?;
        self.identity = Some(identity);
        self.list_again()?;
        if self.task.only_look {
            return Ok(());
        }
        self.profiling.forget_all();
        // Devices that are gone for good need no memory.
        let here: Vec<u32> = self.found.devices.iter().map(|device| device.key).collect();
        self.memory.slots.retain(|(key, ..), _| here.contains(key));
        self.watch_all(now)?;
        let has = |id| self.task.groups.iter().any(|g| g.fields.iter().any(|f| f.id == id));
        if has(super::plan::XID) {
            self.xids = Xids::watch(&mut self.watcher, &self.found, now.mono)?;
        }
        self.bind = Bind::watch(&mut self.watcher, &self.found, self.opened_us, now.mono)?;
        let health = Health::watch(&mut self.watcher, &self.found, self.task.health_every, now.mono);
        self.health = unless_gone(health)?;
        Ok(())
    }

    fn read_polls(&mut self, clock: &dyn Fn() -> Moment) -> Answer<()> {
        let mut anew = Vec::new();
        let (found, profiling) = (&self.found, &mut self.profiling);
        let paused = profiling.is_paused();
        for (place, poll) in self.polls.iter_mut().enumerate() {
            let now = clock();
            if now.mono < poll.due {
                continue;
            }
            let of_profiling = poll.profiling;
            let read = poll.read(&self.caller, found, paused, clock, &mut |target, value| match (
                of_profiling,
                target.gpu,
            ) {
                (Some(gpu), _) => profiling.value(gpu, target.key, value, now.mono),
                (None, Some(gpu)) => profiling.other(gpu, value),
                (None, None) => {}
            });
            match read {
                Ok(outcome) => {
                    if outcome.unwatched {
                        anew.push(place);
                    }
                    if outcome.changed {
                        self.look_due = now.mono;
                    }
                }
                Err(code) if is_gone(code) => return Err(code),
                Err(code) => {
                    poll.absent(self.caller.link, found, of_code(code), now);
                    if is_of_another_engine(code) {
                        anew.push(place);
                    }
                }
            }
        }
        for place in anew.into_iter().rev() {
            self.watch_anew(place, clock())?;
        }
        Ok(())
    }

    /// Watches a unit again, in place of what the engine forgot.
    pub(super) fn watch_anew(&mut self, place: usize, now: Moment) -> Answer<()> {
        let poll = self.polls.remove(place);
        poll.remember(&mut self.memory.slots);
        let want = super::plan::Want {
            entities: poll.unit.entities.clone(),
            fields: poll.unit.fields.clone(),
            every: poll.unit.every,
            profiling: poll.profiling,
        };
        self.watcher.end(poll.unit)?;
        self.watch_want(&want, now)
    }

    fn resolve_conflicts(&mut self, now: Moment) -> Answer<()> {
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

    fn judge_profiling(&mut self, now: Moment) -> Answer<()> {
        for (gpu, every) in self.profiled() {
            let Some(verdict) = self.profiling.verdict(gpu, every, now.mono) else { continue };
            let hw_id = self.found.hw_id(gpu);
            match verdict {
                Verdict::Mended if self.profiling.any_stuck() => {}
                Verdict::Mended => self.caller.link.send(state::profiling_up(&hw_id)),
                Verdict::Stuck | Verdict::StillStuck => {
                    // Another client, or a diagnosis, may have paused it: then it is not stuck, and is left alone.
                    let paused = self.caller.call("dcgmModuleGetStatuses", "", D::is_paused);
                    if self.profiling.set_elsewhere(unless_gone(paused)?) {
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

    /// GPUs whose profiling fields are read, with the longest interval.
    fn profiled(&self) -> Vec<(u32, Duration)> {
        let mut gpus: Vec<(u32, Duration)> = Vec::new();
        for poll in &self.polls {
            let Some(gpu) = poll.profiling else { continue };
            match gpus.iter_mut().find(|(id, _)| *id == gpu) {
                Some((_, every)) => *every = poll.unit.every.max(*every),
                None => gpus.push((gpu, poll.unit.every)),
            }
        }
        gpus
    }

    fn retry(&mut self, now: Moment) -> Answer<()> {
        self.refusals.retry = now.mono.after(RETRY);
        for want in self.refusals.take_retries() {
            self.watch_want(&want, now)?;
        }
        Ok(())
    }
}

/// The group or field group means nothing (or something else) to this engine.
fn is_of_another_engine(code: ReturnCode) -> bool {
    matches!(
        code,
        ReturnCode::NOT_WATCHED | ReturnCode::BAD_PARAM | ReturnCode::NO_DATA | ReturnCode::NOT_CONFIGURED
    )
}
