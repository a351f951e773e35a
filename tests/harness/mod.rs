//! Processes, files and kernel objects of a test; each removes itself when dropped.

pub mod agent;
pub mod cgroups;
pub mod collector;
pub mod deadline;
pub mod driver;
pub mod feed;
pub mod kubelet;
pub mod kubelet_message;
pub mod live;
pub mod log_links;
pub mod need;
pub mod node;
pub mod programs;
pub mod prometheus;
pub mod received;
pub mod scratch;
pub mod tty;
