//! Why there is no sweep, or no result of one.

use std::fmt::Display;
use std::io;
use std::path::Path;

/// Why a plan, or its folder of results, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The plan cannot be meant, or the folder holds the sweep of another plan: a user's mistake.
    #[error("{0}")]
    Plan(String),
    /// A file cannot be read or written, or says what it cannot say.
    #[error("{0}")]
    Files(String),
}

impl SweepError {
    pub(crate) fn plan(why: impl Display) -> Self {
        Self::Plan(why.to_string())
    }

    /// What cannot be done to which file, and why.
    pub(crate) fn file(what: &str, path: &Path, why: &io::Error) -> Self {
        Self::Files(format!("{what} {}: {why}", path.display()))
    }
}
