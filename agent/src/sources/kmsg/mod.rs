//! Placeholder.
pub mod message;
pub mod record;
mod scan;
pub mod xid;
#[cfg(test)]
mod xid_samples;
mod xid_text;
