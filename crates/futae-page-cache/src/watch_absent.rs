//! What stands for a watch where none was built.

use super::{Event, Pages};
use std::fs::Metadata;

/// The page cache of one file system, watched; built without eBPF, there is none.
pub enum Watch {}

impl Watch {
    /// Says that there is none.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn load(_pages: Pages<'_>) -> anyhow::Result<Self> {
        anyhow::bail!("futae was built without eBPF, because clang was missing")
    }

    /// Says that there is none.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn load_copying(pages: Pages<'_>) -> anyhow::Result<Self> {
        Self::load(pages)
    }

    /// Pages that have left.
    pub fn left_pages(&self, _most: usize, _tell: impl FnMut(u64, u64, &[u8])) {
        match *self {}
    }

    /// Bytes that it takes.
    #[must_use]
    pub fn memory_bytes(_pages: Pages<'_>) -> u64 {
        0
    }

    /// How many pages it can watch.
    #[must_use]
    pub fn pages_max(&self) -> u64 {
        match *self {}
    }

    /// Begins.
    pub fn begin(&self, _root: &Metadata) {
        match *self {}
    }

    /// Whether it has begun.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        match *self {}
    }

    /// What was read.
    pub fn used(&self, _tell: impl FnMut(u64, u64, u32)) {
        match *self {}
    }

    /// What became of pages.
    pub fn news(&self, _tell: impl FnMut(u64, u64, Event)) {
        match *self {}
    }

    /// Pages that came unwatched and could not be told.
    #[must_use]
    pub fn lost(&self) -> u64 {
        match *self {}
    }

    /// Pages that have left and could not be told.
    #[must_use]
    pub fn left_unreported(&self) -> u64 {
        match *self {}
    }

    /// Whether a page is there.
    #[must_use]
    pub fn is_present(&self, _inode: u64, _page: u64) -> bool {
        match *self {}
    }

    /// Whether its reader has not had it yet.
    #[must_use]
    pub fn is_fresh(&self, _inode: u64, _page: u64) -> bool {
        match *self {}
    }

    /// All pages that are there.
    pub fn each_present(&self, _tell: impl FnMut(u64, u64)) {
        match *self {}
    }

    /// Pages that are there.
    #[must_use]
    pub fn present_pages(&self) -> u64 {
        match *self {}
    }

    /// Memory that it takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match *self {}
    }

    /// Looks at maps.
    ///
    /// # Errors
    ///
    /// Never.
    pub fn look_at_mapped(&self) -> anyhow::Result<bool> {
        match *self {}
    }

    /// Why maps cannot be looked at.
    #[must_use]
    pub fn why_no_looks(&self) -> Option<&str> {
        match *self {}
    }

    /// Pages that looks have found accessed.
    #[must_use]
    pub fn mapped_used(&self) -> u64 {
        match *self {}
    }
}
