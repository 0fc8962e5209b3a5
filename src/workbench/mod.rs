//! What integration tests, benches and fuzz targets reach of the rooms; everything else is private to
//! the house, so that the compiler names what nobody uses.
//!
//! Nothing here is promised to anybody, and nothing in the program uses it.

pub mod fuzzing;

/// Of [`crate::guard`].
pub mod guard {
    /// Of [`crate::guard::source`].
    pub mod source {
        pub use crate::guard::source::{
            Answer, Backend, MAXIMUM_COPY_RANGE, Queued, Received, Source, SourceConfig, Verdict,
        };
    }
}

/// Of [`crate::hook`].
pub mod hook {
    pub use crate::hook::{
        Chain, Counters, HookConfig, Installed, MarkField, MarkState, Variant, status, up,
    };
}

/// Of [`crate::replay`].
pub mod replay {
    pub use crate::replay::{Replay, ReplayConfig};

    /// Of [`crate::replay::input`].
    pub mod input {
        pub use crate::replay::input::Input;
    }
}
