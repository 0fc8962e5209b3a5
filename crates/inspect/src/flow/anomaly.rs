//! Consequences of anomalies: which of them lead to a drop.

use crate::event::DropReason;
use crate::terms::{Anomaly, AnomalyLayer};

impl Anomaly {
    /// True if dropping the packet helps. It does not if the bytes took another path, or if honest ends
    /// do the same.
    pub const fn is_refusable(self) -> bool {
        !matches!(self, Self::Gap | Self::FastOpenRefused | Self::BudgetSpent | Self::UnconfirmedMatch)
    }

    /// True if honest software never sends it, or loses nothing if it is dropped. Such packets are
    /// dropped by default.
    ///
    /// Other anomalies pass: data after a reset or FIN without effect, simultaneous opens, port reuse and
    /// long detours. They are no attack by themselves, and an attack gains nothing by them. Urgent data
    /// only loses its pointer.
    pub const fn is_hostile(self) -> bool {
        let message = matches!(self.layer(), AnomalyLayer::Application)
            && !matches!(
                self,
                Self::BudgetSpent
                    | Self::FramingLost
                    | Self::TlsDisputed
                    | Self::QuicUnreadable
                    | Self::QuicMalformed
                    | Self::QuicConflict
                    | Self::QuicCrowd
            );
        !message
            && !matches!(
                self,
                Self::ResetWrongSequence
                    | Self::DataAfterReset
                    | Self::DataAfterFin
                    | Self::SynInConnection
                    | Self::SplitHandshake
                    | Self::FastOpenRefused
                    | Self::HopLimitDrop
                    | Self::Gap
                    | Self::UrgentData
                    | Self::UnconfirmedMatch
            )
    }

    /// The reason in drop events.
    pub const fn drop_reason(self) -> DropReason {
        match self.layer() {
            AnomalyLayer::Decode => DropReason::DecodeError,
            AnomalyLayer::Stream => DropReason::StreamError,
            AnomalyLayer::Application => DropReason::AppLayerError,
        }
    }
}
