//! The frame of all pages.

use crate::inventory::InventoryTime;

/// Frame of a page: its place in the navigation, and the time to which others are relative.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageFrame {
    /// Name of the page in the navigation; empty for none.
    pub(super) here: &'static str,
    pub(super) now: InventoryTime,
}

impl PageFrame {
    pub(super) fn new(here: &'static str) -> Self {
        Self { here, now: InventoryTime::now() }
    }
}
