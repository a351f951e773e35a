//! An engine: NVIDIA's process or thread that talks to the driver, and our handle to it.
//!
//! In: a connected or started engine. Out: [`Engine`], whose calls stand in the files of this folder by what
//! they are about. What can go wrong: each call may fail, block for up to 60 s when the engine hangs, and end
//! with [`ReturnCode::CONNECTION_NOT_VALID`] once it is gone: then drop the [`Engine`] and connect anew;
//! nothing that the old one gave out (groups, field groups, GPU ids) means anything to the new one.

mod connect;
mod cpus;
mod devices;
mod entities;
#[cfg(test)]
mod fake;
mod groups;
mod health;
#[cfg(test)]
mod life;
mod links;
mod modules;
mod profiling;
mod read;
mod topology;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use cpus::Cpu;
pub use devices::{Architecture, DeviceAttributes, GpuStatus};
pub use entities::MigEntity;
pub use groups::{FieldGroup, Group};
pub use health::{Incident, Level, systems};
pub use links::{LinkState, NvLinks};
pub use modules::{ModuleState, ModuleStatus};
pub use profiling::MetricGroup;
pub use topology::{Topology, TopologyPath};

use crate::abi::Handle;
use crate::error::Error;
use crate::library::{self, Library};
use crate::readings::Readings;
use crate::return_code::ReturnCode;
use crate::version::Version;

/// A connection to an engine, or an engine inside this process.
///
/// May be used from several threads at once (it is `Send` and `Sync`): the library multiplexes requests by an
/// id of their own over one socket, and every function may be called from any thread; what we hold beside the
/// handle is behind locks that are never held during a call. A host engine serves requests with three
/// threads, so three slow calls block everybody.
///
/// Dropping it takes back watches and groups and disconnects, or stops the engine inside this process (2
/// s).
pub struct Engine<'lib> {
    library: &'lib Library,
    handle: Handle,
    /// Runs inside this process.
    embedded: bool,
    version: Option<Version>,
    /// Distinguishes groups of one engine from those of the next.
    serial: u64,
    /// A reading has succeeded: the engine understands this library.
    proved: AtomicBool,
    owned: Mutex<Owned>,
    /// Buffers not in use; at most as many as threads that ever read at once.
    buffers: Mutex<Vec<Readings>>,
    dropped: AtomicU64,
}

/// What this engine keeps for us.
#[derive(Default)]
struct Owned {
    watches: Vec<(Handle, Handle)>,
    field_groups: Vec<Handle>,
    groups: Vec<Handle>,
}

static SERIAL: AtomicU64 = AtomicU64::new(1);

impl<'lib> Engine<'lib> {
    fn new(library: &'lib Library, handle: Handle, embedded: bool, version: Option<Version>) -> Self {
        Self {
            library,
            handle,
            embedded,
            version,
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            proved: AtomicBool::new(false),
            owned: Mutex::default(),
            buffers: Mutex::default(),
            dropped: AtomicU64::new(0),
        }
    }

    /// The engine's version, where it says one; inside this process it is the library's.
    pub fn version(&self) -> Option<Version> {
        self.version.or(self.library.version())
    }

    /// Whether the engine runs inside this process.
    pub fn is_embedded(&self) -> bool {
        self.embedded
    }

    /// Values and texts that found no room in a reading, since the connection was made.
    pub fn dropped_values(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// The engine's version for what its numbers mean.
    fn level(&self) -> Version {
        self.version().unwrap_or_else(|| self.library.level())
    }

    fn owned(&self) -> MutexGuard<'_, Owned> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes back what the engine keeps for us. Ends at the first sign that nobody answers: each further call
    /// would wait a minute.
    fn take_back(&mut self) {
        let owned = std::mem::take(self.owned.get_mut().unwrap_or_else(PoisonError::into_inner));
        let (symbols, handle) = (&self.library.symbols, self.handle);
        let gone =
            |code: i32| matches!(ReturnCode(code), ReturnCode::CONNECTION_NOT_VALID | ReturnCode::TIMEOUT);
        for (group, fields) in owned.watches {
            // SAFETY: plain numbers; an id that is gone is an error code.
            if gone(unsafe { (symbols.unwatch)(handle, group, fields) }) {
                return;
            }
        }
        for fields in owned.field_groups {
            // SAFETY: as above.
            if gone(unsafe { (symbols.field_group_destroy)(handle, fields) }) {
                return;
            }
        }
        for group in owned.groups {
            // SAFETY: as above.
            if gone(unsafe { (symbols.group_destroy)(handle, group) }) {
                return;
            }
        }
    }
}

impl Drop for Engine<'_> {
    fn drop(&mut self) {
        // An engine that ends keeps nothing for anybody.
        if !self.embedded {
            self.take_back();
            // SAFETY: a handle of this library; it may be stale, which is no error.
            unsafe { (self.library.symbols.disconnect)(self.handle) };
            return;
        }
        if let Ok(stop) = self.library.symbols.stop_embedded() {
            // SAFETY: the handle of the engine inside this process; a wrong one is an error code.
            unsafe { stop(self.handle) };
        }
        self.library.embedded.store(false, Ordering::Release);
    }
}

/// An answer as a result; see [`library::check`].
fn check(function: &'static str, code: i32) -> Result<(), Error> {
    library::check(function, code)
}
