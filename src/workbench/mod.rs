//! What integration tests, benches and fuzz targets reach of the rooms; everything else is private to
//! the house, so that the compiler names what nobody uses.
//!
//! Nothing here is promised to anybody, and nothing in the program uses it.

pub mod fuzzing;

/// Of [`crate::banner`].
pub mod banner {
    pub use crate::banner::{Banner, Progress, Side, SshBanner};

    /// Of [`crate::banner::http`].
    pub mod http {
        pub use crate::banner::http::parse_response;
    }

    /// Of [`crate::banner::ssh`].
    pub mod ssh {
        pub use crate::banner::ssh::{identify, parse_line};
    }
}

/// Of [`crate::engine`].
pub mod engine {
    pub use crate::engine::{
        AnomalyPolicy, Checksums, Decision, Engine, EngineConfig, HttpInspect, PacketInput,
    };
}

/// Of [`crate::event`].
pub mod event {
    pub use crate::event::{Application, Endpoint, Event, EventKind, FlowContext, HeaderField, Timestamp};
}

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

/// Of [`crate::import`].
pub mod import {
    /// Of [`crate::import::recog`].
    pub mod recog {
        pub use crate::import::recog::{import, verify};
    }
}

/// Of [`crate::packet`].
pub mod packet {
    pub use crate::packet::Flags;

    /// Of [`crate::packet::testing`].
    pub mod testing {
        pub use crate::packet::testing::{SegmentBuilder, endpoint};
    }
}

/// Of [`crate::replay`].
pub mod replay {
    pub use crate::replay::{Replay, ReplayConfig};

    /// Of [`crate::replay::input`].
    pub mod input {
        pub use crate::replay::input::Input;
    }
}

/// Of [`crate::rules`].
pub mod rules {
    pub use crate::rules::{Allowed, Context, Profiles, RuleSet, Selection};

    /// Of [`crate::rules::fingerprint`].
    pub mod fingerprint {
        pub use crate::rules::fingerprint::{Document, Fingerprints};
    }
}

/// Of [`crate::terms`].
pub mod terms {
    pub use crate::terms::{Dialect, Greeting, Protocol};
}
