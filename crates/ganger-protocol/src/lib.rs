//! The worker protocol, versions 1 and 2: frames, messages to a worker, outputs of a worker. Its
//! published text is in `proto-spec/`. Bytes in, values out and the reverse: no socket, no process,
//! no clock, and no decision on what an answer means for its message.

pub mod frame;
pub mod input;
pub mod invariants;
pub mod output;
pub mod status;

mod decode;
mod json;
mod scalar;
mod seed;
mod task;
mod text;
mod value;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod vectors;

pub use decode::{DEPTH_MAX, DecodeError, FramePlace};
pub use frame::{FrameError, next_frame};
pub use input::{EncodeError, Extras, Input, Task};
pub use output::Output;
pub use status::Status;
