//! Capabilities the worker has no use for are given up before it loads foreign code.
//!
//! In: the capabilities inherited from the agent. Out: whether those of the list are gone now.
//! CAP_SYS_ADMIN stays: profiling counters need it. What can go wrong: the kernel refuses (a seccomp filter); the
//! worker goes on and says so.

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

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
        let (before, given_up, after) = std::thread::spawn(|| {
            let before = capabilities(None).unwrap().permitted;
            (before, give_up(), capabilities(None).unwrap())
        })
        .join()
        .unwrap();
        assert_eq!(given_up, GivenUp::Yes);
        assert!(!after.permitted.intersects(GIVEN_UP) && !after.effective.intersects(GIVEN_UP));
        assert_eq!(
            after.permitted.contains(CapabilitySet::SYS_ADMIN),
            before.contains(CapabilitySet::SYS_ADMIN)
        );
    }
}
