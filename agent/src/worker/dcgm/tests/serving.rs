//! From one connection to the next, on engines that come and go.
//!
//! In: a scripted library. Out: states, samples and answers. What can go wrong: nothing; waits are for a report, with
//! the channel's end as the deadline.

use std::cell::RefCell;
use std::collections::VecDeque;

use super::super::Presence;
use super::super::choose::Choice;
use super::super::engine::{
    Answer, Attributes, Dcgm, Each, Entity, EntityGroup, GpuState, Incident, MetricGroup, MigEntity,
    ModuleStatus, ReturnCode, Topology,
};
use super::super::fake::Fake;
use super::super::serve::{Connect, serve};
use super::{NoNuma, group};
use crate::wire::order::Configure;
use crate::wire::report::{Content, Kind};
use crate::worker::asks::{Ask, Asker, asks};
use crate::worker::link::Link;
use crate::worker::moment::Moment;

/// Connects to these engines, one after the other; `None` refuses.
struct Scripted {
    engines: RefCell<VecDeque<Option<Fake>>>,
    tried: RefCell<Vec<String>>,
    /// An engine dies at its n-th reading.
    dies_at: u32,
}

/// An engine that dies, or that is the last: then the agent asks for fields and the end.
struct Mortal {
    fake: Fake,
    left: std::cell::Cell<u32>,
    asks: Option<Asker>,
}

thread_local! {
    static ASKS: RefCell<Option<Asker>> = const { RefCell::new(None) };
}

impl Connect for Scripted {
    type Engine<'a> = Mortal;

    fn version(&self) -> String {
        "4.6.0".into()
    }

    fn path(&self) -> String {
        "scripted.so".into()
    }

    fn level_of(&self, field: u16) -> Option<EntityGroup> {
        (field == 3_333).then_some(EntityGroup::Gpu)
    }

    fn connect(&self, choice: &Choice) -> Result<Mortal, String> {
        self.tried.borrow_mut().push(choice.name());
        let mut engines = self.engines.borrow_mut();
        let fake = engines.pop_front().flatten().ok_or_else(|| "refused".to_owned())?;
        let asks = if engines.is_empty() { ASKS.with(|asks| asks.borrow().clone()) } else { None };
        Ok(Mortal { fake, left: std::cell::Cell::new(self.dies_at), asks })
    }
}

impl Mortal {
    fn count(&self) {
        self.left.set(self.left.get().saturating_sub(1));
        if self.left.get() > 0 {
            return;
        }
        match &self.asks {
            Some(asks) => {
                assert!(asks.ask(Ask::Fields(7), None));
                assert!(asks.ask(Ask::End, None));
            }
            None => self.fake.world.borrow_mut().dead = true,
        }
        self.left.set(u32::MAX);
    }
}

/// Hands every call on to the fake.
macro_rules! hand_on {
    ($($name:ident($($arg:ident: $of:ty),*) -> $gives:ty;)*) => {
        $(fn $name(&self, $($arg: $of),*) -> $gives { self.fake.$name($($arg),*) })*
    };
}

impl Dcgm for Mortal {
    type Group = u64;
    type Fields = u64;

    fn latest(&self, group: u64, fields: u64, each: Each<'_>) -> Answer<()> {
        // The engine's clock is the real one here.
        self.fake.now.set(Moment::now());
        self.count();
        self.fake.latest(group, fields, each)
    }

