//! The directory that holds state: opened without following links, believed only if nobody else can write to it.
//!
//! In: its path. Out: whole files, replaced in one step. Directory 0700, files 0600.
//! What can go wrong: it is a link, belongs to somebody else or is writable by others, or the disk is full or
//! read-only; the error names the path and the remedy.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

const NAME: &str = "kmsg.state";
const NEW_NAME: &str = "kmsg.state.new";

/// Longest content that is read: twenty times what is written.
const LONGEST: u64 = 4096;

/// Why the state could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It is a link, or not a directory.
    #[error("state directory {path}: {cause}; give a real directory that only the agent's user can write to")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// Somebody else could have put the file there.
    #[error(
        "state directory {path} belongs to user {owner} with mode {mode:o}; it must belong to user {me} and be \
         writable by nobody else: chown {me} and chmod 0700"
    )]
    Unsafe {
        /// The directory.
        path: PathBuf,
        /// Who owns it.
        owner: u32,
        /// Its permissions.
        mode: u32,
        /// Who the agent is.
        me: u32,
    },
    /// Reading or writing the file failed.
    #[error("state file {path}: {cause}; the directory needs room and must be writable")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// The file's content is not what the agent writes.
    #[error("the state file is damaged ({0}); it is ignored and replaced")]
    Content(#[from] serde_json::Error),
    /// The file is of another version of the agent.
    #[error("the state file has format {0}, which this version does not know; it is ignored and replaced")]
    Format(u32),
    /// The kernel's log does not reach as far as the state says.
    #[error(
        "the state file says that the kernel log was read up to record {resume}, but it ends at {tail} (a restored \
         snapshot?); it is ignored, and everything in the log is read again"
    )]
    Ahead {
        /// Where the state says to resume.
        resume: u64,
        /// Where the kernel's log ends.
        tail: u64,
    },
    /// Boots cannot be told apart.
    #[error("{path}: {cause}; without the boot id no state is kept, give the host's procfs with --host-proc")]
    BootId {
        /// Where the boot id should be.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
}

/// The directory, opened anew for each use: it may be made, mended or replaced while the agent runs.
#[derive(Clone, Debug)]
pub(super) struct StateDir {
    path: PathBuf,
}

impl StateDir {
    /// `path` is not touched yet. A slash at its end is dropped: it would follow a link.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path: path.components().collect() }
    }

    /// The file's content; `None` where there is no file.
    pub(super) fn read(&self) -> Result<Option<Vec<u8>>, StateError> {
        let Some(dir) = self.open()? else { return Ok(None) };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&dir, NAME, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.file_error(errno.into())),
        };
        let mut content = Vec::new();
        let stat = fstat(&file).map_err(|errno| self.file_error(errno.into()))?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            file.take(LONGEST).read_to_end(&mut content).map_err(|cause| self.file_error(cause))?;
        }
        Ok(Some(content))
    }

    /// Puts `content` in the file's place, in one step; makes the directory where it is missing.
    pub(super) fn write(&self, content: &[u8]) -> Result<(), StateError> {
        let dir = match self.open()? {
            Some(dir) => dir,
            None => {
                let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.path);
                made.map_err(|cause| self.directory_error(cause))?;
                self.open()?.ok_or_else(|| self.directory_error(io::ErrorKind::NotFound.into()))?
            }
        };
        let replace = || -> io::Result<()> {
            match unlinkat(&dir, NEW_NAME, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut file = File::from(openat(&dir, NEW_NAME, flags, Mode::RUSR | Mode::WUSR)?);
            file.write_all(content)?;
            file.sync_data()?;
            renameat(&dir, NEW_NAME, &dir, NAME)?;
            Ok(())
        };
        replace().map_err(|cause| self.file_error(cause))
    }

    /// The directory, if it is there and safe.
    fn open(&self) -> Result<Option<File>, StateError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = match openat(CWD, &self.path, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.directory_error(errno.into())),
        };
        let stat = fstat(&dir).map_err(|errno| self.directory_error(errno.into()))?;
        let (owner, mode, me) = (stat.st_uid, stat.st_mode & 0o7777, geteuid().as_raw());
        if owner != me || mode & 0o022 != 0 {
            return Err(StateError::Unsafe { path: self.path.clone(), owner, mode, me });
        }
        Ok(Some(dir))
    }

    fn directory_error(&self, cause: io::Error) -> StateError {
        StateError::Directory { path: self.path.clone(), cause }
    }

    fn file_error(&self, cause: io::Error) -> StateError {
        StateError::File { path: Path::new(&self.path).join(NAME), cause }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::sources::kmsg::test_dir::TestDir;

    #[test]
    fn a_directory_that_others_can_change_is_refused_with_a_remedy() {
        type Make = fn(&Path);
        #[track_caller]
        fn check(make: Make, want: &str) {
            let root = TestDir::new();
            let path = root.path().join("state");
            make(&path);
            for slash in [path.clone(), PathBuf::from(format!("{}/", path.display()))] {
                let dir = StateDir::new(slash);
                let refusals =
                    [dir.read().unwrap_err().to_string(), dir.write(b"x").unwrap_err().to_string()];
                assert!(refusals.iter().all(|said| said.contains(want)), "{want}: {refusals:?}");
            }
        }
        fn with_mode(path: &Path, mode: u32) {
            fs::create_dir(path).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        check(|path| symlink("/tmp", path).unwrap(), "a real directory");
        check(|path| fs::write(path, "").unwrap(), "a real directory");
        check(|path| with_mode(path, 0o770), "with mode 770; it must");
        check(|path| with_mode(path, 0o1777), "with mode 1777; it must");
    }

    #[test]
    fn a_file_is_replaced_whole_and_links_are_not_followed() {
        let root = TestDir::new();
        let dir = StateDir::new(root.path().join("deep/state"));
        assert_eq!(dir.read().unwrap(), None);
        dir.write(b"one").unwrap();
        dir.write(b"two").unwrap();
        assert_eq!(dir.read().unwrap().as_deref(), Some(&b"two"[..]));

        let (victim, file) = (root.path().join("victim"), root.path().join("deep/state").join(NAME));
        fs::write(&victim, "keep me").unwrap();
        fs::remove_file(&file).unwrap();
        symlink(&victim, &file).unwrap();
        symlink(&victim, file.with_file_name(NEW_NAME)).unwrap();
        assert!(dir.read().is_err());
        dir.write(b"three").unwrap();
        assert_eq!(dir.read().unwrap().as_deref(), Some(&b"three"[..]));
        assert_eq!(fs::read_to_string(&victim).unwrap(), "keep me");
    }
}
