//! CPUs and their cores, on Grace.
//!
//! In: an engine. Out: CPUs. What can go wrong: see [`Engine`]; elsewhere than on an NVIDIA CPU the engine
//! answers `MODULE_NOT_LOADED`. Source: `dcgm_structs.h`.

use super::topology::bits;
use super::{Engine, check};
use crate::abi::cpu::{CpusV1, CpusV2};
use crate::abi::{self, Versioned};
use crate::error::Error;
use crate::symbols::Fill;

/// A CPU socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Its id as an entity of group [`crate::EntityGroup::Cpu`].
    pub id: u32,
    /// Its cores by the kernel's numbers, rising; they are the ids of entities of group
    /// [`crate::EntityGroup::CpuCore`].
    pub cores: Vec<u32>,
    /// Its serial number, where the engine tells it (from 4.0).
    pub serial: Option<String>,
}

impl Engine<'_> {
    /// CPUs with their cores.
    ///
    /// # Errors
    /// [`Error::Symbol`] before 3.3; [`Error::Call`].
    pub fn cpus(&self) -> Result<Vec<Cpu>, Error> {
        match self.library.symbols.cpus_v2() {
            Ok(ask) => {
                let serial = |chars: &_| Some(abi::text(chars)).filter(|text: &String| !text.is_empty());
                let raw = self.fill::<CpusV2>("dcgmGetCpuHierarchy_v2", ask)?;
                let cpus = raw.cpus.iter().take(raw.count as usize);
                Ok(cpus.map(|cpu| of(cpu.id, &cpu.cores.bits, serial(&cpu.serial[..]))).collect())
            }
            Err(_) => {
                let raw = self.fill::<CpusV1>("dcgmGetCpuHierarchy", self.library.symbols.cpus_v1()?)?;
                let cpus = raw.cpus.iter().take(raw.count as usize);
                Ok(cpus.map(|cpu| of(cpu.id, &cpu.cores.bits, None)).collect())
            }
        }
    }

    fn fill<T: Versioned>(&self, function: &'static str, ask: Fill) -> Result<Box<T>, Error> {
        let mut raw = abi::stamped::<T>();
        // SAFETY: the structure is ours for the time of the call and carries its version and size.
        check(function, unsafe { ask(self.handle, (&raw mut *raw).cast()) })?;
        Ok(raw)
    }
}

fn of(id: u32, cores: &[u64], serial: Option<String>) -> Cpu {
    Cpu { id, cores: bits(cores), serial }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_bits() {
        let mut words = [0; 16];
        (words[1], words[15]) = (1, 1 << 63);
        assert_eq!(of(1, &words, None), Cpu { id: 1, cores: vec![64, 1023], serial: None });
    }
}
