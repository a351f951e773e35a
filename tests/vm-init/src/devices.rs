//! The loopback interface, the driver's double and its device nodes.
//!
//! In: modules, in the order of their names; `/proc/devices`. Out: an interface that is up, `/dev/nvidia*`.
//! What can go wrong: the kernel refuses a module; its log (the first serial port) says why.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::{fs, io, mem};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::system::finit_module;

use crate::about;

/// The major of `nvidia` is fixed. Source: the kernel's list of allocated devices (`admin-guide/devices.txt`).
const NVIDIA_MAJOR: u32 = 195;
/// `/dev/nvidiactl`.
const CONTROL_MINOR: u32 = 255;
/// How many GPUs' nodes are made; opening one of a GPU that is not there fails, as with the real driver.
const GPUS: u32 = 8;

/// Sets 127.0.0.1 up.
pub fn raise_loopback() -> io::Result<()> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").map_err(|e| about("a socket", e))?;
    // SAFETY: `ifreq` is a plain C structure, for which all zeros are a value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one `ifreq`, which lives past the call; the descriptor is open.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    if answer < 0 { Err(about("loopback", io::Error::last_os_error())) } else { Ok(()) }
}

/// Loads every module of the folder.
pub fn load_modules(folder: &str) -> io::Result<()> {
    let entries = fs::read_dir(folder).map_err(|e| about(folder, e))?;
    let mut modules: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    // `nvidia.ko` is before `nvidia-uvm.ko` in this order, as the second may need the first
    modules.sort_by_key(|path| path.file_stem().map(ToOwned::to_owned));
    for path in modules {
        let load = |path: &Path| -> io::Result<()> { Ok(finit_module(fs::File::open(path)?, c"", 0)?) };
        load(&path).map_err(|e| about(&path.display().to_string(), e))?;
    }
    Ok(())
}

/// Makes the nodes that the real driver's helper makes.
pub fn make_nodes() -> io::Result<()> {
    node("nvidiactl", NVIDIA_MAJOR, CONTROL_MINOR)?;
    for gpu in 0..GPUS {
        node(&format!("nvidia{gpu}"), NVIDIA_MAJOR, gpu)?;
    }
    let devices = fs::read_to_string("/proc/devices")?;
    let major = |wanted: &str| {
        let mut pairs = devices.lines().filter_map(|line| line.trim().split_once(' '));
        pairs.find_map(|(major, name)| (name == wanted).then(|| major.parse().ok()).flatten())
    };
    // The second module's is given when it is loaded.
    if let Some(major) = major("nvidia-uvm") {
        node("nvidia-uvm", major, 0)?;
        node("nvidia-uvm-tools", major, 1)?;
    }
    Ok(())
}

fn node(name: &str, major: u32, minor: u32) -> io::Result<()> {
    let path = format!("/dev/{name}");
    let all = Mode::from_raw_mode(0o666);
    mknodat(CWD, &path, FileType::CharacterDevice, all, makedev(major, minor)).map_err(|e| about(&path, e))
}
