//! The directory that holds state: opened without following links, believed only if nobody else can write to it.
//!
//! In: its path. Out: whole files, replaced in one step, and a lock. Directory 0700, files 0600.
//! What can go wrong: it is a link, belongs to somebody else or is writable by others, another agent uses it, or the
//! disk is full or read-only; the error names the path and the remedy.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, CWD, FlockOperation, Mode, OFlags, accessat, flock, fstat, openat, renameat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::own_file::own;

/// Why state could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
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
    #[error(
        "state file {path}: {cause}; the directory needs room and must be writable; a file that is not the agent's \
         must go"
    )]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// Somebody else holds its lock.
    #[error(
        "state directory {path}: another agent uses it, and while both run findings are told twice; end one, or give \
             each its own --state-dir"
    )]
    Held {
        /// The directory.
        path: PathBuf,
    },
}

/// The file whose lock says that the directory is in use.
const LOCK: &str = "lock";

/// The directory is this agent's alone until the value is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// What a look at the directory finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// There is none.
    Missing,
    /// Nobody has it.
    Free,
    /// An agent has it.
    Held,
}

/// The directory, opened anew for each use: it may be made, mended or replaced while the agent runs.
#[derive(Clone, Debug)]
pub struct StateDir {
    path: PathBuf,
}

impl StateDir {
    /// `path` is not touched yet. A slash at its end is dropped: it would follow a link.
    pub fn new(path: PathBuf) -> Self {
        Self { path: path.components().collect() }
    }

