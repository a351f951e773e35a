//! How a GPU reaches the others, and which CPUs are near it.
//!
//! In: an engine. Out: paths and a set of CPUs. What can go wrong: see [`Engine`]; with a single GPU the
//! engine answers `NOT_SUPPORTED`. Source: `dcgm_structs.h`, `dcgmGpuTopologyLevel_t`.

use super::{Engine, check};
use crate::abi::topology::{TopologyV1, TopologyV2};
use crate::abi::{self, Versioned};
use crate::error::Error;
use crate::return_code::ReturnCode;
use crate::symbols::FillOfGpu;

/// Bits above this one are NVLink levels, one per number of links.
const NVLINK_SHIFT: u32 = 8;

/// Surroundings of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// CPUs near it, by the kernel's numbers, rising; none where the engine does not know. CPUs above 511
    /// have no place in DCGM's answer.
    pub cpus: Vec<u32>,
    /// One path per other GPU.
    pub paths: Vec<TopologyPath>,
}

/// A path to another GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopologyPath {
    /// The other GPU.
    pub gpu: u32,
    /// DCGM's bits: 0x1 one board, 0x2 one PCIe switch, 0x4 several switches, 0x8 the host bridge, 0x10 one
    /// CPU, 0x20 the whole system; 0x100 « (n − 1) n NVLink links.
    pub bits: u64,
    /// Links of this GPU that lead there, as bits by index.
    pub local_links: u64,
}

impl TopologyPath {
    fn of(gpu: u32, bits: impl Into<u64>, local_links: impl Into<u64>) -> Self {
        Self { gpu, bits: bits.into(), local_links: local_links.into() }
    }

    /// The nearest thing that both GPUs share on PCIe; None where only NVLink is told.
    pub fn pci(self) -> Option<&'static str> {
        let names = [
            (0x1, "board"),
            (0x2, "switch"),
            (0x4, "switches"),
            (0x8, "host_bridge"),
            (0x10, "cpu"),
            (0x20, "system"),
        ];
        names.into_iter().find(|(bit, _)| self.bits & bit != 0).map(|(_, name)| name)
    }

    /// Number of NVLink links between both; 0: none.
    pub fn nvlinks(self) -> u32 {
        match self.bits >> NVLINK_SHIFT {
            0 => 0,
            bits => bits.trailing_zeros() + 1,
        }
    }
}

impl Engine<'_> {
    /// Paths to the other GPUs and CPUs near this one.
    ///
    /// # Errors
    /// [`Error::Call`]: `NOT_SUPPORTED` with a single GPU.
    pub fn topology(&self, gpu: u32) -> Result<Topology, Error> {
        let ask = self.library.symbols.topology()?;
        if self.library.level().at_least(4, 6) {
            match self.topology_by::<TopologyV2>(ask, gpu) {
                Err(error) if error.code() == Some(ReturnCode::VER_MISMATCH) => {}
                other => return other,
            }
        }
        self.topology_by::<TopologyV1>(ask, gpu)
    }

    fn topology_by<T: Raw>(&self, ask: FillOfGpu, gpu: u32) -> Result<Topology, Error> {
        let mut raw = abi::stamped::<T>();
        // SAFETY: the structure is ours for the time of the call and carries its version and size.
        check("dcgmGetDeviceTopology", unsafe { ask(self.handle, gpu, (&raw mut *raw).cast()) })?;
        Ok(raw.topology())
    }
}

/// The two structures, which differ in their widths.
trait Raw: Versioned {
    fn topology(&self) -> Topology;
}

macro_rules! raw {
    ($($name:ident)*) => { $(
        impl Raw for $name {
            fn topology(&self) -> Topology {
                let paths = self.paths.iter().take(self.count as usize);
                Topology {
                    cpus: bits(&self.cpu_affinity),
                    paths: paths.map(|raw| TopologyPath::of(raw.gpu, raw.path, raw.local_links)).collect(),
                }
            }
        }
    )* };
}
raw! { TopologyV1 TopologyV2 }

/// Numbers of the bits that are set.
pub(super) fn bits(words: &[u64]) -> Vec<u32> {
    let bits = |(at, word): (usize, &u64)| {
        let (word, base) = (*word, at as u32 * 64);
        (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| base + bit)
    };
    words.iter().enumerate().flat_map(bits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_cpus_are_read_from_both_structures() {
        macro_rules! check {
            ($name:ident) => {{
                let mut raw = abi::stamped::<$name>();
                (raw.count, raw.cpu_affinity[0], raw.cpu_affinity[7]) = (1, 0b101, 1 << 63);
                (raw.paths[0].gpu, raw.paths[0].path, raw.paths[0].local_links) = (2, 0x2_0004, 0x3);
                let topology = raw.topology();
                assert_eq!(topology.cpus, [0, 2, 511]);
                let [path] = topology.paths[..] else { panic!("{topology:?}") };
                assert_eq!((path.gpu, path.pci(), path.nvlinks()), (2, Some("switches"), 10));
                assert_eq!(path.local_links, 3);
                raw.count = u32::MAX;
                assert_eq!(raw.topology().paths.len(), 31, "a count beyond the structure is cut");
            }};
        }
        check!(TopologyV1);
        check!(TopologyV2);
    }

    #[test]
    fn nvlinks_are_counted_up_to_36() {
        let path = |bits| TopologyPath { gpu: 0, bits, local_links: 0 };
        for (bits, links) in [(0, 0), (0x20, 0), (0x100, 1), (0x200_0000, 18), (0x100 << 35, 36)] {
            assert_eq!(path(bits).nvlinks(), links, "{bits:#x}");
        }
        assert_eq!(path(0x100).pci(), None);
    }
}
