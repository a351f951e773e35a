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
    /// Only needed where the cgroup comes from a v1 hierarchy.
    pub v1_only: bool,
}

const fn member(global: &'static str, structure: &'static str, names: &'static [&'static str]) -> Member {
    Member { global, structure, names, v1_only: false }
}

const fn v1_member(global: &'static str, structure: &'static str, names: &'static [&'static str]) -> Member {
    Member { global, structure, names, v1_only: true }
}

/// Every offset the programs use.
pub const MEMBERS: [Member; 18] = [
    member("TASK_FILES", "task_struct", &["files"]),
    member("TASK_LEADER", "task_struct", &["group_leader"]),
    member("TASK_START", "task_struct", &["start_boottime", "real_start_time"]),
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
];

/// The enumeration, and its value, that says where the pids controller sits in `css_set.subsys`.
pub const PIDS_SUBSYS_ENUM: (&str, &str) = ("cgroup_subsys_id", "pids_cgrp_id");
