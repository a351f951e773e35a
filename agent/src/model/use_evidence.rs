//! How it is known that a process uses a device.
//!
//! In: the words of the replay format. Out: [`UseEvidence`], whose order is its rank: the first one proves most.
//! What can go wrong: a word that nobody knows is none.

/// What a use was concluded from; the better one is the smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UseEvidence {
    /// Unified memory registered the GPU, an address space or a channel for the process: a context lives.
    UvmChannel,
    /// NVML lists the process: a context lives.
    Nvml,
    /// It has the capability of a MIG instance open.
    CapFd,
    /// Its container was given the device.
    Allocation,
    /// It has the device's node open. Trap: CUDA opens all GPUs that it sees.
    OpenFd,
    /// Its environment names the device: no more than an intent.
    Env,
}

impl UseEvidence {
    /// All of them, the best first.
    pub const ALL: [Self; 6] =
        [Self::UvmChannel, Self::Nvml, Self::CapFd, Self::Allocation, Self::OpenFd, Self::Env];

    /// The word on the wire and in replay files.
    pub fn name(self) -> &'static str {
        match self {
            Self::UvmChannel => "uvm_channel",
            Self::Nvml => "nvml",
            Self::CapFd => "cap_fd",
            Self::Allocation => "allocation",
            Self::OpenFd => "open_fd",
            Self::Env => "env",
        }
    }

    /// The inverse of [`Self::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|evidence| evidence.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_the_rank_and_each_has_its_word() {
        assert!(UseEvidence::ALL.is_sorted());
        let words = UseEvidence::ALL.map(UseEvidence::name);
        assert_eq!(words, ["uvm_channel", "nvml", "cap_fd", "allocation", "open_fd", "env"]);
        assert_eq!(words.map(UseEvidence::from_name), UseEvidence::ALL.map(Some));
        assert_eq!(["", "NVML", "uvm"].map(UseEvidence::from_name), [None; 3]);
    }
}
