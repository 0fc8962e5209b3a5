#![doc = include_str!("../README.md")]
//!
//! ## Inside
//!
//! What an operation needs while the kernel works on it (an address, the bytes to send, a buffer
//! to receive into) is owned by the ring from [`Ring::push`] until its completion has been taken
//! with [`Ring::pop`], which gives it back with the `T` that was pushed along. So no memory can be
//! freed or used again while the kernel holds it, whatever the caller does; dropping the ring
//! cancels what is in flight and waits for it, and leaks the memory should the kernel not let go.
//!
//! | module | what it owns |
//! |---|---|
//! | `ring` | the ring itself: what is queued, submitted, waited for and taken |
//! | `operation` | what can be asked of the kernel |
//! | `slab` | the values in flight |
//! | `buffers` | the memory that receives write into |
//! | [`timers`] | timeouts of connections; no input or output, no clock |
#![deny(unsafe_op_in_unsafe_fn)]

mod buffers;
mod error;
mod operation;
mod ring;
mod slab;
pub mod timers;

pub use error::RingError;
pub use operation::{Family, Link, Operation, Socket, Unattended};
pub use ring::{Completed, Completion, Options, Ring};
pub use slab::Key;
