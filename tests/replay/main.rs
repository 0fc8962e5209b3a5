//! Captures through the engine: protocols, conformance, fingerprints and hostile input.

mod captures;
mod conformance;
mod differences;
mod equality;
mod fingerprints;
mod fuzzing;
mod host_keys;
mod impact;
mod markers;
mod protocols;
mod quic;
mod recog;
mod rules_replay;
mod tls;
