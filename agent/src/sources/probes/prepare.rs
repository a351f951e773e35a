//! From nothing to programs at work: what the kernel offers, what the programs must know, the object, the attachments.
//!
//! In: the configuration, and the machine's files. Out: [`Ready`]. Blocks for up to some seconds.
//! What can go wrong: all that [`LoadError`] names; all of it that can be known at once is said at once.

use std::fs;

use warpgauge_ebpf::ioctl_type::TypeSet;
use warpgauge_ebpf::prefix::Prefix;

use crate::config::ProbesConfig;
use crate::host::HostRoot;
use crate::host::cgroup_hierarchy::{self, Hierarchy};

use super::attached::Driver;
use super::btf::Btf;
use super::groups::Group;
use super::kernel::Kernel;
use super::load_error::LoadError;
use super::majors::Majors;
use super::object::{self, Loaded, Settings};
use super::offsets::Offsets;
use super::tactics::{self, PROBES};
use super::{SLOW, upkeep};

/// What is known and at work before the first signal.
pub(super) struct Ready {
    pub(super) kernel: Kernel,
    pub(super) driver: Driver,
    pub(super) group: Group,
    pub(super) majors: Majors,
    pub(super) loaded: Loaded,
}

/// Everything up to programs at work; else everything that is missing, so that it can be mended in one go.
pub(super) fn prepare(config: &ProbesConfig, host: &HostRoot) -> Result<Ready, Vec<LoadError>> {
    if !config.enabled {
        return Err(vec![LoadError::Disabled]);
    }
    if !object::is_built() {
        return Err(vec![LoadError::NotBuilt]);
    }
    let mut missing = Vec::new();
    let mut need = |error: LoadError| missing.push(error);
    let kernel = Kernel::look(host, tactics::events());
    if kernel.tracefs.is_none() {
        need(if kernel.tracefs_denied { LoadError::TracefsDenied } else { LoadError::NoTracefs });
    }
    let prefix = Prefix::new(config.open_prefix.as_bytes());
    if prefix.is_none() {
        need(LoadError::Prefix(config.open_prefix.clone()));
    }
    let hierarchy = cgroup_hierarchy::read(host, config.cgroup).map_err(|error| need(error.into())).ok();
    let btf = read_btf(host).map_err(need).ok();
    let (Some(prefix), Some(hierarchy), Some(btf), true) = (prefix, hierarchy, btf, missing.is_empty())
    else {
        return Err(missing);
    };
    load(config, host, kernel, prefix, &hierarchy, &btf).map_err(|error| vec![error])
}

fn read_btf(host: &HostRoot) -> Result<Btf, LoadError> {
    let path = host.sys("kernel/btf/vmlinux");
    let bytes = fs::read(&path).map_err(|source| LoadError::NoBtf { path, source })?;
    Ok(Btf::parse(bytes)?)
}

fn load(
    config: &ProbesConfig,
    host: &HostRoot,
    kernel: Kernel,
    open_prefix: Prefix,
    hierarchy: &Hierarchy,
    btf: &Btf,
) -> Result<Ready, LoadError> {
    let offsets = Offsets::resolve(btf, hierarchy.version)?;
    for member in offsets.missing() {
        tracing::warn!(
            member,
            "this kernel lacks something that one probe looks at; the others are not affected"
        );
    }
    let devices = fs::read_to_string(host.proc("devices")).unwrap_or_default();
    let majors = match &config.majors {
        Some(numbers) => Majors::configured(numbers),
        None => Majors::of_nvidia(&devices),
    };
    if config.majors.is_none() && !devices.contains("nvidia") {
        tracing::warn!(
            reason = "no_driver",
            what = "no nvidia device in /proc/devices",
            remedy = "load the NVIDIA driver; its calls are watched from then on",
            "This node has no NVIDIA driver now; there is nothing to watch yet."
        );
    }
    let settings = Settings {
        slow_ns: u64::try_from(SLOW.as_nanos()).unwrap_or(u64::MAX),
        own_pid: own_pid(host),
        hierarchy: hierarchy.version,
        open_prefix,
        // what is foreign to NVIDIA's driver may be the very thing to a device somebody names
        foreign_types: if config.majors.is_some() { TypeSet::EMPTY } else { TypeSet::FOREIGN },
    };
    let driver = upkeep::look_at_driver(host);
    let group = Group::own(host, settings.own_pid);
    if let Some(tracefs) = &kernel.tracefs {
        let cleared = group.clear_stale(tracefs, host, kernel.host_pids);
        if cleared.removed > 0 {
            tracing::info!(events = cleared.removed, "kprobe events of agents that are gone were removed");
        }
        if let Some((events, error)) = cleared.kept {
            tracing::warn!(events, error, "kprobe events of agents that are gone could not be removed");
        }
    }
    let loaded = Loaded::new(&kernel, &driver, &PROBES, group, &offsets, &settings, majors.array())?;
    warpgauge_ebpf::heap::give_back();
    let watched: Vec<u32> = majors.array().into_iter().filter(|major| *major != 0).collect();
    tracing::info!(cgroups = %hierarchy.mount.display(), majors = ?watched, "kernel programs are loaded");
    Ok(Ready { kernel, driver, group, majors, loaded })
}

/// The agent's number as kernel programs see it: procfs of the host answers in the host's numbers.
pub(in crate::sources) fn own_pid(host: &HostRoot) -> u32 {
    let link = fs::read_link(host.proc("self")).ok();
    link.and_then(|link| link.to_str()?.parse().ok()).unwrap_or_else(std::process::id)
}
