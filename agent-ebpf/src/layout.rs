//! Which members of kernel structures the programs walk through, and which value carries each offset.
//!
//! In: nothing. Out: a table the agent fills from the running kernel's BTF before it loads the object.
//! Rust programs have no CO-RE relocations; offsets set before the load are constants to the verifier just the same.
//! What can go wrong: a member that a kernel has renamed; rows list the names it has had, newest first.

/// One offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Name of the `u32` value in the object.
    pub global: &'static str,
    /// Structure.
    pub structure: &'static str,
    /// Names of the member, the newest first.
    pub names: &'static [&'static str],
    /// Who cannot do without it.
    pub need: Need,
}

/// What a kernel without a member costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// All probes.
    Always,
    /// The cgroup, where that comes from a v1 hierarchy.
    CgroupV1,
    /// Some programs do less: they find [`ABSENT`] for the offset.
    Extra,
}

/// The offset of a member that this kernel does not have. (0 is where many members are.)
pub const ABSENT: u32 = u32::MAX;

const fn member(global: &'static str, structure: &'static str, names: &'static [&'static str]) -> Member {
    Member { global, structure, names, need: Need::Always }
}

const fn v1_member(global: &'static str, structure: &'static str, names: &'static [&'static str]) -> Member {
    Member { global, structure, names, need: Need::CgroupV1 }
}

const fn extra(global: &'static str, structure: &'static str, names: &'static [&'static str]) -> Member {
    Member { global, structure, names, need: Need::Extra }
}

/// Every offset the programs use.
pub const MEMBERS: [Member; 24] = [
    member("TASK_FILES", "task_struct", &["files"]),
    member("TASK_LEADER", "task_struct", &["group_leader"]),
    member("TASK_START", "task_struct", &["start_boottime", "real_start_time"]),
    member("TASK_FLAGS", "task_struct", &["flags"]),
    member("FILES_FDT", "files_struct", &["fdt"]),
    member("FDT_MAX", "fdtable", &["max_fds"]),
    member("FDT_FD", "fdtable", &["fd"]),
    member("FILE_INODE", "file", &["f_inode"]),
    member("INODE_RDEV", "inode", &["i_rdev"]),
    member("INODE_MODE", "inode", &["i_mode"]),
    member("TASK_CRED", "task_struct", &["cred"]),
    member("CRED_EFFECTIVE", "cred", &["cap_effective"]),
    member("CRED_NAMESPACE", "cred", &["user_ns"]),
    member("NAMESPACE_LEVEL", "user_namespace", &["level"]),
    v1_member("TASK_CGROUPS", "task_struct", &["cgroups"]),
    v1_member("CSS_SET_SUBSYS", "css_set", &["subsys"]),
    v1_member("CSS_CGROUP", "cgroup_subsys_state", &["cgroup"]),
    v1_member("CGROUP_KN", "cgroup", &["kn"]),
    v1_member("KN_ID", "kernfs_node", &["id"]),
    // without these, the end of a process is not told
    extra("TASK_SIGNAL", "task_struct", &["signal"]),
    extra("SIGNAL_LIVE", "signal_struct", &["live"]),
    // without these, an XID is told without its device
    extra("PCI_DEVICE", "pci_dev", &["dev"]),
    extra("DEVICE_KOBJECT", "device", &["kobj"]),
    extra("KOBJECT_NAME", "kobject", &["name"]),
];

/// The enumeration, and its value, that says where the pids controller sits in `css_set.subsys`.
pub const PIDS_SUBSYS_ENUM: (&str, &str) = ("cgroup_subsys_id", "pids_cgrp_id");

/// A field of a tracepoint's event. The programs find it at this offset: only there may they be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// `category/name` of the event.
    pub event: &'static str,
    /// Name, as the event's `format` in tracefs has it.
    pub name: &'static str,
    /// Unit: bytes.
    pub offset: usize,
    /// Unit: bytes.
    pub size: usize,
}

const SWITCH: &str = "sched/sched_switch";

/// State of the thread that stops.
pub const SWITCH_PREVIOUS_STATE: Field = Field { event: SWITCH, name: "prev_state", offset: 32, size: 8 };
/// Number of the thread that goes on.
pub const SWITCH_NEXT: Field = Field { event: SWITCH, name: "next_pid", offset: 56, size: 4 };
/// Number of the thread that is woken.
pub const WAKEUP_THREAD: Field = Field { event: "sched/sched_wakeup", name: "pid", offset: 24, size: 4 };

/// All fields. Kernels with more in each event's head (some real-time ones) have them elsewhere.
pub const FIELDS: [Field; 3] = [SWITCH_PREVIOUS_STATE, SWITCH_NEXT, WAKEUP_THREAD];

impl Field {
    /// Whether the event's `format`, the text of that file in tracefs, has the field where the programs look for it.
    pub fn is_in(&self, format: &str) -> bool {
        format.lines().any(|line| {
            let mut parts = line.split(';').map(str::trim);
            let name = parts.next().and_then(|part| part.strip_prefix("field:")?.rsplit(' ').next());
            let number = |part: Option<&str>, key| part?.strip_prefix(key)?.parse::<usize>().ok();
            name == Some(self.name)
                && number(parts.next(), "offset:") == Some(self.offset)
                && number(parts.next(), "size:") == Some(self.size)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_elsewhere_is_told() {
        let format = "name: sched_wakeup\nID: 374\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
                      \tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
                      \tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n";
        assert!(WAKEUP_THREAD.is_in(format));
        assert!(!SWITCH_NEXT.is_in(format));
        assert!(!WAKEUP_THREAD.is_in(&format.replace("offset:24", "offset:28")));
        assert!(!WAKEUP_THREAD.is_in(&format.replace("offset:24;\tsize:4", "offset:24;\tsize:8")));
        assert!(!WAKEUP_THREAD.is_in(""));
    }
}
