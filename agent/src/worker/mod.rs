//! The worker: the one process that holds the vendor's libraries.
//!
//! In: orders of the agent. Out: reports. [`dcgm`] and [`nvml`] are what it collects, each in a thread of its own;
//! [`link`] is how they report. What can go wrong: a call into a library hangs or takes the process down; the agent
//! sees that and loses some seconds of its data.

pub mod cpu_list;
pub mod dcgm;
pub mod keys;
pub mod link;
pub mod moment;
pub mod nvml;
pub mod pci_text;
