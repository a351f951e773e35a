//! The kernels that the agent is proved on.
//!
//! In: a name. Out: where Debian has it, and what it can. Nothing can go wrong.

use crate::debian::{Archive, Suite};

const SECURITY_11: Suite<'static> = Suite { archive: Archive::Security, name: "bullseye-security" };
const SECURITY_12: Suite<'static> = Suite { archive: Archive::Security, name: "bookworm-security" };

/// A kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kernel {
    /// The oldest that is supported.
    #[value(name = "5.10")]
    V5_10,
    /// Of Debian 12.
    #[value(name = "6.1")]
    V6_1,
    /// Of Debian 13, as built for Debian 12: its build tools run here.
    #[value(name = "6.12")]
    V6_12,
}

impl Kernel {
    /// All, oldest first.
    pub(crate) const ALL: [Self; 3] = [Self::V5_10, Self::V6_1, Self::V6_12];

    /// The version's beginning.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V5_10 => "5.10",
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
        }
    }

    /// What the test's phase is called.
    pub(crate) fn phase(self) -> &'static str {
        match self {
            Self::V5_10 => "vm 5.10",
            Self::V6_1 => "vm 6.1",
            Self::V6_12 => "vm 6.12",
        }
    }

    /// Where Debian has it, in the order they are asked: security updates first, since they are newer.
    pub(crate) fn suites(self) -> &'static [Suite<'static>] {
        match self {
            Self::V5_10 => &[SECURITY_11, Suite { archive: Archive::Main, name: "bullseye" }],
            Self::V6_1 => &[SECURITY_12, Suite { archive: Archive::Main, name: "bookworm" }],
            Self::V6_12 => &[Suite { archive: Archive::Main, name: "bookworm-backports" }],
        }
    }

    /// Whether modules describe their types: since 5.11.
    pub(crate) fn has_module_btf(self) -> bool {
        self != Self::V5_10
    }
}
