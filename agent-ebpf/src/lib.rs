//! What the kernel programs and the agent share: the layout of every map, key, value and event.
//!
//! In: nothing. Out: `repr(C)` types without hidden padding (the kernel compares keys byte by byte), and the pure
//! rules both sides must agree on. Under feature `user`: reading those types back, and attaching programs.
//! What can go wrong: a layout that differs between the two sides; sizes are asserted at compile time.
#![no_std]

#[cfg(feature = "user")]
extern crate std;

pub mod calls;
pub mod event;
pub mod histogram;
pub mod ioctl_type;
pub mod layout;
pub mod lock;
pub mod loss;
pub mod prefix;
pub mod program;
pub mod returns;
pub mod rm;
pub mod schedule;
pub mod syscall;
pub mod unload;

#[cfg(feature = "user")]
pub mod attach;
#[cfg(feature = "user")]
pub mod heap;
#[cfg(feature = "user")]
pub mod pod;

/// Names of the maps, as the object spells them (the kernel keeps 15 bytes).
pub mod maps {
    /// Hash [`InFlightKey`](crate::calls::InFlightKey) → [`InFlight`](crate::calls::InFlight).
    pub const IN_FLIGHT: &str = "IN_FLIGHT";
    /// Hash [`HistogramKey`](crate::histogram::HistogramKey) → [`Histogram`](crate::histogram::Histogram).
    pub const HISTOGRAMS: &str = "HISTOGRAMS";
    /// Ring buffer of [`SlowCall`](crate::calls::SlowCall).
    pub const SLOW_CALLS: &str = "SLOW_CALLS";
    /// Ring buffer of [`Unload`](crate::unload::Unload).
    pub const UNLOADS: &str = "UNLOADS";
    /// Array of `u64`, indexed by [`Loss`](crate::loss::Loss).
    pub const LOSSES: &str = "LOSSES";
    /// Array with one element: the watched majors, 0 where unused. A map, so that a change needs no reload.
    pub const MAJORS: &str = "MAJORS";
    /// Array with one element, `u32`: kinds of calls, as bits `1 << kind`, whose end is seen at the driver's own function,
    /// each time. A map, so that a probe may be attached in another way without a reload.
    pub const SURE_RETURNS: &str = "SURE_RETURNS";
    /// Array with one element, `u32`: 1 where what RM is asked for and answers is read from the block of an ioctl.
    pub const RM_FROM_BLOCK: &str = "RM_FROM_BLOCK";

    /// Ring buffer of [`Event`](crate::event::Event).
    pub const EVENTS: &str = "EVENTS";
    /// Hash tgid (`u32`) → [`KnownProcess`](crate::event::KnownProcess). User space deletes.
    pub const PROCESSES: &str = "PROCESSES";
    /// Hash [`RmKey`](crate::rm::RmKey) → [`RmSum`](crate::rm::RmSum). User space deletes.
    pub const RM_CALLS: &str = "RM_CALLS";
    /// Hash [`HeldKey`](crate::lock::HeldKey) → [`Held`](crate::lock::Held).
    pub const HELD: &str = "HELD";
    /// Hash tgid (`u32`) → until when (`u64`, ns, monotonic) its threads are followed by the scheduler's programs.
    pub const ARMED: &str = "ARMED";
    /// Hash tid (`u32`) → [`Off`](crate::schedule::Off).
    pub const OFF: &str = "OFF";
    /// Hash [`OffKey`](crate::schedule::OffKey) → [`OffSum`](crate::schedule::OffSum).
    pub const OFF_SUMS: &str = "OFF_SUMS";

    /// Bytes of the ring buffer of events.
    pub const EVENTS_BYTES: u32 = 64 * 1024;
    /// Most processes known to call the driver.
    pub const PROCESS_ENTRIES: u32 = 8192;
    /// Most keys of RM calls.
    pub const RM_ENTRIES: u32 = 8192;
    /// Most locks held at once.
    pub const HELD_ENTRIES: u32 = 4096;
    /// Most processes followed by the scheduler's programs at once.
    pub const ARMED_ENTRIES: u32 = 64;
    /// Most of their threads off the processor at once.
    pub const OFF_ENTRIES: u32 = 4096;
    /// Most sums of theirs.
    pub const OFF_SUM_ENTRIES: u32 = ARMED_ENTRIES * crate::schedule::reason::COUNT;

    /// Most calls in flight at once.
    pub const IN_FLIGHT_ENTRIES: u32 = 8192;
    /// Most histogram keys.
    pub const HISTOGRAM_ENTRIES: u32 = 8192;
    /// Bytes of the ring buffer of slow calls.
    pub const SLOW_CALLS_BYTES: u32 = 256 * 1024;
    /// Bytes of the ring buffer of unload attempts: a page, where pages are larger than this the loader takes one.
    pub const UNLOADS_BYTES: u32 = 4096;
    /// Bytes of the ring buffer of log lines. Source: `aya-log-ebpf`, which fixes it.
    pub const LOG_BYTES: u32 = 128 * 1024;
    /// Most majors watched at once.
    pub const MAJOR_SLOTS: usize = 8;
}

/// Names of the values the agent sets before it loads the object; members of kernel structures are in [`layout`].
pub mod globals {
    /// `u64`: a call at least this long gets an event when it ends. Unit: ns.
    pub const SLOW_NS: &str = "SLOW_NS";
    /// `u32`: the agent itself, which is not watched.
    pub const OWN_TGID: &str = "OWN_TGID";
    /// `u32`: [`CGROUP_V1`] or [`CGROUP_V2`].
    pub const CGROUP_MODE: &str = "CGROUP_MODE";
    /// `u32`: index of the pids controller in `css_set.subsys`; differs between kernel builds.
    pub const PIDS_SUBSYS: &str = "PIDS_SUBSYS";
    /// [`Prefix`](crate::prefix::Prefix): paths whose opens are watched.
    pub const OPEN_PREFIX: &str = "OPEN_PREFIX";
    /// [`TypeSet`](crate::ioctl_type::TypeSet): ioctl commands that are passed over unseen.
    pub const FOREIGN_TYPES: &str = "FOREIGN_TYPES";

    /// The pids controller's hierarchy (v1 and hybrid hosts).
    pub const CGROUP_V1: u32 = 1;
    /// The unified hierarchy.
    pub const CGROUP_V2: u32 = 2;
}
