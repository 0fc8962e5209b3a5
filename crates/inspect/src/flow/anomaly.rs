//! What is done about what is odd.

use crate::event::DropReason;
use crate::terms::{Anomaly, AnomalyLayer};

impl Anomaly {
    /// True if dropping the packet helps: not where the bytes went another way already, and not where
    /// honest ends do the same.
    pub const fn is_refusable(self) -> bool {
        !matches!(self, Self::Gap | Self::FastOpenRefused | Self::BudgetSpent | Self::UnconfirmedMatch)
    }

    /// True if honest software never sends it, or loses nothing by its loss: dropped unless told otherwise.
    ///
    /// The rest stays: what is odd after a reset or FIN that never took effect, simultaneous opens, port
    /// reuse and long detours are nobody's trick by themselves, and a trick gains nothing by them. Urgent
    /// data loses its pointer instead.
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

    /// The reason that drop events give.
    pub const fn drop_reason(self) -> DropReason {
        match self.layer() {
            AnomalyLayer::Decode => DropReason::DecodeError,
            AnomalyLayer::Stream => DropReason::StreamError,
            AnomalyLayer::Application => DropReason::AppLayerError,
        }
    }
}
