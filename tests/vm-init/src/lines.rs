//! What goes out: whole lines on a serial port of our own, each with a character for what it is.
//!
//! In: text. Out: `=` what this program says, `|` standard output of the tests, `!` their standard error, `~` a line of
//! their output that is not whole yet (a test that has begun), `?` a test that was skipped.
//! What can go wrong: the port is not there.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use rustix::termios::{OptionalActions, tcdrain, tcgetattr, tcsetattr};

/// What a line is.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Said by this program.
    Init,
    /// The tests' standard output.
    Output,
    /// The tests' standard error.
    Errors,
    /// Output whose line has not ended yet.
    Begun,
    /// A line of the record of skips.
    Skip,
}

/// The port.
#[derive(Debug)]
pub struct Lines(Mutex<File>);

impl Lines {
    /// Opens the port; what is written comes out as it is.
    pub fn open(port: &str) -> io::Result<Self> {
        let port = File::options().read(true).write(true).open(port)?;
        let mut settings = tcgetattr(&port)?;
        settings.make_raw();
        settings.set_speed(115_200)?;
        tcsetattr(&port, OptionalActions::Now, &settings)?;
        Ok(Self(Mutex::new(port)))
    }

    /// Writes a line; what cannot be written is lost, and the other side will miss the end.
    pub fn write(&self, kind: Kind, text: &str) {
        let mark = match kind {
            Kind::Init => '=',
            Kind::Output => '|',
            Kind::Errors => '!',
            Kind::Begun => '~',
            Kind::Skip => '?',
        };
        let mut port = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = port.write_all(format!("{mark}{text}\n").as_bytes());
    }

    /// Waits until all has left the port.
    pub fn drain(&self) {
        let port = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = tcdrain(&*port); // nothing else can be done at the end
    }
}
