//! Processes that live although /proc does not show them.
//!
//! In: a pid whose directory in /proc is missing. Out: whether the kernel knows the process all the same: /proc may be
//! mounted with `hidepid`, and the agent lack the right to see others.
//! What can go wrong: with another /proc than this process's own, pids may be of another namespace; then nothing is known
//! beyond what that /proc shows.

use std::path::Path;

use rustix::io::Errno;
use rustix::process;

use super::HostRoot;
use crate::model::Pid;

/// Whether the process is there. To be asked only after /proc had nothing.
pub fn is_hidden(root: &HostRoot, pid: Pid) -> bool {
    let Some(raw) = i32::try_from(pid.0).ok().and_then(process::Pid::from_raw) else { return false };
    root.proc == Path::new("/proc") && process::test_kill_process(raw) != Err(Errno::SRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lives_is_hidden_and_who_is_not_there_is_not() {
        let (here, own) = (HostRoot::default(), Pid(std::process::id()));
        assert!(is_hidden(&here, own) && is_hidden(&here, Pid(1)));
        // above the kernel's limit of pids
        assert!(
            !is_hidden(&here, Pid(1 << 22)) && !is_hidden(&here, Pid(u32::MAX)) && !is_hidden(&here, Pid(0))
        );
        assert!(!is_hidden(&HostRoot { proc: "/elsewhere".into(), ..HostRoot::default() }, own));
    }
}
