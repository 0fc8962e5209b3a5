//! Access for integration tests, benches and fuzz targets. All other modules are private, so the compiler
//! reports unused items.
//!
//! This module is not a stable interface, and the program does not use it.

pub mod fuzzing;

/// Items of [`crate::guard`].
pub mod guard {
    /// Items of [`crate::guard::source`].
    pub mod source {
        pub use crate::guard::source::{
            BatchCounts, MAXIMUM_COPY_RANGE, PacketAnswer, PacketSource, PacketVerdict, QueueBackend,
            QueuedPacket, SourceConfig,
        };
    }
}

/// Items of [`crate::hook`].
pub mod hook {
    pub use crate::hook::{
        BaseChain, HookConfig, HookCounters, InstalledHook, IptablesVariant, MarkField, MarkState, status, up,
    };
}

/// Items of [`crate::replay`].
pub mod replay {
    pub use crate::replay::{CaptureReplay, ReplayConfig};

    /// Items of [`crate::replay::input`].
    pub mod input {
        pub use crate::replay::input::CaptureInput;
    }
}
