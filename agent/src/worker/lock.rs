//! The lock that says which worker has the driver.
//!
//! In: the lock file's path. Out: the lock, held until this process is gone; or the pid of the process that holds it.
//! A worker that was given up (it hangs in the kernel and cannot be killed) keeps its lock until the kernel lets it go.
//! What can go wrong: the directory or the file may be somebody else's, or the file cannot be opened, or is held by what
//! is no worker; the worker goes on without, since the agent knows its own children.
//!
//! It is a POSIX record lock: a child that a vendor's library forks does not inherit it, so that it goes with the
//! worker; and the kernel itself says who holds it, whatever is in the file. Trap: it also goes when this process closes
//! any other descriptor of the same file, so the file is opened here only.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, fcntl_lock, ftruncate};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, fcntl_getlk, geteuid};

use crate::host::state_dir::{StateDir, StateDirError};

/// A holder that is gone before it can be asked for: so often it is tried anew.
const TRIES: u32 = 8;
/// The /proc of this process's own pid namespace, whose pids the kernel gives.
const PROC: &str = "/proc";
/// What a worker is called, started by the agent or by hand.
const NAMES: &[&str] = &["warpgauge", "exe"];

/// What came of it.
#[derive(Debug)]
pub(super) enum Lock {
    /// It is ours while the file is open.
    Ours(#[expect(dead_code, reason = "held, not used")] File),
    /// Another worker has it: its pid; 0 where it is of another pid namespace.
    Theirs(u32),
}

/// Why there is no lock.
#[derive(Debug, thiserror::Error)]
pub(super) enum LockError {
    /// Not a file in a directory.
    #[error("no lock file is named")]
    NoName,
    /// The directory or the file is missing, or not the agent's alone.
    #[error(transparent)]
    File(#[from] StateDirError),
    /// The kernel does not lock it.
    #[error("it cannot be locked: {0}")]
    Refused(#[from] Errno),
    /// Held by something else than a worker.
    #[error("process {pid} holds it, which is no worker of this agent's: {why}")]
    NoWorker {
        /// The process.
        pid: u32,
        /// How that is known.
        why: String,
    },
    /// Other processes take and leave it all the time.
    #[error("who holds it changes all the time")]
    Restless,
}

/// Takes the lock without waiting. Links are not followed.
///
/// # Errors
/// [`LockError`]; nothing is held then.
pub(super) fn take(path: &Path) -> Result<Lock, LockError> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Err(LockError::NoName);
    };
    let mut file = StateDir::new(dir.to_path_buf()).open_file(name)?;
    for _ in 0..TRIES {
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                // For people who look into it; the kernel knows the holder without.
                let _ = ftruncate(&file, 0).map(|()| writeln!(file, "{}", std::process::id()));
                return Ok(Lock::Ours(file));
            }
            Err(Errno::AGAIN | Errno::ACCESS) => {}
            Err(errno) => return Err(errno.into()),
        }
        let Some(holder) = fcntl_getlk(&file, &Flock::from(FlockType::WriteLock))? else { continue };
        let pid = holder.pid.map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
        // Of another namespace: only our user could open the file, so it is believed.
        if pid != 0 {
            check(Path::new(PROC), pid, geteuid().as_raw())
                .map_err(|why| LockError::NoWorker { pid, why })?;
        }
        return Ok(Lock::Theirs(pid));
    }
    Err(LockError::Restless)
}

/// Whether this process is a worker of the user `me`. `Err`: why not, or why that is not known.
fn check(proc: &Path, pid: u32, me: u32) -> Result<(), String> {
    let folder = proc.join(pid.to_string());
    let status = fs::read_to_string(folder.join("status")).map_err(|_| "it has ended".to_owned())?;
    // Real, effective, saved and of files. Format: proc_pid_status(5).
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let uid = uids.and_then(|uids| uids.split_ascii_whitespace().nth(1)?.parse::<u32>().ok());
    if uid != Some(me) {
        return Err(uid.map_or("its user is not known".to_owned(), |uid| format!("it is user {uid}'s")));
    }
    // Gone for a process that hangs while it ends, and not to be seen for one with more rights.
    if let Some(same) = same_file(&folder.join("exe"), &proc.join("self/exe")) {
        if same {
            return Ok(());
        }
        let file = fs::read_link(folder.join("exe")).unwrap_or_default();
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        // The file was replaced by another version of the agent.
        return if name.trim_end_matches(" (deleted)") == "warpgauge" {
            Ok(())
        } else {
            Err(format!("it runs {name:?}"))
        };
    }
    let comm = fs::read_to_string(folder.join("comm")).unwrap_or_default();
    let comm = comm.trim_end_matches('\n');
    if NAMES.contains(&comm) { Ok(()) } else { Err(format!("it is called {comm:?}")) }
}

