//! Workers, sensors, rules and versions of a fleet over a real PostgreSQL.

mod borders;
mod by_hand;
mod doctor;
mod files;
mod jobs;
mod rights;
mod rules;
mod sensing;
mod sensors;
mod sites;
mod spill;
mod versions;
