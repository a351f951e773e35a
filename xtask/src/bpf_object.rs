//! What a kernel of the oldest supported release would refuse, found in the object before any kernel sees it.
//!
//! In: the compiled object. Out: nothing, or the first thing in it that kernel 5.10 does not have.
//! What can go wrong: that is all this is about: an atomic that is not a plain add, a helper or a kind of map that came
//! later, and too large a stack compile and link without a word, and are refused at load, even in code that never runs.
//! A program that the shared table does not have would be loaded by nobody, and tested by nobody.

use anyhow::{Context as _, Result, bail};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SectionKind};
use warpgauge_ebpf::program::{PROGRAMS, Program};

use crate::bpf_stack;

/// One instruction; a 64-bit constant takes two.
const INSTRUCTION: usize = 8;
const LOAD_CONSTANT: u8 = 0x18;
/// Atomic store of 32 and of 64 bits; what it does is in the constant, and 0 is add.
const ATOMICS: [u8; 2] = [0xc3, 0xdb];

/// Calls; the upper half of the registers' byte says of what, and the constant which.
const CALL: u8 = 0x85;
const OF_HELPER: u8 = 0;
const OF_OWN_FUNCTION: u8 = 1;
/// `redirect_peer`, the last one in the header of 5.10; 5.11 goes on with `task_storage_get`.
const LAST_HELPER: i32 = 155;
/// One of aya's map definitions: seven numbers, of which the first is the kind.
const MAP_DEFINITION: usize = 28;
/// The ring buffer.
const LAST_MAP_KIND: u32 = 27;

/// What an object is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Instructions.
    pub instructions: usize,
    /// The largest stack of a program. Unit: bytes.
    pub stack: u32,
}

/// Looks at every instruction, program and map.
pub fn check(bytes: &[u8]) -> Result<Size> {
    let object = object::File::parse(bytes).context("the compiled object is not an ELF file")?;
    let mut count = 0;
    for section in object.sections().filter(|section| section.kind() == SectionKind::Text) {
        let name = section.name().unwrap_or("?");
        let code = section.data().with_context(|| format!("section {name}"))?;
        count += code.len() / INSTRUCTION;
        if let Some((at, why)) = refused(code) {
            bail!("section {name}, instruction {at}: {why}");
        }
    }
    let maps = object.section_by_name("maps").context("the compiled object has no section `maps`")?;
    if let Some(kind) = refused_map(maps.data().context("section maps")?)? {
        bail!("maps of kind {kind} are not in kernel 5.10 (the last is {LAST_MAP_KIND})");
    }
    if let Some(what) = unexpected(&programs(&object)?, &PROGRAMS) {
        bail!("{what} (the table is in agent-ebpf/src/program.rs)");
    }
    Ok(Size { instructions: count, stack: bpf_stack::check(&object)? })
}

/// Every program, with its section. (In `.text` are functions that programs call.)
fn programs(object: &object::File<'_>) -> Result<Vec<(String, String)>> {
    let mut programs = Vec::new();
    for symbol in object.symbols().filter(|symbol| symbol.is_global()) {
        let Some(index) = symbol.section_index() else { continue };
        let section = object.section_by_index(index)?;
        if section.kind() == SectionKind::Text && section.name()? != ".text" {
            programs.push((section.name()?.to_owned(), symbol.name()?.to_owned()));
        }
    }
    Ok(programs)
}

/// The first difference between an object and the table.
fn unexpected(found: &[(String, String)], table: &[Program]) -> Option<String> {
    let in_table = |(section, name): &&(String, String)| {
        table.iter().any(|program| program.kind.section() == section && program.name == name)
    };
    if let Some((section, name)) = found.iter().find(|program| !in_table(program)) {
        return Some(format!("the object has a program {name} in section {section}, which is in no table"));
    }
    let is_found = |program: &&Program| found.iter().any(|(_, name)| name == program.name);
    let missing = table.iter().find(|program| !is_found(program))?;
    Some(format!("the object has no program {}", missing.name))
}

fn refused(code: &[u8]) -> Option<(usize, String)> {
    let mut constant_follows = false;
    for (at, instruction) in code.chunks_exact(INSTRUCTION).enumerate() {
        if std::mem::take(&mut constant_follows) {
            continue;
        }
        let [opcode, registers, _, _, constant @ ..] = instruction else { continue };
        constant_follows = *opcode == LOAD_CONSTANT;
        let constant = i32::from_le_bytes(constant.try_into().ok()?);
        let why = match *opcode {
            opcode if ATOMICS.contains(&opcode) => refused_atomic(constant),
            CALL => refused_call(registers >> 4, constant),
            _ => None,
        };
        if let Some(why) = why {
            return Some((at, why));
        }
    }
    None
}

fn refused_atomic(operation: i32) -> Option<String> {
    let why = format!(
        "atomic operation 0x{operation:x} is not in kernel 5.10; only a plain add is, whose result nobody uses (see \
         agent-ebpf/src/kernel/counting.rs)"
    );
    (operation != 0).then_some(why)
}

