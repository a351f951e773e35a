//! Whether an open file is the agent's own.
//!
//! In: a file in the agent's directory. Out: nothing, or why it is not to be believed or written to.
//! What can go wrong: nothing.

use std::fs::File;
use std::io;

use rustix::fs::{FileType, fstat};
use rustix::process::geteuid;

/// A file of the agent's, and of nobody else's: it may have been put there while others could write to the directory.
pub(super) fn own(file: &File) -> io::Result<()> {
    let stat = fstat(file)?;
    let (owner, mode, me) = (stat.st_uid, stat.st_mode & 0o7777, geteuid().as_raw());
    let what = if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        "it is not a regular file".to_owned()
    } else if owner != me {
        format!("it belongs to user {owner}, not to {me}")
    } else if mode & 0o022 != 0 {
        format!("others may write to it (mode {mode:o})")
    } else if stat.st_nlink > 1 {
        "it has a second name, perhaps elsewhere".to_owned()
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::InvalidData, what))
}
