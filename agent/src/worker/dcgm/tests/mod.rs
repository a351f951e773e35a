//! Behaviour of a session, played second by second on a scripted engine.
//!
//! In: a [`Fake`] and what happens to it. Out: the reports, as rows of text. What can go wrong: nothing waits; time is
//! a number here.

mod devices;
mod events;
mod profiling;
mod serving;
mod values;
mod watches;

use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::engine::{Answer, Caller, Dcgm, Entity, EntityGroup};
use super::fake::Fake;
use super::plan;
use super::session::Session;
use super::task::{Memory, Task};
use crate::model::Absence;
use crate::wire::order;
use crate::wire::report::{Content, Kind};
use crate::worker::link::Link;
use crate::worker::numa::NumaNode;

/// Reports with the second they were made in.
pub(super) type Told = Vec<(i64, Kind)>;

pub(super) fn gi(id: u32) -> Entity {
    Entity::new(EntityGroup::GpuInstance, id)
}

pub(super) fn ci(id: u32) -> Entity {
    Entity::new(EntityGroup::ComputeInstance, id)
}

/// An instance, one like the other.
pub(super) fn mig(entity: Entity, parent: Entity) -> super::engine::MigEntity {
    super::engine::MigEntity { entity, parent, ids: (entity.id, None), profile: 19, slices: 1 }
}

/// A group of fields each second.
pub(super) fn group(fields: &[u16]) -> order::Group {
    let fields = fields.iter().map(u16::to_string).collect();
    order::Group { name: "test".into(), interval_ms: 1_000, fields }
}

/// One connection for some seconds; `script` runs at the start of each.
pub(super) fn play<'a>(
    fake: &'a Fake,
    memory: &'a mut Memory,
    fields: &[u16],
    seconds: u32,
    script: &mut dyn FnMut(u32, &mut Session<'_, Fake>) -> Answer<()>,
) -> (Told, Answer<()>) {
    play_groups(fake, memory, &[group(fields)], seconds, script)
}

/// The same with groups of different intervals.
pub(super) fn play_groups<'a>(
    fake: &'a Fake,
    memory: &'a mut Memory,
    configured: &[order::Group],
    seconds: u32,
    script: &mut dyn FnMut(u32, &mut Session<'_, Fake>) -> Answer<()>,
) -> (Told, Answer<()>) {
    let (link, out) = Link::for_tests();
    let (groups, _) = plan::resolve(configured, |id| (id > 5_000).then_some(EntityGroup::Gpu));
    let mut told = Told::new();
    let ended = connection(fake, memory, &groups, &link, seconds, script, &mut |second| {
        told.extend(drain(&out).into_iter().map(|kind| (second, kind)));
    });
    told.extend(drain(&out).into_iter().map(|kind| (fake.seconds(), kind)));
    (told, ended)
}

/// A machine with one memory.
#[derive(Debug)]
struct NoNuma;

impl NumaNode for NoNuma {
    fn of(&self, _: &str) -> Option<u32> {
        None
    }
}

fn connection(
    fake: &Fake,
    memory: &mut Memory,
    groups: &[plan::Group],
    link: &Link,
    seconds: u32,
    script: &mut dyn FnMut(u32, &mut Session<'_, Fake>) -> Answer<()>,
    drain: &mut dyn FnMut(i64),
) -> Answer<()> {
    let clock = || fake.now.get();
    let task = Task {
        groups,
        health_every: Duration::from_secs(10),
        only_look: false,
        version: "4.6.0",
        library: "scripted.so, 4.6.0",
        unknown: &[],
        numa: &NoNuma,
    };
    let prefix = format!("test-{}", fake.now.get().mono.0);
    let mut session = Session::open(Caller::new(fake, link), task, memory, prefix, clock())?;
    for second in 0..seconds {
        if let Err(code) = script(second, &mut session) {
            session.remember();
            return Err(code);
        }
        let end = fake.now.get().mono.after(Duration::from_secs(1));
        loop {
            let due = match session.step(&clock) {
                Ok(due) => due,
                Err(code) => {
                    session.remember();
                    return Err(code);
                }
            };
            drain(fake.seconds());
            let now = fake.now.get().mono;
            if due >= end {
                fake.pass(end.since(now).unwrap_or_default());
                break;
            }
            // What is due at once is still a moment later.
            fake.pass(due.since(now).unwrap_or_default().max(Duration::from_millis(1)));
        }
    }
    session.end()
}

fn drain(out: &Receiver<Kind>) -> Vec<Kind> {
    out.try_iter().collect()
}

/// Plays without a script.
pub(super) fn just(fake: &Fake, fields: &[u16], seconds: u32) -> Told {
    play(fake, &mut Memory::default(), fields, seconds, &mut |_, _| Ok(())).0
}

/// What was told of a field of a device, as `second:value`; a link or core as `/N`.
pub(super) fn rows(told: &Told, hw_id: &str, field: u16) -> Vec<String> {
    let mut rows = Vec::new();
    let mut keys = std::collections::HashMap::new();
    for (second, kind) in told {
        match kind {
            Kind::Inventory(inventory) => {
                keys.extend(inventory.devices.iter().map(|d| (d.key, d.hw_id.clone())));
            }
            Kind::Samples(samples) if keys.get(&samples.key).is_some_and(|id| id == hw_id) => {
                let part =
                    if samples.part == 0 { String::new() } else { format!("/{}", samples.part_number) };
                for value in samples.values.iter().filter(|v| v.field == u32::from(field)) {
                    rows.push(format!("{second}{part}:{}", content(value.content.as_ref().unwrap())));
                }
            }
            _ => {}
        }
    }
    rows
}

fn content(content: &Content) -> String {
    match content {
        Content::Int(n) => n.to_string(),
        Content::Number(x) => format!("{x:?}"),
        Content::Text(text) => text.clone(),
        Content::Absent(place) => Absence::ALL[usize::try_from(*place).unwrap()].name().to_owned(),
    }
}

/// The states that were told, as `second name up reason`.
pub(super) fn states(told: &Told) -> Vec<String> {
    let state = |(second, kind): &(i64, Kind)| match kind {
        Kind::State(s) => Some(format!("{second} {} {} {}", s.name, s.up, s.reason).trim_end().to_owned()),
        Kind::Note(n) => Some(format!("{second} {} note {}", n.name, n.reason)),
        _ => None,
    };
    told.iter().filter_map(state).collect()
}

/// The scripted engine is asked nothing that it could not know.
pub(super) fn watched(fake: &Fake, field: u16) -> Vec<Vec<Entity>> {
    assert!(fake.knows(field));
    fake.watched().into_iter().filter(|(_, f)| f.contains(&field)).map(|(entities, _)| entities).collect()
}
