//! Every program of the object, as this kernel sees it: loaded, not put to work, and gone again.
//!
//! In: the embedded object, offsets and settings. Out: one [`Verdict`] per program, with what its check cost the kernel.
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
    /// Instructions that the verifier went through, or why the program was refused.
    pub outcome: Result<Option<u32>, LoadError>,
}

/// Loads one program after the other. Takes up to a few seconds.
///
/// # Errors
/// The object was refused, or is of another version.
pub fn every_program(offsets: &Offsets, settings: &Settings) -> Result<Vec<Verdict>, LoadError> {
    let mut ebpf = object::load(offsets, settings)?;
    let verdict = |program| Ok(Verdict { program, outcome: verify(&mut ebpf, program)? });
    PROGRAMS.iter().map(|program| program.name).map(verdict).collect()
}

fn verify(ebpf: &mut Ebpf, name: &'static str) -> Result<Result<Option<u32>, LoadError>, LoadError> {
    let program = ebpf.program_mut(name).ok_or(LoadError::Missing(name))?;
    let info = match program {
        Program::TracePoint(program) => program.load().and_then(|()| program.info()),
        Program::KProbe(program) => program.load().and_then(|()| program.info()),
        _ => return Err(LoadError::Missing(name)),
    };
    let refused = |error: ProgramError| LoadError::of_program(name, &error);
    Ok(info.map(|info: ProgramInfo| info.verified_instruction_count()).map_err(refused))
}
