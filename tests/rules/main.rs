//! Rule files, packs, advisories and the software that shipped rules are about.

mod advisories;
mod cli;
mod packs;
mod zoo_rules;
