//! Programs on their events, probe by probe: the best row that the kernel takes, and again when the driver changes.
//!
//! In: the object, facts, choices. Out: attachments, and what became of each probe.
//! What can go wrong: the kernel refuses a row although nothing spoke against it; the next one is tried, and the refusal
//! is kept. A probe is attached as a whole or not at all.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::PathBuf;

use aya::Ebpf;
use aya::maps::{Array, MapData};
use aya::programs::{Program, ProgramError};
use warpgauge_ebpf::attach::{Attachment, to_kprobe_event, to_perf_kprobe, to_tracepoint, try_kprobe_event};

use super::cost::Uses;
use super::functions::Module;
use super::groups::Group;
use super::hooks::{Edge, Event, Hook, of_row};
use super::kernel::Kernel;
use super::load_error::LoadError;
use super::refusal::Refusal;
use super::reload::{Build, Builds, Loads};
use super::symbols::Symbols;
use super::tactics::{Choice, Facts, Probe, Tactic, choose};

/// What is known of the driver now.
#[derive(Clone, Debug, Default)]
pub struct Driver {
    /// Its functions.
    pub symbols: Symbols,
    /// Its loads.
    pub loads: Loads,
    /// Their builds.
    pub builds: Builds,
}

/// Everything at work. What is dropped is detached.
pub struct Attached {
    probes: Vec<AtWork>,
    /// Programs that belong to no probe.
    always: Vec<(Hook, Attachment)>,
    programs: Ebpf,
    ground: Ground,
    /// Kinds of calls whose returns are all seen, as bits; the programs mark entries by it.
    sure: Array<MapData, u32>,
    sure_kinds: u32,
    /// 1: the programs of ioctls read what RM is asked and answers.
    rm_from_block: Array<MapData, u32>,
    /// Probes that came off their events since it was asked last: what they began has no end.
    came_off: Vec<Probe>,
    /// The builds that the kernel has taken events of while they were loaded, by event.
    taken: BTreeMap<(Module, String), Build>,
}

/// Where events are.
struct Ground {
    tracefs: PathBuf,
    cpu: u32,
    pmu: Option<u32>,
    group: Group,
}

/// One probe.
struct AtWork {
    choice: Choice,
    /// Ends first.
    hooks: Vec<(Hook, Attachment)>,
}

impl AtWork {
    /// Entries first: none may wait for an end that nobody sees.
    fn detach(&mut self) {
        while self.hooks.pop().is_some() {}
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.detach();
    }
}

impl Attached {
    /// Nothing at work yet.
    ///
    /// # Errors
    /// tracefs is not there: every row ends or begins at a tracepoint.
    pub fn new(
        programs: Ebpf,
        kernel: &Kernel,
        group: Group,
        sure: Array<MapData, u32>,
        rm_from_block: Array<MapData, u32>,
    ) -> Result<Self, LoadError> {
        let tracefs = kernel.tracefs.clone().ok_or(LoadError::NoTracefs)?;
        let ground = Ground { tracefs, cpu: kernel.first_cpu, pmu: kernel.kprobe_pmu, group };
        let (probes, always, came_off, taken) = Default::default();
        Ok(Self { probes, always, programs, ground, sure, sure_kinds: 0, rm_from_block, came_off, taken })
    }

