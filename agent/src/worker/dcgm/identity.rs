//! Fields by which devices are named, watched for the inventory alone.
//!
//! In: the outline. Out: their texts. What can go wrong: a text that is not there yet (a new instance); the next
//! reading has it.

use std::time::Duration;

use super::engine::{Answer, Dcgm, Entity, EntityGroup, ReturnCode, Value, is_gone, is_too_old};
use super::inventory::{Outline, Texts};
use super::watch::{Unit, Watcher};

const EVERY: Duration = Duration::from_secs(60);

/// The watches of one connection.
#[derive(Debug)]
pub(super) struct Identity<D: Dcgm> {
    units: Vec<Unit<D>>,
}

impl<D: Dcgm> Identity<D> {
    /// Watches what names the devices.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn watch(watcher: &mut Watcher<'_, D>, outline: &Outline) -> Answer<Self> {
        let of = |group| outline.mig.iter().map(|m| m.entity).filter(move |e| e.group == group);
        let switches = outline.switches.iter().map(|id| Entity::new(EntityGroup::Switch, *id));
        let sets: [(Vec<Entity>, &[u16]); 3] = [
            (outline.gpus.iter().map(|(gpu, _)| Entity::gpu(*gpu)).collect(), &[52, 55]),
            (of(EntityGroup::ComputeInstance).collect(), &[50, 54]),
            (switches.collect(), &[866, 867, 868, 869]),
        ];
        let mut units = Vec::new();
        for (entities, fields) in sets {
            if !entities.is_empty() {
                units.append(&mut watcher.watch(&entities, fields, EVERY, "")?.0);
            }
        }
        Ok(Self { units })
    }

    /// Reads the texts.
    ///
    /// # Errors
    /// The connection is gone, or the engine is too old for the library: `first`, no reading of this connection has
    /// succeeded before.
    pub(super) fn read(&self, watcher: &Watcher<'_, D>, first: bool) -> Answer<Texts> {
        let mut texts = Texts::new();
        for unit in &self.units {
            let read = watcher.caller.call("dcgmGetLatestValues_v2", "", |d| {
                d.latest(unit.group, unit.handle, &mut |entity, value| {
                    let text = match (value.status, &value.value) {
                        (ReturnCode::OK, Ok(Value::Text(text))) => (*text).to_owned(),
                        (ReturnCode::OK, Ok(Value::Int(number))) => number.to_string(),
                        _ => return,
                    };
                    texts.insert((entity, value.field), text);
                })
            });
            match read {
                Err(code) if is_gone(code) || (first && is_too_old(code)) => return Err(code),
                _ => {}
            }
        }
        Ok(texts)
    }

    /// Ends the watches.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) fn end(self, watcher: &Watcher<'_, D>) -> Answer<()> {
        self.units.into_iter().try_for_each(|unit| watcher.end(unit))
    }
}
