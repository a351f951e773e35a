//! The lock that says which worker has the driver.
//!
//! In: the lock file's path. Out: the lock, held until this process is gone; or the pid of the process that holds it.
//! A worker that was given up (it hangs in the kernel and cannot be killed) keeps its lock until the kernel lets it go.
//! What can go wrong: the file cannot be opened; the worker goes on without, since the agent knows its own children.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, ftruncate, openat};
use rustix::io::Errno;

/// What came of it.
#[derive(Debug)]
pub(super) enum Lock {
    /// It is ours while the file is open.
    Ours(#[expect(dead_code, reason = "held, not used")] File),
    /// Another process has it: its pid; 0 where the file does not tell.
    Theirs(u32),
}

/// Takes the lock without waiting. Links are not followed.
///
/// # Errors
/// The file cannot be opened or locked.
pub(super) fn take(path: &Path) -> io::Result<Lock> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(openat(CWD, path, flags, Mode::RUSR | Mode::WUSR)?);
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            ftruncate(&file, 0)?;
            writeln!(file, "{}", std::process::id())?;
            Ok(Lock::Ours(file))
        }
        Err(Errno::WOULDBLOCK) => {
            let mut text = String::new();
            let read = file.take(16).read_to_string(&mut text);
            Ok(Lock::Theirs(read.ok().and_then(|_| text.trim().parse().ok()).unwrap_or(0)))
        }
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir::TestDir;

    #[test]
    fn the_second_one_hears_who_was_first() {
        let dir = TestDir::new();
        let path = dir.path().join("worker.lock");
        std::fs::write(&path, "4294967295 is longer than what comes next").unwrap();
        let first = take(&path).unwrap();
        assert!(matches!(first, Lock::Ours(_)));
        let me = std::process::id();
        assert!(matches!(take(&path).unwrap(), Lock::Theirs(pid) if pid == me));
        drop(first);
        assert!(matches!(take(&path).unwrap(), Lock::Ours(_)));
    }

    #[test]
    fn a_link_is_not_followed_and_a_missing_folder_is_an_error() {
        let dir = TestDir::new();
        std::os::unix::fs::symlink(dir.path().join("else"), dir.path().join("worker.lock")).unwrap();
        assert!(take(&dir.path().join("worker.lock")).is_err());
        assert!(!dir.path().join("else").exists());
        assert!(take(&dir.path().join("none/worker.lock")).is_err());
    }
}