    /// Attaches a program that belongs to no probe.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn always(&mut self, hook: Hook) -> Result<(), LoadError> {
        let attachment = attach(&mut self.programs, &self.ground, &hook)?;
        self.always.push((hook, attachment));
        Ok(())
    }

    /// Attaches the probe by the best row that the kernel takes, or changes what is attached into that. Gives the last
    /// error of rows that it refused although nothing spoke against them.
    pub fn settle(&mut self, probe: Probe, kernel: &Kernel, driver: &Driver) -> Option<LoadError> {
        let last = self.settle_one(probe, kernel, driver);
        let wants_ioctl = |choice: &Choice| choice.refused.contains(&no_ioctl());
        if probe == Probe::Ioctl && self.choices().any(wants_ioctl) {
            self.settle_one(Probe::Rm, kernel, driver);
        }
        last
    }

    fn settle_one(&mut self, probe: Probe, kernel: &Kernel, driver: &Driver) -> Option<LoadError> {
        let facts = Facts { kernel, symbols: &driver.symbols };
        let (mut tried, mut last) = (Vec::new(), None);
        if !self.is_at_work(Probe::Ioctl) {
            // a row of one probe only
            tried.push(no_ioctl());
        }
        loop {
            let choice = choose(probe, facts, &tried);
            let row = |tactic| of_row(probe, tactic, kernel, &driver.symbols, &driver.loads);
            let tactic = choice.tactic;
            // the scheduler's is attached when it is asked for
            let hooks = tactic.filter(|_| probe != Probe::Scheduler).map(row).unwrap_or_default();
            let proven = self.prove(&hooks, driver);
            if let (Err(error), Some(tactic)) = (proven, tactic) {
                tried.push(Refusal::by_kernel(tactic, &error));
                last = Some(error);
                continue;
            }
            match (self.replace(choice, &hooks), tactic) {
                (Ok(()), _) => {
                    self.remember(&hooks, driver);
                    return last;
                }
                (Err(_), None) => return last,
                (Err(error), Some(tactic)) => {
                    tried.push(Refusal::by_kernel(tactic, &error));
                    last = Some(error);
                }
            }
        }
    }

    /// Takes a probe off its events, for as long as nobody settles it again. Calls under way lose their ends: see
    /// [`came_off`](Self::came_off). Takes some ten milliseconds for each event.
    pub fn take_off(&mut self, probe: Probe, reason: &'static str) {
        self.mark(probe, None);
        if probe == Probe::Ioctl && self.choices().any(|choice| choice.tactic == Some(Tactic::IoctlBlock)) {
            self.take_off(Probe::Rm, NO_IOCTL);
        }
        self.disarm(probe);
        let of_probe = self.probes.iter_mut().find(|at_work| at_work.choice.probe == probe);
        if let Some(AtWork { choice, .. }) = of_probe
            && let Some(tactic) = choice.tactic.take()
        {
            choice.refused.push(Refusal::by_facts(tactic, reason));
        }
    }

    /// Attaches what a choice left for later: the scheduler's programs. Nothing, where they are attached.
    ///
    /// # Errors
    /// The choice was to leave them off, or the kernel refuses them.
    pub fn arm(&mut self, probe: Probe, hooks: &[Hook]) -> Result<(), LoadError> {
        let chosen = self.choices().find(|choice| choice.probe == probe && choice.tactic.is_some()).cloned();
        self.replace(chosen.ok_or(LoadError::Off(probe.name()))?, hooks)
    }

    /// Detaches them.
    pub fn disarm(&mut self, probe: Probe) {
        let of_probe = self.probes.iter_mut().find(|at_work| at_work.choice.probe == probe);
        if let Some(at_work) = of_probe.filter(|at_work| !at_work.hooks.is_empty()) {
            at_work.detach();
            self.came_off.push(probe);
        }
    }

    /// Probes that came off their events since this was asked last. What the kernel's maps have of them means nothing any
    /// more, and must be gone before they are attached again.
    pub fn came_off(&mut self) -> Vec<Probe> {
        std::mem::take(&mut self.came_off)
    }

    /// What became of each probe.
    pub fn choices(&self) -> impl Iterator<Item = &Choice> {
        self.probes.iter().map(|at_work| &at_work.choice)
    }

    /// Which programs each probe has at work, and which of them see ends; then those of no probe.
    pub fn uses(&self) -> Vec<Uses> {
        let programs = |hooks: &[(Hook, Attachment)]| {
            let mut programs: Vec<_> = hooks.iter().map(|(hook, _)| (hook.program, hook.is_end())).collect();
            programs.sort_unstable();
            programs.dedup();
            programs
        };
        let probes = self.probes.iter().map(|at_work| (Some(at_work.choice.probe), programs(&at_work.hooks)));
        probes.chain([(None, programs(&self.always))]).collect()
    }

    /// Names and descriptors of the programs in the kernel.
    pub fn loaded(&self) -> impl Iterator<Item = (&str, RawFd)> {
        self.programs
            .programs()
            .filter_map(|(name, program)| Some((name, program.fd().ok()?.as_fd().as_raw_fd())))
    }

    /// The probe of each kprobe event, by the event's name.
    pub fn kprobe_events(&self) -> impl Iterator<Item = (Probe, String)> {
        let name = |hook: &Hook| match &hook.event {
            Event::KprobeEvent { module, function, edge } => {
                Some(self.ground.group.event(module.name(), function, *edge).name)
            }
            Event::Tracepoint(_) | Event::PerfKprobe { .. } => None,
        };
        self.probes.iter().flat_map(move |at_work| {
            let names = at_work.hooks.iter().filter_map(move |(hook, _)| name(hook));
            names.map(|name| (at_work.choice.probe, name))
        })
    }

    /// A kprobe event that was made before its module was loaded may have been refused since, and nobody was told. What
    /// is not attached yet is refused when it is. What was taken of this build before is taken again: a try holds the
    /// module for a moment, in which it cannot be unloaded.
    fn prove(&self, hooks: &[Hook], driver: &Driver) -> Result<(), LoadError> {
        for hook in hooks.iter().filter(|hook| !hook.optional) {
            let Some((module, function)) = hook.enters() else { continue };
            let attached =
                self.probes.iter().flat_map(|at_work| &at_work.hooks).any(|(known, _)| known == hook);
            let build = driver.builds.of(module);
            let is_known = build.is_some() && self.taken.get(&(module, function.to_owned())) == build;
            if attached && !is_known && driver.symbols.is_loaded(module) {
                let mut event = self.ground.group.event(module.name(), function, Edge::Entry);
                event.name.push_str("_try");
                try_kprobe_event(&self.ground.tracefs, &event)?;
            }
        }
        Ok(())
    }

    /// They are at work, and the kernel was asked while their modules were loaded: now, or when they were proved.
    fn remember(&mut self, hooks: &[Hook], driver: &Driver) {
        for (module, function) in hooks.iter().filter(|hook| !hook.optional).filter_map(Hook::enters) {
            if let Some(build) = driver.builds.of(module).filter(|_| driver.symbols.is_loaded(module)) {
                self.taken.insert((module, function.to_owned()), build.clone());
            }
        }
    }

    /// What is attached for a probe becomes these hooks: what is among them already stays, the new come before the old
    /// go. On an error all is as it was.
    fn replace(&mut self, choice: Choice, hooks: &[Hook]) -> Result<(), LoadError> {
        let probe = choice.probe;
        let at = self.probes.iter().position(|at_work| at_work.choice.probe == probe).unwrap_or_else(|| {
            self.probes.push(AtWork { choice: Choice { tactic: None, ..choice.clone() }, hooks: Vec::new() });
            self.probes.len() - 1
        });
        // before the first program runs: its entries are marked by it
        self.mark(probe, choice.tactic);
        let Some(at_work) = self.probes.get_mut(at) else { return Ok(()) };
        let mut fresh = AtWork { choice, hooks: Vec::new() };
        // an entry without its return would wait for an end that nobody sees
        let mut left_out: Vec<&str> = Vec::new();
        for hook in hooks {
            let function = hook.event.function();
            let out = hook.optional && left_out.contains(&function);
            if out || at_work.hooks.iter().any(|(known, _)| known == hook) {
                continue;
            }
            match attach(&mut self.programs, &self.ground, hook) {
                Ok(attachment) => fresh.hooks.push((hook.clone(), attachment)),
                Err(error) if hook.optional => {
                    tracing::debug!(probe = probe.name(), function, %error, "a function is left out");
                    left_out.push(function);
                }
                Err(error) => {
                    // what was attached so far comes off again
                    if at_work.hooks.is_empty() && !fresh.hooks.is_empty() {
                        self.came_off.push(probe);
                    }
                    return Err(error);
                }
            }
        }
        // nothing fails from here on
        let mut old = std::mem::take(&mut at_work.hooks);
        let take = |from: &mut Vec<(Hook, Attachment)>, hook: &Hook| {
            from.iter().position(|(known, _)| known == hook).map(|at| from.remove(at))
        };
        at_work.hooks = hooks
            .iter()
            .filter_map(|hook| take(&mut old, hook).or_else(|| take(&mut fresh.hooks, hook)))
            .collect();
        at_work.choice = fresh.choice.clone();
        while old.pop().is_some() {}
        Ok(())
    }

    fn is_at_work(&self, probe: Probe) -> bool {
        self.choices().any(|choice| choice.probe == probe && choice.tactic.is_some())
    }

    /// Tells the programs how a probe is attached.
    fn mark(&mut self, probe: Probe, tactic: Option<Tactic>) {
        if probe.kind() != 0 {
            let (bit, sure) = (1 << probe.kind(), tactic == Some(Tactic::TracefsKprobe));
            self.sure_kinds = if sure { self.sure_kinds | bit } else { self.sure_kinds & !bit };
            // a map of one element that is there: at worst an entry is looked at as if it were not sure
            let _ = self.sure.set(0, self.sure_kinds, 0);
        }
        if probe == Probe::Rm {
            // as above: at worst RM's answers are not known
            let _ = self.rm_from_block.set(0, u32::from(tactic == Some(Tactic::IoctlBlock)), 0);
        }
    }
}

