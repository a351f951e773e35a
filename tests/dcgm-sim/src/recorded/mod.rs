//! The simulator against NVIDIA's engine 4.6.0: recorded answers and time lines.

mod every_field;
mod limits;
mod nodes;
mod replay;
mod rig;
mod timelines;
