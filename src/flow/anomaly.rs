//! What can be odd about packets and streams, by stable name.

use crate::event::{AnomalyLayer, DropReason};

macro_rules! anomalies {
    ($($(#[doc = $doc:literal])+ $variant:ident $layer:ident $name:literal $detail:literal,)+) => {
        /// Something in a packet or stream that an inspector could be misled with.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Anomaly {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Anomaly {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The stable name in events and metrics.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Which layer it belongs to.
            pub const fn layer(self) -> AnomalyLayer {
                match self { $(Self::$variant => AnomalyLayer::$layer,)+ }
            }

            /// What was seen, for a person.
            pub const fn detail(self) -> &'static str {
                match self { $(Self::$variant => $detail,)+ }
            }
        }
    };
}

anomalies! {
    /// IP or TCP headers that contradict themselves.
    MalformedPacket Decode "malformed_packet" "IP or TCP headers that contradict themselves",
    /// A checksum that the receiver will not accept.
    BadChecksum Decode "bad_checksum" "a wrong checksum: the receiver ignores this segment, and so do we",
    /// IP fragments whose octets contradict each other.
    FragmentConflict Decode "fragment_overlap_different_data" "IP fragments that say different things about the same octets",
    /// An IP fragment that can be part of no packet.
    FragmentMalformed Decode "fragment_malformed" "an IP fragment that can be part of no packet",
    /// Octets sent again with other values.
    OverlapDifferentData Stream "overlap_different_data" "octets that were sent before came again with other values; the first ones count",
    /// Data to the right of what the receiver's window allows.
    OutOfWindow Stream "out_of_window" "data beyond the receiver's window: the receiver ignores it, and so do we",
    /// A reset whose sequence number the receiver will not accept.
    ResetWrongSequence Stream "reset_wrong_sequence" "a reset that its receiver will not accept: the flow goes on",
    /// Data from an end that was reset.
    DataAfterReset Stream "data_after_reset" "data after a reset: the reset never took effect",
    /// Data behind the sender's own FIN.
    DataAfterFin Stream "data_after_fin" "data behind the end that its sender had announced",
    /// Data without ACK.
    DataWithoutAck Stream "data_without_ack" "data without the ACK flag: the receiver ignores it, and so do we",
    /// Data before the SYN that it would follow.
    DataBeforeHandshake Stream "data_before_handshake" "data before the SYN that it would follow: the receiver ignores it, and so do we",
    /// An acknowledgement of what was never sent.
    AckOfUnsentData Stream "ack_of_unsent_data" "an acknowledgement of octets that were never sent: the receiver ignores the segment, and so do we",
    /// An acknowledgement that lies too far back.
    OldAcknowledgement Stream "old_acknowledgement" "an acknowledgement that lies too far back: most receivers ignore the segment",
    /// A TCP MD5 or TCP-AO signature where the connection began without.
    UnexpectedSignature Stream "unexpected_signature" "a signature in a connection that has none: most receivers ignore the segment",
    /// Data in a SYN that would begin a flow anew.
    DataInReopeningSyn Stream "data_in_reopening_syn" "data in a SYN for ports that are in use: it can't be read before the answer",
    /// A further path of an MPTCP connection.
    MptcpJoin Stream "mptcp_join" "a further path of a Multipath TCP connection, whose octets would be read apart from the others",
    /// SYN together with FIN or RST.
    ContradictoryFlags Stream "contradictory_flags" "SYN together with FIN or RST",
    /// Urgent data.
    UrgentData Stream "urgent_data" "urgent data, which a receiver may take out of the stream",
    /// A SYN inside an open connection.
    SynInConnection Stream "syn_in_connection" "a SYN with a new sequence number inside an open connection",
    /// The server answered a SYN by a SYN.
    SplitHandshake Stream "split_handshake" "a SYN was answered by a SYN without ACK; the first sender stays the client",
    /// Data in a SYN that the server did not take.
    FastOpenRefused Stream "fast_open_refused" "data in a SYN was not acknowledged; what comes instead is read afresh",
    /// Data with a much smaller hop limit than the handshake had.
    HopLimitDrop Stream "hop_limit_drop" "data with a much smaller hop limit than before: it may expire before it arrives",
    /// Octets that the receiver has acknowledged went another way.
    Gap Stream "gap" "octets were acknowledged that were never seen here",
    /// Too many segments out of order.
    ReorderLimit Stream "reorder_limit" "more data out of order than is held",
    /// No decision within the budget.
    BudgetSpent Application "inspection_budget_spent" "no decision within the budget of octets or time",
    /// Both ends speak, but not the same protocol.
    ProtocolMismatch Application "protocol_mismatch" "client and server speak different protocols",
}

impl Anomaly {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// Whether dropping the packet helps: not where the octets went another way already, and not where
    /// honest ends do the same.
    pub const fn is_refusable(self) -> bool {
        !matches!(self, Self::Gap | Self::FastOpenRefused | Self::BudgetSpent)
    }

    /// Whether honest software never sends it, or loses nothing by its loss: dropped unless told otherwise.
    ///
    /// The rest stays: what is odd after a reset or FIN that never took effect, simultaneous opens, port
    /// reuse and long detours are nobody's trick by themselves, and a trick gains nothing by them.
    pub const fn is_hostile(self) -> bool {
        !matches!(
            self,
            Self::ResetWrongSequence
                | Self::DataAfterReset
                | Self::DataAfterFin
                | Self::SynInConnection
                | Self::SplitHandshake
                | Self::FastOpenRefused
                | Self::HopLimitDrop
                | Self::Gap
                | Self::ProtocolMismatch
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

/// A set of anomalies, without allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AnomalySet(u32);

const _: () = assert!(Anomaly::COUNT <= 32, "a set of anomalies has 32 bits");

impl AnomalySet {
    /// Adds one; true when it is new.
    pub const fn insert(&mut self, anomaly: Anomaly) -> bool {
        let bit = 1 << anomaly as u8;
        let new = self.0 & bit == 0;
        self.0 |= bit;
        new
    }

    /// Takes one out.
    pub const fn remove(&mut self, anomaly: Anomaly) {
        self.0 &= !(1 << anomaly as u8);
    }

    /// Those of either set.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Adds one where `condition` holds.
    pub const fn insert_if(&mut self, condition: bool, anomaly: Anomaly) {
        if condition {
            self.insert(anomaly);
        }
    }

    /// Whether it is in the set.
    pub const fn contains(self, anomaly: Anomaly) -> bool {
        self.0 & (1 << anomaly as u8) != 0
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those in the set.
    pub fn iter(self) -> impl Iterator<Item = Anomaly> {
        Anomaly::ALL.iter().copied().filter(move |anomaly| self.contains(*anomaly))
    }
}
