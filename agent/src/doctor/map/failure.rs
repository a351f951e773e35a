//! Why something could not be mapped: stage, reason, and what to do.
//!
//! In: the words of `warpgauge.mapping.failures{stage, reason}`, and some more that only a look has. Out: [`Failure`].
//! What can go wrong: a word without a remedy; a test finds it.

use serde::Serialize;

/// What could not be mapped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Where on the way.
    pub stage: &'static str,
    /// Why, in one word.
    pub reason: &'static str,
    /// What was looked for, or seen.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub what: String,
    /// What the operator can do.
    pub remedy: &'static str,
}

/// A failure by its [`Miss`].
pub fn failure(miss: Miss, what: impl Into<String>) -> Failure {
    let (stage, reason, remedy) = miss.words();
    Failure { stage, reason, what: what.into(), remedy }
}

/// All that can be missing, but for what is missing of the kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they have their words below")]
pub enum Miss {
    UnknownDevice,
    MalformedId,
    Mismatch,
    NoAllocation,
    NoLogLink,
    LogsUnreadable,
    NoSuchDevice,
    NoJobDirectory,
    JobsUnreadable,
    MalformedJob,
    Gone,
    Denied,
    ForeignPids,
    NoCgroup,
    NodesUnreadable,
    Slow,
}

impl Miss {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::UnknownDevice,
        Self::MalformedId,
        Self::Mismatch,
        Self::NoAllocation,
        Self::NoLogLink,
        Self::LogsUnreadable,
        Self::NoSuchDevice,
        Self::NoJobDirectory,
        Self::JobsUnreadable,
        Self::MalformedJob,
        Self::Gone,
        Self::Denied,
        Self::ForeignPids,
        Self::NoCgroup,
        Self::NodesUnreadable,
        Self::Slow,
    ];

    /// Stage, reason, remedy.
    pub fn words(self) -> (&'static str, &'static str, &'static str) {
        const OTHER: &str = "compare it with the lines of devices: a MIG device may have been made anew since the device \
                             plugin looked; then restart the plugin";
        const STRAY: &str = "such a pod has devices beside its allocation: look for NVIDIA_VISIBLE_DEVICES, \
                             privileged mode or a mount of /dev in its manifest";
        match self {
            Self::UnknownDevice => ("allocation", "unknown_device", OTHER),
            Self::MalformedId => (
                "allocation",
                "malformed_id",
                "report this line: the device plugin's ids have a form that is not known",
            ),
            Self::Mismatch => ("allocation", "mismatch", STRAY),
            Self::NoAllocation => ("allocation", "no_allocation", STRAY),
            Self::NoLogLink => (
                "names",
                "no_log_link",
                "ask again if the pod is new; else compare with /var/log/pods, and name the host's /var/log by --host-var-log",
            ),
            Self::LogsUnreadable => ("names", "unreadable", super::super::log_folders::REMEDY),
            Self::NoSuchDevice => (
                "job_mapping",
                "unknown_device",
                "the file's name must be NVML's index of a GPU, or index.instance: compare it with the lines of devices",
            ),
            Self::NoJobDirectory => (
                "job_mapping",
                "no_directory",
                "mount the directory that the scheduler's prolog writes, or name it with --hpc-job-mapping-dir",
            ),
            Self::JobsUnreadable => {
                ("job_mapping", "unreadable", "let this user read it; it must be a regular file")
            }
            Self::MalformedJob => {
                ("job_mapping", "malformed_job", "look at the scheduler's prolog: a line is one job id")
            }
            Self::Gone => (
                "process",
                "gone",
                "ask again; if it stays, /proc is not the host's: run with hostPID: true, or name it by --host-proc",
            ),
            Self::Denied => ("process", "denied", "run as root: /proc is mounted with hidepid"),
            Self::ForeignPids => (
                "process",
                "not_asked",
                "run with the host's pid namespace (hostPID: true), or mount its /proc and name it by --host-proc",
            ),
            Self::NoCgroup => {
                ("cgroup", "no_path", "look at the line `cgroups` of `warpgauge doctor`, or set --cgroup")
            }
            Self::Slow => (
                "source",
                "slow",
                "look at the kernel log for hung tasks; on a slow machine, give it more by --wait",
            ),
            Self::NodesUnreadable => {
                ("process", "unreadable", "run as root: the descriptors of others' processes cannot be read")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_failure_has_words_of_its_own_and_a_remedy() {
        let words: BTreeSet<_> = Miss::ALL.iter().map(|miss| (miss.words().0, miss.words().1)).collect();
        assert_eq!(words.len(), Miss::ALL.len());
        assert!(Miss::ALL.iter().all(|miss| 20 < miss.words().2.len()));
    }
}
