//! What a test needs of the machine, and the record of those that cannot run here.
//!
//! In: needs. Out: `true`, or `false` and a line `test need` in the file that `cargo xtask test` checks against
//! `tests/skips.allow`. A test that returns early without this record would pass for the wrong reason.

use std::io::Write;
use std::path::Path;

use super::{cgroups, programs, tty};

/// Something that not every machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Run as root, with all capabilities.
    Root,
    /// The kernel programs were built (`cargo xtask build-ebpf`) and the kernel has BTF and tracefs.
    Probes,
    /// The kernel has modules, and the event of unloading one.
    Modules,
    /// The kernel describes its types.
    Btf,
    /// A virtual terminal to wait for.
    Tty0,
    /// The OpenTelemetry Collector was built.
    Collector,
    /// The check of Kubernetes manifests was built.
    ManifestCheck,
    /// The kubelet made of Kubernetes' own code was built.
    KubeletJudge,
    /// NVIDIA's own libnvidia-ml.
    RealNvml,
    /// Prometheus itself, from Debian.
    Prometheus,
    /// The image's file system was made.
    Image,
    /// A v1 pids hierarchy.
    CgroupV1,
    /// A v2 hierarchy.
    CgroupV2,
    /// /dev/kmsg can be written.
    KmsgWrite,
    /// Reading the kernel log needs a right (`kernel.dmesg_restrict=1`).
    DmesgRestricted,
    /// This is a guest of `cargo xtask vm-test`, with the driver's double.
    Vm,
}

impl Need {
    fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Probes => "probes",
            Self::Modules => "modules",
            Self::Btf => "btf",
            Self::Tty0 => "tty0",
            Self::Collector => "collector",
            Self::ManifestCheck => "manifest-check",
            Self::KubeletJudge => "kubelet-judge",
            Self::RealNvml => "real-nvml",
            Self::Prometheus => "prometheus",
            Self::Image => "image",
            Self::CgroupV1 => "cgroup-v1",
            Self::CgroupV2 => "cgroup-v2",
            Self::KmsgWrite => "kmsg-write",
            Self::DmesgRestricted => "dmesg-restricted",
            Self::Vm => "vm",
        }
    }

    /// Whether this machine has it.
    pub fn is_met(self) -> bool {
        match self {
            Self::Root => rustix::process::geteuid().is_root(),
            Self::Probes => {
                warpgauge::sources::probes::object::is_built()
                    && Path::new("/sys/kernel/btf/vmlinux").is_file()
                    && Path::new("/sys/kernel/tracing/events/syscalls/sys_enter_ioctl").is_dir()
            }
            Self::Modules => {
                Path::new("/sys/kernel/tracing/events/syscalls/sys_enter_delete_module").is_dir()
            }
            Self::Btf => Path::new("/sys/kernel/btf/vmlinux").is_file(),
            Self::Tty0 => tty::active().is_some(),
            Self::Collector => programs::collector().is_file(),
            Self::ManifestCheck => programs::manifest_check().is_file(),
            Self::KubeletJudge => programs::kubelet_judge().is_file(),
            Self::RealNvml => programs::real_nvml().is_file(),
            Self::Prometheus => programs::prometheus().is_file(),
            Self::Image => programs::workspace().join("target/image/rootfs/usr/bin/warpgauge").is_file(),
            Self::CgroupV1 => cgroups::mount(cgroups::Version::V1).is_some(),
            Self::CgroupV2 => cgroups::mount(cgroups::Version::V2).is_some(),
            Self::KmsgWrite => std::fs::OpenOptions::new().write(true).open("/dev/kmsg").is_ok(),
            Self::DmesgRestricted => std::fs::read_to_string("/proc/sys/kernel/dmesg_restrict")
                .is_ok_and(|value| value.trim() == "1"),
            Self::Vm => std::env::var_os("WARPGAUGE_VM").is_some(),
        }
    }
}

/// Whether all needs are met; if not, the skip is recorded.
#[must_use]
#[expect(clippy::print_stderr, clippy::expect_used, reason = "a skip must be seen, or fail")]
pub fn met(test: &str, needs: &[Need]) -> bool {
    let Some(unmet) = needs.iter().find(|need| !need.is_met()) else { return true };
    eprintln!("skipped: {test} needs {}", unmet.name());
    if let Some(record) = std::env::var_os("WARPGAUGE_SKIPPED") {
        let mut file =
            std::fs::OpenOptions::new().create(true).append(true).open(record).expect("skip record");
        writeln!(file, "{test} {}", unmet.name()).expect("skip record");
    }
    false
}

/// Returns from the test when a need is not met.
#[macro_export]
macro_rules! needs {
    ($($need:ident),+) => {{
        let test = std::thread::current().name().unwrap_or("unnamed").to_owned();
        if !$crate::harness::need::met(&test, &[$($crate::harness::need::Need::$need),+]) {
            return;
        }
    }};
}
