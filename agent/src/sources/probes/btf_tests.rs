//! Tests of the BTF reader: descriptions built by hand, cut and spoilt ones, and this host's own.
//!
//! In: bytes. Out: offsets, or a refusal; never a panic.

use super::*;

/// Builds a description: strings are interned, types appended in order (the first is number 1).
#[derive(Default)]
struct Builder {
    types: Vec<u8>,
    strings: Vec<u8>,
}

impl Builder {
    fn new() -> Self {
        Self { types: Vec::new(), strings: vec![0] }
    }

    fn name(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let at = u32::try_from(self.strings.len()).expect("small");
        self.strings.extend(text.bytes().chain([0]));
        at
    }

    fn words(&mut self, words: &[u32]) {
        self.types.extend(words.iter().flat_map(|w| w.to_ne_bytes()));
    }

    fn composite(&mut self, kind: u32, name: &str, bitfields: bool, members: &[(&str, u32, u32)]) {
        let name = self.name(name);
        let count = u32::try_from(members.len()).expect("small");
        self.words(&[name, u32::from(bitfields) << 31 | kind << 24 | count, 64]);
        for (member, inner, bits) in members {
            let member = self.name(member);
            self.words(&[member, *inner, *bits]);
        }
    }

    fn plain(&mut self, kind: u32, inner: u32) {
        self.words(&[0, kind << 24, inner]);
    }

    fn enumeration(&mut self, name: &str, values: &[(&str, u32)]) {
        let name = self.name(name);
        self.words(&[name, ENUM << 24 | u32::try_from(values.len()).expect("small"), 4]);
        for (value_name, value) in values {
            let value_name = self.name(value_name);
            self.words(&[value_name, *value]);
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        let mut bytes = [MAGIC.to_ne_bytes(), [1, 0]].concat();
        bytes.extend([24, 0, types, types, strings].iter().flat_map(|w: &u32| w.to_ne_bytes()));
        bytes.extend(self.types.iter().chain(&self.strings));
        bytes
    }
}

fn sample() -> Vec<u8> {
    let mut b = Builder::new();
    b.composite(UNION, "", false, &[("deep", 0, 0), ("other", 0, 0)]); // 1
    b.plain(10, 1); // 2: const → 1
    b.composite(STRUCT, "inner", false, &[("first", 0, 0), ("", 2, 64)]); // 3
    b.composite(STRUCT, "", true, &[("flag", 0, 1 << 24 | 32), ("", 3, 64)]); // 4
    b.composite(STRUCT, "task", false, &[("pid", 0, 0), ("", 4, 128), ("tail", 0, 512)]); // 5
    b.composite(STRUCT, "twice", false, &[("a", 0, 0)]); // 6
    b.composite(STRUCT, "twice", false, &[("b", 0, 96)]); // 7
    b.enumeration("ids", &[("zero_id", 0), ("pids_id", 7)]); // 8
    b.bytes()
}

#[test]
fn members_are_found_through_anonymous_ones() {
    let btf = Btf::parse(sample()).expect("well formed");
    for (structure, names, want) in [
        ("task", ["pid"].as_slice(), Some(0)),
        ("task", &["tail"], Some(64)),
        ("task", &["flag"], Some(16 + 4)),
        ("task", &["first"], Some(16 + 8)),
        ("task", &["deep"], Some(16 + 8 + 8)),
        ("inner", &["deep"], Some(8)),
        ("twice", &["b"], Some(12)),
        ("task", &["new_name", "pid"], Some(0)),
        ("task", &["pi"], None),
        ("task", &["pidx"], None),
        ("nothing", &["pid"], None),
        ("ids", &["pids_id"], None),
    ] {
        assert_eq!(btf.offset(structure, names), want, "{structure}.{names:?}");
    }
    assert_eq!(btf.enum_value("ids", "pids_id"), Some(7));
    assert_eq!(btf.enum_value("ids", "none_id"), None);
    assert_eq!(btf.enum_value("task", "pid"), None);
}

#[test]
fn what_is_not_btf_is_refused() {
    assert_eq!(Btf::parse(Vec::new()).err(), Some(BtfError::Header));
    assert_eq!(Btf::parse(vec![0; 64]).err(), Some(BtfError::Header));
    assert_eq!(Btf::parse(MAGIC.to_ne_bytes().to_vec()).err(), Some(BtfError::Header));
    let mut unknown = Builder::new();
    unknown.plain(31, 0);
    assert_eq!(Btf::parse(unknown.bytes()).err(), Some(BtfError::Kind(31)));
    let mut cut = Builder::new();
    cut.words(&[0, STRUCT << 24 | 5, 0]);
    assert_eq!(Btf::parse(cut.bytes()).err(), Some(BtfError::Truncated(1)));
}

#[test]
fn types_that_chain_for_ever_end() {
    let mut b = Builder::new();
    b.plain(8, 2); // 1 → 2 → 1
    b.plain(8, 1);
    b.composite(STRUCT, "loop", false, &[("", 1, 0), ("", 3, 0), ("", 99, 0), ("found", 0, 8)]); // 3 holds itself
    let btf = Btf::parse(b.bytes()).expect("well formed");
    assert_eq!(btf.offset("loop", &["found"]), Some(1));
    assert_eq!(btf.offset("loop", &["absent"]), None);
}

#[test]
fn no_spoilt_byte_panics() {
    let good = sample();
    for at in 0..good.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bad = good.clone();
            bad[at] = value;
            if let Ok(btf) = Btf::parse(bad) {
                let _ = btf.offset("task", &["deep"]);
                let _ = btf.enum_value("ids", "pids_id");
            }
        }
        if let Ok(btf) = Btf::parse(good[..at].to_vec()) {
            let _ = btf.offset("task", &["deep"]);
        }
    }
}