    /// The content of the file `name`; `None` where there is no file.
    ///
    /// # Errors
    /// An unsafe directory; a link, a device or more than `longest` bytes in the file's place.
    pub fn read(&self, name: &str, longest: u64) -> Result<Option<Vec<u8>>, StateDirError> {
        let Some(dir) = self.open()? else { return Ok(None) };
        let error = |cause| self.file_error(name, cause);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&dir, name, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(error(errno.into())),
        };
        own(&file).map_err(error)?;
        let mut content = Vec::new();
        if longest < file.take(longest + 1).read_to_end(&mut content).map_err(error)? as u64 {
            return Err(error(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("more than {longest} bytes"),
            )));
        }
        Ok(Some(content))
    }

    /// Puts `content` in the place of the file `name`, in one step; makes the directory where it is missing.
    ///
    /// # Errors
    /// An unsafe directory, a full or read-only disk; the former content is still there then.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), StateDirError> {
        let dir = self.open_or_make()?;
        let new_name = format!("{name}.new");
        let replace = || -> io::Result<()> {
            match unlinkat(&dir, &new_name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut file = File::from(openat(&dir, &new_name, flags, Mode::RUSR | Mode::WUSR)?);
            file.write_all(content)?;
            file.sync_data()?;
            renameat(&dir, &new_name, &dir, name)?;
            Ok(())
        };
        replace().map_err(|cause| self.file_error(name, cause))
    }

    /// Removes the file `name`, which may be missing.
    ///
    /// # Errors
    /// An unsafe directory, a read-only disk.
    pub fn remove(&self, name: &str) -> Result<(), StateDirError> {
        let Some(dir) = self.open()? else { return Ok(()) };
        let removed = match unlinkat(&dir, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => unlinkat(&dir, name, AtFlags::REMOVEDIR), // not ours; an empty one goes all the same
            removed => removed,
        };
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.file_error(name, errno.into())),
        }
    }

    /// Gives the file `name` another name, for people to look at.
    ///
    /// # Errors
    /// An unsafe directory, a missing file, a read-only disk.
    pub fn set_aside(&self, name: &str, aside: &str) -> Result<(), StateDirError> {
        let dir = self.open()?.ok_or_else(|| self.directory_error(io::ErrorKind::NotFound.into()))?;
        renameat(&dir, name, &dir, aside).map_err(|errno| self.file_error(name, errno.into()))
    }

    /// Takes the directory for this agent alone, without waiting; makes it where it is missing.
    ///
    /// # Errors
    /// [`StateDirError::Held`] while another agent has it; an unsafe directory, a full or read-only disk.
    pub fn lock(&self) -> Result<Lock, StateDirError> {
        let dir = self.open_or_make()?;
        // Never removed: two agents could otherwise lock two files of the same name.
        let file = self.file_in(&dir, LOCK)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock { _file: file }),
            Err(Errno::WOULDBLOCK) => Err(StateDirError::Held { path: self.path.clone() }),
            Err(errno) => Err(self.file_error(LOCK, errno.into())),
        }
    }

    /// The file `name` to read and write; it and the directory are made where they are missing.
    ///
    /// # Errors
    /// An unsafe directory, a full or read-only disk; a link, anything but a regular file, or somebody else's in its place.
    pub fn open_file(&self, name: &str) -> Result<File, StateDirError> {
        let dir = self.open_or_make()?;
        self.file_in(&dir, name)
    }

    fn file_in(&self, dir: &File, name: &str) -> Result<File, StateDirError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let error = |cause| self.file_error(name, cause);
        let file = openat(dir, name, flags, Mode::RUSR | Mode::WUSR).map_err(|errno| error(errno.into()))?;
        let file = File::from(file);
        own(&file).map_err(error)?;
        Ok(file)
    }

    /// Who has the directory now, without making or holding anything. Trap: the answer is old at once, and for a moment
    /// the lock is shared, so whoever takes it must try more than once.
    ///
    /// # Errors
    /// An unsafe directory; a link in the lock's place.
    pub fn look(&self) -> Result<Use, StateDirError> {
        let Some(dir) = self.open()? else { return Ok(Use::Missing) };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&dir, LOCK, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => return Ok(Use::Free),
            Err(errno) => return Err(self.file_error(LOCK, errno.into())),
        };
        own(&file).map_err(|cause| self.file_error(LOCK, cause))?;
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(Use::Free), // and given back with the file
            Err(Errno::WOULDBLOCK) => Ok(Use::Held),
            Err(errno) => Err(self.file_error(LOCK, errno.into())),
        }
    }

    /// Whether the directory, which is missing, could be made: the nearest one above it that exists may be written to.
    ///
    /// # Errors
    /// What the system says of that one.
    pub fn can_be_made(&self) -> Result<(), StateDirError> {
        let mut above = self.path.ancestors().skip(1);
        let parent = above.find(|path| path.exists()).unwrap_or(Path::new("."));
        let access = Access::WRITE_OK | Access::EXEC_OK;
        accessat(CWD, parent, access, AtFlags::EACCESS)
            .map_err(|errno| StateDirError::Directory { path: parent.to_path_buf(), cause: errno.into() })
    }

    fn open_or_make(&self) -> Result<File, StateDirError> {
        if let Some(dir) = self.open()? {
            return Ok(dir);
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.path);
        made.map_err(|cause| self.directory_error(cause))?;
        self.open()?.ok_or_else(|| self.directory_error(io::ErrorKind::NotFound.into()))
    }

    /// The directory, if it is there and safe.
    fn open(&self) -> Result<Option<File>, StateDirError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = match openat(CWD, &self.path, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.directory_error(errno.into())),
        };
        let stat = fstat(&dir).map_err(|errno| self.directory_error(errno.into()))?;
        let (owner, mode, me) = (stat.st_uid, stat.st_mode & 0o7777, geteuid().as_raw());
        if owner != me || mode & 0o022 != 0 {
            return Err(StateDirError::Unsafe { path: self.path.clone(), owner, mode, me });
        }
        Ok(Some(dir))
    }

    fn directory_error(&self, cause: io::Error) -> StateDirError {
        StateDirError::Directory { path: self.path.clone(), cause }
    }

    fn file_error(&self, name: &str, cause: io::Error) -> StateDirError {
        StateDirError::File { path: self.path.join(name), cause }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;
    use crate::test_dir::TestDir;

    const NAME: &str = "a.state";
    const NEW_NAME: &str = "a.state.new";

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
                let refusals = [
                    dir.read(NAME, 99).unwrap_err().to_string(),
                    dir.write(NAME, b"x").unwrap_err().to_string(),
                ];
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
        assert_eq!(dir.read(NAME, 99).unwrap(), None);
        dir.write(NAME, b"one").unwrap();
        dir.write(NAME, b"two").unwrap();
        assert_eq!(dir.read(NAME, 99).unwrap().as_deref(), Some(&b"two"[..]));

        let (victim, file) = (root.path().join("victim"), root.path().join("deep/state").join(NAME));
        fs::write(&victim, "keep me").unwrap();
        fs::remove_file(&file).unwrap();
        symlink(&victim, &file).unwrap();
        symlink(&victim, file.with_file_name(NEW_NAME)).unwrap();
        assert!(dir.read(NAME, 99).is_err());
        dir.write(NAME, b"three").unwrap();
        assert_eq!(dir.read(NAME, 99).unwrap().as_deref(), Some(&b"three"[..]));
        assert_eq!(fs::read_to_string(&victim).unwrap(), "keep me");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);

        assert!(dir.read(NAME, 4).is_err(), "longer than it may be");
        dir.set_aside(NAME, "a.bad").unwrap();
        assert_eq!(dir.read(NAME, 99).unwrap(), None);
        dir.remove("a.bad").unwrap();
        dir.remove("a.bad").unwrap();
    }

    #[test]
    fn a_file_that_may_be_somebody_elses_is_not_used() {
        #[track_caller]
        fn check(make: fn(&Path), want: &str) {
            let root = TestDir::new();
            let path = root.path().join("state");
            let dir = StateDir::new(path.clone());
            dir.write("other", b"x").unwrap();
            make(&path.join(NAME));
            for said in [dir.read(NAME, 99).err(), dir.open_file(NAME).err()] {
                let said = said.map(|error| error.to_string()).unwrap_or_default();
                assert!(said.contains(want), "{want}: {said}");
            }
            dir.remove(NAME).unwrap();
            dir.open_file(NAME).unwrap();
        }
        check(|path| drop(std::os::unix::net::UnixListener::bind(path).unwrap()), "No such device");
        check(|path| fs::hard_link(path.with_file_name("other"), path).unwrap(), "second name");
        check(
            |path| {
                fs::write(path, "1\n").unwrap();
                fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
            },
            "others may write to it (mode 666)",
        );
        let missing = TestDir::new();
        StateDir::new(missing.path().join("deep/state")).open_file(NAME).unwrap();
        let none = StateDir::new("/proc/none".into()).open_file(NAME).unwrap_err();
        assert!(matches!(none, StateDirError::Directory { .. }), "{none}");
    }

    #[test]
    fn a_directory_has_one_holder_at_a_time() {
        let root = TestDir::new();
        let path = root.path().join("deep/state");
        let dir = StateDir::new(path.clone());
        let held = dir.lock().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&path), mode(&path.join("lock"))), (0o700, 0o600));
        let refusal = StateDir::new(path.clone()).lock().unwrap_err();
        assert!(matches!(&refusal, StateDirError::Held { path: of } if *of == path), "{refusal:?}");
        let said = refusal.to_string();
        assert!(
            said.contains("deep/state: another agent uses it, and while both run findings are told twice"),
            "{said}"
        );
        dir.write(NAME, b"one").unwrap(); // the holder's own writes need no second lock
        drop(held);
        drop(dir.lock().unwrap());

        fs::remove_file(path.join("lock")).unwrap();
        symlink(root.path().join("elsewhere"), path.join("lock")).unwrap();
        assert!(matches!(dir.lock(), Err(StateDirError::File { .. })), "a link is not followed");
        assert!(!root.path().join("elsewhere").exists());
    }
}
