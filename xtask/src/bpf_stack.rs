//! How much stack the programs take, counted as kernel 5.10 counts: newer ones are more generous, and say nothing.
//!
//! In: the compiled object. Out: nothing, or the function that takes too much.
//! What can go wrong: an address on the stack that is made in an unusual way is not seen; the kernel then still is.

use anyhow::{Context as _, Result, bail};
use object::{
    Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SectionIndex, SectionKind,
    SymbolIndex, SymbolKind,
};

/// Of a program and all that it calls, each rounded up to [`STEP`].
const MOST: u32 = 512;
const STEP: u32 = 32;
/// A chain of calls has at most this many functions.
const DEEPEST: usize = 8;

const INSTRUCTION: usize = 8;
const FRAME: u8 = 10;
const LOAD_CONSTANT: u8 = 0x18;
const MOVE: u8 = 0xbf;
const ADD_CONSTANT: u8 = 0x07;
const CALL: u8 = 0x85;
const OF_OWN_FUNCTION: u8 = 1;

/// A function of the object.
#[derive(Debug)]
struct Function {
    name: String,
    section: SectionIndex,
    begin: u64,
    /// Its own part of the stack. Unit: bytes.
    own: u32,
    /// Where the functions are that it calls.
    calls: Vec<(SectionIndex, u64)>,
}

/// Looks at every function; gives the largest stack of a program and all that it calls.
pub fn check(object: &object::File<'_>) -> Result<u32> {
    let functions = functions(object)?;
    let mut largest = 0;
    for function in &functions {
        let depth = depth(function, &functions, DEEPEST)
            .with_context(|| format!("{} calls itself, or too deep", function.name))?;
        if depth > MOST {
            bail!(
                "{} takes {depth} bytes of stack with what it calls ({} of its own), more than kernel 5.10 gives \
                 ({MOST}): pass large values by reference",
                function.name,
                function.own
            );
        }
        largest = largest.max(depth);
    }
    Ok(largest)
}

fn functions(object: &object::File<'_>) -> Result<Vec<Function>> {
    let mut functions = Vec::new();
    for symbol in object.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() != 0) {
        let name = symbol.name().unwrap_or("?").to_owned();
        let index = symbol.section_index().with_context(|| format!("{name} is in no section"))?;
        let section = object.section_by_index(index)?;
        if section.kind() != SectionKind::Text {
            continue;
        }
        let data = section.data_range(symbol.address(), symbol.size())?;
        let code = data.with_context(|| format!("{name} lies outside its section"))?;
        let called = |at: u64| {
            let relocation = section.relocations().find(|(offset, _)| *offset == at)?.1;
            match relocation.target() {
                RelocationTarget::Symbol(symbol) => Some(symbol),
                _ => None,
            }
        };
        let calls = own_calls(code).map(|(at, relative)| {
            let at = symbol.address() + at;
            match called(at) {
                Some(to) => target(object, to, relative),
                None => Some((index, at.checked_add_signed((i64::from(relative) + 1) * 8)?)),
            }
        });
        let calls =
            calls.collect::<Option<Vec<_>>>().with_context(|| format!("{name} calls something unknown"))?;
        functions.push(Function {
            name,
            section: index,
            begin: symbol.address(),
            own: own_stack(code),
            calls,
        });
    }
    Ok(functions)
}

/// A call by relocation: of a function, or of a section and the instruction behind the constant.
fn target(object: &object::File<'_>, symbol: SymbolIndex, relative: i32) -> Option<(SectionIndex, u64)> {
    let symbol = object.symbol_by_index(symbol).ok()?;
    let section = symbol.section_index()?;
    match symbol.kind() {
        SymbolKind::Section => Some((section, u64::try_from((i64::from(relative) + 1) * 8).ok()?)),
        _ => Some((section, symbol.address())),
    }
}

/// Calls of own functions: where, and the constant.
fn own_calls(code: &[u8]) -> impl Iterator<Item = (u64, i32)> {
    instructions(code).filter_map(|(at, [opcode, registers, _, _, a, b, c, d])| {
        let is_own = opcode == CALL && registers >> 4 == OF_OWN_FUNCTION;
        is_own.then(|| ((at * INSTRUCTION) as u64, i32::from_le_bytes([a, b, c, d])))
    })
}

