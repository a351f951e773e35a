//! The kernel's file systems at their usual places, and memory for what is written.
//!
//! In: the packed files as root. Out: mounts. What can go wrong: the kernel lacks one; the error names it.

use std::ffi::CStr;
use std::{fs, io};

use rustix::mount::{MountFlags, mount};

use crate::about;

/// Kind, place and options. cgroup2 is the unified hierarchy: nobody has taken a controller for version 1.
const MOUNTS: [(&str, &str, &CStr); 9] = [
    ("proc", "/proc", c""),
    ("sysfs", "/sys", c""),
    ("devtmpfs", "/dev", c""),
    ("tmpfs", "/run", c"mode=0755"),
    ("tmpfs", "/tmp", c"mode=1777"),
    ("tmpfs", "/var", c"mode=0755"),
    ("tracefs", "/sys/kernel/tracing", c""),
    ("bpf", "/sys/fs/bpf", c""),
    ("cgroup2", "/sys/fs/cgroup", c""),
];

/// Mounts all of them.
pub fn mount_all() -> io::Result<()> {
    for (kind, place, options) in MOUNTS {
        // those below /sys are there as soon as that is mounted
        if !place.starts_with("/sys/") {
            fs::create_dir_all(place).map_err(|e| about(place, e))?;
        }
        mount(kind, place, kind, MountFlags::empty(), options)
            .map_err(|e| about(&format!("mounting {kind} at {place}"), e))?;
    }
    Ok(())
}
