//! The host as a value: where its file systems are, and its clocks.
//!
//! In: configuration (`--host-proc` and its like, for an agent in a container). Out: paths and readings.
//! The only place that knows where /proc, /sys and /dev are. Nothing here fails; opening the paths may.

pub mod cgroup_hierarchy;
pub mod hidden;
mod own_file;
pub mod pid_namespace;
pub mod process_usage;
pub mod state_dir;

use std::path::{Path, PathBuf};

use rustix::time::{ClockId, clock_gettime};

use crate::model::{MonoNs, WallAnchor, WallNs};

/// Where the host's file systems are mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRoot {
    /// procfs.
    pub proc: PathBuf,
    /// sysfs, with the cgroup hierarchies, tracefs and BTF below it.
    pub sys: PathBuf,
    /// Device nodes.
    pub dev: PathBuf,
    /// Log files, with the kubelet's folders `pods` and `containers`.
    pub var_log: PathBuf,
}

impl Default for HostRoot {
    fn default() -> Self {
        Self { proc: "/proc".into(), sys: "/sys".into(), dev: "/dev".into(), var_log: "/var/log".into() }
    }
}

impl HostRoot {
    /// A path below procfs.
    pub fn proc(&self, below: impl AsRef<Path>) -> PathBuf {
        self.proc.join(below)
    }

    /// A path below sysfs.
    pub fn sys(&self, below: impl AsRef<Path>) -> PathBuf {
        self.sys.join(below)
    }

    /// A path below /dev.
    pub fn dev(&self, below: impl AsRef<Path>) -> PathBuf {
        self.dev.join(below)
    }

    /// A path below /var/log.
    pub fn var_log(&self, below: impl AsRef<Path>) -> PathBuf {
        self.var_log.join(below)
    }
}

/// CLOCK_MONOTONIC now.
pub fn mono_now() -> MonoNs {
    MonoNs(nanos(ClockId::Monotonic))
}

/// Both clocks now, as close together as two calls can be.
pub fn wall_anchor() -> WallAnchor {
    WallAnchor { mono: mono_now(), wall: WallNs(nanos(ClockId::Realtime)) }
}

fn nanos(clock: ClockId) -> u64 {
    let t = clock_gettime(clock);
    let seconds = u64::try_from(t.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(t.tv_nsec).unwrap_or(0))
}

/// How long the machine was suspended since boot: the boot-time clock counts it, the monotonic one does not.
pub fn suspended_ns() -> u64 {
    nanos(ClockId::Boottime).saturating_sub(nanos(ClockId::Monotonic))
}
