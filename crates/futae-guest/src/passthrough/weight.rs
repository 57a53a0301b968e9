//! What is kept beside the cache about the files of a tree, and that the cache gives way to it.

use super::cached::CachedFiles;
use super::node::Nodes;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file that the kernel knows: its node and its names.
const NODE_BYTES: u64 = 512;
/// A file that the cache may have blocks of: its contents, its lower file and its volume.
const CONTENTS_BYTES: u64 = 1536;
/// A descriptor: the kernel's memory for it and for its name in `/proc`.
const PLACE_BYTES: u64 = 1536;
/// Of the cache, one part in this many is not given up: the tenth beside it has room for as much.
const FREE_SHARE: u64 = 64;
/// What is given up changes by so much.
const STEP_BYTES: u64 = 1 << 20;
/// The weight is computed once in this many changes of the set of files.
const LOOKED_AT_EVERY: u64 = 64;

/// How much of the cache has been given up.
#[derive(Default)]
pub(crate) struct Weight {
    noted: AtomicU64,
    aside_bytes: AtomicU64,
}

impl Weight {
    /// Files have come or gone.
    pub(crate) fn note(&self, nodes: &Nodes, files: &CachedFiles) {
        let noted = self.noted.fetch_add(1, Ordering::Relaxed);
        if !noted.is_multiple_of(LOOKED_AT_EVERY) {
            return;
        }
        let (known, places) = nodes.counts();
        let tables = known * NODE_BYTES + places * PLACE_BYTES + files.count() * CONTENTS_BYTES;
        let engine = files.engine();
        let free = engine.wanted_bytes() / FREE_SHARE;
        let wanted = tables.saturating_sub(free) / STEP_BYTES * STEP_BYTES;
        let before = self.aside_bytes.load(Ordering::Relaxed);
        // A step down is waited for, so that files that come and go do not move it to and fro.
        if wanted > before || wanted + STEP_BYTES < before {
            self.aside_bytes.store(wanted, Ordering::Relaxed);
            engine.set_aside(wanted);
        }
    }
}
