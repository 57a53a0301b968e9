//! Why a saved state is of no use.

use std::io;

/// The version of the format.
pub(super) const VERSION: u32 = 2;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WarmStateError {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// It is not a file of this format.
    #[error("is no state file of futae")]
    Magic,
    /// It was written by another version of futae.
    #[error("is of version {0}, and this futae reads version {VERSION}")]
    Version(u32),
    /// It is damaged.
    #[error("is damaged: {0}")]
    Damaged(&'static str),
    /// It belongs to another cache.
    #[error("is of another cache: its {what} is {saved}, and here it is {here}")]
    Foreign {
        /// The parameter that differs.
        what: &'static str,
        /// Its value in the file.
        saved: String,
        /// Its value in this cache.
        here: String,
    },
}

impl WarmStateError {
    /// Whether another cache, or another version of futae, can use the file.
    #[must_use]
    pub fn is_of_another(&self) -> bool {
        matches!(self, Self::Version(_) | Self::Foreign { .. })
    }
}
