//! Packages, services, manifests, doctor, the tunnel and the command line as a whole.

mod cli;
mod crates;
mod doctor;
mod documentation;
mod manifests;
mod packages;
mod packaging;
mod service;
mod tunnel;
