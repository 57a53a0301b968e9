//! In place of pages of files.

/// Pages of one file that left the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages;
