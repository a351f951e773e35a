//! What the kernel shows of the GPUs: PCI devices, device nodes, the module; and whether a container was given them.
//!
//! In: the host's file systems and one environment variable. Out: checks. Nothing is opened but text files.
//! What can go wrong: nothing that is not a check's answer.

use std::fs;
use std::path::Path;

use super::{Check, Verdict};
use crate::config::Config;
use crate::host::HostRoot;

/// NVIDIA's PCI vendor id, as sysfs writes it.
const VENDOR: &str = "0x10de";
/// Class of a display controller (03xxxx): GPUs; NVSwitches and audio functions have others.
const DISPLAY: &str = "0x03";
/// Nodes that every user of the driver opens first.
const CONTROL: &str = "nvidiactl";

/// Whether nothing of NVIDIA's hardware is seen: neither a GPU on the bus nor a node of one.
pub fn no_gpu_at_all(host: &HostRoot) -> bool {
    pci(host).verdict == Verdict::No && count_gpus(host) == 0
}

/// All of them.
pub fn checks(config: &Config, visible: Option<&str>) -> Vec<Check> {
    let host = &config.host;
    let mut checks = vec![pci(host), module(host), device_nodes(host)];
    checks.extend(container(host, visible));
    checks.push(run_dir(config.run_dir.as_deref()));
    checks
}

/// GPUs on the PCI bus, whether or not a driver sees them.
fn pci(host: &HostRoot) -> Check {
    const NAME: &str = "PCI devices";
    let dir = host.sys("bus/pci/devices");
    let entries = match fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(e) => return Check::unknown(NAME, format!("{}: {e}", dir.display()), "mount the host's /sys"),
    };
    let is = |path: &Path, file: &str, start: &str| {
        fs::read_to_string(path.join(file)).is_ok_and(|text| text.trim().starts_with(start))
    };
    let gpus = entries
        .filter_map(Result::ok)
        .filter(|entry| is(&entry.path(), "vendor", VENDOR) && is(&entry.path(), "class", DISPLAY))
        .count();
    match gpus {
        0 => Check::no(
            NAME,
            "no GPU of NVIDIA on the PCI bus",
            "none, if this node has no GPU; else look at lspci",
        ),
        n => Check::yes(NAME, format!("GPUs of NVIDIA on the bus: {n}")),
    }
}

/// The kernel module.
fn module(host: &HostRoot) -> Check {
    const NAME: &str = "kernel module";
    let path = host.sys("module/nvidia");
    if !path.exists() {
        return Check::no(
            NAME,
            format!("{} is not there: the module nvidia is not loaded", path.display()),
            "modprobe nvidia; if the package was updated, its module may not have been built for this kernel",
        );
    }
    let text = |file: &str| fs::read_to_string(path.join(file)).map(|text| text.trim().to_owned());
    let state = text("initstate").unwrap_or_else(|_| "live".to_owned());
    let users = text("refcnt").map_or(String::new(), |n| format!(", reference count {n}"));
    let version = text("version").map_or(String::new(), |version| format!(", {version}"));
    let what = format!("{state}{version}{users}");
    if state == "live" {
        Check::yes(NAME, what)
    } else {
        Check::no(NAME, what, "it is being loaded or unloaded; look at the kernel log if that lasts")
    }
}

/// The device nodes of the driver.
fn device_nodes(host: &HostRoot) -> Check {
    const NAME: &str = "device nodes";
    let mut gpus = 0;
    let mut others = Vec::new();
    for entry in fs::read_dir(&host.dev).into_iter().flatten().filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        match name.strip_prefix("nvidia") {
            Some(number) if number.parse::<u32>().is_ok() => gpus += 1,
            Some(_) => others.push(name),
            None => {}
        }
    }
    others.sort();
    let what = format!(
        "{gpus} of GPUs; {}",
        if others.is_empty() { "no others".to_owned() } else { others.join(", ") }
    );
    let remedy =
        "`nvidia-modprobe -u -c=0` or nvidia-persistenced makes them; in a container see the next line";
    if others.iter().any(|name| name == CONTROL) && gpus > 0 {
        Check::yes(NAME, what)
    } else {
        Check::no(NAME, format!("{}: {what}", host.dev.display()), remedy)
    }
}

fn count_gpus(host: &HostRoot) -> usize {
    let names = fs::read_dir(&host.dev).into_iter().flatten().filter_map(Result::ok);
    let is_gpu = |name: &str| name.strip_prefix("nvidia").is_some_and(|number| number.parse::<u32>().is_ok());
    names.filter(|entry| is_gpu(&entry.file_name().to_string_lossy())).count()
}

/// Whether this container was given the GPUs; nothing outside of one.
fn container(host: &HostRoot, visible: Option<&str>) -> Option<Check> {
    const NAME: &str = "container";
    let marks = ["/.dockerenv", "/run/.containerenv"];
    let env = ["container", "KUBERNETES_SERVICE_HOST"];
    let inside = marks.iter().any(|mark| Path::new(mark).exists())
        || env.iter().any(|name| std::env::var_os(name).is_some());
    let nodes = if host.dev(CONTROL).exists() { Some(count_gpus(host) > 0) } else { None };
    inside
        .then(|| given(nodes, visible))
        .map(|(verdict, what, remedy)| Check { verdict, ..Check::no(NAME, what, remedy) })
}

