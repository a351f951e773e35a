//! One connection to an engine, from the first list to the last reading.
//!
//! In: what to watch, and the time. Out: reports. [`Session::step`] does what is due and says when the next thing is.
//! What can go wrong: the connection is gone ([`super::engine::is_gone`]); the session ends and its ids are of no use
//! any more. Everything else is told as an absence and tried again.

use std::time::Duration;

use super::bind::Bind;
use super::conflict::Conflicts;
use super::engine::{Answer, Caller, Dcgm, Entity, GpuState};
use super::health::Health;
use super::identity::Identity;
use super::inventory::{self, Inventory, Outline, Texts};
use super::poll::Poll;
use super::profiling::Profiling;
use super::reading::Troubles;
use super::refusals::Refusals;
use super::task::{Memory, Task};
use super::watch::Watcher;
use super::xid::Xids;
use crate::model::MonoNs;
use crate::wire::report::Kind;
use crate::worker::moment::Moment;

/// How often the lists are compared.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The longest time between two lists of devices of which one has no name.
const LIST_LONGEST: Duration = Duration::from_secs(60);

/// A connection at work.
#[derive(Debug)]
pub(super) struct Session<'a, D: Dcgm> {
    pub(super) caller: Caller<'a, D>,
    pub(super) watcher: Watcher<'a, D>,
    pub(super) task: Task<'a>,
    pub(super) memory: &'a mut Memory,
    outline: Outline,
    /// What names the devices, as it was read last.
    texts: Texts,
    /// A MIG device says another name than it had.
    pub(super) renamed: bool,
    pub(super) found: Inventory,
    identity: Option<Identity<D>>,
    pub(super) polls: Vec<Poll<D>>,
    pub(super) refusals: Refusals,
    pub(super) xids: Option<Xids<D>>,
    pub(super) health: Option<Health<D>>,
    pub(super) bind: Option<Bind<D>>,
    pub(super) troubles: Troubles,
    /// The engine said that it is not healthy.
    pub(super) is_ill: bool,
    pub(super) profiling: Profiling,
    pub(super) conflicts: Conflicts,
    pub(super) look_due: MonoNs,
    list_due: MonoNs,
    list_wait: Duration,
    /// Values that found no room in a reading, told so far.
    dropped: u64,
    /// A reading has succeeded.
    answered: bool,
    pub(super) opened_us: i64,
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
        memory.names.forget_ids();
        let mut session = Self {
            caller,
            watcher: Watcher::new(caller, prefix),
            task,
            memory,
            outline: Outline::default(),
            texts: Texts::new(),
            renamed: false,
            found: Inventory::default(),
            identity: None,
            polls: Vec::new(),
            refusals: Refusals::default(),
            xids: None,
            health: None,
            bind: None,
            troubles: Troubles::default(),
            is_ill: false,
            profiling: Profiling::default(),
            conflicts: Conflicts::default(),
            look_due: now.mono.after(LOOK_EVERY),
            list_due: now.mono,
            list_wait: LOOK_EVERY,
            dropped: 0,
            answered: false,
            opened_us: now.wall_us,
        };
        session.hold_pause()?;
        let outline = inventory::outline(&caller, &session.outline)?;
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
        self.read_events(clock)?;
        if now.mono >= self.refusals.retry && !self.task.only_look {
            self.retry(clock())?;
        }
        self.refusals.tell(self.caller.link, clock());
        Ok(self.next_due())
    }

    /// There is a GPU whose values can be told.
    pub(super) fn has_named_gpu(&self) -> bool {
        self.found.has_named_gpu()
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
        self.xids.take().map_or(Ok(()), |xids| xids.end(watcher))?;
        self.bind.take().map_or(Ok(()), |bind| watcher.end(bind.into_unit()))?;
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
        let dropped = self.caller.local().dropped_values();
        self.caller.link.lose(dropped.saturating_sub(self.dropped));
        self.dropped = dropped;
        let outline = inventory::outline(&self.caller, &self.outline)?;
        let same_devices = outline.mig == self.outline.mig
            && outline.switches == self.outline.switches
            && outline.gpus.iter().map(|g| g.0).eq(self.outline.gpus.iter().map(|g| g.0));
        let is_back = |&(gpu, state): &(u32, GpuState)| {
            state == GpuState::Ok && self.found.state(Some(gpu)) != GpuState::Ok
        };
        // What could not be watched on a GPU while it was lost can be when it is back.
        if !same_devices || self.renamed || outline.gpus.iter().any(is_back) {
            self.end()?;
            return self.build(outline, now);
        }
        let same_states = outline.gpus == self.outline.gpus;
        if same_states {
            if self.found.is_complete(&outline) {
                return Ok(());
            }
            // A device has no name yet. Its texts cost one call; whether anything else has changed is asked less often.
            let has_news = self.read_texts()?;
            if !has_news && now.mono < self.list_due {
                return Ok(());
            }
            self.list_wait = self.list_wait.saturating_mul(2).min(LIST_LONGEST);
        } else {
            self.list_wait = LOOK_EVERY;
        }
        self.list_due = now.mono.after(self.list_wait);
        let was = self.found.targets.clone();
        self.outline = outline;
        self.list_again()?;
        if self.found.targets == was {
            return Ok(());
        }
        // A device has its name at last, or another one.
        self.end()?;
        let outline = self.outline.clone();
        self.build(outline, now)
    }

    /// Reads what names the devices; answers whether it is different.
    fn read_texts(&mut self) -> Answer<bool> {
        let Some(identity) = &self.identity else { return Ok(false) };
        let texts = identity.read(&self.watcher, !self.answered)?;
        self.answered = true;
        let before = self.texts.len();
        let mut has_news = false;
        for (of, text) in texts {
            has_news |= self.texts.get(&of) != Some(&text);
            self.texts.insert(of, text);
        }
        Ok(has_news || before != self.texts.len())
    }

    fn list_again(&mut self) -> Answer<()> {
        let Memory { names, keys, .. } = &mut *self.memory;
        self.found =
            inventory::enumerate(&self.caller, &self.outline, &self.texts, names, keys, &self.found)?;
        for device in &mut self.found.devices {
            device.numa_node = device.pci.as_deref().and_then(|pci| self.task.numa.of(pci));
        }
        self.caller.link.send(Kind::Inventory(self.found.report(self.task.version)));
        for (gpu, _) in self.outline.gpus.iter().filter(|(_, state)| *state != GpuState::Ok) {
            self.profiling.forget(*gpu);
        }
        Ok(())
    }

    /// Lists the devices and watches them; nothing is watched before.
    fn build(&mut self, outline: Outline, now: Moment) -> Answer<()> {
        self.outline = outline;
        self.renamed = false;
        self.texts.clear();
        self.identity = Some(Identity::watch(&mut self.watcher, &self.outline)?);
        self.read_texts()?;
        self.list_again()?;
        if self.task.only_look {
            return Ok(());
        }
        // The configured groups may have the same fields, and a connection has one watch of each.
        let is_named = |(gpu, state): &(u32, GpuState)| {
            *state != GpuState::Ok || self.texts.contains_key(&(Entity::gpu(*gpu), 52))
        };
        if self.found.is_complete(&self.outline) && self.outline.gpus.iter().all(is_named) {
            self.identity.take().map_or(Ok(()), |identity| identity.end(&self.watcher))?;
        }
        self.profiling.forget_all();
        self.conflicts.begin();
        // Devices that are gone for good need no memory.
        let here: Vec<u32> = self.found.devices.iter().map(|device| device.key).collect();
        self.memory.slots.retain(|(key, ..), _| here.contains(key));
        self.watch_all(now)?;
        self.troubles = Troubles::default();
        self.watch_xids(now)?;
        self.watch_bind(now)?;
        self.watch_health(now)
    }
}
