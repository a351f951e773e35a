//! What the kernel programs could not do, counted where it happened.
//!
//! In: a failed map insert or a failed read of kernel memory. Out: one counter per reason, which the agent publishes
//! as `warpgauge.probe.lost{reason}`. The counters are shared by all CPUs: losses are rare.

/// A reason; its number is the index into the map of counters.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// A call was not followed: too many calls in flight.
    InFlightFull = 0,
    /// A finished call was not counted: too many histogram keys.
    HistogramFull = 1,
    /// The end of a slow call was not reported: the ring buffer was full.
    RingFull = 2,
    /// A call was recorded without its cgroup.
    CgroupUnreadable = 3,
    /// A call was recorded without the start time of its process.
    TaskUnreadable = 4,
    /// A descriptor could not be followed to its device: the call was not looked at.
    FileUnreadable = 5,
    /// A call's return was not seen: its thread was found in a later call, and its length is unknown.
    ReturnMissed = 6,
    /// The name of a module that somebody unloads could not be read: it may have been the driver's.
    UnloadUnreadable = 7,
    /// An event was not told: the ring buffer was full.
    EventsFull = 8,
    /// A process's end will not be told: too many processes call the driver.
    ProcessesFull = 9,
    /// An RM call was not summed: too many keys.
    RmFull = 10,
    /// A lock's holder is not known: too many locks are held.
    HeldFull = 11,
    /// A thread's time off the processor was not summed: too many threads.
    OffFull = 12,
    /// The arguments of a driver function could not be read.
    ArgumentUnreadable = 13,
}

impl Loss {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 14] = [
        Self::InFlightFull,
        Self::HistogramFull,
        Self::RingFull,
        Self::CgroupUnreadable,
        Self::TaskUnreadable,
        Self::FileUnreadable,
        Self::ReturnMissed,
        Self::UnloadUnreadable,
        Self::EventsFull,
        Self::ProcessesFull,
        Self::RmFull,
        Self::HeldFull,
        Self::OffFull,
        Self::ArgumentUnreadable,
    ];

    /// The value of `reason`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InFlightFull => "in_flight_full",
            Self::HistogramFull => "histogram_full",
            Self::RingFull => "ring_full",
            Self::CgroupUnreadable => "cgroup_unreadable",
            Self::TaskUnreadable => "task_unreadable",
            Self::FileUnreadable => "file_unreadable",
            Self::ReturnMissed => "return_missed",
            Self::UnloadUnreadable => "unload_unreadable",
            Self::EventsFull => "events_full",
            Self::ProcessesFull => "processes_full",
            Self::RmFull => "rm_full",
            Self::HeldFull => "held_full",
            Self::OffFull => "off_full",
            Self::ArgumentUnreadable => "argument_unreadable",
        }
    }
}

/// Length of the map of counters.
pub const LOSSES: u32 = Loss::ALL.len() as u32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_positions() {
        for (position, loss) in Loss::ALL.into_iter().enumerate() {
            assert_eq!(loss as usize, position, "{}", loss.name());
        }
    }
}
