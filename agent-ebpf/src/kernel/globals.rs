//! Values the agent sets before it loads the object; constants to the verifier, so dead branches cost nothing.
//!
//! In: the agent's configuration and the running kernel's structure offsets. Out: loads of read-only data.
//! What can go wrong: an offset left at 0; the agent refuses to load the object without a value it needs.

use aya_ebpf::Global;
use warpgauge_ebpf::globals::CGROUP_V2;
use warpgauge_ebpf::ioctl_type::TypeSet;
use warpgauge_ebpf::layout::ABSENT;
use warpgauge_ebpf::prefix::Prefix;

macro_rules! globals {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $value:expr;)+) => {
        $($(#[$doc])* #[unsafe(no_mangle)] pub static $name: Global<$type> = Global::new($value);)+
    };
}

const DEFAULT_PREFIX: Prefix = match Prefix::new(b"/dev/nvidia") {
    Some(prefix) => prefix,
    None => unreachable!(),
};

globals! {
    SLOW_NS: u64 = 250_000_000;
    OWN_TGID: u32 = 0;
    CGROUP_MODE: u32 = CGROUP_V2;
    PIDS_SUBSYS: u32 = 0;
    OPEN_PREFIX: Prefix = DEFAULT_PREFIX;
    FOREIGN_TYPES: TypeSet = TypeSet::EMPTY;

    TASK_FILES: u32 = 0;
    TASK_LEADER: u32 = 0;
    TASK_START: u32 = 0;
    TASK_FLAGS: u32 = 0;
    TASK_CGROUPS: u32 = 0;
    FILES_FDT: u32 = 0;
    FDT_MAX: u32 = 0;
    FDT_FD: u32 = 0;
    FILE_INODE: u32 = 0;
    INODE_RDEV: u32 = 0;
    INODE_MODE: u32 = 0;
    TASK_CRED: u32 = 0;
    CRED_EFFECTIVE: u32 = 0;
    CRED_NAMESPACE: u32 = 0;
    NAMESPACE_LEVEL: u32 = 0;
    CSS_SET_SUBSYS: u32 = 0;
    CSS_CGROUP: u32 = 0;
    CGROUP_KN: u32 = 0;
    KN_ID: u32 = 0;

    TASK_SIGNAL: u32 = ABSENT;
    SIGNAL_LIVE: u32 = ABSENT;
    PCI_DEVICE: u32 = ABSENT;
    DEVICE_KOBJECT: u32 = ABSENT;
    KOBJECT_NAME: u32 = ABSENT;
}
