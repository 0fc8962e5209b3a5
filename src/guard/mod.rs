//! The verdict loop: packets from a netfilter queue, judged inline.

pub mod source;
