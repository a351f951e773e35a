//! Profiling fields: which a GPU has, and making room for another profiler.
//!
//! In: an engine. Out: groups of fields. What can go wrong: see [`Engine`]; GPUs before Hopper need a module
//! of the engine that is packed apart: `MODULE_NOT_LOADED`. Source: `dcgm_structs.h`, `dcgm_agent.h`.

use super::{Engine, check};
use crate::abi::{self, profiling::MetricGroups, profiling::RawMetricGroup};
use crate::error::Error;

/// Fields that a GPU measures together. Groups with the same major number exclude each other before Hopper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricGroup {
    /// Which of the exclusive sets it belongs to.
    pub major: u16,
    /// Its number there.
    pub minor: u16,
    /// The fields.
    pub fields: Vec<u16>,
}

impl Engine<'_> {
    /// Profiling fields of a GPU, in groups.
    ///
    /// # Errors
    /// [`Error::Call`]: `MODULE_NOT_LOADED`, `PROFILING_NOT_SUPPORTED`.
    pub fn profiling_groups(&self, gpu: u32) -> Result<Vec<MetricGroup>, Error> {
        let ask = self.library.symbols.metric_groups()?;
        let mut raw = abi::stamped::<MetricGroups>();
        raw.gpu = gpu;
        // SAFETY: the structure is ours for the time of the call and carries its version.
        check("dcgmProfGetSupportedMetricGroups", unsafe { ask(self.handle, &raw mut *raw) })?;
        Ok(raw.groups.iter().take(raw.count as usize).map(of_raw).collect())
    }

    /// Lets go of the performance monitors, for Nsight and the like; profiling fields are blank meanwhile.
    ///
    /// # Errors
    /// [`Error::Call`]: `NOT_SUPPORTED` where there is no profiling module: then nothing is held either.
    pub fn pause(&self) -> Result<(), Error> {
        let pause = self.library.symbols.pause()?;
        // SAFETY: a plain number.
        check("dcgmProfPause", unsafe { pause(self.handle) })
    }

    /// Takes the performance monitors again.
    ///
    /// # Errors
    /// As [`Engine::pause`].
    pub fn resume(&self) -> Result<(), Error> {
        let resume = self.library.symbols.resume()?;
        // SAFETY: a plain number.
        check("dcgmProfResume", unsafe { resume(self.handle) })
    }
}

fn of_raw(raw: &RawMetricGroup) -> MetricGroup {
    let fields = raw.fields.iter().copied().take(raw.count as usize).collect();
    MetricGroup { major: raw.major, minor: raw.minor, fields }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_the_fields_it_says_and_no_more_than_fit() {
        let mut raw = abi::zeroed::<RawMetricGroup>();
        (raw.major, raw.minor, raw.count) = (1, 2, 2);
        (raw.fields[0], raw.fields[1]) = (1001, 1002);
        assert_eq!(of_raw(&raw), MetricGroup { major: 1, minor: 2, fields: vec![1001, 1002] });
        raw.count = u32::MAX;
        assert_eq!(of_raw(&raw).fields.len(), 64);
    }
}
