//! What comes in by pointer, and goes out by it.
//!
//! In: pointers of the caller. Out: checked references and texts. What can go wrong: a null pointer or a wrong version
//! word, by code; anything else about a pointer is the caller's promise, as with the real library.

use std::ffi::{CStr, c_char};

use crate::codes::{BAD_PARAM, VER_MISMATCH};

/// The struct behind `pointer`.
///
/// # Safety
/// Null, or valid for reads and writes of `T` for the time of the call, and used by nobody else in it.
pub(crate) unsafe fn out<'a, T>(pointer: *mut T) -> Result<&'a mut T, i32> {
    // SAFETY: the caller's promise
    unsafe { pointer.as_mut() }.ok_or(BAD_PARAM)
}

/// The struct behind `pointer`, when its version word is one of `words`.
///
/// # Safety
/// As [`out`], except that a struct of another version may be smaller: only its first word is read then.
pub(crate) unsafe fn versioned<'a, T>(pointer: *mut T, words: &[u32]) -> Result<&'a mut T, i32> {
    // SAFETY: the caller's promise
    let word = unsafe { word(pointer.cast()) }?;
    // SAFETY: the caller's promise; its version word says that it is a `T`
    if words.contains(&word) { unsafe { out(pointer) } } else { Err(VER_MISMATCH) }
}

/// First word of a struct.
///
/// # Safety
/// Null, or valid for a read of a `u32`.
pub(crate) unsafe fn word(pointer: *const u32) -> Result<u32, i32> {
    // SAFETY: the caller's promise
    unsafe { pointer.as_ref() }.copied().ok_or(BAD_PARAM)
}

/// The text behind `pointer`; not UTF-8: with replacements.
///
/// # Safety
/// Null, or a text that ends in NUL.
pub(crate) unsafe fn text(pointer: *const c_char) -> Result<String, i32> {
    if pointer.is_null() {
        return Err(BAD_PARAM);
    }
    // SAFETY: the caller's promise
    Ok(unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

/// The items behind `pointer`.
///
/// # Safety
/// Null with a length of 0, or valid for reads of so many.
pub(crate) unsafe fn items<'a, T>(pointer: *const T, length: usize) -> Result<&'a [T], i32> {
    if pointer.is_null() {
        return if length == 0 { Ok(&[]) } else { Err(BAD_PARAM) };
    }
    // SAFETY: the caller's promise
    Ok(unsafe { std::slice::from_raw_parts(pointer, length) })
}

/// The items behind `pointer`, to be written.
///
/// # Safety
/// Null with a length of 0, or valid for writes of so many, used by nobody else during the call.
pub(crate) unsafe fn items_mut<'a, T>(pointer: *mut T, length: usize) -> Result<&'a mut [T], i32> {
    if pointer.is_null() {
        return if length == 0 { Ok(&mut []) } else { Err(BAD_PARAM) };
    }
    // SAFETY: the caller's promise
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, length) })
}
