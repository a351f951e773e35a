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
mod values;
mod watch;
mod watching;
mod xid;

use std::sync::atomic::{AtomicBool, Ordering};

/// A process has one engine at most, so one flag.
static UP: AtomicBool = AtomicBool::new(false);

/// DCGM gives data: NVML need not read the same fields.
pub fn is_up() -> bool {
    UP.load(Ordering::Relaxed)
}
