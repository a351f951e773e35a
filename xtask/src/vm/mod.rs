//! `cargo xtask vm-test`: the tests that need a kernel of their own, in virtual machines with a double of the driver.
//!
//! In: Debian's kernels, `tests/nvidia-sim`, the tests of `tests/in_vm`. Out: their lines with the kernel's name in front.
//! Nothing is installed; all that is brought stays in `target/vm`. x86_64 only.
//! What can go wrong: packages cannot be had (a skip, need `vm`); a module does not build; a guest fails, hangs or panics:
//! then the end of its console is shown.

mod bzimage;
mod initramfs;
mod kernel;
mod modules;
mod packages;
mod programs;
mod qemu;
mod results;
mod tools;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};

use crate::workspace;
use initramfs::Initramfs;
pub(crate) use kernel::Kernel;
use packages::KernelFiles;
pub(crate) use programs::MODULE;
use programs::Programs;
use qemu::{Accel, End, Machine};
use results::Results;
use tools::Tools;

const CONSOLE_LINES: usize = 100;

/// What is asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Asked {
    /// The kernel, or `all`
    #[arg(long, default_value = "all", value_parser = kernels)]
    kernel: Kernels,
    /// Only tests whose name contains this, or one of these with commas in between
    #[arg(long, default_value = "")]
    filter: String,
    /// Keep the guest's file system and its console in target/vm/run
    #[arg(long)]
    keep: bool,
    /// Emulated, or by the host's own processor
    #[arg(long, value_enum, default_value = "tcg")]
    accel: Accel,
    /// Sources of the driver's double [default: tests/nvidia-sim]
    #[arg(long, value_name = "FOLDER")]
    driver: Option<PathBuf>,
}

type Kernels = std::sync::Arc<[Kernel]>;

fn kernels(text: &str) -> Result<Kernels, String> {
    match text {
        "all" => Ok(Kernel::ALL.into()),
        name => Ok([<Kernel as clap::ValueEnum>::from_str(name, false)?].into()),
    }
}

/// Runs the command.
pub(crate) fn run(asked: &Asked) -> Result<()> {
    let prepared = Prepared::bring().context("no virtual machine can be had here")?;
    let mut failed = Vec::new();
    for kernel in asked.kernel.iter() {
        let began = Instant::now();
        let files = packages::kernel(*kernel, &kept("packages"))?;
        let outcome = run_kernel(*kernel, &files, &prepared, asked)?;
        for skip in &outcome.skips {
            println!("[{}] skipped: {skip}", kernel.name());
        }
        let Outcome { passed, failed: not, .. } = outcome;
        println!(
            "[{}] {passed} passed, {not} failed in {:.1} s",
            kernel.name(),
            began.elapsed().as_secs_f64()
        );
        if not != 0 {
            failed.push(kernel.name());
        }
    }
    if !failed.is_empty() {
        bail!("failed on {}", failed.join(", "));
    }
    Ok(())
}

/// What every kernel's machine is made with.
#[derive(Debug)]
pub(crate) struct Prepared {
    tools: Tools,
    programs: Programs,
    _turn: File,
}

impl Prepared {
    fn bring() -> Result<Self> {
        let tools = Self::tools()?;
        // held while this lives, since what is unpacked and built lies under the same names
        let turn = take_turn()?;
        Ok(Self { tools, programs: Programs::build()?, _turn: turn })
    }

    fn tools() -> Result<Tools> {
        ensure!(std::env::consts::ARCH == "x86_64", "virtual machines are made on x86_64 only");
        let _turn = take_turn()?;
        Tools::bring(&kept("packages"))
    }

    /// The same as a part of all tests: `None` where no virtual machine can be had, which is said.
    pub(crate) fn bring_if_possible() -> Result<Option<Self>> {
        match Self::tools() {
            Ok(_) => Self::bring().map(Some),
            Err(e) => {
                println!("No virtual machine can be had here: {e:#}");
                Ok(None)
            }
        }
    }

