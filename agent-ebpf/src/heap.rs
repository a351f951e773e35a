//! Giving freed memory back to the system after a large, short-lived use of it.
//!
//! In: nothing. Out: a smaller agent: aya parses all of the kernel's types at every load, whether they are needed or
//! not, in so many small pieces that the C library would keep their pages (14 MiB) for good.
//! Nothing can go wrong; a C library without the call keeps the memory.

/// Gives back what is free. Takes about a millisecond.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes a plain number, and only touches memory that nobody has.
    unsafe {
        libc::malloc_trim(0);
    }
}
