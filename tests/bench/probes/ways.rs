//! Ways to attach the probes: one row of the table of tactics at a time, forced, or all probes as the agent has them.
//!
//! In: this kernel and its driver. Out: programs on their events, and off them again.
//! A row is forced by facts: a kernel that is said to have no kprobes takes the third one.
//! What can go wrong: the kernel refuses a way; [`Ground::takes`] says so.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use warpgauge::config::CgroupChoice;
use warpgauge::host::HostRoot;
use warpgauge::host::cgroup_hierarchy::{self, Version};
use warpgauge::sources::probes::attached::Driver;
use warpgauge::sources::probes::btf::Btf;
use warpgauge::sources::probes::groups::Group;
use warpgauge::sources::probes::kernel::{Kernel, Support};
use warpgauge::sources::probes::majors::Majors;
use warpgauge::sources::probes::object::{Loaded, Settings};
use warpgauge::sources::probes::offsets::Offsets;
use warpgauge::sources::probes::reload::{Builds, Loads};
use warpgauge::sources::probes::symbols::Symbols;
use warpgauge::sources::probes::tactics::{self, PROBES, Probe, Tactic};
use warpgauge_ebpf::ioctl_type::TypeSet;
use warpgauge_ebpf::prefix::Prefix;
use warpgauge_tests::harness::tty;

/// The agent's set without that of the command that is asked for here.
const FOREIGN: TypeSet = TypeSet::of(&[b'T', 0x89, b'$', 0xae]);
/// Of no process: this one's own calls are to be followed.
const NOBODY: u32 = u32::MAX;

/// A way to attach them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Ioctls alone, by a row.
    Ioctl(Tactic),
    /// All probes that the agent attaches, each by the best row.
    All,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [
        Self::Ioctl(Tactic::TracefsKprobe),
        Self::Ioctl(Tactic::PerfKprobe),
        Self::Ioctl(Tactic::SyscallTracepoint),
        Self::All,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ioctl(tactic) => tactic.name(),
            Self::All => "all probes",
        }
    }

    fn probes(self) -> impl DoubleEndedIterator<Item = Probe> {
        // the scheduler's is on demand
        PROBES.into_iter().filter(move |probe| match self {
            Self::Ioctl(_) => *probe == Probe::Ioctl,
            Self::All => *probe != Probe::Scheduler,
        })
    }
}

/// Where everything happens.
pub(crate) struct Ground {
    pub(crate) release: String,
    /// A device that is watched.
    pub(crate) watched: PathBuf,
    pub(crate) settings: Settings,
    btf: Btf,
    kernel: Kernel,
    driver: Driver,
    majors: Majors,
}

impl Ground {
    /// The driver's device where there is one, else a virtual terminal in its place.
    pub(crate) fn look() -> anyhow::Result<Self> {
        let host = HostRoot::default();
        let kernel = Kernel::look(&host, tactics::events());
        let loads = Loads::look(&host);
        let symbols = Symbols::look(&host.proc("kallsyms"), loads.modules());
        let devices = fs::read_to_string(host.proc("devices")).context("/proc/devices")?;
        let nvidia = PathBuf::from("/dev/nvidia0");
        let (watched, majors) = if nvidia.exists() {
            (nvidia, Majors::of_nvidia(&devices))
        } else {
            (PathBuf::from("/dev/tty0"), Majors::configured(&[tty::MAJOR]))
        };
        let btf = fs::read(host.sys("kernel/btf/vmlinux")).context("/sys/kernel/btf/vmlinux")?;
        let btf = Btf::parse(btf)?;
        let hierarchy = cgroup_hierarchy::read(&host, CgroupChoice::Auto)?.version;
        let settings = Settings {
            slow_ns: u64::MAX,
            own_pid: NOBODY,
            hierarchy,
            open_prefix: Prefix::new(b"/dev/nvidia").context("the prefix")?,
            foreign_types: FOREIGN,
        };
        Ok(Self {
            release: rustix::system::uname().release().to_string_lossy().into_owned(),
            watched,
            settings,
            btf,
            kernel,
            driver: Driver { symbols, loads, builds: Builds::look(&host) },
            majors,
        })
    }

    /// What programs are told of this kernel's structures.
    pub(crate) fn offsets(&self, hierarchy: Version) -> anyhow::Result<Offsets> {
        Ok(Offsets::resolve(&self.btf, hierarchy)?)
    }

    /// Programs that are attached to nothing but the end of processes.
    pub(crate) fn load(&self) -> anyhow::Result<Loaded> {
        let group = Group::own(&HostRoot::default(), std::process::id());
        let (majors, offsets) = (self.majors.array(), self.offsets(self.settings.hierarchy)?);
        Ok(Loaded::new(&self.kernel, &self.driver, &[], group, &offsets, &self.settings, majors)?)
    }

    /// Whether the kernel takes the way; says why not. What was attached is off again.
    pub(crate) fn takes(&self, loaded: &mut Loaded, way: Way) -> bool {
        let taken = self.attach(loaded, way);
        self.detach(loaded);
        if let Err(error) = &taken {
            println!("without {}: {error:#}", way.name());
        }
        taken.is_ok()
    }

    pub(crate) fn attach(&self, loaded: &mut Loaded, way: Way) -> anyhow::Result<()> {
        let mut kernel = self.kernel.clone();
        if let Way::Ioctl(row) = way {
            kernel.tracefs_kprobes =
                if row == Tactic::TracefsKprobe { kernel.tracefs_kprobes } else { Support::No };
            kernel.perf_kprobes = if row == Tactic::PerfKprobe { kernel.perf_kprobes } else { Support::No };
        }
        for probe in way.probes() {
            let refused = loaded.attached.settle(probe, &kernel, &self.driver);
            let choice = loaded.attached.choices().find(|choice| choice.probe == probe);
            let tactic = choice.and_then(|choice| choice.tactic);
            if let Way::Ioctl(row) = way {
                let mut refusals = choice.iter().flat_map(|choice| &choice.refused);
                let why = refusals.find(|refusal| refusal.tactic == row).map_or("refused", |it| it.reason);
                let error = refused.map(|error| format!(", {error}")).unwrap_or_default();
                ensure!(tactic == Some(row), "{why}{error}");
            }
        }
        Ok(())
    }

    pub(crate) fn detach(&self, loaded: &mut Loaded) {
        for probe in Way::All.probes().rev() {
            loaded.attached.take_off(probe, "measured");
        }
    }

    /// Makes the scheduler's programs ready to be armed.
    pub(crate) fn choose_scheduler(&self, loaded: &mut Loaded) {
        loaded.attached.settle(Probe::Scheduler, &self.kernel, &self.driver);
    }
}
