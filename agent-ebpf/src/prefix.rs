//! The path prefix whose opens are watched, in a form that costs the kernel program four comparisons.
//!
//! In: a prefix such as `/dev/nvidia`. Out: words and masks, and where the node's name begins in a matching path.
//! What can go wrong: a prefix too long for the words; it is refused when it is made, never cut.

use crate::calls::NODE_LEN;

/// Words a prefix may take.
const WORDS: usize = 4;

/// Bytes a prefix may have.
pub const LONGEST: usize = WORDS * 8;

/// Bytes of a path that are read: the longest prefix, and a node's name behind it.
pub const PATH_LEN: usize = LONGEST + NODE_LEN;

/// A prefix.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    words: [u64; WORDS],
    masks: [u64; WORDS],
    /// Where the node's name begins: behind the last `/`.
    node_at: u64,
}

const _: () = assert!(size_of::<Prefix>() == 8 * (2 * WORDS + 1));

impl Prefix {
    /// `None` for an empty prefix (it would watch every file) and for one longer than [`LONGEST`].
    pub const fn new(prefix: &[u8]) -> Option<Self> {
        if prefix.is_empty() || prefix.len() > LONGEST {
            return None;
        }
        let (mut words, mut masks, mut node_at) = ([[0u8; 8]; WORDS], [[0u8; 8]; WORDS], 0);
        let mut i = 0;
        while i < prefix.len() {
            words[i / 8][i % 8] = prefix[i];
            masks[i / 8][i % 8] = 0xff;
            if prefix[i] == b'/' {
                node_at = i as u64 + 1;
            }
            i += 1;
        }
        Some(Self { words: joined(words), masks: joined(masks), node_at })
    }

    /// Whether a path, given by its first words, begins with the prefix.
    #[inline(always)]
    pub const fn matches(&self, path: &[u64; WORDS]) -> bool {
        // differences are gathered first: one branch instead of four
        let mut difference = 0;
        let mut i = 0;
        while i < WORDS {
            difference |= (path[i] & self.masks[i]) ^ self.words[i];
            i += 1;
        }
        difference == 0
    }

    /// Where the node's name begins in a path that matches; at most [`LONGEST`].
    #[inline(always)]
    pub const fn node_at(&self) -> u64 {
        self.node_at
    }
}

const fn joined(bytes: [[u8; 8]; WORDS]) -> [u64; WORDS] {
    [
        u64::from_ne_bytes(bytes[0]),
        u64::from_ne_bytes(bytes[1]),
        u64::from_ne_bytes(bytes[2]),
        u64::from_ne_bytes(bytes[3]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(path: &[u8]) -> [u64; WORDS] {
        let mut bytes = [[0u8; 8]; WORDS];
        for (i, byte) in path.iter().take(LONGEST).enumerate() {
            bytes[i / 8][i % 8] = *byte;
        }
        joined(bytes)
    }

    #[test]
    fn only_paths_with_the_prefix_match() {
        let longest = b"/dev/a-path-of-thirty-two-bytes/";
        assert_eq!(longest.len(), LONGEST);
        let cases: [(&[u8], &[u8], bool); 9] = [
            (b"/dev/nvidia", b"/dev/nvidia0", true),
            (b"/dev/nvidia", b"/dev/nvidia-caps/nvidia-cap1", true),
            (b"/dev/nvidia", b"/dev/nvidia", true),
            (b"/dev/nvidia", b"/dev/nvidi", false),
            (b"/dev/nvidia", b"/dev/nvme0n1", false),
            (b"/dev/nvidia", b"dev/nvidia0", false),
            (b"/dev/nvidia", b"", false),
            (longest, b"/dev/a-path-of-thirty-two-bytes/x", true),
            (longest, b"/dev/a-path-of-thirty-two-bytes", false),
        ];
        for (prefix, path, want) in cases {
            let matcher = Prefix::new(prefix).expect("not too long");
            assert_eq!(matcher.matches(&words(path)), want, "{path:?}");
        }
    }

    #[test]
    fn the_node_begins_behind_the_last_slash() {
        assert_eq!(Prefix::new(b"/dev/nvidia").map(|p| p.node_at()), Some(5));
        assert_eq!(Prefix::new(b"/dev/dri/card").map(|p| p.node_at()), Some(9));
        assert_eq!(Prefix::new(b"null").map(|p| p.node_at()), Some(0));
    }

    #[test]
    fn empty_and_long_prefixes_are_refused() {
        assert_eq!(Prefix::new(b""), None);
        assert_eq!(Prefix::new(&[b'x'; LONGEST + 1]), None);
    }
}
