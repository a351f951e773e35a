//! What the kernel gives: whose processes /proc shows, cgroups, its log, the driver.
//!
//! In: the configuration and the host's file systems. Out: checks. The sources themselves say what they lack.
//! What can go wrong: nothing that is not a check's answer.

use std::fs;

use super::Check;
use crate::config::Config;
use crate::host::pid_namespace::{self, PidNamespace};
use crate::host::{HostRoot, cgroup_hierarchy};
use crate::sources::kmsg;

/// Whose pids /proc shows.
pub fn pid_namespace(host: &HostRoot) -> Check {
    const NAME: &str = "pid namespace";
    const REMEDY: &str = "run with the host's pid namespace (hostPID: true), or mount its /proc: --host-proc";
    match pid_namespace::of(host) {
        PidNamespace::Host => Check::yes(NAME, format!("{} is the host's", host.proc.display())),
        PidNamespace::Foreign => Check::no(
            NAME,
            "/proc is of another pid namespace than the host's: no attribution by pid",
            REMEDY,
        ),
        PidNamespace::Unknown(why) => Check::unknown(NAME, format!("cannot be told: {why}"), REMEDY),
    }
}

/// The hierarchy that carries the containers.
pub fn cgroups(config: &Config) -> Check {
    match cgroup_hierarchy::read(&config.host, config.probes.cgroup) {
        Ok(hierarchy) => {
            Check::yes("cgroups", format!("{:?} at {}", hierarchy.version, hierarchy.mount.display()))
        }
        Err(e) => {
            Check::no("cgroups", e.to_string(), "mount the host's /sys/fs/cgroup, or set probes.cgroup")
        }
    }
}

/// /dev/kmsg.
pub fn kernel_log(config: &Config) -> Check {
    const NAME: &str = "kernel log";
    if !config.kernel_log.enabled {
        return Check::off(NAME, "switched off by the configuration");
    }
    match kmsg::look(&config.host) {
        Ok(()) => Check::yes(NAME, format!("{} can be read", config.host.dev("kmsg").display())),
        Err(lack) => Check::lack(NAME, &lack),
    }
}

/// The driver's module.
pub fn driver(host: &HostRoot) -> Check {
    let path = host.proc("driver/nvidia/version");
    match fs::read_to_string(&path) {
        Ok(text) => Check::yes("driver", text.lines().next().unwrap_or("loaded").trim().to_owned()),
        Err(e) => Check::no(
            "driver",
            format!("{}: {e}", path.display()),
            "load the NVIDIA driver (modprobe nvidia); without it there is nothing to measure",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;
    use crate::test_dir::TestDir;

    #[test]
    fn the_driver_is_what_its_version_file_says() {
        let dir = TestDir::new();
        let host = HostRoot { proc: dir.path().to_owned(), ..HostRoot::default() };
        assert_eq!(driver(&host).verdict, Verdict::No);
        fs::create_dir_all(dir.path().join("driver/nvidia")).unwrap();
        let line =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.142  Release Build\nGCC: x\n";
        fs::write(dir.path().join("driver/nvidia/version"), line).unwrap();
        let check = driver(&host);
        assert_eq!(check.verdict, Verdict::Yes);
        assert!(check.what.contains("580.142") && !check.what.contains("GCC"), "{}", check.what);
    }
}
