//! Capabilities the worker has no use for are given up before it loads foreign code.
//!
//! In: the capabilities inherited from the agent. Out: whether those of the list are gone now.
//! CAP_SYS_ADMIN stays: profiling counters need it. They do not come back with a program that the foreign code starts:
//! they leave the bounding set, and no program gives new rights any more (so `nvidia-modprobe`, which is set-user-ID,
//! only works where the agent is root). What can go wrong: the kernel refuses (a seccomp filter); the
//! worker goes on and says so.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, capabilities, remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// What only the agent needs: programs in the kernel, its log, other processes' files.
const GIVEN_UP: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYSLOG)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::SYS_BOOT)
    .union(CapabilitySet::SYS_MODULE)
    .union(CapabilitySet::SYS_TIME)
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::MAC_ADMIN)
    .union(CapabilitySet::MAC_OVERRIDE)
    .union(CapabilitySet::CHECKPOINT_RESTORE);

/// Whether they are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GivenUp {
    Yes,
    No(String),
    Unknown(String),
}

impl GivenUp {
    /// The number and the reason in a greeting.
    pub(super) fn to_wire(&self) -> (u32, String) {
        match self {
            Self::Yes => (1, String::new()),
            Self::No(why) => (2, why.clone()),
            Self::Unknown(why) => (0, why.clone()),
        }
    }
}

/// Gives them up for this thread and those it starts: must run while it is the only one.
pub(super) fn give_up() -> GivenUp {
    if let Err(errno) = set_no_new_privs(true) {
        return GivenUp::No(format!("no_new_privs: {errno}"));
    }
    for capability in GIVEN_UP.iter() {
        match remove_capability_from_bounding_set(capability) {
            // EPERM: without CAP_SETPCAP the set stays, and `no_new_privs` alone keeps programs from using it.
            // EINVAL: a kernel that does not know the capability.
            Ok(()) | Err(Errno::PERM | Errno::INVAL) => {}
            Err(errno) => return GivenUp::No(format!("bounding set: {errno}")),
        }
    }
    let mut sets = match capabilities(None) {
        Ok(sets) => sets,
        Err(errno) => return GivenUp::Unknown(format!("capget: {errno}")),
    };
    sets.effective.remove(GIVEN_UP);
    sets.permitted.remove(GIVEN_UP);
    sets.inheritable.remove(GIVEN_UP);
    if let Err(errno) = set_capabilities(None, sets) {
        return GivenUp::No(format!("capset: {errno}"));
    }
    match capabilities(None) {
        Ok(now) if !now.permitted.intersects(GIVEN_UP) => GivenUp::Yes,
        Ok(now) => GivenUp::No(format!("still there: {:?}", now.permitted.intersection(GIVEN_UP))),
        Err(errno) => GivenUp::Unknown(format!("capget: {errno}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_up_is_gone_and_the_right_to_profile_stays() {
        // Of a thread of its own: capabilities belong to a thread.
        let (before, given_up, after, child) = std::thread::spawn(|| {
            let before = capabilities(None).unwrap().permitted;
            let given_up = give_up();
            let child = std::process::Command::new("cat").arg("/proc/self/status").output().unwrap();
            (before, given_up, capabilities(None).unwrap(), String::from_utf8(child.stdout).unwrap())
        })
        .join()
        .unwrap();
        assert_eq!(given_up, GivenUp::Yes);
        assert!(!after.permitted.intersects(GIVEN_UP) && !after.effective.intersects(GIVEN_UP));
        assert_eq!(
            after.permitted.contains(CapabilitySet::SYS_ADMIN),
            before.contains(CapabilitySet::SYS_ADMIN)
        );
        let line = |name| child.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        assert_eq!(line("NoNewPrivs:"), "1");
        let set = |name| CapabilitySet::from_bits_retain(u64::from_str_radix(line(name), 16).unwrap());
        assert!(!set("CapPrm:").intersects(GIVEN_UP) && !set("CapEff:").intersects(GIVEN_UP), "{child}");
        if before.contains(CapabilitySet::SETPCAP) {
            assert!(!set("CapBnd:").intersects(GIVEN_UP), "{child}");
        }
    }
}
