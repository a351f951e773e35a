//! C structures of libdcgm, one file per family, exactly as the compiler of the vendor lays them out.
//!
//! In: nothing. Out: `#[repr(C)]` structures that are all plain numbers, arrays and pointers. What can go
//! wrong: a wrong offset would read a neighbour's bytes; so every structure is written through [`family!`],
//! which also records its layout, and a test compares size, alignment and each member with the numbers
//! measured on the headers of libdcgm 3.1.3 to 4.6.0 (`tests/fixtures/dcgm/layouts.csv`).

pub(crate) mod attributes;
pub(crate) mod connection;
pub(crate) mod cpu;
pub(crate) mod field;
pub(crate) mod group;
pub(crate) mod health;
#[cfg(test)]
mod layout;
pub(crate) mod links;
pub(crate) mod mig;
pub(crate) mod module;
pub(crate) mod profiling;
pub(crate) mod topology;

use std::ffi::{c_char, c_int};

/// `dcgmHandle_t`, `dcgmGpuGrp_t` and `dcgmFieldGrp_t` are all `uintptr_t`.
pub(crate) type Handle = usize;
/// `dcgmReturn_t`: an enum of 4 bytes.
pub(crate) type Return = c_int;

/// Plain data: every bit pattern is a value, zero included.
///
/// # Safety
/// Only for numbers, raw pointers, arrays of such and structures of such.
pub(crate) unsafe trait Plain: Sized {}

// SAFETY: numbers have no invalid bit patterns.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for i8 {}
// SAFETY: as above.
unsafe impl Plain for u16 {}
// SAFETY: as above.
unsafe impl Plain for i16 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for i32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: as above.
unsafe impl Plain for i64 {}
// SAFETY: as above.
unsafe impl Plain for usize {}
// SAFETY: as above; every bit pattern is a floating-point number or none.
unsafe impl Plain for f64 {}
// SAFETY: a raw pointer may hold any address; it is only unsafe to follow.
unsafe impl<T> Plain for *const T {}
// SAFETY: an array is plain if its elements are.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// A structure that begins with `size | version << 24`, which the library checks before it writes.
///
/// # Safety
/// The first member must be the `u32` version.
pub(crate) unsafe trait Versioned: Plain {
    /// The structure's version.
    const VERSION: u32;
    /// What stands in its first member.
    const STAMP: u32 = size_of::<Self>() as u32 | Self::VERSION << 24;
}

/// A zeroed structure on the heap, never on the stack on its way there: some have more than 1 MB.
pub(crate) fn zeroed<T: Plain>() -> Box<T> {
    // SAFETY: zero is a value of every plain type.
    unsafe { Box::<T>::new_zeroed().assume_init() }
}

/// Many zeroed structures on the heap.
pub(crate) fn zeroed_slice<T: Plain>(count: usize) -> Box<[T]> {
    // SAFETY: zero is a value of every plain type.
    unsafe { Box::<[T]>::new_zeroed_slice(count).assume_init() }
}

/// A zeroed structure on the heap with its version stamped in.
pub(crate) fn stamped<T: Versioned>() -> Box<T> {
    let mut new = zeroed::<T>();
    // SAFETY: the first member of a versioned structure is a u32, so it begins where the structure begins.
    unsafe { (&raw mut *new).cast::<u32>().write(T::STAMP) };
    new
}

/// The text of a C array: up to its first zero byte or its end, with what is not UTF-8 replaced.
pub(crate) fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|c| c.cast_unsigned()).take_while(|b| *b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Defines structures of one family and records their layouts under `LAYOUTS`. The literal before the members
/// is the C name, `since` the tag of the header whose row it is compared with, `version` what is stamped into
/// it. A C name with a dot is a structure without a name of its own: the element of that member.
macro_rules! family {
    ($(
        $(#[$about:meta])*
        struct $name:ident = $c:literal since $tag:literal $(version $version:literal)? {
            $($field:ident: $ty:ty = $member:literal,)*
        }
    )*) => {
        $(
            $(#[$about])*
            #[repr(C)]
            pub(crate) struct $name {
                $(pub(crate) $field: $ty,)*
            }

            // SAFETY: all members are plain, which the function below has checked by the compiler.
            unsafe impl $crate::abi::Plain for $name {}
            const _: fn() = || {
                fn plain<T: $crate::abi::Plain>() {}
                $(plain::<$ty>();)*
            };
            $(
                // SAFETY: the layout test refuses a versioned structure whose first member is not a u32
                // `version`.
                unsafe impl $crate::abi::Versioned for $name {
                    const VERSION: u32 = $version;
                }
            )?
        )*

        #[cfg(test)]
        pub(crate) const LAYOUTS: &[$crate::abi::layout::Layout] = &[$(
            $crate::abi::layout::Layout {
                name: $c,
                tag: $tag,
                size: size_of::<$name>(),
                align: align_of::<$name>(),
                members: &[$(($member, std::mem::offset_of!($name, $field), size_of::<$ty>()),)*],
                stamp: (
                    $(Some(($version, <$name as $crate::abi::Versioned>::STAMP)),)?
                    None::<(u32, u32)>,
                ).0,
            },
        )*];
    };
}
pub(crate) use family;
