//! Every program of the object, as this kernel sees it: loaded, not put to work, and gone again.
//!
//! In: the embedded object, offsets and settings. Out: one [`Verdict`] per program, with its sizes.
//! What can go wrong: the object itself is refused, or a map of it; then there are no verdicts.

use aya::Ebpf;
use aya::programs::{Program, ProgramError, ProgramInfo};
use warpgauge_ebpf::program::PROGRAMS;

use super::load_error::LoadError;
use super::object::{self, Settings};
use super::offsets::Offsets;

/// What the kernel said of one program.
#[derive(Debug)]
pub struct Verdict {
    /// Name of the program.
    pub program: &'static str,
    /// Its sizes, or why the program was refused.
    pub outcome: Result<Size, LoadError>,
}

/// How long a program is, by the kernel's own count.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Instructions that the verifier went through; kernels below 5.16 do not say.
    pub verified: Option<u32>,
    /// Instructions of the program once it was verified; `None` for whoever may not look.
    pub instructions: Option<u32>,
    /// Machine code. Unit: bytes; 0 where it is interpreted, and for whoever may not look.
    pub machine_code: u32,
}

/// Every instruction of eBPF, in bytes.
const INSTRUCTION: u32 = 8;

/// Loads one program after the other. Takes up to a few seconds.
///
/// # Errors
/// The object was refused, or is of another version.
pub fn every_program(offsets: &Offsets, settings: &Settings) -> Result<Vec<Verdict>, LoadError> {
    let mut ebpf = object::load(offsets, settings)?;
    let verdict = |program| Ok(Verdict { program, outcome: verify(&mut ebpf, program)? });
    PROGRAMS.iter().map(|program| program.name).map(verdict).collect()
}

fn verify(ebpf: &mut Ebpf, name: &'static str) -> Result<Result<Size, LoadError>, LoadError> {
    let program = ebpf.program_mut(name).ok_or(LoadError::Missing(name))?;
    let info = match program {
        Program::TracePoint(program) => program.load().and_then(|()| program.info()),
        Program::KProbe(program) => program.load().and_then(|()| program.info()),
        _ => return Err(LoadError::Missing(name)),
    };
    let refused = |error: ProgramError| LoadError::of_program(name, &error);
    let size = |info: ProgramInfo| Size {
        verified: info.verified_instruction_count(),
        instructions: info.size_translated().map(|bytes| bytes / INSTRUCTION),
        machine_code: info.size_jitted(),
    };
    Ok(info.map(size).map_err(refused))
}