    /// Tests one kernel as a part of all tests; `None` where the kernel cannot be had, which is said.
    pub(crate) fn test(&self, kernel: Kernel) -> Result<Option<Outcome>> {
        let files = match packages::kernel(kernel, &kept("packages")) {
            Ok(files) => files,
            Err(e) => {
                println!("No virtual machine with kernel {} can be had here: {e:#}", kernel.name());
                return Ok(None);
            }
        };
        let kernels = [kernel].into();
        let asked = Asked {
            kernel: kernels,
            filter: WITH_ALL_TESTS.to_owned(),
            keep: false,
            accel: Accel::Tcg,
            driver: None,
        };
        run_kernel(kernel, &files, self, &asked).map(Some)
    }
}

/// What runs with all other tests: the guest, the driver's double, the doctor, a hung call that is told, every program of the
/// object, every kind of call counted, and many that hang at once. The rest takes most of ten minutes a kernel under
/// emulation, and measures times that a busy machine does not keep; `vm-test` runs all of them.
const WITH_ALL_TESTS: &str = "in_vm::smoke::,every_program,in_vm::calls::,hangs::twenty_four";

/// One kernel's tests.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// `test need`; each has passed as well, for libtest.
    pub(crate) skips: Vec<String>,
}

fn kept(part: &str) -> PathBuf {
    workspace::path("target/vm").join(part)
}

/// One run at a time; given back when dropped.
fn take_turn() -> Result<File> {
    let lock = kept("lock");
    fs::create_dir_all(kept(""))?;
    let file = File::create(&lock).with_context(|| format!("making {}", lock.display()))?;
    if file.try_lock().is_err() {
        eprintln!("vm-test: waiting for another run");
        file.lock().with_context(|| format!("locking {}", lock.display()))?;
    }
    Ok(file)
}

fn run_kernel(kernel: Kernel, files: &KernelFiles, prepared: &Prepared, asked: &Asked) -> Result<Outcome> {
    let Prepared { tools, programs, .. } = prepared;
    let sources = asked.driver.clone().unwrap_or_else(|| workspace::path("tests/nvidia-sim"));
    let modules = modules::build(kernel, files, &sources, tools, &kept("modules"))?;
    let names = programs.names(&asked.filter)?;
    ensure!(!names.is_empty(), "no test's name contains {:?}", asked.filter);
    let guest = Guest { kernel, image: &files.image, tools, accel: asked.accel };
    let (end, results) = guest.run(&packed(kernel, programs, &modules, &names)?)?;
    let outcome = judge(end, &results, &names, &guest);
    if !asked.keep && outcome.failed == 0 {
        guest.remove()?;
    }
    Ok(outcome)
}

/// A machine of one kernel.
struct Guest<'a> {
    kernel: Kernel,
    image: &'a Path,
    tools: &'a Tools,
    accel: Accel,
}

impl Guest<'_> {
    /// File system and console.
    fn folder(&self) -> PathBuf {
        kept("run").join(self.kernel.name())
    }

    /// Starts it with this file system, and shows what it says to its end.
    fn run(&self, packed: &[u8]) -> Result<(End, Results)> {
        let folder = self.folder();
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let initramfs = folder.join("initramfs.cpio");
        fs::write(&initramfs, packed).with_context(|| format!("writing {}", initramfs.display()))?;
        let (console, name) = (folder.join("console.log"), self.kernel.name());
        let Self { image, tools, accel, .. } = *self;
        let machine = Machine { tools, accel, kernel: image, initramfs: &initramfs, console: &console };
        let show = |text: &str| println!("[{name}] {text}");
        let mut results = Results::default();
        let mut end = qemu::run(&machine, &mut results, show)?;
        if end == End::NotUp {
            // under emulation about one start in a hundred hangs before the first program; no test has run yet
            println!("[{name}] the guest did not start; trying once more");
            results = Results::default();
            end = qemu::run(&machine, &mut results, show)?;
        }
        Ok((end, results))
    }

    fn remove(&self) -> Result<()> {
        let folder = self.folder();
        fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))
    }

    /// Says how it ended, with the end of its console.
    fn say(&self, end: End) {
        let why = match end {
            End::Passed => "says that it passed",
            End::Failed => "says that it failed",
            End::NotUp => "did not start, twice",
            End::TimedOut => "was not done in time",
            End::Gone => "panicked or turned itself off",
            End::Qemu(_) => "was ended by QEMU",
        };
        let name = self.kernel.name();
        println!("[{name}] the guest {why} ({end:?}); its console:");
        let console = fs::read(self.folder().join("console.log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&console).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        for line in lines.iter().skip(lines.len().saturating_sub(CONSOLE_LINES)) {
            println!("[{name}]   {}", line.trim_end());
        }
    }
}

