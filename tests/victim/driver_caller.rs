//! A process that calls the driver's double as it is told to, to be watched.
//!
//! In: a call per line (see [`Caller::call`]). Out: a line each, `done VALUE NANOSECONDS` or `failed ERRNO NANOSECONDS`, the
//! time by the caller's own clock, behind it the words that were asked for.
//! What can go wrong: a line is no call; the exit status is 1.
#![expect(clippy::print_stdout, reason = "it talks to the test through its standard output")]

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Room for every parameter block that tests use. Unit: 32-bit words.
const WORDS: usize = 64;
const PAGE: usize = 4096;
const PAGES: usize = 16;

type Block = [u32; WORDS];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            let _ = writeln!(io::stderr(), "driver-caller: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    println!("ready");
    let mut caller = Caller::default();
    for line in io::stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let begun = Instant::now();
        let done = caller.call(&words);
        let took = begun.elapsed().as_nanos();
        let asked: String = caller.asked.drain(..).map(|word| format!(" {word:#x}")).collect();
        match done {
            Ok(value) => println!("done {value} {took}{asked}"),
            Err(e) if e.raw_os_error().is_some() => {
                println!("failed {} {took}", e.raw_os_error().unwrap_or(0))
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[derive(Default)]
struct Caller {
    files: BTreeMap<String, File>,
    /// Where the last mapping begins, and how many of its pages were touched.
    mapping: Option<(usize, usize)>,
    /// Words of the block after the call.
    asked: Vec<u32>,
}

impl Caller {
    /// `open PATH`, `close PATH`; `ioctl PATH COMMAND [OFFSET=VALUE…] [OFFSET…]` with 32-bit values before and questions
    /// after the call; `wrapped PATH ESCAPE SIZE [OFFSET=VALUE…] [OFFSET…]`, the same by `IOCTL_XFER_CMD`; `repeat TIMES PATH COMMAND [OFFSET=VALUE…]`; `crowd THREADS PATH COMMAND`, each thread in one call;
    /// `beside PATH COMMAND OTHER`, one OTHER call, and a second thread that calls COMMAND until that has returned;
    /// `mmap PATH`, then `touch` a page that was not touched yet, or `nested PATH COMMAND` with the block in one;
    /// `poll PATH MILLISECONDS`; `unread-open PATH`, with the path on a page that is not in memory, as a program's literals
    /// are at their first use; `exec`, which begins anew as the same process.
    fn call(&mut self, words: &[&str]) -> io::Result<i64> {
        match words {
            ["open", path] => {
                let file = OpenOptions::new().read(true).write(true).open(path)?;
                self.files.insert((*path).to_owned(), file);
                Ok(0)
            }
            ["close", path] => self.files.remove(*path).map(|_| 0).ok_or_else(|| wrong(words)),
            ["ioctl", path, command, block @ ..] => {
                let (file, command) = (self.file(path)?, number(command)?);
                let (mut values, questions) = parsed(block)?;
                let value = ioctl(file, command, &mut values)?;
                self.asked = questions.iter().filter_map(|at| values.get(at / 4).copied()).collect();
                Ok(value)
            }
            ["wrapped", path, escape, size, block @ ..] => {
                let (file, escape, size) = (self.file(path)?, number(escape)?, number(size)?);
                let (mut values, questions) = parsed(block)?;
                let value = wrapped(file, escape, size, &mut values)?;
                self.asked = questions.iter().filter_map(|at| values.get(at / 4).copied()).collect();
                Ok(value)
            }
            ["repeat", times, path, command, block @ ..] => {
                let (file, command) = (self.file(path)?, number(command)?);
                let (values, _) = parsed(block)?;
                for _ in 0..number(times)? {
                    ioctl(file, command, &mut values.clone())?;
                }
                Ok(0)
            }
            ["crowd", threads, path, command] => {
                let (file, command) = (self.file(path)?, number(command)?);
                crowd(file, command, number(threads)?)
            }
            ["beside", path, command, other] => {
                let (file, command, other) = (self.file(path)?, number(command)?, number(other)?);
                beside(file, command, other)
            }
            ["mmap", path] => {
                self.mapping = Some((map(self.file(path)?)?, 0));
                Ok(0)
            }
            ["touch"] => Ok(touch(self.untouched()?)),
            ["nested", path, command] => {
                let page = self.untouched()?;
                ioctl_at(self.file(path)?, number(command)?, page)
            }
            ["poll", path, timeout] => poll(self.file(path)?, number(timeout)?),
            ["unread-open", path] => {
                self.files.insert((*path).to_owned(), open_unread(path)?);
                Ok(0)
            }
            ["exec"] => Err(Command::new(std::env::current_exe()?).exec()),
            _ => Err(wrong(words)),
        }
    }

    fn file(&self, path: &str) -> io::Result<&File> {
        self.files.get(path).ok_or_else(|| wrong(&[path]))
    }

    /// The address of a page of the mapping that nobody has touched.
    fn untouched(&mut self) -> io::Result<usize> {
        match &mut self.mapping {
            Some((begin, touched)) if *touched < PAGES => {
                *touched += 1;
                Ok(*begin + (*touched - 1) * PAGE)
            }
            _ => Err(wrong(&["no untouched page"])),
        }
    }
}

fn wrong(words: &[&str]) -> io::Error {
    io::Error::other(format!("not a call: {}", words.join(" ")))
}

fn number(text: &str) -> io::Result<usize> {
    let parsed = text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| usize::from_str_radix(hex, 16));
    parsed.map_err(io::Error::other)
}

/// `OFFSET=VALUE` → the block; `OFFSET` → what is asked for.
fn parsed(words: &[&str]) -> io::Result<(Block, Vec<usize>)> {
    let (mut block, mut questions) = ([0; WORDS], Vec::new());
    for word in words {
        match word.split_once('=') {
            Some((at, value)) => {
                let place = block.get_mut(number(at)? / 4).ok_or_else(|| wrong(words))?;
                *place = u32::try_from(number(value)?).map_err(io::Error::other)?;
            }
            None => questions.push(number(word)?),
        }
    }
    Ok((block, questions))
}

fn checked(result: libc::c_int) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result.into()) }
}

