//! DCGM's bind event (field 6, from 4.5): the driver is about to be taken from a GPU, or is back.
//!
//! In: the latest value of the field. Out: one report per event. What can go wrong: the engine still shows an event
//! from before this connection; it is not reported again.

use std::time::Duration;

use super::engine::{Answer, Caller, Dcgm, Entity, GpuState, ReturnCode, Value};
use super::inventory::Inventory;
use super::plan::BIND;
use super::watch::{Unit, Watcher};
use crate::model::MonoNs;
use crate::wire::report::{self, Kind};
use crate::worker::moment::Moment;

/// A driver waits for those who hold it; three seconds is what it takes to let go.
const EVERY: Duration = Duration::from_millis(500);

/// The watch of one connection.
#[derive(Debug)]
pub(super) struct Bind<D: Dcgm> {
    unit: Unit<D>,
    /// Events up to here were there before us; read once.
    opened_us: i64,
    /// Time of the newest one that was seen.
    last_us: Option<i64>,
    pub(super) due: MonoNs,
}

impl<D: Dcgm> Bind<D> {
    /// Watches the field; `None` where the library does not know it, or no GPU can carry it.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn watch(
        watcher: &mut Watcher<'_, D>,
        found: &Inventory,
        opened_us: i64,
        now: MonoNs,
    ) -> Answer<Option<Self>> {
        let able = |(gpu, _): &&(u32, GpuState)| found.answers(&Entity::gpu(*gpu));
        let Some((gpu, _)) = found.gpus.iter().find(able) else { return Ok(None) };
        if !watcher.caller.local().knows(BIND) {
            return Ok(None);
        }
        // The field is the node's; any GPU gives it.
        let (units, _) = watcher.watch(&[Entity::gpu(*gpu)], &[BIND], EVERY, "")?;
        Ok(units.into_iter().next().map(|unit| Self { unit, opened_us, last_us: None, due: now }))
    }

    /// Reads it and reports an event.
    ///
    /// # Errors
    /// The read was refused.
    pub(super) fn read(&mut self, caller: &Caller<'_, D>, now: Moment) -> Answer<()> {
        self.due = now.mono.after(EVERY);
        let (unit, last, opened) = (&self.unit, &mut self.last_us, self.opened_us);
        let mut event = None;
        caller.call("dcgmGetLatestValues_v2", "", |d| {
            d.latest(unit.group, unit.handle, &mut |_, value| {
                if let (ReturnCode::OK, Ok(Value::Int(number))) = (value.status, &value.value)
                    && *last != Some(value.ts_us)
                {
                    // What comes later is news even if the clock was set back.
                    if last.is_some() || value.ts_us > opened {
                        event = Some(*number);
                    }
                    *last = Some(value.ts_us);
                }
            })
        })?;
        // Nothing yet is not the same as not read yet.
        self.last_us.get_or_insert(0);
        if let Some(event) = event {
            caller.link.send(Kind::Bind(report::Bind { event }));
        }
        Ok(())
    }

    /// The unit, to end it.
    pub(super) fn into_unit(self) -> Unit<D> {
        self.unit
    }
}