fn refused_call(of: u8, number: i32) -> Option<String> {
    match of {
        OF_HELPER if number <= LAST_HELPER => None,
        OF_HELPER => Some(format!("helper {number} is not in kernel 5.10 (the last is {LAST_HELPER})")),
        OF_OWN_FUNCTION => None,
        _ => Some("calls of kernel functions are not in kernel 5.10; only helpers are".to_owned()),
    }
}

/// The first kind that is too new.
fn refused_map(definitions: &[u8]) -> Result<Option<u32>> {
    if definitions.is_empty() || !definitions.len().is_multiple_of(MAP_DEFINITION) {
        bail!("section maps has {} bytes, not definitions of {MAP_DEFINITION}", definitions.len());
    }
    let kinds = definitions.chunks_exact(MAP_DEFINITION).filter_map(|definition| definition.first_chunk());
    Ok(kinds.map(|kind| u32::from_le_bytes(*kind)).find(|kind| *kind > LAST_MAP_KIND))
}

#[cfg(test)]
mod tests {
    use warpgauge_ebpf::program::Kind;

    use super::*;

    fn instruction(opcode: u8, constant: i32) -> [u8; 8] {
        let [a, b, c, d] = constant.to_le_bytes();
        [opcode, 0x10, 0, 0, a, b, c, d]
    }

    #[test]
    fn only_plain_adds_pass() {
        let (add_64, add_32, exit) = (instruction(0xdb, 0), instruction(0xc3, 0), instruction(0x95, 0));
        assert_eq!(refused(&[add_64, add_32, exit].concat()), None);
        for (opcode, operation) in [(0xdb, 0x01), (0xc3, 0x01), (0xdb, 0x40), (0xdb, 0xe1), (0xc3, 0xf1)] {
            let code = [add_64, instruction(opcode, operation), exit].concat();
            let (at, why) = refused(&code).expect("too new");
            assert_eq!((at, why.contains(&format!("0x{operation:x} "))), (1, true), "{opcode:x}: {why}");
        }
    }

    #[test]
    fn the_second_half_of_a_constant_is_not_an_instruction() {
        let code = [instruction(LOAD_CONSTANT, 7), instruction(0xdb, 1), instruction(0xdb, 1)].concat();
        assert_eq!(refused(&code).map(|(at, _)| at), Some(2));
    }

    #[test]
    fn helpers_and_own_functions_pass_up_to_the_last_of_the_oldest_kernel() {
        let call = |of: u8, number: i32| {
            let mut call = instruction(CALL, number);
            call[1] = of << 4;
            call
        };
        let ring_buffer_output = 130;
        let fine = [call(OF_HELPER, ring_buffer_output), call(OF_HELPER, 155), call(OF_OWN_FUNCTION, 4000)];
        assert_eq!(refused(&fine.concat()), None);
        for (code, words) in [(call(OF_HELPER, 156), "helper 156 "), (call(2, 12), "kernel functions")] {
            let (at, why) = refused(&[fine[0], code].concat()).expect("too new");
            assert!(at == 1 && why.contains(words), "{at} {why}");
        }
    }

    #[test]
    fn kinds_of_maps_up_to_the_ring_buffer_pass() {
        let definition = |kind: u32| [kind, 8, 96, 8192, 0, 0, 0].map(u32::to_le_bytes).concat();
        let (hash, ring_buffer, task_storage) = (definition(1), definition(27), definition(29));
        let kind = |definitions: &[Vec<u8>]| refused_map(&definitions.concat());
        assert_eq!(kind(&[hash.clone(), ring_buffer]).expect("whole"), None);
        assert_eq!(kind(&[hash.clone(), task_storage]).expect("whole"), Some(29));
        assert!(refused_map(&hash[1..]).is_err() && refused_map(&[]).is_err());
    }

    #[test]
    fn programs_and_the_table_are_the_same() {
        let table = [
            Program { name: "a", kind: Kind::Entry },
            Program { name: "b", kind: Kind::Return },
            Program { name: "c", kind: Kind::Tracepoint },
        ];
        let difference = |found: &[(&str, &str)]| {
            let owned = found.iter().map(|(section, name)| ((*section).to_owned(), (*name).to_owned()));
            unexpected(&owned.collect::<Vec<_>>(), &table)
        };
        let all = [("kprobe", "a"), ("kretprobe", "b"), ("tracepoint", "c")];
        assert_eq!(difference(&all), None);
        for (found, words) in [
            (&all[..2], "no program c"),
            (&[("kprobe", "a"), ("kprobe", "b"), ("tracepoint", "c")], "b in section kprobe"),
            (&[("kprobe", "a"), ("kretprobe", "b"), ("tracepoint", "c"), ("xdp", "d")], "d in section xdp"),
        ] {
            let why = difference(found).expect("another object");
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn what_is_not_an_object_is_refused() {
        assert!(check(b"").is_err());
        assert!(check(b"not an object at all").is_err());
    }
}
