//! Ioctl commands that cannot be meant for the driver, told by their type byte before any kernel memory is read.
//!
//! In: a command. Out: whether to look no further. Terminals and sockets make most ioctls of a node.
//! What can go wrong: a type that the driver uses must never be listed. The driver does not look at the byte itself and
//! UVM's commands have none (it is 0 there), so this names foreign types and lets everything else through.

/// A set of type bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeSet {
    words: [u64; 4],
}

impl TypeSet {
    /// Lets every command through.
    pub const EMPTY: Self = Self { words: [0; 4] };

    /// Types of terminals and sockets, socket addresses, block devices, perf events and virtual machines.
    pub const FOREIGN: Self = Self::of(&[b'T', 0x89, 0x12, b'$', 0xae]);

    /// These bytes.
    pub const fn of(types: &[u8]) -> Self {
        let mut words = [0; 4];
        let mut i = 0;
        while i < types.len() {
            words[types[i] as usize / 64] |= 1 << (types[i] % 64);
            i += 1;
        }
        Self { words }
    }

    /// Whether the command's type is in the set.
    #[inline(always)]
    pub const fn contains(&self, op: u32) -> bool {
        let kind = op >> 8 & 0xff;
        // by branches: an index that is not constant would put the words on the program's stack
        let word = match kind >> 6 {
            0 => self.words[0],
            1 => self.words[1],
            2 => self.words[2],
            _ => self.words[3],
        };
        word >> (kind & 63) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drivers_commands_pass_and_common_foreign_ones_do_not() {
        let uvm_initialize = 0x3000_0001;
        for op in [0xc020_462a, 0xc0b8_464a, 0xc010_6d00, uvm_initialize, 0, 1, 80, 200] {
            assert!(!TypeSet::FOREIGN.contains(op), "0x{op:x}");
        }
        let (tcgets, fionread, siocgifconf, kvm_run) = (0x5401, 0x541b, 0x8912, 0xae80);
        for op in [tcgets, fionread, siocgifconf, kvm_run] {
            assert!(TypeSet::FOREIGN.contains(op), "0x{op:x}");
            assert!(!TypeSet::EMPTY.contains(op), "0x{op:x}");
        }
    }

    #[test]
    fn a_set_has_what_it_is_made_of() {
        let set = TypeSet::of(&[0, 63, 64, 127, 128, 191, 192, 255]);
        let found = (0..=255u32).filter(|kind| set.contains(kind << 8 | 0xc000_00ff)).count();
        assert_eq!(found, 8);
        assert!(set.contains(255 << 8) && !set.contains(254 << 8));
    }
}