fn ioctl(file: &File, command: usize, block: &mut Block) -> io::Result<i64> {
    ioctl_at(file, command, block.as_mut_ptr().expose_provenance())
}

fn ioctl_at(file: &File, command: usize, block: usize) -> io::Result<i64> {
    // SAFETY: the double reads and writes at most as many bytes as the command's size bits say (at most 16,383) or UVM's
    // parameters have; tests use commands whose blocks are at most `WORDS` long. `block` is an array of that length or a
    // page of the mapping, and lives past the call.
    checked(unsafe { libc::ioctl(file.as_raw_fd(), command as _, block) })
}

/// By the escape that only says where the block is.
fn wrapped(file: &File, escape: usize, size: usize, block: &mut Block) -> io::Result<i64> {
    const XFER: usize = 0xc010_46d3;
    if size > WORDS * size_of::<u32>() {
        return Err(wrong(&["a block too large"]));
    }
    let word = |value: usize| u32::try_from(value).map_err(io::Error::other);
    let at = block.as_mut_ptr().expose_provenance();
    let mut wrapper = [0; WORDS];
    wrapper[..4].copy_from_slice(&[word(escape)?, word(size)?, at as u32, word(at >> 32)?]);
    ioctl(file, XFER, &mut wrapper)
}

/// All threads call at once; the number of those that succeeded.
fn beside(file: &File, command: usize, other: usize) -> io::Result<i64> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let _ = ioctl(file, command, &mut [0; WORDS]); // it is the time that counts
            }
        });
        let value = ioctl(file, other, &mut [0; WORDS]);
        over.store(true, Ordering::Relaxed);
        value
    })
}

fn crowd(file: &File, command: usize, threads: usize) -> io::Result<i64> {
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|_| {
                let one = std::thread::Builder::new().stack_size(64 * 1024);
                one.spawn_scoped(scope, || ioctl(file, command, &mut [0; WORDS]).is_ok())
            })
            .collect::<io::Result<_>>()?;
        let ended = started.into_iter().map(|thread| i64::from(thread.join().unwrap_or(false)));
        Ok(ended.sum())
    })
}

fn map(file: &File) -> io::Result<usize> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: without an address the kernel takes unused room, so no memory of ours changes; the descriptor is open.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), PAGE * PAGES, rights, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at.expose_provenance()) }
}

fn open_unread(path: &str) -> io::Result<File> {
    let own = std::env::temp_dir().join(format!("driver-caller-{}", std::process::id()));
    let written = CString::new(path)?.into_bytes_with_nul();
    std::fs::write(&own, written)?;
    let page = OpenOptions::new().read(true).write(true).open(&own).and_then(|file| map(&file));
    std::fs::remove_file(&own)?;
    let page = std::ptr::with_exposed_provenance(page?);
    // SAFETY: the page is a mapping of a file that nobody else has and that ends the path with a 0; it is never removed.
    let opened = checked(unsafe { libc::open(page, libc::O_RDWR | libc::O_CLOEXEC) })?;
    let descriptor = opened.try_into().map_err(io::Error::other)?;
    // SAFETY: a descriptor that the kernel has just given, and that nobody else has.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(descriptor) }))
}

fn touch(page: usize) -> i64 {
    // SAFETY: the page is within a mapping that is never removed, can be read, and nobody else uses.
    i64::from(unsafe { std::ptr::with_exposed_provenance::<u8>(page).read_volatile() })
}

fn poll(file: &File, timeout: usize) -> io::Result<i64> {
    let mut wanted = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let timeout = timeout.try_into().map_err(io::Error::other)?;
    // SAFETY: one `pollfd`, which lives past the call.
    checked(unsafe { libc::poll(&raw mut wanted, 1, timeout) })
}