/// `nodes`: whether there are nodes of GPUs; `None`: not even the driver's own.
fn given(nodes: Option<bool>, visible: Option<&str>) -> (Verdict, String, &'static str) {
    let remedy = "use the runtime class nvidia with NVIDIA_VISIBLE_DEVICES=all, or mount the driver's root; see \
                  docs/deploy.md";
    match (nodes, visible) {
        (Some(true), _) => (Verdict::Yes, "the driver's device nodes are here".to_owned(), ""),
        (Some(false), _) => (
            Verdict::Unknown,
            "the driver's own device node is here, but none of a GPU: none was given, or there is none"
                .to_owned(),
            remedy,
        ),
        (None, None) => (
            Verdict::No,
            "no /dev/nvidiactl, and NVIDIA_VISIBLE_DEVICES is not set: no GPU was given".to_owned(),
            remedy,
        ),
        (None, Some("void" | "none" | "")) => {
            (Verdict::No, "no /dev/nvidiactl: NVIDIA_VISIBLE_DEVICES gives no GPU".to_owned(), remedy)
        }
        (None, Some(_)) => (
            Verdict::No,
            "no /dev/nvidiactl, though NVIDIA_VISIBLE_DEVICES is set: not NVIDIA's container runtime"
                .to_owned(),
            remedy,
        ),
    }
}

/// Where the control socket goes.
fn run_dir(dir: Option<&Path>) -> Check {
    const NAME: &str = "run directory";
    let Some(dir) = dir else { return Check::off(NAME, "none is wanted, as configured") };
    let mut probe = dir;
    while !probe.exists() {
        match probe.parent() {
            Some(parent) => probe = parent,
            None => break,
        }
    }
    let writable = rustix::fs::access(probe, rustix::fs::Access::WRITE_OK);
    match writable {
        Ok(()) if probe == dir => Check::yes(NAME, format!("{} is there", dir.display())),
        Ok(()) => Check::yes(NAME, format!("{} can be made", dir.display())),
        Err(e) => Check::no(
            NAME,
            format!("{}: {e}", probe.display()),
            "run as root, or name another directory by --run-dir; without it no driver, profiling and fields",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir::TestDir;

    fn host(dir: &TestDir) -> HostRoot {
        HostRoot {
            proc: dir.path().join("proc"),
            sys: dir.path().join("sys"),
            dev: dir.path().join("dev"),
            ..HostRoot::default()
        }
    }

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn gpus_on_the_bus_are_told_from_switches_and_other_vendors() {
        let dir = TestDir::new();
        let host = host(&dir);
        assert_eq!(pci(&host).verdict, Verdict::Unknown);
        for (name, vendor, class) in [("a", "0x10de", "0x068000"), ("b", "0x8086", "0x030000")] {
            write(&host.sys(format!("bus/pci/devices/{name}/vendor")), vendor);
            write(&host.sys(format!("bus/pci/devices/{name}/class")), class);
        }
        assert_eq!(pci(&host).verdict, Verdict::No);
        write(&host.sys("bus/pci/devices/c/vendor"), "0x10de\n");
        write(&host.sys("bus/pci/devices/c/class"), "0x030200\n");
        let check = pci(&host);
        assert_eq!((check.verdict, check.what.as_str()), (Verdict::Yes, "GPUs of NVIDIA on the bus: 1"));
    }

    #[test]
    fn the_module_is_live_or_it_is_not() {
        let dir = TestDir::new();
        let host = host(&dir);
        assert_eq!(module(&host).verdict, Verdict::No);
        write(&host.sys("module/nvidia/initstate"), "live\n");
        write(&host.sys("module/nvidia/refcnt"), "12\n");
        write(&host.sys("module/nvidia/version"), "580.142\n");
        let check = module(&host);
        assert_eq!((check.verdict, check.what.as_str()), (Verdict::Yes, "live, 580.142, reference count 12"));
        write(&host.sys("module/nvidia/initstate"), "going\n");
        assert_eq!(module(&host).verdict, Verdict::No);
    }

    #[test]
    fn a_node_without_a_gpu_is_known_by_its_bus_and_its_nodes() {
        let dir = TestDir::new();
        let host = host(&dir);
        assert!(!no_gpu_at_all(&host), "the bus cannot be seen");
        write(&host.sys("bus/pci/devices/b/vendor"), "0x8086");
        write(&host.dev("nvidiactl"), "");
        assert!(no_gpu_at_all(&host));
        write(&host.dev("nvidia3"), "");
        assert!(!no_gpu_at_all(&host));
    }

    #[test]
    fn device_nodes_need_the_control_node_and_a_gpu() {
        let dir = TestDir::new();
        let host = host(&dir);
        for (node, want) in [
            ("null", Verdict::No),
            ("nvidiactl", Verdict::No),
            ("nvidia-uvm", Verdict::No),
            ("nvidia0", Verdict::Yes),
        ] {
            write(&host.dev(node), "");
            assert_eq!(device_nodes(&host).verdict, want, "{node}");
        }
        assert_eq!(device_nodes(&host).what, "1 of GPUs; nvidia-uvm, nvidiactl");
    }

    #[test]
    fn a_container_without_gpus_says_which_variable_is_missing() {
        for (nodes, visible, verdict, want) in [
            (Some(true), None, Verdict::Yes, "are here"),
            (Some(false), Some("all"), Verdict::Unknown, "none of a GPU"),
            (None, None, Verdict::No, "is not set"),
            (None, Some("void"), Verdict::No, "gives no GPU"),
            (None, Some("all"), Verdict::No, "not NVIDIA's container runtime"),
        ] {
            let (found, what, remedy) = given(nodes, visible);
            assert!(what.contains(want), "{what}");
            assert_eq!((found, remedy.is_empty()), (verdict, verdict == Verdict::Yes), "{what}");
        }
    }

    #[test]
    fn a_run_directory_that_can_be_made_is_fine() {
        let dir = TestDir::new();
        assert!(run_dir(Some(&dir.path().join("a/b"))).what.ends_with("can be made"));
        assert!(run_dir(Some(dir.path())).what.ends_with("is there"));
        assert_eq!(run_dir(None).verdict, Verdict::Off);
    }
}
