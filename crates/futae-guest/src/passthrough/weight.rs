//! The memory of the tables about a tree's files, which the cache makes room for.

use super::cached::CachedFiles;
use super::node::Nodes;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file that the kernel knows: its node and its names.
const NODE_BYTES: u64 = 512;
/// A file whose blocks the cache may hold: its contents, its lower file and its volume.
const CONTENTS_BYTES: u64 = 1536;
/// A descriptor: the kernel's memory for it and for its name in `/proc`.
const PLACE_BYTES: u64 = 1536;
/// The fraction of the cache (one in this many) up to which it makes no room: the tenth beside it
/// covers that.
const FREE_SHARE: u64 = 64;
/// The step of the cache's size.
const STEP_BYTES: u64 = 1 << 20;
/// The weight is computed once per this many changes of the set of files.
const LOOKED_AT_EVERY: u64 = 64;

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
        let (known, places) = nodes.counts();
        let tables = known * NODE_BYTES + places * PLACE_BYTES + files.count() * CONTENTS_BYTES;
        let engine = files.engine();
        let free = engine.wanted_bytes() / FREE_SHARE;
        let wanted = tables.saturating_sub(free) / STEP_BYTES * STEP_BYTES;
        let before = self.aside_bytes.load(Ordering::Relaxed);
        // Hysteresis: the size grows back only after a full step, so that it does not oscillate
        // with files that come and go.
        if wanted > before || wanted + STEP_BYTES < before {
            self.aside_bytes.store(wanted, Ordering::Relaxed);
            engine.set_aside(wanted);
        }
    }
}
