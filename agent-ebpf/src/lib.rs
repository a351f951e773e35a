//! Placeholder.
#![no_std]
/// Latency slots.
pub mod histogram {
    /// Number of slots.
    pub const SLOTS: usize = 40;
}
