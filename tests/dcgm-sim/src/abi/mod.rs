//! The vendor's C structs, written for the simulator alone: the client has its own, and both are held against the same
//! list of layouts printed by a C compiler.
//!
//! In: nothing. Out: `#[repr(C)]` structs and their version words. What can go wrong: a field at the wrong place, which
//! the layout test finds.

#![expect(non_snake_case, reason = "the vendor's names")]

pub(crate) mod devices;
pub(crate) mod engine;
#[cfg(test)]
mod layout;
pub(crate) mod links;
pub(crate) mod values;

/// A struct with the C names of its fields, and the list of their offsets for the layout test.
macro_rules! c_struct {
    ($(#[$meta:meta])* $name:ident = $c_name:literal { $($field:ident: $kind:ty),* $(,)? }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub(crate) struct $name { $(pub(crate) $field: $kind),* }

        #[cfg(test)]
        impl $name {
            pub(crate) fn layout() -> crate::abi::layout::Layout {
                crate::abi::layout::Layout {
                    name: $c_name,
                    size: size_of::<Self>(),
                    align: align_of::<Self>(),
                    fields: vec![$((stringify!($field), std::mem::offset_of!(Self, $field))),*],
                }
            }
        }
    };
}
pub(crate) use c_struct;

/// Version word of a struct: its size and its version.
pub(crate) const fn version_word<T>(version: u32) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the largest struct has 1 MB")]
    let size = size_of::<T>() as u32;
    size | version << 24
}

/// Copies a text into an array of characters; what does not fit is cut, a NUL always ends it.
pub(crate) fn put_text<const N: usize>(into: &mut [u8; N], text: &str) {
    into.fill(0);
    let length = text.len().min(N - 1);
    into[..length].copy_from_slice(&text.as_bytes()[..length]);
}
