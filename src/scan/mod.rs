//! The scan: asks the network and judges what comes back with the guard's own matcher.
//!
//! One thread a [`Targets`] and [`Report`] pair, nothing shared between threads but the stop flag.
//! This room knows nothing of the command line, and of output only the writer's handle; it never imports the
//! guard's side (packets, flows, the engine).
//!
//! | module | what it owns |
//! |---|---|
//! | [`target`] | what is asked next, and when |
//! | [`outcome`] | what came of one target, and the sink that takes it |
//! | [`config`] | everything a scan can be told |
//! | [`targets`] | what users name, in permuted order, each exactly once |
//! | [`report`] | which results are written, a target's events together |
//! | [`checkpoint`] | where a scan stands, in a file |
//! | [`permutation`], [`pacing`] | that order and its pace, without memory and without a clock |

pub mod checkpoint;
pub mod config;
pub mod outcome;
pub mod pacing;
pub mod permutation;
pub mod report;
pub mod target;
pub mod targets;

pub use config::{Close, Config, HttpOptions, HttpRequest, ProbeOptions};
pub use outcome::{Conversation, Outcome, Reason, Report};
pub use target::{Next, Target, Targets};
