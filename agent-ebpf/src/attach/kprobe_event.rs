//! Kprobe events of tracefs: made, found and removed by one line each.
//!
//! In: where tracefs is, names, a function. Out: a [`KprobeEvent`]; dropping it removes the event.
//! What can go wrong: tracefs refuses the line; the system's answer is given. A module that is not loaded is no error:
//! the kernel puts the event on the function once it comes, and again each time it comes back.
//! The file is only ever appended to: opening it to truncate it would delete everybody's events.

use std::format;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::string::String;

/// The file of tracefs with all kprobe events.
pub const FILE: &str = "kprobe_events";

/// What an event is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Letters, digits and `_`, at most 63.
    pub group: String,
    /// The same; one function and edge, one name.
    pub name: String,
    /// The function, as `module:function`; one of the kernel without a module.
    pub function: String,
    /// `None`: its entry. Else its return, and how many calls may be under way at once (MAXACTIVE, at most 4096): the
    /// return of one more would be lost.
    pub returns: Option<u32>,
}

impl Definition {
    /// The line that makes the event.
    fn line(&self) -> String {
        let Self { group, name, function, returns } = self;
        match returns {
            None => format!("p:{group}/{name} {function}\n"),
            Some(at_once) => format!("r{at_once}:{group}/{name} {function}\n"),
        }
    }
}

/// An event of ours.
#[derive(Debug)]
pub(super) struct KprobeEvent {
    tracefs: PathBuf,
    event: String,
}

impl KprobeEvent {
    pub(super) fn define(tracefs: &Path, definition: &Definition) -> io::Result<Self> {
        append(tracefs, &definition.line())?;
        let event = format!("{}/{}", definition.group, definition.name);
        Ok(Self { tracefs: tracefs.to_path_buf(), event })
    }

    /// `group/name`.
    pub(super) fn path(&self) -> &str {
        &self.event
    }
}

impl Drop for KprobeEvent {
    fn drop(&mut self) {
        // refused only while somebody else looks at the event; the next start clears what is left
        let _ = remove(&self.tracefs, &self.event);
    }
}

/// Removes an event that nobody uses.
///
/// # Errors
/// Somebody uses it (EBUSY), it is not there (ENOENT), no right to it.
pub fn remove(tracefs: &Path, event: &str) -> io::Result<()> {
    append(tracefs, &format!("-:{event}\n"))
}

/// One line a write: the kernel stops at the first line it does not like.
fn append(tracefs: &Path, line: &str) -> io::Result<()> {
    let written = OpenOptions::new().append(true).open(tracefs.join(FILE))?.write(line.as_bytes())?;
    if written == line.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn lines_are_appended_and_nothing_is_truncated() {
        let tracefs = std::env::temp_dir().join(format!("warpgauge-kprobe-event-{}", std::process::id()));
        fs::create_dir_all(&tracefs).expect("a directory");
        fs::write(tracefs.join(FILE), "p:other/one do_exit\n").expect("a file");
        let definition = |returns| Definition {
            group: "warpgauge_7_99".into(),
            name: "w7_rm_ioctl".into(),
            function: "nvidia:rm_ioctl".into(),
            returns,
        };
        let ret = KprobeEvent::define(&tracefs, &definition(Some(4096))).expect("appended");
        let entry = KprobeEvent::define(&tracefs, &definition(None)).expect("appended");
        assert_eq!(entry.path(), "warpgauge_7_99/w7_rm_ioctl");
        drop((entry, ret));
        let lines = fs::read_to_string(tracefs.join(FILE)).expect("readable");
        let want = "p:other/one do_exit\n\
                    r4096:warpgauge_7_99/w7_rm_ioctl nvidia:rm_ioctl\n\
                    p:warpgauge_7_99/w7_rm_ioctl nvidia:rm_ioctl\n\
                    -:warpgauge_7_99/w7_rm_ioctl\n-:warpgauge_7_99/w7_rm_ioctl\n";
        assert_eq!(lines, want);
        fs::remove_dir_all(&tracefs).expect("removed");
        // without the file nothing is made up
        assert!(KprobeEvent::define(&tracefs, &definition(None)).is_err() && !tracefs.exists());
    }
}
