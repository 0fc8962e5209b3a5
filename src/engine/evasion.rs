//! Tricks against an inline inspector, and what is done about each of them.
//!
//! *Ignored* means: not taken into account, as the receiver will not; the segment itself is let
//! through under `--on-anomaly alert` and dropped under `--on-anomaly drop` (with `--enforce`). Every
//! anomaly is told once a flow, by the name given here, and counted each time.
//!
//! | trick | what is done | anomaly |
//! |---|---|---|
//! | overlapping segments with different data | the first octets count; `drop` drops the others | `overlap_different_data` |
//! | overlapping IP fragments with different data | the first octets count | `fragment_overlap_different_data` |
//! | data beyond the receiver's window | ignored | `out_of_window` |
//! | a wrong IP or TCP checksum | ignored, where checksums are there to verify | `bad_checksum` |
//! | urgent data, which the receiver takes out of the stream | told; `drop` drops the segment | `urgent_data` |
//! | a reset with a wrong sequence number | the flow goes on | `reset_wrong_sequence` |
//! | a reset that never arrives (small hop limit) | what follows is inspected all the same | `data_after_reset` |
//! | a FIN that never arrives | what follows is inspected all the same | `data_after_fin` |
//! | data with a hop limit too small to arrive | told; `drop` drops the segment | `hop_limit_drop` |
//! | a handshake split over more segments | the first sender of a SYN stays the client | `split_handshake` |
//! | a SYN inside a connection, to reset the inspector | nothing is forgotten before the other end answers it | `syn_in_connection` |
//! | data in a SYN (Fast Open) | inspected with the SYN | |
//! | data in a SYN that the server refuses | forgotten; what comes instead is read afresh | `fast_open_refused` |
//! | data without ACK, SYN with FIN | ignored | `data_without_ack`, `contradictory_flags` |
//! | an acknowledgement of what was never sent | ignored | `ack_of_unsent_data` |
//! | tiny segments, any order | put together; the one that completes a banner is stopped | |
//! | more out of order than is held | `drop` drops the surplus, which is then sent again | `reorder_limit` |
//! | a banner behind 64 KiB of other lines | lines are gone over up to the budget; `drop` blocks the flow | `ssh_long_preamble` |
//! | more lines than the budget | `drop` blocks the flow | `inspection_budget_spent` |
//! | header folding, NULs, mixed line ends, chunk tricks | read as most servers would; `drop` blocks the flow | `http_…` |
//! | a head without an end, before a FIN | what there is of it is judged; `drop` blocks the flow | `http_unfinished_head` |
//! | a banner behind the handshake of a proxy (`CONNECT`, SOCKS 4 and 5) | what is relayed is inspected | |
//! | octets between two messages, where every transaction is read | left out up to the line's end; `drop` blocks the flow | `http_unexpected_data` |
//!
//! What is not done: a segment whose timestamp option is too old (PAWS) is taken for good, and so is
//! one with a small hop limit under `alert`; both are then told when the real data differs, as long
//! as the flow is undecided.

#[cfg(test)]
mod receivers;
#[cfg(test)]
mod tests;
