//! A TCP end made of single packets: it may send whatever no honest stack would.
//!
//! | module | what it owns |
//! |---|---|
//! | `packet` | packets to be, with every field open, and packets that came, in words |
//! | `end` | the conversation: sequence numbers, acknowledgements, the trace |
//! | `wire` | raw sockets in a network of namespaces, towards real ends |
//! | `receiver` | a model of how Linux takes TCP segments, for runs without a kernel |
//! | `hostile` | random sequences of tricks |

mod end;
mod hostile;
mod packet;
mod receiver;
mod wire;

pub use end::{AnyEnd, Medium, RawEnd, Role};
pub use hostile::{Cargo, Hostile};
pub use packet::{Extension, Flags, Packet, Received};
pub use receiver::{Moods, Receiver};
pub use wire::{Battlefield, Wire};
