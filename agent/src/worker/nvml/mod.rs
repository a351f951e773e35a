//! NVML: identity, MIG layout and processes, and the basic fields where DCGM is not.
//!
//! In: `Configure` and requests. Out: reports through the [`Link`]. [`collector`] is the core over a trait
//! ([`driver`]); [`library`] is the real one. What can go wrong: no library, no driver, or a driver that goes away:
//! said once and looked for every ten seconds.

mod basic;
mod collector;
mod driver;
#[cfg(test)]
mod fake;
mod fields;
mod library;
mod processes;
mod state;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use self::collector::{Collector, Memory};
use self::library::Opened;
use super::dcgm;
use super::link::{Ask, Asks, Calling, Link};
use super::moment::Moment;
use super::numa::{NumaNode, Sysfs};
use crate::model::MonoNs;
use crate::wire::order::Configure;
use crate::wire::report::{self, Kind};

/// How often a library or driver that is not there is looked for.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// How long a GPU is lost before the library is opened anew: the first time, and at most.
const REOPEN: Duration = Duration::from_secs(30);
const REOPEN_LONGEST: Duration = Duration::from_secs(600);
/// DCGM may be away this long before its fields are read here: an engine that is restarted is back in less.
const GRACE: Duration = Duration::from_secs(5);

/// Collects what NVML has, until [`Ask::End`]; the library is closed then. `loading` is the call that loads the
/// library for the first time.
pub fn run(configure: &Configure, link: &Link, asks: &Asks, loading: Calling) {
    let mut first = Some(loading);
    let mut memory = Memory::default();
    let numa = Sysfs(configure.sysfs.clone().into());
    let path = Some(configure.nvml_library.as_str()).filter(|path| !path.is_empty()).map(Path::new);
    let mut told = None;
    let mut patience = REOPEN;
    loop {
        if configure.nvml {
            match Opened::open(path, link, first.take()) {
                Ok(opened) => {
                    told = None;
                    match serve(&opened, configure, link, asks, &mut memory, &numa, &mut patience) {
                        Ended::Asked => return,
                        Ended::Lost => {
                            patience = patience.saturating_mul(2).min(REOPEN_LONGEST);
                            continue;
                        }
                        Ended::NoDriver => {}
                    }
                }
                Err(why) => {
                    // Said once for each reason.
                    if told.replace(why.reason) != Some(why.reason) {
                        link.send(why.report);
                    }
                }
            }
        }
        if wait(link, asks) {
            return;
        }
    }
}

/// Why the library is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Asked,
    NoDriver,
    /// A GPU was lost: only a library that is opened anew can see it come back.
    Lost,
}

/// Works with an open library.
fn serve(
    opened: &Opened<'_>,
    configure: &Configure,
    link: &Link,
    asks: &Asks,
    memory: &mut Memory,
    numa: &dyn NumaNode,
    patience: &mut Duration,
) -> Ended {
    let every = Duration::from_millis(configure.nvml_interval_ms);
    let mut collector = match Collector::open(opened, link, memory, numa, every, Moment::now().mono) {
        Ok(collector) => collector,
        Err(fault) => {
            link.send(state::no_driver(fault.to_string()));
            return Ended::NoDriver;
        }
    };
    // Before it is up, so that who only looks has all of it then.
    if configure.only_look
        && let Err(fault) = collector.tell_processes(Moment::now())
    {
        link.send(state::no_driver(fault.to_string()));
        return Ended::NoDriver;
    }
    link.send(state::up(opened.how(), &collector.library()));
    let mut without_dcgm: Option<MonoNs> = None;
    let mut lost: Option<MonoNs> = None;
    loop {
        let now = Moment::now().mono;
        let due = if configure.only_look {
            now.after(LOOK_AGAIN)
        } else {
            let dcgm = dcgm::presence();
            let away = is_for(dcgm.is_up(), &mut without_dcgm, now, GRACE);
            let basic = away || !configure.dcgm || dcgm.is_missing();
            match collector.step(basic, &Moment::now) {
                Ok(due) => due,
                Err(fault) => {
                    link.send(state::no_driver(fault.to_string()));
                    return Ended::NoDriver;
                }
            }
        };
        if !collector.has_lost() {
            *patience = REOPEN;
        }
        if is_for(!collector.has_lost(), &mut lost, now, *patience) {
            collector.remember_lost();
            return Ended::Lost;
        }
        match asks.recv_timeout(due.since(Moment::now().mono).unwrap_or_default()) {
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) | Ok(Ask::End) => return Ended::Asked,
            Ok(Ask::Fields(id)) => collector.tell_fields(id),
            Ok(Ask::Pause(id) | Ask::Resume(id)) => refuse(link, id),
        }
    }
}

/// Something has not been so (`fine` is false) for a time.
fn is_for(fine: bool, since: &mut Option<MonoNs>, now: MonoNs, time: Duration) -> bool {
    if fine {
        *since = None;
        return false;
    }
    now.since(*since.get_or_insert(now)).unwrap_or_default() >= time
}

/// Waits without a library; true when the agent asks to end.
fn wait(link: &Link, asks: &Asks) -> bool {
    let until = Moment::now().mono.after(LOOK_AGAIN);
    loop {
        match asks.recv_timeout(until.since(Moment::now().mono).unwrap_or_default()) {
            Err(RecvTimeoutError::Timeout) => return false,
            Err(RecvTimeoutError::Disconnected) | Ok(Ask::End) => return true,
            Ok(Ask::Pause(id) | Ask::Resume(id) | Ask::Fields(id)) => refuse(link, id),
        }
    }
}

fn refuse(link: &Link, id: u64) {
    let text = "neither DCGM nor NVML can do this now; see `warpgauge doctor`".to_owned();
    link.send(Kind::Answer(report::Answer { id, done: false, text, more: false }));
}
