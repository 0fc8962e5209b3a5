//! Traffic that is made to mislead the guard, and the kernel and real software beside it as judges.

mod banners;
mod bench;
mod clients;
mod differential;
mod floods;
mod http_differential;
mod moments;
mod multipath;
mod packets;
mod requests;
mod tricks;
