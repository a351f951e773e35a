//! DCGM: devices, watched fields, XIDs, health and profiling.
//!
//! In: `Configure` and requests. Out: reports through the [`Link`]. A reader begins with [`serve`], then
//! [`session`]; [`plan`] says what is read from where, [`readings`] what a value means. The core knows the engine only
//! as a trait ([`engine`]); `library.rs` is the real one. What can go wrong: everything that `dcgm.md`'s pitfalls
//! name; each file's header says how its part is met.

mod bind;
mod capabilities;
mod choose;
mod conflict;
mod engine;
#[cfg(test)]
mod fake;
mod fields;
mod health;
mod identity;
mod inventory;
mod judging;
mod library;
mod multi_pass;
mod pausing;
mod plan;
mod poll;
mod profiling;
mod reading;
mod readings;
mod refusals;
mod serve;
mod session;
mod state;
mod task;
#[cfg(test)]
mod tests;
mod trouble;
mod watch;
mod watching;
mod xid;

use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use dcgm_ffi::LoadedLibrary;

#[cfg(doc)]
use super::link::Ask;
use super::link::{Asks, Calling, Link};
use super::moment::Moment;
use super::numa::Sysfs;
use super::threads::LOAD;
use crate::model::Origin;
use crate::wire::order::Configure;

/// How often a library that is not there is looked for.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Whether DCGM gives data. A process has one engine at most, so one of these.
#[derive(Debug, Default)]
pub struct Presence(AtomicU8);

const TRYING: u8 = 0;
const UP: u8 = 1;
const MISSING: u8 = 2;

impl Presence {
    const fn new() -> Self {
        Self(AtomicU8::new(TRYING))
    }

    /// It gives data: nobody else need read the same fields.
    pub fn is_up(&self) -> bool {
        self.0.load(Ordering::Relaxed) == UP
    }

    /// There is no library or no engine; waiting for it is of no use. It may come later all the same.
    pub fn is_missing(&self) -> bool {
        self.0.load(Ordering::Relaxed) == MISSING
    }

    fn set(&self, to: u8) {
        self.0.store(to, Ordering::Relaxed);
    }
}

static PRESENCE: Presence = Presence::new();

/// Whether DCGM gives data in this process.
pub fn presence() -> &'static Presence {
    &PRESENCE
}

/// Collects what DCGM has, until [`Ask::End`]. Then every watch is ended, the engine stopped or disconnected, and the
/// library shut down.
/// `loading` is the call that loads the library for the first time.
pub fn run(configure: &Configure, link: &Link, asks: &Asks, loading: Calling) {
    let clock = Moment::now;
    if !configure.dcgm {
        loading.end(true);
        while !serve::wait(asks, link, LOOK_AGAIN, &clock) {}
        return;
    }
    let path = Some(configure.dcgm_library.as_str()).filter(|path| !path.is_empty()).map(Path::new);
    let (mut told, mut first) = (false, Some(loading));
    let library = loop {
        let loading = first.take().unwrap_or_else(|| link.begin(Origin::Dcgm, LOAD, ""));
        let loaded = LoadedLibrary::load(path);
        loading.end(loaded.is_ok());
        let opened = loaded.and_then(|loaded| {
            let calling = link.begin(Origin::Dcgm, "dcgmInit", "");
            let library = loaded.initialize();
            calling.end(library.is_ok());
            library
        });
        match opened {
            Ok(library) => break library,
            Err(e) => {
                PRESENCE.set(MISSING);
                if !told {
                    link.send(state::no_library(e.to_string(), e.remedy()));
                    told = true;
                }
                if serve::wait(asks, link, LOOK_AGAIN, &clock) {
                    return;
                }
            }
        }
    };
    let numa = Sysfs(configure.sysfs.clone().into());
    serve::serve(&library, configure, link, asks, &PRESENCE, &numa, &clock);
    let calling = link.begin(Origin::Dcgm, "dcgmShutdown", "");
    library.shutdown();
    calling.end(true);
}