/// Whether two paths lead to one file; `None` where that cannot be seen.
fn same_file(a: &Path, b: &Path) -> Option<bool> {
    let id = |path: &Path| -> io::Result<(u64, u64)> {
        let found = fs::metadata(path)?;
        Ok((found.dev(), found.ino()))
    };
    Some(id(a).ok()? == id(b).ok()?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::test_dir::TestDir;

    #[test]
    fn the_file_says_who_has_it_for_people() {
        let dir = TestDir::new();
        let path = dir.path().join("worker.lock");
        fs::write(&path, "4294967295 is longer than what comes next").unwrap();
        assert!(matches!(take(&path).unwrap(), Lock::Ours(_)));
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
    }

    #[test]
    fn what_is_not_ours_is_neither_used_nor_changed() {
        #[track_caller]
        fn refused(path: &Path, want: &str) {
            let said = take(path).map_err(|error| error.to_string()).unwrap_err();
            assert!(said.contains(want), "{want}: {said}");
        }
        let dir = TestDir::new();
        let path = dir.path().join("worker.lock");
        symlink(dir.path().join("else"), &path).unwrap();
        refused(&path, "worker.lock");
        assert!(!dir.path().join("else").exists());
        refused(Path::new("/proc/none/worker.lock"), "none");
        refused(Path::new("/"), "no lock file");
        fs::remove_file(&path).unwrap();
        fs::write(&path, "1\n").unwrap();
        fs::hard_link(&path, dir.path().join("second")).unwrap();
        refused(&path, "second name");
        fs::remove_file(dir.path().join("second")).unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        mode(&path, 0o666);
        refused(&path, "others may write");
        mode(&path, 0o600);
        mode(dir.path(), 0o777);
        refused(&path, "chmod 0700");
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
        symlink(dir.path(), dir.path().join("way")).unwrap();
        mode(dir.path(), 0o700);
        refused(&dir.path().join("way/worker.lock"), "real directory");
    }

    #[test]
    fn only_a_worker_of_our_user_is_believed() {
        let dir = TestDir::new();
        let (proc, own) = (dir.path().join("proc"), dir.path().join("warpgauge"));
        fs::write(&own, "").unwrap();
        fs::write(dir.path().join("other"), "").unwrap();
        fs::create_dir_all(proc.join("self")).unwrap();
        symlink(&own, proc.join("self/exe")).unwrap();
        let check = |uid: u32, exe: Option<&str>, comm: &str| {
            let folder = proc.join("7");
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("status"), format!("Name:\tx\nUid:\t0\t{uid}\t0\t0\n")).unwrap();
            fs::write(folder.join("comm"), format!("{comm}\n")).unwrap();
            if let Some(exe) = exe {
                symlink(dir.path().join(exe), folder.join("exe")).unwrap();
            }
            check(&proc, 7, 5)
        };
        assert_eq!(check(5, Some("warpgauge"), "any"), Ok(()));
        assert_eq!(check(6, Some("warpgauge"), "exe"), Err("it is user 6's".to_owned()));
        assert_eq!(check(5, Some("other"), "exe"), Err("it runs \"other\"".to_owned()));
        assert_eq!(check(5, Some("gone"), "exe"), Ok(()), "the name where the file cannot be seen");
        assert_eq!(check(5, None, "warpgauge"), Ok(()));
        assert_eq!(check(5, None, "sleep"), Err("it is called \"sleep\"".to_owned()));
        assert_eq!(super::check(&proc, 8, 5), Err("it has ended".to_owned()));
        let me = std::process::id();
        assert_eq!(super::check(Path::new(PROC), me, geteuid().as_raw()), Ok(()), "the real format");
    }
}