/// The deepest byte that is read, written, or whose address is made.
fn own_stack(code: &[u8]) -> u32 {
    let mut holds_frame = [false; 16];
    let mut deepest = 0;
    for (_, [opcode, registers, low, high, a, b, c, d]) in instructions(code) {
        let (to, from) = (registers & 15, registers >> 4);
        let base = match opcode & 7 {
            // a load; a store of a constant or of a register
            1 => Some(from),
            2 | 3 => Some(to),
            _ => None,
        };
        let below = if base == Some(FRAME) {
            i32::from(i16::from_le_bytes([low, high]))
        } else if opcode == ADD_CONSTANT && holds_frame.get(usize::from(to)) == Some(&true) {
            i32::from_le_bytes([a, b, c, d])
        } else {
            0
        };
        deepest = deepest.max(below.min(0).unsigned_abs());
        // what is loaded is no address in the frame; a move of 32 bits or of a constant is none either
        if matches!(opcode, MOVE | 0xbc | 0xb4 | 0xb7 | LOAD_CONSTANT) || opcode & 7 == 1 {
            holds_frame[usize::from(to)] = opcode == MOVE && from == FRAME;
        }
    }
    deepest
}

/// With positions; the second half of a 64-bit constant is none.
fn instructions(code: &[u8]) -> impl Iterator<Item = (usize, [u8; INSTRUCTION])> {
    let mut constant_follows = false;
    let whole = code.chunks_exact(INSTRUCTION).filter_map(|chunk| chunk.first_chunk().copied()).enumerate();
    whole.filter(move |(_, instruction)| {
        let is_one = !std::mem::take(&mut constant_follows);
        constant_follows = is_one && instruction[0] == LOAD_CONSTANT;
        is_one
    })
}

fn depth(function: &Function, all: &[Function], left: usize) -> Option<u32> {
    let left = left.checked_sub(1)?;
    let mut below = 0;
    for (section, begin) in &function.calls {
        let called = all.iter().find(|other| other.section == *section && other.begin == *begin)?;
        below = below.max(depth(called, all, left)?);
    }
    Some(function.own.max(1).next_multiple_of(STEP) + below)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(opcode: u8, to: u8, from: u8, offset: i16, constant: i32) -> [u8; 8] {
        let ([low, high], [a, b, c, d]) = (offset.to_le_bytes(), constant.to_le_bytes());
        [opcode, from << 4 | to, low, high, a, b, c, d]
    }

    #[test]
    fn loads_stores_and_addresses_count() {
        let store = instruction(0x7b, FRAME, 1, -24, 0);
        let load = instruction(0x79, 1, FRAME, -96, 0);
        let elsewhere = instruction(0x79, FRAME, 1, -400, 0);
        let address = [instruction(MOVE, 2, FRAME, 0, 0), instruction(ADD_CONSTANT, 2, 0, 0, -120)].concat();
        let other = [instruction(MOVE, 2, 3, 0, 0), instruction(ADD_CONSTANT, 2, 0, 0, -300)].concat();
        let loaded = [
            instruction(MOVE, 2, FRAME, 0, 0),
            instruction(0x61, 2, FRAME, -8, 0),
            instruction(ADD_CONSTANT, 2, 0, 0, -65535),
        ]
        .concat();
        let constant = [instruction(LOAD_CONSTANT, 1, 0, 0, 5), store].concat();
        for (code, want) in [
            (Vec::new(), 0),
            (store.to_vec(), 24),
            ([store, load, elsewhere].concat(), 96),
            ([&address[..], &store].concat(), 120),
            ([&address[..], &other].concat(), 120),
            (loaded, 8),
            (constant, 0),
        ] {
            assert_eq!(own_stack(&code), want, "{code:?}");
        }
    }

    #[test]
    fn what_is_called_is_added_each_rounded_up() {
        let section = SectionIndex(1);
        let of = |name: &str, begin, own, calls: &[u64]| Function {
            name: name.to_owned(),
            section,
            begin,
            own,
            calls: calls.iter().map(|to| (section, *to)).collect(),
        };
        let all =
            [of("a", 0, 481, &[8, 16]), of("b", 8, 0, &[]), of("c", 16, 40, &[8]), of("d", 24, 1, &[24])];
        let depths = all.iter().map(|function| depth(function, &all, DEEPEST));
        assert_eq!(depths.collect::<Vec<_>>(), [Some(512 + 64 + 32), Some(32), Some(64 + 32), None]);
    }

    #[test]
    fn calls_of_own_functions_are_found_and_helpers_are_not() {
        let (own, helper) = (instruction(CALL, 0, OF_OWN_FUNCTION, 0, -1), instruction(CALL, 0, 0, 0, 130));
        let code = [helper, instruction(LOAD_CONSTANT, 1, 0, 0, 0), own, own].concat();
        assert_eq!(own_calls(&code).collect::<Vec<_>>(), [(24, -1)]);
    }
}
