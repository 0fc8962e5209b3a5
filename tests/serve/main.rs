//! The page in a real browser.

mod browser;
mod design;
mod pages;
mod scans;
