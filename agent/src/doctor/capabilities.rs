//! Which of the rights that some feature needs this process has.
//!
//! In: `CapEff` of /proc/self/status. Out: one check for each right, with the feature that would miss it.
//! What can go wrong: /proc cannot be read; then all are unknown.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::Check;
use crate::host::HostRoot;
use crate::sources::probes::kernel::Kernel;

/// A right, its bit, and what does not work without it. Source of the bits: include/uapi/linux/capability.h.
struct Right {
    check: &'static str,
    bit: u32,
    name: &'static str,
    feature: &'static str,
    /// CAP_SYS_ADMIN is as good.
    or_admin: bool,
}

const ADMIN: u32 = 21;
const RESOURCE: u32 = 24;
/// From this kernel on the memory of maps is counted otherwise.
const NO_MEMLOCK: (u32, u32) = (5, 11);

const RIGHTS: &[Right] = &[
    Right { check: "right bpf", bit: 39, name: "CAP_BPF", feature: "all driver probes", or_admin: true },
    Right {
        check: "right perfmon",
        bit: 38,
        name: "CAP_PERFMON",
        feature: "all driver probes",
        or_admin: true,
    },
    Right {
        check: "right resource",
        bit: RESOURCE,
        name: "CAP_SYS_RESOURCE",
        feature: "all driver probes on kernels below 5.11, which count their maps as locked memory",
        or_admin: false,
    },
    Right {
        check: "right ptrace",
        bit: 19,
        name: "CAP_SYS_PTRACE",
        feature: "seeing whether a hung thread is still in its call (else stalls are told with low confidence), and which device nodes processes have open",
        or_admin: false,
    },
    Right {
        check: "right read",
        bit: 2,
        name: "CAP_DAC_READ_SEARCH",
        feature: "files of other users' processes, and for tracefs where the agent does not run as root",
        or_admin: false,
    },
    Right {
        check: "right syslog",
        bit: 34,
        name: "CAP_SYSLOG",
        feature: "the kernel log, where kernel.dmesg_restrict is 1",
        or_admin: false,
    },
    Right {
        check: "right admin",
        bit: ADMIN,
        name: "CAP_SYS_ADMIN",
        feature: "measuring what the probes cost (else their budget is not held), and for profiling fields with the \
                  engine inside the worker, where the driver keeps them to administrators",
        or_admin: false,
    },
];

/// One check for each right.
pub fn checks(host: &HostRoot) -> Vec<Check> {
    let status = fs::read_to_string(host.proc("self/status"));
    let effective = status.as_deref().ok().and_then(effective);
    let release = Kernel::look(host, std::iter::empty()).release;
    let unlimited = getrlimit(Resource::Memlock).current.is_none();
    let locked_memory = release < NO_MEMLOCK && !unlimited;
    RIGHTS.iter().map(|right| check(right, effective, locked_memory)).collect()
}

/// `locked_memory`: maps are counted as such, and there is a limit to it.
fn check(right: &Right, effective: Option<u64>, locked_memory: bool) -> Check {
    let Right { check, bit, name, feature, or_admin } = *right;
    let has = |mask: u64, bit: u32| mask & (1 << bit) != 0;
    match effective {
        Some(mask) if has(mask, bit) => Check::yes(check, name),
        Some(mask) if or_admin && has(mask, ADMIN) => {
            Check::yes(check, format!("CAP_SYS_ADMIN stands in for {name}"))
        }
        _ if bit == RESOURCE && !locked_memory => Check::yes(check, format!("{name} is not needed here")),
        Some(_) => Check::no(
            check,
            format!("{name} is missing; needed for {feature}"),
            format!("run as root, in a privileged container, or give it {name}"),
        ),
        None => Check::unknown(check, format!("{name}: /proc/self/status cannot be read"), "mount /proc"),
    }
}

/// The effective set of a status file.
fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn each_right_is_read_from_its_bit() {
        use Verdict::{No, Unknown, Yes};
        let verdicts = |mask: Option<u64>, locked_memory| -> Vec<Verdict> {
            RIGHTS.iter().map(|right| check(right, mask, locked_memory).verdict).collect()
        };
        assert_eq!(verdicts(Some(u64::MAX), true), [Yes; 7]);
        assert_eq!(verdicts(Some(0), true), [No; 7]);
        assert_eq!(verdicts(None, true), [Unknown; 7]);
        let only_bpf = verdicts(Some(1 << 39), true);
        assert_eq!((only_bpf[0], &only_bpf[1..]), (Yes, &[No; 6][..]));
        // from 5.11 on, and where there is no limit
        let nothing = verdicts(Some(0), false);
        assert_eq!((nothing[2], nothing.iter().filter(|v| **v == No).count()), (Yes, 6));
        // an administrator may load programs, but not look into every thread
        assert_eq!(verdicts(Some(1 << ADMIN), false), [Yes, Yes, Yes, No, No, No, Yes]);
    }

    #[test]
    fn the_effective_set_is_the_one_that_counts() {
        let status =
            "Name:\tx\nCapInh:\t0000000000000000\nCapPrm:\t000001ffffffffff\nCapEff:\t0000008000000000\n";
        assert_eq!(effective(status), Some(1 << 39));
        assert_eq!(effective("CapEff:\tzz\n"), None);
        assert_eq!(effective(""), None);
    }
}
