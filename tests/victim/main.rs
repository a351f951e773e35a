//! A process that makes real ioctls on a real device node, to be watched.
//!
//! In: `active`, `activate N`, `wait N`, `crowd N THREADS` (virtual terminals; the last two hang in the driver until N is
//! shown), `script` (a call per line of its input), `chdir NAME` or `unload NAME` (of a module that nobody has), or `read-random BYTES` (one huge read, which spins). Out: lines.
//! What can go wrong: no terminal; the exit status is 1.
#![expect(clippy::print_stdout, reason = "it talks to the test through its standard output")]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::sync::Barrier;

/// ioctls of virtual terminals, from the kernel's `vt.h`.
const VT_GETSTATE: u64 = 0x5603;
const VT_ACTIVATE: u64 = 0x5606;
const VT_WAITACTIVE: u64 = 0x5607;

/// `struct vt_stat`.
#[repr(C)]
#[derive(Default)]
struct VtStat {
    active: u16,
    signal: u16,
    state: u16,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["active"] => active(),
        ["activate", n] => with_number(n, activate),
        ["crowd", n, threads] => with_number(n, |n| with_number(threads, |threads| crowd(n, threads))),
        ["script"] => script(),
        ["wait", n] => with_number(n, wait),
        ["chdir", name] => std::env::set_current_dir(name),
        ["unload", name] => unload(name),
        ["read-random", n] => with_number(n, read_random),
        _ => Err(io::Error::other(
            "usage: ioctl-victim active | activate N | wait N | crowd N THREADS | script | chdir NAME | unload NAME \
             | read-random BYTES",
        )),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            let _ = writeln!(io::stderr(), "ioctl-victim: {e}");
            ExitCode::FAILURE
        }
    }
}

fn with_number(text: &str, run: impl FnOnce(usize) -> io::Result<()>) -> io::Result<()> {
    run(text.parse().map_err(io::Error::other)?)
}

fn terminal() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/tty0")
}

fn active() -> io::Result<()> {
    let tty = terminal()?;
    let mut stat = VtStat::default();
    // SAFETY: VT_GETSTATE writes one `struct vt_stat`, which VtStat mirrors, to the address it is given; `stat` lives
    // past the call and the descriptor is open.
    let result = unsafe { libc::ioctl(tty.as_raw_fd(), VT_GETSTATE as _, &raw mut stat) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    println!("{}", stat.active);
    Ok(())
}

fn on_terminal(request: u64, n: usize) -> io::Result<()> {
    let tty = terminal()?;
    // SAFETY: VT_ACTIVATE and VT_WAITACTIVE take a number, no address; the descriptor is open.
    let result = unsafe { libc::ioctl(tty.as_raw_fd(), request as _, n) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Ends when the terminal is shown: the kernel switches later than it answers.
fn activate(n: usize) -> io::Result<()> {
    on_terminal(VT_ACTIVATE, n)?;
    on_terminal(VT_WAITACTIVE, n)
}

/// Makes a call per line of its input: `open PATH`, and `close`, `ioctl COMMAND` or `mmap` on what was opened last.
/// Answers `done`, or `failed` and the system's number.
fn script() -> io::Result<()> {
    println!("ready");
    let mut opened = None;
    for line in io::stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let done = match (words.as_slice(), &opened) {
            (["open", path], _) => {
                OpenOptions::new().read(true).write(true).open(path).map(|file| opened = Some(file))
            }
            (["close"], Some(_)) => {
                opened = None;
                Ok(())
            }
            (["ioctl", command], Some(file)) => with_number(command, |command| unknown_ioctl(file, command)),
            (["mmap"], Some(file)) => map(file),
            _ => return Err(io::Error::other(format!("not a call: {line}"))),
        };
        match done {
            Ok(()) => println!("done"),
            Err(e) => println!("failed {}", e.raw_os_error().unwrap_or(0)),
        }
    }
    Ok(())
}

fn unknown_ioctl(file: &File, command: usize) -> io::Result<()> {
    // SAFETY: the argument is 0, which is the address of nothing: a driver that takes it for one fails. The descriptor
    // is open.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), command as _, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Only of names that no module has: nothing is ever unloaded.
fn unload(name: &str) -> io::Result<()> {
    if !name.ends_with("_none") {
        return Err(io::Error::other(format!("{name}: must end with _none")));
    }
    let name = std::ffi::CString::new(name).map_err(io::Error::other)?;
    // SAFETY: the name ends with NUL and lives past the call, which only reads it; the other argument is a number.
    let result = unsafe { libc::syscall(libc::SYS_delete_module, name.as_ptr(), libc::O_NONBLOCK) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn map(file: &File) -> io::Result<()> {
    const BYTES: usize = 4096;
    // SAFETY: without an address the kernel takes unused room, so no memory of ours changes; the descriptor is open.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), BYTES, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just mapped with this length, and nobody else has the address.
    let result = unsafe { libc::munmap(at, BYTES) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Says that it is ready, waits for the end of its input, then hangs.
fn wait(n: usize) -> io::Result<()> {
    println!("ready");
    io::stdin().read_to_end(&mut Vec::new())?;
    on_terminal(VT_WAITACTIVE, n)
}

/// Threads that hang at once, and wait elsewhere after they have returned, until the end of the input.
fn crowd(n: usize, threads: usize) -> io::Result<()> {
    let over = Barrier::new(threads + 1);
    println!("ready");
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let done = on_terminal(VT_WAITACTIVE, n);
                over.wait();
                done
            });
        }
        let ended = io::stdin().read_to_end(&mut Vec::new());
        over.wait();
        ended.map(drop)
    })
}

/// One read, which the kernel serves without leaving it: the thread spins there for seconds.
fn read_random(bytes: usize) -> io::Result<()> {
    let mut source = File::open("/dev/urandom")?;
    let mut buffer = vec![0; bytes];
    println!("ready");
    source.read(&mut buffer).map(drop)
}
