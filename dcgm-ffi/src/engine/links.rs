//! NVLink: the state of each link.
//!
//! In: an engine. Out: states by GPU and by switch. What can go wrong: see [`Engine`]. An engine older than
//! the library refuses the newest structure; the older one is tried then. Source: `dcgm_structs.h`,
//! `dcgmNvLinkLinkState_t`.

use super::{Engine, check};
use crate::abi::links::{LinksV3, LinksV4, LinksV5};
use crate::abi::{self, Versioned};
use crate::error::Error;
use crate::return_code::ReturnCode;
use crate::symbols::Fill;

/// State of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkState {
    /// The device has no such link.
    NotSupported,
    /// Switched off.
    Disabled,
    /// Should be up and is not.
    Down,
    /// Works.
    Up,
    /// A state of a newer engine.
    Other(u32),
}

impl LinkState {
    /// The state of a number.
    pub fn from_raw(raw: u32) -> Self {
        match raw {
            0 => Self::NotSupported,
            1 => Self::Disabled,
            2 => Self::Down,
            3 => Self::Up,
            other => Self::Other(other),
        }
    }
}

/// States of all links: by owner, then by the link's index. Places behind a device's last link are
/// [`LinkState::NotSupported`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NvLinks {
    /// By GPU id.
    pub gpus: Vec<(u32, Vec<LinkState>)>,
    /// By switch id.
    pub switches: Vec<(u32, Vec<LinkState>)>,
}

impl Engine<'_> {
    /// State of each NVLink link.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn links(&self) -> Result<NvLinks, Error> {
        let ask = self.library.symbols.links()?;
        let library = self.library.level();
        if !library.at_least(4, 0) {
            return self.links_by::<LinksV3>(ask);
        }
        if library.at_least(4, 6) {
            match self.links_by::<LinksV5>(ask) {
                Err(error) if error.code() == Some(ReturnCode::VER_MISMATCH) => {}
                other => return other,
            }
        }
        self.links_by::<LinksV4>(ask)
    }

    fn links_by<L: Links>(&self, ask: Fill) -> Result<NvLinks, Error> {
        let mut raw = abi::stamped::<L>();
        // SAFETY: the structure is ours for the time of the call and carries its version and size.
        check("dcgmGetNvLinkLinkStatus", unsafe { ask(self.handle, (&raw mut *raw).cast()) })?;
        Ok(raw.states())
    }
}

/// The three structures, which differ in their numbers of links.
trait Links: Versioned {
    fn states(&self) -> NvLinks;
}

macro_rules! links {
    ($($name:ident)*) => { $(
        impl Links for $name {
            fn states(&self) -> NvLinks {
                let row = |id, states: &[u32]| (id, states.iter().map(|s| LinkState::from_raw(*s)).collect());
                let (gpus, switches) = (self.gpu_count as usize, self.switch_count as usize);
                NvLinks {
                    gpus: self.gpus.iter().take(gpus).map(|gpu| row(gpu.id, &gpu.states)).collect(),
                    switches: self.switches.iter().take(switches).map(|s| row(s.id, &s.states)).collect(),
                }
            }
        }
    )* };
}
links! { LinksV3 LinksV4 LinksV5 }

#[cfg(test)]
mod tests {
    use super::*;

    fn check<L: Links>(fill: impl Fn(&mut L), links: usize) {
        let mut raw = abi::stamped::<L>();
        fill(&mut raw);
        let states = raw.states();
        let [(id, gpu)] = &states.gpus[..] else { panic!("{states:?}") };
        assert_eq!((*id, gpu.len(), gpu[0], gpu[1]), (3, links, LinkState::Up, LinkState::Down));
        assert_eq!(states.switches.len(), 12, "a count beyond the structure is cut");
    }

    #[test]
    fn states_are_read_from_each_structure() {
        macro_rules! fill {
            ($name:ident, $links:expr) => {
                check::<$name>(
                    |raw| {
                        (raw.gpu_count, raw.switch_count) = (1, u32::MAX);
                        raw.gpus[0].id = 3;
                        (raw.gpus[0].states[0], raw.gpus[0].states[1]) = (3, 2);
                    },
                    $links,
                )
            };
        }
        fill!(LinksV3, 18);
        fill!(LinksV4, 18);
        fill!(LinksV5, 36);
        assert_eq!(LinkState::from_raw(4), LinkState::Other(4));
    }
}
