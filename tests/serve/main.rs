//! The page in a real browser.

mod pages;
mod scans;
