//! The driver's functions that probes stand on, and the programs that go there.
//!
//! In: nothing. Out: a table. Names are those of the open driver's branches 515 to 595 (reader-writer locks: from 525 on);
//! they are the same in the closed flavour, since all of them lie in the part that is built on the node or at its border.
//! What can go wrong: a branch that is not known yet renames one. A function that a probe cannot do without refuses the
//! row there, any other is left out; both are said.

use super::tactics::Probe;

/// Where a function is: in a module of the driver, or in the kernel itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Module {
    /// `nvidia`.
    Nvidia,
    /// `nvidia_uvm`.
    Uvm,
    /// The kernel, which is always there.
    Kernel,
}

impl Module {
    /// Those of the driver.
    pub const ALL: [Self; 2] = [Self::Nvidia, Self::Uvm];

    /// As the kernel spells it; empty for the kernel itself.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia",
            Self::Uvm => "nvidia_uvm",
            Self::Kernel => "",
        }
    }
}

/// A function, and what is run there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Where it is.
    pub module: Module,
    /// The names it has had. The first that a driver has is taken, so where a branch has two of them the outer one comes
    /// first; the last is that of new branches, used while no driver is loaded.
    pub names: &'static [&'static str],
    /// The program for its entry.
    pub entry: &'static str,
    /// The program for its return, and how many calls may be inside at once.
    pub returns: Option<(&'static str, u32)>,
    /// Without it the probe makes no sense.
    pub needed: bool,
}

/// As many as the kernel allows: any number of threads may hang in these.
const MANY: u32 = 4096;
/// For functions that the driver enters one at a time on each GPU. Every one costs about 100 bytes.
const FEW: u32 = 256;

const fn function(
    module: Module,
    names: &'static [&'static str],
    entry: &'static str,
    returns: (&'static str, u32),
) -> Function {
    Function { module, names, entry, returns: Some(returns), needed: true }
}

impl Function {
    const fn optional(self) -> Self {
        Self { needed: false, ..self }
    }

    const fn entry_only(self) -> Self {
        Self { returns: None, ..self }
    }
}

const CALL: (&str, u32) = ("kr_call", MANY);

const IOCTL: [Function; 2] = [
    function(Module::Nvidia, &["nvidia_frontend_unlocked_ioctl", "nvidia_unlocked_ioctl"], "kp_ioctl", CALL),
    function(Module::Uvm, &["uvm_unlocked_ioctl_entry"], "kp_ioctl", CALL).optional(),
];
const OPEN: [Function; 2] = [
    function(Module::Nvidia, &["nvidia_frontend_open", "nvidia_open"], "kp_open", CALL),
    function(Module::Uvm, &["uvm_open_entry"], "kp_open", CALL).optional(),
];
const CLOSE: [Function; 2] = [
    function(Module::Nvidia, &["nvidia_frontend_close", "nvidia_close"], "kp_close", CALL),
    function(Module::Uvm, &["uvm_release_entry"], "kp_close", CALL).optional(),
];
const MMAP: [Function; 2] = [
    function(Module::Nvidia, &["nvidia_frontend_mmap", "nvidia_mmap"], "kp_mmap", CALL),
    function(Module::Uvm, &["uvm_mmap_entry"], "kp_mmap", CALL).optional(),
];
/// UVM has none but that of its tools.
const POLL: [Function; 1] =
    [function(Module::Nvidia, &["nvidia_frontend_poll", "nvidia_poll"], "kp_poll", CALL)];

const RM: [Function; 1] = [function(Module::Nvidia, &["rm_ioctl"], "kp_rm_ioctl", ("kr_rm_ioctl", MANY))];
const INIT_ADAPTER: [Function; 1] =
    [function(Module::Nvidia, &["rm_init_adapter"], "kp_init_adapter", ("kr_driver", FEW))];

const fn lock(names: &'static [&'static str], entry: &'static str) -> Function {
    function(Module::Nvidia, names, entry, ("kr_lock", MANY))
}

const fn try_lock(names: &'static [&'static str]) -> Function {
    function(Module::Nvidia, names, "kp_try_lock", ("kr_try_lock", MANY)).optional()
}

const fn unlock(names: &'static [&'static str]) -> Function {
    function(Module::Nvidia, names, "kp_unlock", ("", 0)).entry_only()
}

/// Who can be seen to take a lock must be seen to let it go, else it would be blamed for ever. A semaphore is never had:
/// a GPU lock's is raised to wake somebody, and touched by nobody who need not wait. Not probed are the tries of
/// reader-writer locks, which answer the opposite of what they did.
///
/// The functions of mutex and semaphore have the same body, so the compiler makes the semaphore's jump into the mutex's,
/// and there a wait for a GPU lock looks like one for a mutex. What tells them apart is the entry that comes first. So the
/// semaphore's is not optional, and is attached before the mutex's.
const LOCKS: [Function; 8] = [
    lock(&["os_acquire_semaphore"], "kp_lock_semaphore"),
    lock(&["os_acquire_rwlock_read"], "kp_lock_read"),
    lock(&["os_acquire_rwlock_write"], "kp_lock_write"),
    lock(&["os_acquire_mutex"], "kp_lock_mutex"),
    try_lock(&["os_cond_acquire_mutex"]),
    unlock(&["os_release_rwlock_read"]),
    unlock(&["os_release_rwlock_write"]),
    unlock(&["os_release_mutex"]),
];

