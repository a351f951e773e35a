//! What a kernel of the oldest supported release would refuse, found in the object before any kernel sees it.
//!
//! In: the compiled object. Out: nothing, or the first instruction that kernel 5.10 does not have.
//! What can go wrong: that is all this is about: an atomic that is not a plain add compiles and links without a word,
//! and is refused at load, even in code that never runs.

use anyhow::{Context as _, Result, bail};
use object::{Object as _, ObjectSection as _, SectionKind};

/// One instruction; a 64-bit constant takes two.
const INSTRUCTION: usize = 8;
const LOAD_CONSTANT: u8 = 0x18;
/// Atomic store of 32 and of 64 bits; what it does is in the constant, and 0 is add.
const ATOMICS: [u8; 2] = [0xc3, 0xdb];

/// Looks at every instruction; gives their number.
pub fn check(bytes: &[u8]) -> Result<usize> {
    let object = object::File::parse(bytes).context("the compiled object is not an ELF file")?;
    let mut count = 0;
    for section in object.sections().filter(|section| section.kind() == SectionKind::Text) {
        let name = section.name().unwrap_or("?");
        let code = section.data().with_context(|| format!("section {name}"))?;
        count += code.len() / INSTRUCTION;
        if let Some((at, operation)) = refused_atomic(code) {
            bail!(
                "section {name}, instruction {at}: atomic operation 0x{operation:x} is not in kernel 5.10; only a \
                 plain add is, whose result nobody uses (see agent-ebpf/src/kernel/counting.rs)"
            );
        }
    }
    if count == 0 {
        bail!("the compiled object has no programs");
    }
    Ok(count)
}

fn refused_atomic(code: &[u8]) -> Option<(usize, i32)> {
    let mut constant_follows = false;
    for (at, instruction) in code.chunks_exact(INSTRUCTION).enumerate() {
        if std::mem::take(&mut constant_follows) {
            continue;
        }
        let [opcode, _, _, _, operation @ ..] = instruction else { continue };
        constant_follows = *opcode == LOAD_CONSTANT;
        let operation = i32::from_le_bytes(operation.try_into().ok()?);
        if ATOMICS.contains(opcode) && operation != 0 {
            return Some((at, operation));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(opcode: u8, constant: i32) -> [u8; 8] {
        let [a, b, c, d] = constant.to_le_bytes();
        [opcode, 0x10, 0, 0, a, b, c, d]
    }

    #[test]
    fn only_plain_adds_pass() {
        let (add_64, add_32, exit) = (instruction(0xdb, 0), instruction(0xc3, 0), instruction(0x95, 0));
        assert_eq!(refused_atomic(&[add_64, add_32, exit].concat()), None);
        for (opcode, operation) in [(0xdb, 0x01), (0xc3, 0x01), (0xdb, 0x40), (0xdb, 0xe1), (0xc3, 0xf1)] {
            let code = [add_64, instruction(opcode, operation), exit].concat();
            assert_eq!(refused_atomic(&code), Some((1, operation)), "{opcode:x}");
        }
    }

    #[test]
    fn the_second_half_of_a_constant_is_not_an_instruction() {
        let code = [instruction(LOAD_CONSTANT, 7), instruction(0xdb, 1), instruction(0xdb, 1)].concat();
        assert_eq!(refused_atomic(&code), Some((2, 1)));
    }

    #[test]
    fn what_is_not_an_object_is_refused() {
        assert!(check(b"").is_err());
        assert!(check(b"not an object at all").is_err());
    }
}
