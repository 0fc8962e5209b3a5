//! Rules and fingerprints: what is said of a banner, compiled.
//!
//! This room knows banners and events; it opens no socket and reads no clock.

pub mod fingerprint;
pub mod recog;
