//! Measured values of devices: one batch per device and reading.
//!
//! In: what the worker, the host source or a replay read. Out: [`Samples`], which `correlate` checks and `export` books.
//! The hot path of the agent: a batch is one allocation, its readings hold no text but what the field itself is.
//! "No data" is a value of its own, with a reason: never 0, never "healthy".

use std::sync::Arc;

use super::MonoNs;

/// Readings of one device (or of one part of it).
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// What was measured.
    pub subject: Subject,
    /// Who measured it.
    pub origin: Origin,
    /// The values, each with its own time.
    pub readings: Vec<Reading>,
}

/// A device, or a part of it that is counted by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    /// OpenTelemetry's `hw.id`: `GPU-…`, `MIG-…`, or what the driver calls another device.
    pub hw_id: Arc<str>,
    /// The part.
    pub part: Part,
}

/// A part of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The device as a whole.
    Whole,
    /// An NVLink link, by its number on the GPU or switch.
    Link(u32),
    /// A core of a CPU, by the kernel's number.
    Core(u32),
    /// A port of a network adapter, from 1.
    Port(u32),
}

/// Who measured a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names of the sources")]
pub enum Origin {
    Dcgm,
    Nvml,
    Host,
}

impl Origin {
    /// The source's name, as in [`super::signal::SourceState`].
    pub fn name(self) -> &'static str {
        match self {
            Self::Dcgm => "dcgm",
            Self::Nvml => "nvml",
            Self::Host => "host",
        }
    }
}

/// One value of one field.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// When the engine took the sample. Trap: not when it was read; an engine serves old samples for ever.
    pub at: MonoNs,
    /// What was measured.
    pub field: Field,
    /// The value in the field's own unit, or why there is none.
    pub value: SampleValue,
}

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// A DCGM field id; values of NVML come under the DCGM field that means the same.
    Dcgm(u16),
    /// A value of the host.
    Host(HostField),
}

macro_rules! host_fields {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),* $(,)?) => {
        /// Values of the host about a device, by their name in a replay file.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum HostField { $($(#[$doc])* $variant),* }

        impl HostField {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name in a replay file.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The field of a name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|field| field.name() == name)
            }
        }
    };
}

host_fields! {
    /// Current speed of the PCIe link. Unit: transfers/s per lane. Source: `current_link_speed`.
    PcieLinkSpeed = "pcie.link.speed",
    /// Greatest speed that both ends can do. Unit: transfers/s per lane. Source: `max_link_speed`.
    PcieLinkSpeedMax = "pcie.link.speed.max",
    /// Current width of the PCIe link. Unit: lanes. Source: `current_link_width`.
    PcieLinkWidth = "pcie.link.width",
    /// Greatest width that both ends can do. Unit: lanes. Source: `max_link_width`.
    PcieLinkWidthMax = "pcie.link.width.max",
    /// Correctable errors since boot. Unit: errors. Source: the total of `aer_dev_correctable`.
    AerCorrectable = "pcie.aer.correctable",
    /// Uncorrectable errors that are not fatal, since boot. Source: the total of `aer_dev_nonfatal`.
    AerNonFatal = "pcie.aer.nonfatal",
    /// Fatal errors since boot. Source: the total of `aer_dev_fatal`.
    AerFatal = "pcie.aer.fatal",
    /// Logical state of an InfiniBand port: 1 down, 2 init, 3 armed, 4 active, 5 active with defer. Source: `state`.
    IbState = "infiniband.port.state",
    /// Physical state: 1 sleep, 2 polling, 3 disabled, 4 training, 5 link up, 6 recovery, 7 test. Source: `phys_state`.
    IbPhysState = "infiniband.port.phys_state",
    /// Rate of an InfiniBand port. Unit: bit/s. Source: `rate`.
    IbRate = "infiniband.port.rate",
    /// Times the link went down since the counter was cleared. Source: `counters/link_downed`.
    IbLinkDowned = "infiniband.port.link_downed",
    /// Symbol errors since the counter was cleared. Source: `counters/symbol_error`.
    IbSymbolErrors = "infiniband.port.symbol_errors",
}

/// A measured value.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleValue {
    /// A whole number; exact, also above 2^53.
    Int(i64),
    /// A number.
    Number(f64),
    /// A text.
    Text(Arc<str>),
    /// Nothing.
    Absent(Absence),
}

macro_rules! absences {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),* $(,)?) => {
        /// Why a field has no value.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Absence { $($(#[$doc])* $variant),* }

        impl Absence {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The word on the wire and in a replay file.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The reason of a word.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|absence| absence.name() == name)
            }
        }
    };
}

absences! {
    /// Not sampled yet, or the reading failed.
    Blank = "blank",
    /// The entity or the field does not exist here.
    NotFound = "not_found",
    /// This device cannot give it.
    NotSupported = "not_supported",
    /// The engine may not have it: rights are missing.
    NotPermitted = "not_permitted",
    /// Older than 3 of its intervals.
    Stale = "stale",
    /// The source is down or late.
    SourceDown = "source_down",
    /// Profiling is paused.
    Paused = "paused",
    /// Spoils other fields of its group, or is spoiled by them.
    Conflict = "conflict",
    /// The library or the engine refuses the field.
    Refused = "refused",
    /// The installed library does not know the field.
    Unknown = "unknown_field",
    /// The module of the engine that gives it is not installed or did not load.
    ModuleMissing = "module_missing",
    /// The device is lost.
    DeviceLost = "device_lost",
    /// A value of a type that cannot be exported (binary).
    Unexportable = "unexportable",
    /// A value that cannot be: out of the field's range, or not a number.
    Invalid = "invalid",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for field in HostField::ALL {
            assert_eq!(HostField::from_name(field.name()), Some(*field));
        }
        for absence in Absence::ALL {
            assert_eq!(Absence::from_name(absence.name()), Some(*absence));
        }
        assert_eq!(HostField::from_name("pcie.nothing"), None);
        assert_eq!(Absence::from_name(""), None);
    }
}
