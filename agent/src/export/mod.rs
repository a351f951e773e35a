//! Placeholder.
pub mod catalog;
