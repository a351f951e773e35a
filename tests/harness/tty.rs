//! The virtual terminal that stands in for a GPU's device node: a wait for a terminal that is not shown hangs in a real
//! ioctl of a real driver.
//!
//! In: nothing. Out: a process that hangs, and the means to let it go. One test at a time holds the terminal, across
//! processes, and the terminal shown before is shown again after it.
//! What can go wrong: no virtual terminal on this machine.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::programs;

/// The major of virtual terminals.
pub const MAJOR: u32 = 4;
/// The ioctl that hangs.
pub const VT_WAITACTIVE: u32 = 0x5607;

/// The number of the terminal that is shown; `None` where there is none.
pub fn active() -> Option<u32> {
    let out = Command::new(programs::victim()).arg("active").output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().parse().ok()).flatten()
}

/// Holds the terminal; shows the former one again when dropped.
#[derive(Debug)]
pub struct Tty {
    _lock: File,
    shown: u32,
    hidden: u32,
}

impl Tty {
    /// Waits for its turn.
    ///
    /// # Panics
    /// When there is no terminal.
    #[expect(clippy::expect_used, reason = "a test fails by panicking")]
    pub fn hold() -> Self {
        let lock = File::create(std::env::temp_dir().join("warpgauge-tty0.lock")).expect("the lock's file");
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("the lock");
        let shown = active().expect("a terminal is shown");
        Self { _lock: lock, shown, hidden: if shown == 2 { 3 } else { 2 } }
    }

    /// Starts a process that hangs in the driver as soon as it reads a line (so that it can be moved first).
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn victim(&self) -> Child {
        self.start(Command::new(programs::victim()).args(["wait", &self.hidden.to_string()]))
    }

    /// The same, of a process that has the terminal's node open from the beginning on.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn holder(&self) -> Child {
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec 3<>/dev/tty0; exec \"$0\" \"$@\""]).arg(programs::victim());
        self.start(shell.args(["wait", &self.hidden.to_string()]))
    }

    /// Starts a process whose `threads` hang in the driver now; it ends at the end of its input.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn crowd(&self, threads: usize) -> Child {
        let (hidden, threads) = (self.hidden.to_string(), threads.to_string());
        self.start(Command::new(programs::victim()).args(["crowd", &hidden, &threads]))
    }

    #[expect(clippy::expect_used, reason = "a test fails by panicking")]
    fn start(&self, command: &mut Command) -> Child {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the victim starts");
        let mut ready = String::new();
        let out = child.stdout.as_mut().expect("piped");
        BufReader::new(out).read_line(&mut ready).expect("the victim speaks");
        assert_eq!(ready, "ready\n");
        child
    }

    /// Lets the process go into the driver.
    pub fn hang(&self, child: &mut Child) {
        drop(child.stdin.take()); // it waits for the end of its input
    }

    /// Shows the terminal that was waited for: the call returns.
    ///
    /// # Panics
    /// When the terminal cannot be shown.
    #[expect(clippy::expect_used, reason = "a test fails by panicking")]
    pub fn release(&self) {
        let status = Command::new(programs::victim()).args(["activate", &self.hidden.to_string()]).status();
        assert!(status.expect("the victim starts").success(), "the terminal can be shown");
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        // The last thing a failing test does; a second failure would hide the first.
        let _ = Command::new(programs::victim()).args(["activate", &self.shown.to_string()]).status();
    }
}
