//! The memory of the tables about a tree's files, which the cache makes room for.

use super::cached::CachedFiles;
use super::nodes::Nodes;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file that the kernel knows: its node and its names.
const NODE_BYTES: u64 = 384;
/// A file whose blocks the cache may hold: its contents, its lower file and its volume.
const CONTENTS_BYTES: u64 = 2048;
/// A descriptor: the kernel's memory for it and for its name in `/proc`.
const PLACE_BYTES: u64 = 1536;
/// The fraction of the cache (one in this many) up to which it makes no room: the tenth beside it
/// covers that.
const FREE_SHARE: u64 = 64;
/// The fraction of the cache (one in this many) beyond which files are dropped from the table.
const TABLE_SHARE: u64 = 2;
/// The fraction of the cache (one in this many) that files with blocks in the cache may take in any case: those that the kernel
/// knows cannot be dropped.
const CONTENTS_SHARE: u64 = 8;
/// Of the files without users, at least one in this many is dropped at a time.
const DROPPED_SHARE: u64 = 16;
/// The step of the cache's size.
const STEP_BYTES: u64 = 1 << 20;
/// The weight is computed once per this many changes of the set of files.
const LOOKED_AT_EVERY: u64 = 64;

/// The table of a tree's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileTable {
    /// Files and directories that the kernel knows.
    pub known_files: u64,
    /// Files that have been opened, whose blocks the cache may hold.
    pub cached_files: u64,
    /// Files and directories with a descriptor.
    pub descriptors: u64,
    /// The memory that the table takes, by estimate.
    pub bytes: u64,
}

impl FileTable {
    pub(crate) fn of(nodes: &Nodes, files: &CachedFiles) -> Self {
        let (known_files, descriptors) = nodes.counts();
        let cached_files = files.count();
        Self {
            known_files,
            cached_files,
            descriptors,
            bytes: known_files * NODE_BYTES
                + descriptors * PLACE_BYTES
                + cached_files * CONTENTS_BYTES,
        }
    }

    /// The number of files to drop beside a cache of this many bytes.
    fn surplus(&self, cache_bytes: u64) -> u64 {
        let beyond = self.bytes.saturating_sub(cache_bytes / TABLE_SHARE);
        let contents = self.cached_files * CONTENTS_BYTES;
        let droppable = contents.saturating_sub(cache_bytes / CONTENTS_SHARE);
        match beyond.min(droppable).div_ceil(CONTENTS_BYTES) {
            0 => 0,
            // Finding the files used least recently means to look at all.
            count => count.max(self.cached_files / DROPPED_SHARE),
        }
    }
}

/// How much of the cache was set aside.
#[derive(Default)]
pub(crate) struct Weight {
    noted: AtomicU64,
    aside_bytes: AtomicU64,
}

impl Weight {
    /// The number of files has changed.
    pub(crate) fn note(&self, nodes: &Nodes, files: &CachedFiles) {
        let noted = self.noted.fetch_add(1, Ordering::Relaxed);
        if !noted.is_multiple_of(LOOKED_AT_EVERY) {
            return;
        }
        let engine = files.engine();
        let surplus = FileTable::of(nodes, files).surplus(engine.wanted_bytes());
        if surplus > 0 {
            files.drop_unused(nodes, surplus);
        }
        let table = FileTable::of(nodes, files);
        let free = engine.wanted_bytes() / FREE_SHARE;
        let wanted = table.bytes.saturating_sub(free) / STEP_BYTES * STEP_BYTES;
        let before = self.aside_bytes.load(Ordering::Relaxed);
        // Hysteresis: the size grows back only after a full step, so that it does not oscillate
        // with files that come and go.
        if wanted > before || wanted + STEP_BYTES < before {
            self.aside_bytes.store(wanted, Ordering::Relaxed);
            engine.set_aside(wanted);
        }
    }
}