    hand_on! {
        is_healthy() -> Answer<bool>;
        dropped_values() -> u64;
        version() -> Answer<String>;
        group_limit() -> usize;
        knows(field: u16) -> bool;
        gpus() -> Answer<Vec<u32>>;
        gpu_state(gpu: u32) -> Answer<GpuState>;
        attributes(gpu: u32) -> Answer<Attributes>;
        architecture(gpu: u32) -> Option<String>;
        switches() -> Answer<Vec<u32>>;
        mig() -> Answer<Vec<MigEntity>>;
        links() -> Answer<Vec<(Entity, u32, Entity)>>;
        cpus() -> Answer<Vec<(u32, Vec<u32>)>>;
        topology(gpu: u32) -> Answer<Topology>;
        group(name: &str, entities: &[Entity]) -> Answer<u64>;
        destroy_group(group: u64) -> Answer<()>;
        fields(name: &str, fields: &[u16]) -> Answer<u64>;
        destroy_fields(fields: u64) -> Answer<()>;
        watch(g: u64, f: u64, every: std::time::Duration, keep: std::time::Duration) -> Answer<()>;
        unwatch(group: u64, fields: u64) -> Answer<()>;
        since(group: u64, fields: u64, since_us: i64, each: Each<'_>) -> Answer<i64>;
        set_health(group: u64, every: std::time::Duration) -> Answer<()>;
        check_health(group: u64) -> Answer<Vec<Incident>>;
        metric_groups(gpu: u32) -> Answer<Vec<MetricGroup>>;
        modules() -> Answer<Vec<ModuleStatus>>;
        pause() -> Answer<()>;
        resume() -> Answer<()>;
    }
}

/// Serves with these engines until the last is asked to end; what was tried, and what was told.
fn play(engine: &str, engines: Vec<Option<Fake>>) -> (Vec<String>, Vec<Kind>) {
    play_with(engine, engines, Configure::default())
}

fn play_with(engine: &str, engines: Vec<Option<Fake>>, more: Configure) -> (Vec<String>, Vec<Kind>) {
    let library = Scripted { engines: RefCell::new(engines.into()), tried: RefCell::default(), dies_at: 4 };
    let (link, out) = Link::for_tests();
    let (asks, asked) = asks();
    ASKS.with(|slot| *slot.borrow_mut() = Some(asks));
    let mut watched = group(&[150]);
    watched.interval_ms = 20;
    watched.fields.push("NO_SUCH_FIELD".into());
    watched.fields.push("3333".into());
    let configure = Configure { dcgm: true, engine: engine.into(), groups: vec![watched], ..more };
    let presence = Presence::new();
    serve(&library, &configure, &link, &asked, &presence, &NoNuma, &Moment::now);
    assert!(!presence.is_up(), "it ended");
    (library.tried.into_inner(), out.try_iter().collect())
}

fn alive() -> Option<Fake> {
    let fake = Fake::new(1);
    fake.now.set(Moment::now());
    Some(fake)
}

fn states(told: &[Kind]) -> Vec<String> {
    let state = |kind: &Kind| match kind {
        Kind::State(s) => Some(format!("{} {} {}", s.up, s.reason, s.how).trim_end().to_owned()),
        Kind::Note(n) => Some(format!("note {}", n.reason)),
        _ => None,
    };
    told.iter().filter_map(state).collect()
}

#[test]
fn an_engine_that_is_made_anew_is_connected_to_at_once_and_loses_nothing() {
    let (tried, told) = play("node7", vec![alive(), None, alive()]);
    assert_eq!(tried, ["tcp://node7"; 3]);
    let want = [
        "true  tcp://node7",
        "note unknown_field",
        "false engine_down",
        "true  tcp://node7",
        "note unknown_field",
    ];
    assert_eq!(states(&told), want);
    let keys: Vec<u32> = told
        .iter()
        .filter_map(|kind| match kind {
            Kind::Samples(samples) => Some(samples.key),
            _ => None,
        })
        .collect();
    assert!(keys.len() >= 2 && keys.iter().all(|key| *key == 1), "{keys:?}");
}

#[test]
fn auto_takes_the_first_that_answers_and_waits_for_a_host_engine_to_come_back() {
    let (tried, told) = play("auto", vec![None, alive(), None, None, None, alive()]);
    let (unix, tcp) = ("unix:///tmp/nv-hostengine", "tcp://localhost:5555");
    assert_eq!(tried, [unix, tcp, unix, tcp, unix, tcp], "none is embedded meanwhile");
    assert_eq!(states(&told).iter().filter(|state| *state == "false engine_down").count(), 1);
    let (tried, _) = play("auto", vec![None, None, alive()]);
    assert_eq!(tried, [unix, tcp, "embedded"]);
}

#[test]
fn what_hung_is_not_tried_by_auto_and_a_pause_is_kept() {
    let (unix, tcp) = ("unix:///tmp/nv-hostengine", "tcp://localhost:5555");
    let more = Configure { skip: vec![tcp.to_owned()], paused: true, ..Configure::default() };
    let (tried, told) = play_with("auto", vec![None, alive()], more);
    assert_eq!(tried, [unix, "embedded"]);
    let says =
        |kind: &Kind| matches!(kind, Kind::State(s) if (&*s.name, &*s.reason) == ("profiling", "paused"));
    assert!(told.iter().any(says), "{told:?}");
}

#[test]
fn a_state_is_told_when_it_is_another_one() {
    // One comes up and goes, and then none is there for a while.
    let (_, told) = play("node7", vec![alive(), None, None, None, alive()]);
    let dcgm: Vec<String> = states(&told).into_iter().filter(|state| !state.starts_with("note")).collect();
    assert_eq!(dcgm, ["true  tcp://node7", "false engine_down", "true  tcp://node7"]);
}

#[test]
fn an_engine_that_is_too_old_is_told_with_a_remedy() {
    let old = alive();
    if let Some(old) = &old {
        old.world.borrow_mut().first_latest = Err(ReturnCode::FUNCTION_NOT_FOUND);
    }
    let (_, told) = play("node7", vec![old, alive()]);
    let state = told.iter().find_map(|kind| match kind {
        Kind::State(state) if state.reason == "engine_too_old" => Some(state.clone()),
        _ => None,
    });
    let state = state.unwrap();
    assert!(!state.up && state.remedy.contains("update the host engine"), "{state:?}");
}

#[test]
fn every_field_and_device_is_told_on_request() {
    let (_, told) = play("embedded", vec![alive()]);
    let mut text = String::new();
    let mut last = None;
    for kind in &told {
        if let Kind::Answer(answer) = kind {
            assert_eq!((answer.id, answer.done), (7, true));
            assert!(answer.text.len() < crate::wire::FRAME_MAX / 2);
            text.push_str(&answer.text);
            last = Some(answer.more);
        }
    }
    assert_eq!(last, Some(false), "the last says so");
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |id: u16| lines.iter().find(|line| line["id"] == id).unwrap();
    for row in dcgm_ffi::field_table::rows() {
        assert_eq!(of(row.id)["name"], row.name, "{}", row.id);
    }
    assert_eq!(of(150)["group"], "test");
    assert!(of(150)["status"]["GPU-0"]["value"].is_number(), "{}", of(150));
    assert_eq!(of(155)["status"]["GPU-0"]["watched"], false);
    assert_eq!(of(155)["unit"], "W");
    assert!(lines.iter().any(|line| line["device"] == "GPU-0" && line["pci"] == "0000:10:00.0"));
    let can = &lines[0]["capabilities"];
    assert_eq!((&can["library"], &can["version"]), (&"scripted.so, 4.6.0".into(), &"4.6.0".into()));
    assert_eq!(can["modules"], serde_json::json!([{ "name": "profiling", "state": "loaded" }]));
    let none = &can["profiling"][0];
    assert_eq!((&none["state"], &none["reason"]), (&"no".into(), &"not_supported".into()), "{none}");
    let unknown = lines.iter().find(|line| line["name"] == "NO_SUCH_FIELD").unwrap();
    assert_eq!((&unknown["known"], &unknown["group"]), (&false.into(), &"test".into()));
    let beyond = of(3_333);
    assert_eq!((&beyond["known"], &beyond["name"]), (&true.into(), &serde_json::Value::Null), "{beyond}");
    let samples = told.iter().any(|kind| match kind {
        Kind::Samples(samples) => samples.values.iter().any(|v| matches!(v.content, Some(Content::Int(_)))),
        _ => false,
    });
    assert!(samples);
}

#[test]
fn a_missing_library_is_told_once_and_does_not_end_the_thread() {
    let (link, out) = Link::for_tests();
    let (asks, asked) = asks();
    assert!(asks.ask(Ask::Pause(3), None));
    assert!(asks.ask(Ask::End, None));
    let missing = "/nowhere/libdcgm.so.4".to_owned();
    let configure = Configure { dcgm: true, dcgm_library: missing.clone(), ..Configure::default() };
    let loading = link.begin(crate::model::Origin::Dcgm, "dlopen", "");
    super::super::run(&configure, &link, &asked, loading);
    let told: Vec<Kind> = out.try_iter().collect();
    let (Kind::State(state), Kind::Answer(answer)) = (&told[0], &told[1]) else { panic!("{told:?}") };
    assert_eq!((state.name.as_str(), state.up, state.reason.as_str()), ("dcgm", false, "no_library"));
    assert!(state.what.contains(&missing) && !state.remedy.is_empty(), "{state:?}");
    assert_eq!((answer.id, answer.done), (3, false));
    assert_eq!(told.len(), 2);
}
