//! XIDs and bind events: how and when they get into the samples.
//!
//! In: the node's events and the time. Out: samples of fields 230 and 6. NVML's event set is drained one event a
//! second, stamped with the drain; kernel-log lines of 79, 119 and 120 are taken over at the next second with their own
//! time, and the whole ring is read when the engine starts. What can go wrong: an event of an instance or GPU that does
//! not exist is dropped, as the engine drops it.

use gpu_scenario::World;
use gpu_scenario::event::{Xid, XidSource};

use super::series::Series;
use super::{Engine, Entity, row};

const SECOND_US: i64 = 1_000_000;
const TAKEN_MAX: usize = 4096;
const LOGGED: [u32; 3] = [79, 119, 120];

/// How far the engine has come.
#[derive(Default)]
pub(crate) struct Cursor {
    /// Last tick done. Unit: µs since 1970; 0: none.
    tick_us: i64,
    /// Kernel-log lines taken over.
    logged: usize,
    /// NVML events drained, among those since the engine started.
    drained: usize,
    binds: usize,
}

impl Engine {
    /// Takes over what is due up to `now_us`.
    pub(crate) fn take_events(&mut self, world: &World, now_us: i64) {
        let all: Vec<(i64, Xid)> = world.xids().into_iter().map(|(t, xid)| (world.moment(t), xid)).collect();
        #[expect(clippy::cast_possible_truncation, reason = "a part of a second")]
        let phase = (world.scenario().drain_phase * 1e6) as i64;
        if self.events.tick_us == 0 {
            self.events.tick_us = self.since_us;
            self.take_log(world, &all, self.since_us);
        }
        let first = world.start_us() + phase;
        let behind = (self.events.tick_us - first).div_euclid(SECOND_US) + 1;
        let mut tick = first + behind * SECOND_US;
        if all.is_empty() {
            // nothing to drain: only the clock moves on
            let ahead = (now_us - tick).div_euclid(SECOND_US);
            self.events.tick_us = self.events.tick_us.max(tick + ahead * SECOND_US);
            tick = i64::MAX;
        }
        while tick <= now_us {
            self.take_log(world, &all, tick);
            self.drain_one(world, &all, tick);
            self.events.tick_us = tick;
            tick += SECOND_US;
        }
        for (t, value) in world.bind_events().iter().skip(self.events.binds) {
            self.event(world, (0, 0), 6, world.moment(*t), *value);
            self.events.binds += 1;
        }
    }

    fn take_log(&mut self, world: &World, all: &[(i64, Xid)], tick: i64) {
        let lines = all.iter().filter(|(at, xid)| xid.source == XidSource::Kmsg && *at <= tick);
        let new: Vec<(i64, Xid)> = lines.skip(self.events.logged).cloned().collect();
        self.events.logged += new.len();
        for (at, xid) in new {
            // a 119 that stood there before the engine is heeded, but never told
            let told = xid.code != 119 || self.since_us < at;
            if LOGGED.contains(&xid.code) && told && world.gpu(xid.gpu).is_some() {
                #[expect(clippy::cast_possible_truncation, reason = "casts of floats clip")]
                let ts_us = at - (xid.late_s * 1e6) as i64;
                self.xid(world, (1, xid.gpu), &xid, ts_us);
            }
        }
    }

    fn drain_one(&mut self, world: &World, all: &[(i64, Xid)], tick: i64) {
        let of_this_engine = |(at, xid): &&(i64, Xid)| xid.source == XidSource::Nvml && self.since_us <= *at;
        let next = all.iter().filter(of_this_engine).nth(self.events.drained);
        let Some((_, xid)) = next.filter(|(at, _)| *at <= tick).cloned() else { return };
        self.events.drained += 1;
        let Some(entity) = entity_of(world, &xid, tick) else { return };
        let watched = self.series.get(&(entity, 230)).is_some_and(|series| series.was_watched);
        let heeded = watched || self.is_health_watched(world, tick, xid.gpu);
        if heeded && !world.lost(xid.gpu, tick) {
            self.xid(world, entity, &xid, tick);
        }
    }

    fn xid(&mut self, world: &World, entity: Entity, xid: &Xid, ts_us: i64) {
        if self.taken.len() < TAKEN_MAX {
            self.taken.push((ts_us, entity, xid.gpu, xid.code));
        }
        self.event(world, entity, 230, ts_us, i64::from(xid.code));
    }

    fn event(&mut self, world: &World, entity: Entity, field: u16, ts_us: i64, value: i64) {
        let Some(row) = row(world, field) else { return };
        let series = self.series.entry((entity, field)).or_insert_with(|| Series::new(entity, entity, row));
        series.event(ts_us, value);
    }
}

/// The entity on which the engine stores an event.
fn entity_of(world: &World, xid: &Xid, t_us: i64) -> Option<Entity> {
    world.gpu(xid.gpu)?;
    let Some(gi) = xid.gi else { return Some((1, xid.gpu)) };
    let instances = world.mig(xid.gpu, t_us)?;
    let numbered = instances.iter().zip(0_u32..).find(|(mig, place)| mig.gi.unwrap_or(place + 1) == gi);
    let (mig, place) = numbered?;
    let id = xid.gpu * 7 + place;
    match xid.ci {
        None => Some((4, id)),
        Some(ci) => (mig.ci == ci).then_some((5, id)),
    }
}
