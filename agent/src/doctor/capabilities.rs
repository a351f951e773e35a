//! Which of the rights that some feature needs this process has.
//!
//! In: `CapEff` of /proc/self/status. Out: one check for each right, with the feature that would miss it.
//! What can go wrong: /proc cannot be read; then all are unknown.

use std::fs;

use super::Check;
use crate::host::HostRoot;

/// A right, its bit, and what does not work without it. Source of the bits: include/uapi/linux/capability.h.
struct Right {
    check: &'static str,
    bit: u32,
    name: &'static str,
    feature: &'static str,
}

const RIGHTS: &[Right] = &[
    Right { check: "right bpf", bit: 39, name: "CAP_BPF", feature: "the driver probes" },
    Right { check: "right perfmon", bit: 38, name: "CAP_PERFMON", feature: "the driver probes" },
    Right {
        check: "right ptrace",
        bit: 19,
        name: "CAP_SYS_PTRACE",
        feature: "seeing whether a hung thread is still in its call (else stalls are told with low confidence)",
    },
    Right {
        check: "right read",
        bit: 2,
        name: "CAP_DAC_READ_SEARCH",
        feature: "tracefs and the files of other users' processes",
    },
    Right {
        check: "right syslog",
        bit: 34,
        name: "CAP_SYSLOG",
        feature: "the kernel log, where kernel.dmesg_restrict is 1",
    },
    Right {
        check: "right admin",
        bit: 21,
        name: "CAP_SYS_ADMIN",
        feature: "profiling fields with the engine inside the worker, where the driver keeps them to administrators",
    },
];

/// One check for each right.
pub fn checks(host: &HostRoot) -> Vec<Check> {
    let status = fs::read_to_string(host.proc("self/status"));
    RIGHTS.iter().map(|right| check(right, status.as_deref().ok().and_then(effective))).collect()
}

fn check(right: &Right, effective: Option<u64>) -> Check {
    let Right { check, bit, name, feature } = *right;
    match effective {
        Some(mask) if mask & (1 << bit) != 0 => Check::yes(check, name),
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
        let verdicts = |mask: Option<u64>| -> Vec<Verdict> {
            RIGHTS.iter().map(|right| check(right, mask).verdict).collect()
        };
        assert_eq!(verdicts(Some(u64::MAX)), [Verdict::Yes; 6]);
        assert_eq!(verdicts(Some(0)), [Verdict::No; 6]);
        assert_eq!(verdicts(None), [Verdict::Unknown; 6]);
        let only_bpf = verdicts(Some(1 << 39));
        assert_eq!((only_bpf[0], &only_bpf[1..]), (Verdict::Yes, &[Verdict::No; 5][..]));
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
