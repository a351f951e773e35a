//! DCGM: devices, watched fields, XIDs, health and profiling.
//!
//! In: `Configure` and requests. Out: reports through the [`Link`]. A reader begins with [`serve`], then
//! [`session`]; [`plan`] says what is read from where, [`readings`] what a value means. The core knows the engine only
//! as a trait ([`engine`]); `library.rs` is the real one. What can go wrong: everything that `dcgm.md`'s pitfalls
//! name; each file's header says how its part is met.

mod bind;
mod choose;
mod conflict;
mod engine;
#[cfg(test)]
mod fake;
mod fields;
mod health;
mod identity;
mod inventory;
mod library;
mod multi_pass;
mod plan;
mod poll;
mod profiling;
mod readings;
mod refusals;
mod serve;
mod session;
mod state;
#[cfg(test)]
mod tests;
mod watch;
mod watching;
mod xid;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dcgm_ffi::Library;

#[cfg(doc)]
use super::link::Ask;
use super::link::{Asks, Link};
use super::moment::Moment;
use crate::model::Origin;
use crate::wire::order::Configure;

/// How often a library that is not there is looked for.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// A process has one engine at most, so one flag.
static UP: AtomicBool = AtomicBool::new(false);

/// DCGM gives data: NVML need not read the same fields.
pub fn is_up() -> bool {
    UP.load(Ordering::Relaxed)
}

/// Collects what DCGM has, until [`Ask::End`]. Then every watch is ended, the engine stopped or disconnected, and the
/// library shut down.
pub fn run(configure: &Configure, link: &Link, asks: &Asks) {
    let clock = Moment::now;
    if !configure.dcgm {
        while !serve::wait(asks, link, LOOK_AGAIN, &clock) {}
        return;
    }
    let path = Some(configure.dcgm_library.as_str()).filter(|path| !path.is_empty()).map(Path::new);
    let mut told = false;
    let library = loop {
        let calling = link.begin(Origin::Dcgm, "dcgmInit", "");
        let opened = Library::open(path);
        calling.end(opened.is_ok());
        match opened {
            Ok(library) => break library,
            Err(e) => {
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
    serve::serve(&library, configure, link, asks, &UP, &clock);
    let calling = link.begin(Origin::Dcgm, "dcgmShutdown", "");
    library.shutdown();
    calling.end(true);
}
