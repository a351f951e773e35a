//! /dev/kmsg itself: one record per read, without waiting, and waiting without reading.
//!
//! In: the host's /dev. Out: records, as bytes. Source of the errors: the kernel's Documentation/ABI/testing/dev-kmsg.
//! What can go wrong: no device, no right to open it ([`Lack`]s with a remedy), and what read(2) answers.

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::{OFlags, SeekFrom};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::host::{self, HostRoot};
use crate::model::MonoNs;
use crate::sources::{Exit, Lack};

/// Where records come from: the device, or a test's script.
pub(super) trait RecordReader: Send {
    /// One record into `buffer`. Errors: `WouldBlock` (nothing more), `BrokenPipe` (records were overwritten; the next
    /// read goes on behind the gap), `InvalidInput` (the record does not fit; the next read goes on behind it).
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Back to the oldest record.
    fn rewind(&mut self) -> io::Result<()>;

    /// Waits until there may be something to read.
    fn readable(&mut self) -> impl Future<Output = io::Result<()>> + Send;

    /// The time now.
    fn now(&self) -> MonoNs {
        host::mono_now()
    }
}

/// The kernel's log.
#[derive(Debug)]
pub(super) struct Device(AsyncFd<File>);

impl Device {
    /// Opens it; the exit says what is missing.
    pub(super) fn open(host: &HostRoot) -> Result<Self, Exit> {
        let path = host.dev("kmsg");
        let flags = OFlags::NONBLOCK | OFlags::CLOEXEC;
        let flags = i32::try_from(flags.bits()).unwrap_or_default();
        let opened = File::options().read(true).custom_flags(flags).open(&path);
        let file = opened.map_err(|cause| {
            let what = format!("{}: {cause}", path.display());
            match cause.kind() {
                io::ErrorKind::NotFound => Exit::Unavailable(vec![Lack {
                    reason: "no_kmsg",
                    what,
                    remedy: "give the container the host's /dev/kmsg, or name its place with --host-dev",
                }]),
                io::ErrorKind::PermissionDenied => Exit::Unavailable(vec![Lack {
                    reason: "not_permitted",
                    what,
                    remedy: "give the agent CAP_SYSLOG and the device (a privileged container has both), or set \
                             kernel.dmesg_restrict=0 and make the device readable",
                }]),
                _ => Exit::Failed(what.into()),
            }
        })?;
        #[expect(
            deprecated,
            reason = "a File keeps its descriptor, which is all the unsafe successor asks for"
        )]
        let watched = AsyncFd::with_interest(file, Interest::READABLE);
        watched.map(Self).map_err(|cause| Exit::Failed(format!("{}: {cause}", path.display()).into()))
    }
}

impl RecordReader for Device {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self.0.get_ref(), buffer)?)
    }

    fn rewind(&mut self) -> io::Result<()> {
        rustix::fs::seek(self.0.get_ref(), SeekFrom::Start(0))?;
        Ok(())
    }

    async fn readable(&mut self) -> io::Result<()> {
        // Forgotten at once: the caller reads until WouldBlock, and what comes after that wakes it again.
        self.0.readable().await?.clear_ready();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;
    use crate::test_dir::TestDir;

    fn open(dev: &Path) -> Result<Device, Exit> {
        Device::open(&HostRoot { dev: dev.to_owned(), ..HostRoot::default() })
    }

    #[tokio::test]
    async fn what_is_missing_comes_with_a_remedy() {
        let dir = TestDir::new();
        match open(dir.path()) {
            Err(Exit::Unavailable(lacks)) => {
                let lack = &lacks[0];
                assert_eq!(lack.reason, "no_kmsg");
                assert!(lack.what.contains("kmsg: No such file"), "{}", lack.what);
            }
            other => panic!("{other:?}"),
        }
        fs::write(dir.path().join("kmsg"), "a file cannot be waited for").unwrap();
        assert!(matches!(open(dir.path()), Err(Exit::Failed(_))));
    }

    #[tokio::test]
    async fn reading_never_waits_and_waiting_ends_with_data() {
        let dir = TestDir::new();
        let path = dir.path().join("kmsg");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let mut device = open(dir.path()).unwrap();
        let writer = fs::OpenOptions::new().write(true).open(&path).unwrap();
        let mut buffer = [0; 64];
        assert_eq!(device.read(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        rustix::io::write(&writer, b"4,1,2,-;x").unwrap();
        device.readable().await.unwrap();
        assert_eq!(device.read(&mut buffer).unwrap(), 9);
    }
}