const NO_IOCTL: &str = "no_ioctl";

/// What is read along with ioctls is not read while those are not watched.
fn no_ioctl() -> Refusal {
    Refusal::by_facts(Tactic::IoctlBlock, NO_IOCTL)
}

fn attach(programs: &mut Ebpf, ground: &Ground, hook: &Hook) -> Result<Attachment, LoadError> {
    let program = load(programs, hook.program)?;
    let Ground { tracefs, cpu, pmu, group } = ground;
    let attached = match &hook.event {
        Event::Tracepoint(event) => to_tracepoint(program, tracefs, event, *cpu),
        Event::KprobeEvent { module, function, edge } => {
            to_kprobe_event(program, tracefs, &group.event(module.name(), function, *edge), *cpu)
        }
        Event::PerfKprobe { module, function, .. } => {
            let pmu = pmu.ok_or(LoadError::NoKprobePmu)?;
            to_perf_kprobe(program, pmu, &format!("{}:{function}", module.name()), *cpu)
        }
    };
    Ok(attached?)
}

/// Only what is attached is loaded: a kernel may refuse a program that nobody needs there.
fn load<'a>(programs: &'a mut Ebpf, name: &'static str) -> Result<BorrowedFd<'a>, LoadError> {
    let program = programs.program_mut(name).ok_or(LoadError::Missing(name))?;
    let refused = |error| LoadError::of_program(name, &error);
    let loaded = match program {
        Program::TracePoint(program) => program.load(),
        Program::KProbe(program) => program.load(),
        _ => return Err(LoadError::Missing(name)),
    };
    match loaded {
        Ok(()) => {
            let verified = program.info().ok().and_then(|info| info.verified_instruction_count());
            tracing::debug!(program = name, verified, "kernel program loaded");
        }
        // a program may go to several events
        Err(ProgramError::AlreadyLoaded) => {}
        Err(error) => return Err(refused(error)),
    }
    Ok(program.fd().map_err(refused)?.as_fd())
}