const REGISTER: (&str, u32) = ("kr_uvm_register", FEW);
const UVM_REGISTER: [Function; 4] = [
    function(Module::Uvm, &["uvm_api_register_gpu"], "kp_uvm_register_gpu", REGISTER),
    function(Module::Uvm, &["uvm_api_register_gpu_va_space"], "kp_uvm_register_va_space", REGISTER)
        .optional(),
    function(Module::Uvm, &["uvm_api_register_channel"], "kp_uvm_register_channel", REGISTER).optional(),
    function(Module::Uvm, &["uvm_api_unregister_gpu"], "kp_uvm_unregister_gpu", REGISTER)
        .entry_only()
        .optional(),
];
const UVM_FAULT: [Function; 1] =
    [function(Module::Uvm, &["uvm_vm_fault_entry"], "kp_fault", ("kr_fault", MANY))];
const UVM_SERVICE: [Function; 2] = [
    function(
        Module::Uvm,
        // renamed in 560
        &["uvm_gpu_service_replayable_faults", "uvm_parent_gpu_service_replayable_faults"],
        "kp_service",
        ("kr_service", FEW),
    ),
    function(
        Module::Uvm,
        &[
            "uvm_gpu_service_non_replayable_fault_buffer",
            "uvm_parent_gpu_service_non_replayable_fault_buffer",
        ],
        "kp_service",
        ("kr_service", FEW),
    )
    .optional(),
];
const UVM_EVICT: [Function; 1] =
    [function(Module::Uvm, &["uvm_va_block_evict_chunks"], "kp_evict", ("kr_evict", MANY))];

const XID: [Function; 1] =
    [function(Module::Nvidia, &["nv_report_error"], "kp_report_error", ("", 0)).entry_only()];
const POWER: [Function; 1] =
    [function(Module::Nvidia, &["nv_set_system_power_state"], "kp_power", ("", 0)).entry_only()];

/// A tracepoint of one system call slows down every other one; a probe on its function costs nobody else anything.
const UNLOAD: [Function; 1] = [function(
    Module::Kernel,
    if cfg!(target_arch = "aarch64") { &["__arm64_sys_delete_module"] } else { &["__x64_sys_delete_module"] },
    "kp_delete_module",
    ("", 0),
)
.entry_only()];

impl Probe {
    /// The functions it stands on; none for a probe of tracepoints alone.
    pub fn functions(self) -> &'static [Function] {
        match self {
            Self::Ioctl => &IOCTL,
            Self::Open => &OPEN,
            Self::Close => &CLOSE,
            Self::Mmap => &MMAP,
            Self::Poll => &POLL,
            Self::Rm => &RM,
            Self::InitAdapter => &INIT_ADAPTER,
            Self::Locks => &LOCKS,
            Self::UvmRegister => &UVM_REGISTER,
            Self::UvmFault => &UVM_FAULT,
            Self::UvmService => &UVM_SERVICE,
            Self::UvmEvict => &UVM_EVICT,
            Self::Xid => &XID,
            Self::Power => &POWER,
            Self::Unload => &UNLOAD,
            Self::Exec | Self::Scheduler => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::tactics::PROBES;
    use super::*;

    #[test]
    fn every_function_has_one_place_in_the_table() {
        let mut seen = BTreeSet::new();
        for function in PROBES.into_iter().flat_map(|probe| probe.functions()) {
            assert!(!function.names.is_empty() && function.entry.starts_with("kp_"), "{function:?}");
            assert!(function.returns.is_none_or(|(program, _)| program.starts_with("kr_")), "{function:?}");
            assert!(
                function.returns.is_none_or(|(_, at_once)| (1..=MANY).contains(&at_once)),
                "{function:?}"
            );
            for name in function.names {
                // two events on one function would have one name
                assert!(seen.insert((function.module, *name)), "{name} twice");
            }
        }
        assert_eq!(seen.len(), 37);
    }

    #[test]
    fn whoever_is_seen_to_take_a_lock_is_seen_to_let_it_go() {
        let names = |part: &str| -> BTreeSet<String> {
            let all = LOCKS.iter().map(|function| function.names[0]);
            all.filter_map(|name| Some(name.strip_prefix(part)?.to_owned())).collect()
        };
        let mut held = names("os_acquire_");
        assert!(held.remove("semaphore"), "waited for, and never had");
        assert_eq!(held.len(), 3);
        assert_eq!(held, names("os_release_"));
        assert_eq!(
            names("os_cond_acquire_"),
            BTreeSet::from(["mutex".to_owned()]),
            "the others' answers lie"
        );
    }

    #[test]
    fn a_semaphore_is_told_from_a_mutex_from_the_first_moment_on() {
        let place = |name| LOCKS.iter().position(|function| function.names[0] == name);
        let (semaphore, mutex) = (place("os_acquire_semaphore"), place("os_acquire_mutex"));
        assert!(semaphore.is_some() && semaphore < mutex, "{semaphore:?} {mutex:?}");
        assert!(semaphore.is_some_and(|at| LOCKS[at].needed));
    }
}
