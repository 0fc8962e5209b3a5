//! Exports of the inventory in third-party formats.

mod cyclonedx;
mod nmap;

pub use cyclonedx::cyclonedx;
pub use nmap::nmap;

use super::error::StoreError;

/// Error of an export.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The inventory cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The result cannot be written.
    #[error("cannot write: {0}")]
    Write(#[from] std::io::Error),
}