/// Runs one program, which was built already, in a machine with the driver's double, and shows what it says.
pub(crate) fn run_program(
    name: &'static str,
    program: PathBuf,
    arguments: &[String],
    kernel: Kernel,
) -> Result<()> {
    let tools = Prepared::tools().context("no virtual machine can be had here")?;
    let _turn = take_turn()?;
    let files = packages::kernel(kernel, &kept("packages"))?;
    let sources = workspace::path("tests/nvidia-sim");
    let modules = modules::build(kernel, &files, &sources, &tools, &kept("modules"))?;
    let programs = Programs::only(name, program)?;
    let guest = Guest { kernel, image: &files.image, tools: &tools, accel: Accel::Tcg };
    let (end, _) = guest.run(&packed_with(kernel, &programs, &modules, arguments)?)?;
    if end != End::Passed {
        guest.say(end);
        bail!("{name} failed on {}", kernel.name());
    }
    guest.remove()
}

fn packed(kernel: Kernel, programs: &Programs, modules: &Path, names: &[String]) -> Result<Vec<u8>> {
    let mut arguments = vec!["--test-threads=1".to_owned(), "--exact".to_owned()];
    arguments.extend_from_slice(names);
    packed_with(kernel, programs, modules, &arguments)
}

fn packed_with(kernel: Kernel, programs: &Programs, modules: &Path, arguments: &[String]) -> Result<Vec<u8>> {
    let mut packed = Initramfs::default();
    programs.pack(&mut packed, &kept("stripped"))?;
    for name in modules::NAMES {
        packed.add_file(&format!("modules/{name}"), &modules.join(name))?;
        // beside them, since all of that folder is loaded at the start
        for (variant, _) in modules::VARIANTS {
            packed.add_file(&format!("{variant}/{name}"), &modules.join(variant).join(name))?;
        }
    }
    let environment = [
        ("WARPGAUGE_VM", kernel.name()),
        // the tests' stand-in for the real Collector is packed
        ("WARPGAUGE_COLLECTOR", "/warpgauge/otlp-receiver"),
        ("WARPGAUGE_BUILT", "1"),
        ("PATH", "/bin:/warpgauge"),
        ("RUST_BACKTRACE", "1"),
    ];
    programs.add_orders(&mut packed, arguments, &environment);
    packed.bytes()
}

/// Says what went wrong, and counts.
fn judge(end: End, results: &Results, names: &[String], guest: &Guest<'_>) -> Outcome {
    let kernel = guest.kernel;
    let missing = results.missing(names);
    let mut failed = results.failed.len() + missing.len();
    if end != End::Passed {
        failed = failed.max(1);
    }
    if failed != 0 {
        guest.say(end);
        if let Some(running) = &results.running {
            println!("[{}] while {running} ran", kernel.name());
        }
        if !missing.is_empty() {
            println!("[{}] without a result: {}", kernel.name(), missing.join(", "));
        }
    }
    let of_kernel = |skip: &String| match skip.split_once(' ') {
        Some((test, need)) => format!("{test}@{} {need}", kernel.name()),
        None => skip.clone(),
    };
    Outcome {
        passed: results.passed.len() as u64,
        failed: failed as u64,
        skips: results.skips.iter().map(of_kernel).collect(),
    }
}
