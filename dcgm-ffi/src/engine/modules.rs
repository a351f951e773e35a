//! The engine's modules, and its hold on the driver.
//!
//! In: an engine. Out: states. What can go wrong: see [`Engine`]; a module that failed to load stays failed
//! until the engine is restarted. Source: `dcgm_structs.h`, `dcgmModuleId_t`, `dcgmModuleStatus_t`.

use super::{Engine, check};
use crate::abi::{self, module::Modules};
use crate::error::Error;

/// Modules by number.
const NAMES: [&str; 11] = [
    "core",
    "nvswitch",
    "vgpu",
    "introspect",
    "health",
    "policy",
    "config",
    "diag",
    "profiling",
    "sysmon",
    "mndiag",
];

/// State of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "names of the vendor")]
pub enum ModuleState {
    NotLoaded,
    Denylisted,
    Failed,
    Loaded,
    Unloaded,
    Paused,
    Reloadable,
    /// A state of a newer engine.
    Other(u32),
}

impl ModuleState {
    /// The state of a number.
    pub fn from_raw(raw: u32) -> Self {
        match raw {
            0 => Self::NotLoaded,
            1 => Self::Denylisted,
            2 => Self::Failed,
            3 => Self::Loaded,
            4 => Self::Unloaded,
            5 => Self::Paused,
            6 => Self::Reloadable,
            other => Self::Other(other),
        }
    }
}

/// A module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleStatus {
    /// DCGM's number.
    pub id: u32,
    /// Its name; `unknown` for one of a newer engine.
    pub name: &'static str,
    /// Its state. A module is loaded when a call needs it.
    pub state: ModuleState,
}

impl Engine<'_> {
    /// All modules.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn module_statuses(&self) -> Result<Vec<ModuleStatus>, Error> {
        let ask = self.library.symbols.modules()?;
        let mut raw = abi::stamped::<Modules>();
        // SAFETY: the structure is ours for the time of the call and carries its version.
        check("dcgmModuleGetStatuses", unsafe { ask(self.handle, &raw mut *raw) })?;
        let statuses = raw.statuses.iter().take(raw.count as usize);
        Ok(statuses.map(|module| status(module.id, module.status)).collect())
    }

    /// Has the engine take the driver again. From 4.5; about a second; may be repeated.
    ///
    /// # Errors
    /// [`Error::Symbol`] before 4.5; [`Error::Call`].
    pub fn attach_driver(&self) -> Result<(), Error> {
        let attach = self.library.symbols.attach_driver()?;
        // SAFETY: a plain number.
        check("dcgmAttachDriver", unsafe { attach(self.handle) })
    }

    /// Has the engine let go of the driver, so that it can be unloaded. From 4.5; about two seconds; may be
    /// repeated. Watches survive it; meanwhile some values keep the last sample with a good status.
    ///
    /// # Errors
    /// [`Error::Symbol`] before 4.5; [`Error::Call`].
    pub fn detach_driver(&self) -> Result<(), Error> {
        let detach = self.library.symbols.detach_driver()?;
        // SAFETY: a plain number.
        check("dcgmDetachDriver", unsafe { detach(self.handle) })
    }
}

fn status(id: u32, state: u32) -> ModuleStatus {
    let name = usize::try_from(id).ok().and_then(|id| NAMES.get(id).copied());
    ModuleStatus { id, name: name.unwrap_or("unknown"), state: ModuleState::from_raw(state) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_have_names_and_states() {
        assert_eq!(status(8, 2), ModuleStatus { id: 8, name: "profiling", state: ModuleState::Failed });
        assert_eq!(status(11, 7), ModuleStatus { id: 11, name: "unknown", state: ModuleState::Other(7) });
    }
}
