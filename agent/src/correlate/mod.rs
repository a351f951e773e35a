//! Placeholder.

pub mod xid;
pub mod xid_catalog;
