//! Packages, services, manifests, doctor, the tunnel and the command line as a whole.

mod cli;
mod crates;
mod doctor;
mod documentation;
mod manifests;
mod manual;
mod packages;
mod packaging;
mod release;
mod service;
mod tunnel;
mod wrong_usages;
