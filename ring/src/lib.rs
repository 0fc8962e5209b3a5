#![doc = include_str!("../README.md")]
//!
//! ## Inside
//!
//! The ring owns everything that the kernel needs for an operation: an address, the bytes to send, a
//! receive buffer. It does so from [`Ring::push`] until [`Ring::pop`] takes the completion and returns it
//! with the `T` of the operation. So no memory can be freed or reused while the kernel holds it, whatever
//! the caller does. Dropping the ring cancels operations in flight and waits for them; if the kernel does
//! not release the memory, it is leaked.
//!
//! | module | what it owns |
//! |---|---|
//! | `ring` | the ring: operations queued, submitted, waited for and completed |
//! | `operation` | the operations of the kernel |
//! | `slab` | the values in flight |
//! | `receive_buffers` | the memory for receives |
//! | [`timers`] | timeouts of connections; no input or output, no clock |
#![deny(unsafe_op_in_unsafe_fn)]

mod error;
mod operation;
mod receive_buffers;
mod ring;
mod slab;
pub mod timers;

pub use error::RingError;
pub use operation::{DetachedOperation, DirectSocket, Operation, OperationLink, SocketFamily};
pub use ring::{Completion, Ring, RingCompletion, RingOptions};
pub use slab::OperationKey;
