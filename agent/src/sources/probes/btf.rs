//! The kernel's description of its own types (BTF): at which byte does a member of a structure lie?
//!
//! In: the bytes of /sys/kernel/btf/vmlinux. Out: member offsets and enumeration values.
//! What can go wrong: anything, since the bytes are believed nowhere: every position is checked, every chain of types
//! is bounded. A member that is not there is `None`.

use std::ops::Range;

/// A parsed description: the bytes, and where each type begins.
#[derive(Debug)]
pub struct Btf {
    data: Vec<u8>,
    strings: Range<usize>,
    /// Position of each type; type 0 is `void` and has none.
    types: Vec<usize>,
}

/// Why a description was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// It does not begin as it should.
    #[error("the kernel's BTF has no valid header (a kernel of another byte order, or not BTF)")]
    Header,
    /// It ends early.
    #[error("the kernel's BTF ends within type {0}")]
    Truncated(usize),
    /// A kind of type this agent does not know, so that it cannot find the next one.
    #[error("the kernel's BTF has a kind of type unknown to this agent: {0} (a newer agent may know it)")]
    Kind(u32),
}

const MAGIC: u16 = 0xeb9f;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
/// Typedef, volatile, const, restrict, type tag: they stand for another type.
const ALIASES: [u32; 5] = [8, 9, 10, 11, 18];
/// Bytes before what depends on the kind.
const HEAD: usize = 12;
/// Members nest, aliases chain; real ones far less than this.
const DEEPEST: usize = 32;

struct Type {
    at: usize,
    name: u32,
    kind: u32,
    count: usize,
    bitfields: bool,
    /// Another type's number, for kinds that have one.
    inner: u32,
}

impl Btf {
    /// Finds every type.
    ///
    /// # Errors
    /// Not BTF, cut off, or newer than this agent.
    pub fn parse(data: Vec<u8>) -> Result<Self, BtfError> {
        let magic = data.get(..2).ok_or(BtfError::Header)?;
        if magic != MAGIC.to_ne_bytes() {
            return Err(BtfError::Header);
        }
        let header = |at| u32_at(&data, at).map(|v| v as usize).ok_or(BtfError::Header);
        let base = header(4)?;
        let section = |at, length| Some((base.checked_add(at)?, base.checked_add(at)?.checked_add(length)?));
        let (first, end) = section(header(8)?, header(12)?).ok_or(BtfError::Header)?;
        let (strings, strings_end) = section(header(16)?, header(20)?).ok_or(BtfError::Header)?;
        if end > data.len() || strings_end > data.len() {
            return Err(BtfError::Header);
        }
        let mut btf = Self { data, strings: strings..strings_end, types: vec![usize::MAX] };
        let mut at = first;
        while at < end {
            let kind = btf.type_at(at).ok_or(BtfError::Truncated(btf.types.len()))?;
            btf.types.push(at);
            at += HEAD + tail_bytes(&kind).ok_or(BtfError::Kind(kind.kind))?;
        }
        if at > end {
            return Err(BtfError::Truncated(btf.types.len() - 1));
        }
        Ok(btf)
    }

    /// Byte offset of a structure's member, under the first of its names that is there.
    pub fn offset(&self, structure: &str, names: &[&str]) -> Option<u32> {
        names.iter().find_map(|name| {
            // several types may share a name: the first one with the member is meant
            self.named(structure, &[STRUCT, UNION]).find_map(|t| self.member(&t, name, DEEPEST))
        })
    }

    /// A value of an enumeration.
    pub fn enum_value(&self, enumeration: &str, name: &str) -> Option<u32> {
        self.named(enumeration, &[ENUM]).find_map(|t| {
            (0..t.count).find_map(|i| {
                let at = t.at.checked_add(HEAD + i * 8)?;
                self.is_name(self.u32(at)?, name).then(|| self.u32(at + 4)).flatten()
            })
        })
    }

    fn named(&self, name: &str, kinds: &'static [u32]) -> impl Iterator<Item = Type> {
        let wanted = move |t: &Type| kinds.contains(&t.kind) && self.is_name(t.name, name);
        self.types.iter().skip(1).filter_map(|at| self.type_at(*at)).filter(wanted)
    }

    fn member(&self, of: &Type, name: &str, depth: usize) -> Option<u32> {
        let depth = depth.checked_sub(1)?;
        (0..of.count).find_map(|i| {
            let at = of.at.checked_add(HEAD + i * 12)?;
            let (own_name, inner, position) = (self.u32(at)?, self.u32(at + 4)?, self.u32(at + 8)?);
            let bits = if of.bitfields { position & 0xff_ffff } else { position };
            if own_name != 0 {
                return self.is_name(own_name, name).then_some(bits / 8);
            }
            // a member without a name lends its own members to the structure around it
            let inner = self.behind_aliases(inner)?;
            let within = if is_composite(inner.kind) { self.member(&inner, name, depth) } else { None };
            within.and_then(|offset| offset.checked_add(bits / 8))
        })
    }

    fn behind_aliases(&self, mut id: u32) -> Option<Type> {
        for _ in 0..DEEPEST {
            let found = self.type_at(*self.types.get(usize::try_from(id).ok()?)?)?;
            if !ALIASES.contains(&found.kind) {
                return Some(found);
            }
            id = found.inner;
        }
        None
    }

    fn type_at(&self, at: usize) -> Option<Type> {
        let info = self.u32(at.checked_add(4)?)?;
        Some(Type {
            at,
            name: self.u32(at)?,
            kind: info >> 24 & 0x1f,
            count: (info & 0xffff) as usize,
            bitfields: info >> 31 == 1,
            inner: self.u32(at + 8)?,
        })
    }

    fn is_name(&self, offset: u32, name: &str) -> bool {
        let strings = self.data.get(self.strings.clone()).unwrap_or_default();
        let text = usize::try_from(offset).ok().and_then(|at| strings.get(at..)).unwrap_or_default();
        text.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
    }

    fn u32(&self, at: usize) -> Option<u32> {
        u32_at(&self.data, at)
    }
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn is_composite(kind: u32) -> bool {
    kind == STRUCT || kind == UNION
}

/// Bytes behind the head of a type; `None` for a kind that did not exist when this was written.
fn tail_bytes(t: &Type) -> Option<usize> {
    Some(match t.kind {
        // integer, variable, declaration tag
        1 | 14 | 17 => 4,
        // pointer, forward, aliases, function, float
        2 | 7..=12 | 16 | 18 => 0,
        // array
        3 => 12,
        // structure, union, section, 64-bit enumeration
        STRUCT | UNION | 15 | 19 => t.count * 12,
        // enumeration, function prototype
        ENUM | 13 => t.count * 8,
        _ => return None,
    })
}

#[cfg(test)]
#[path = "btf_tests.rs"]
mod tests;
