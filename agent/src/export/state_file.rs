//! Files of the state directory, read and written so that nobody can lead the agent astray.
//!
//! In: a path and bytes. Out: bytes. Links are not followed, FIFOs are not waited for, size is bounded.
//! What can go wrong: the system refuses, or the file is not a plain one; both are errors for the caller to report.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Reads a regular file of at most `largest` bytes; refuses links, devices and what is larger.
///
/// # Errors
/// The system's, or [`io::ErrorKind::InvalidData`] for what is not such a file.
pub fn read_regular(path: &Path, largest: u64) -> io::Result<Vec<u8>> {
    // NONBLOCK: opening a FIFO that somebody put there must not hang.
    let file =
        OpenOptions::new().read(true).custom_flags(flags(OFlags::NOFOLLOW | OFlags::NONBLOCK)).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file"));
    }
    let mut bytes = Vec::new();
    if file.take(largest + 1).read_to_end(&mut bytes)? as u64 > largest {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too large"));
    }
    Ok(bytes)
}

/// Writes a new file (0600) in place of what has this name; `sync` waits until the disk has it.
///
/// # Errors
/// The system's.
pub fn write_whole(path: &Path, bytes: &[u8], sync: bool) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).custom_flags(flags(OFlags::NOFOLLOW));
    let mut file = options.open(path)?;
    file.write_all(bytes)?;
    if sync { file.sync_all() } else { Ok(()) }
}

fn flags(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}
