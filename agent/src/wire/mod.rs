//! What the agent and its worker say to each other: typed messages in length-prefixed frames on one socket.
//!
//! In: [`Report`]s of the worker, [`Order`]s of the agent. Out: bytes, and back.
//! What can go wrong: the other side is another build ([`PROTOCOL`] says so at once), or sends garbage or too much: an
//! error for the reader, who then drops the connection. Nothing allocates beyond [`FRAME_MAX`].

pub mod frame;
pub mod message;
pub mod order;

pub use frame::{Decoder, FRAME_MAX, FrameError, encode};
pub use message::{Report, report};
pub use order::Order;

/// Version of the messages. Agent and worker are the same file, but the file may be replaced while the agent runs.
pub const PROTOCOL: u32 = 2;
