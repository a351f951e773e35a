//! The driver's double, in a virtual machine: its modules, device nodes and control files.
//!
//! In: modules below /modules, packed by `cargo xtask vm-test`. Out: a driver that behaves as it is told; what may be
//! told is in tests/nvidia-sim/README.md. What can go wrong: the kernel refuses; the test fails and says what.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat, unlink};
use rustix::system::{delete_module, finit_module};

/// `O_NONBLOCK`: an unload fails at once where the module is in use, as `rmmod` has it.
const AT_ONCE: i32 = 0o4000;

/// A module of the double.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Module {
    /// `nvidia`.
    Nvidia,
    /// `nvidia_uvm`, which needs the other one.
    Uvm,
}

impl Module {
    /// Its name in the kernel.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia",
            Self::Uvm => "nvidia_uvm",
        }
    }

    fn file(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia.ko",
            Self::Uvm => "nvidia-uvm.ko",
        }
    }

    /// Loads it; the nodes of [`Uvm`](Self::Uvm) are made anew, since its major may be another one.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn load(self) -> io::Result<()> {
        self.load_from("/modules")
    }

    /// Loads the variant whose functions of RM cannot be traced.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn load_untraced(self) -> io::Result<()> {
        self.load_from("/untraced")
    }

    /// Loads the variant with the function names from before branch 545.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn load_old(self) -> io::Result<()> {
        self.load_from("/branch-535")
    }

    fn load_from(self, folder: &str) -> io::Result<()> {
        finit_module(File::open(format!("{folder}/{}", self.file()))?, c"", 0)?;
        if self == Self::Uvm { make_uvm_nodes() } else { Ok(()) }
    }

    /// Unloads it, as `rmmod` does.
    ///
    /// # Errors
    /// The kernel's answer: `EAGAIN` (11) while it is in use.
    pub fn unload(self) -> io::Result<()> {
        Ok(delete_module(&CString::new(self.name())?, AT_ONCE)?)
    }

    /// Whether it is loaded.
    pub fn is_loaded(self) -> bool {
        let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
        modules.lines().any(|line| line.split(' ').next() == Some(self.name()))
    }

    fn control(self) -> String {
        format!("/proc/driver/{}_sim", self.name())
    }

    /// Tells it what to do, by one line of its control file.
    ///
    /// # Panics
    /// When it does not take the order.
    #[track_caller]
    #[expect(clippy::panic, reason = "a test fails by panicking")]
    pub fn order(self, line: &str) {
        let told = File::options().write(true).open(self.control());
        if let Err(e) = told.and_then(|mut file| file.write_all(line.as_bytes())) {
            panic!("{}: {line}: {e}", self.control());
        }
    }

    /// What its control file says: counts, rules.
    pub fn state(self) -> String {
        fs::read_to_string(self.control()).unwrap_or_default()
    }

    /// The number behind a word of its control file, such as `hanging`.
    pub fn number(self, word: &str) -> Option<u64> {
        let state = self.state();
        state.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' ')?.parse().ok())
    }
}

/// The major in /proc/devices.
pub fn major(name: &str) -> Option<u32> {
    let devices = fs::read_to_string("/proc/devices").ok()?;
    let mut pairs = devices.lines().filter_map(|line| line.trim().split_once(' '));
    pairs.find_map(|(major, of)| (of == name).then(|| major.parse().ok()).flatten())
}

fn make_uvm_nodes() -> io::Result<()> {
    let major = major("nvidia-uvm").ok_or_else(|| io::Error::other("no nvidia-uvm in /proc/devices"))?;
    for (name, minor) in [("/dev/nvidia-uvm", 0), ("/dev/nvidia-uvm-tools", 1)] {
        let _ = unlink(name); // not there before the first load
        let all = Mode::from_raw_mode(0o666);
        mknodat(CWD, name, FileType::CharacterDevice, all, makedev(major, minor))?;
    }
    Ok(())
}
