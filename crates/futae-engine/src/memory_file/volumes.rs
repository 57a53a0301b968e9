//! The volumes in a memory file: their identities, and the last known state of their stores.

use super::layout::{VOLUME_WORDS, VOLUMES, VOLUMES_AT, header};
use super::map::Words;
use crate::StoreStamp;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU64, compiler_fence};

/// The index of a volume's place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row(pub u16);

const ERA: usize = 0;
const IDENTITY: usize = 1;
const SIZE: usize = 3;
const IS_WRITTEN: usize = 4;
const ALIVE: usize = 5;
const MODIFIED: usize = 6;
const CHANGED: usize = 7;
const HAS_STAMP: usize = 8;

/// The record of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Part of every hash of its blocks; unique per volume.
    pub era: u64,
    pub identity: [u8; 16],
    pub size_bytes: u64,
    /// Whether its store was written to after the stamp was taken.
    pub is_written: bool,
    /// The last sign of life of its server, in nanoseconds of the clock that dates files, while it
    /// writes.
    pub alive_ns: u64,
    pub stamp: Option<StoreStamp>,
}

/// All places of volumes.
pub struct Rows<'a>(pub &'a Words);

impl Rows<'_> {
    fn at(&self, row: Row, word: usize) -> &AtomicU64 {
        self.0
            .at(VOLUMES_AT + usize::from(row.0) * VOLUME_WORDS + word)
    }

    /// The record of a volume, if its place is taken.
    pub fn known(&self, row: Row) -> Option<Known> {
        if usize::from(row.0) >= VOLUMES {
            return None;
        }
        let word = |word| self.at(row, word).load(Relaxed);
        if word(ERA) == 0 {
            return None;
        }
        let mut identity = [0; 16];
        identity[..8].copy_from_slice(&word(IDENTITY).to_le_bytes());
        identity[8..].copy_from_slice(&word(IDENTITY + 1).to_le_bytes());
        let stamp = StoreStamp {
            size_bytes: word(SIZE),
            modified_ns: word(MODIFIED),
            changed_ns: word(CHANGED),
        };
        Some(Known {
            era: word(ERA),
            identity,
            size_bytes: word(SIZE),
            is_written: word(IS_WRITTEN) != 0,
            alive_ns: word(ALIVE),
            stamp: (word(HAS_STAMP) != 0).then_some(stamp),
        })
    }

    /// The place of the volume with this identity.
    pub fn find(&self, identity: [u8; 16]) -> Option<(Row, Known)> {
        let mut rows = (0..VOLUMES as u16).map(Row);
        rows.find_map(|row| {
            let known = self.known(row)?;
            (known.identity == identity).then_some((row, known))
        })
    }

    /// A free place.
    pub fn free(&self) -> Option<Row> {
        let mut rows = (0..VOLUMES as u16).map(Row);
        rows.find(|&row| self.at(row, ERA).load(Relaxed) == 0)
    }

    /// Assigns a place to a volume, in a new era: earlier entries never match it.
    pub fn give(&self, row: Row, identity: [u8; 16], size_bytes: u64) -> u64 {
        self.clear(row);
        let last = self.0.at(header::ERA);
        let era = last.load(Relaxed) + 1;
        last.store(era, Relaxed);
        compiler_fence(Release);
        let (low, high) = identity.split_at(8);
        for (word, half) in [(IDENTITY, low), (IDENTITY + 1, high)] {
            let half = half.iter().rev();
            let half = half.fold(0, |all, &byte| all << 8 | u64::from(byte));
            self.at(row, word).store(half, Relaxed);
        }
        self.at(row, SIZE).store(size_bytes, Relaxed);
        self.at(row, HAS_STAMP).store(0, Relaxed);
        self.at(row, IS_WRITTEN).store(0, Relaxed);
        self.at(row, ERA).store(era, Release);
        era
    }

    /// Frees a place.
    pub fn clear(&self, row: Row) {
        self.at(row, ERA).store(0, Release);
        compiler_fence(Release);
    }

    /// The store is about to be written to.
    pub fn written(&self, row: Row, now_ns: u64) {
        self.alive(row, now_ns);
        self.at(row, IS_WRITTEN).store(1, Release);
        compiler_fence(Release);
    }

    /// Records a sign of life of the server.
    pub fn alive(&self, row: Row, now_ns: u64) {
        self.at(row, ALIVE).store(now_ns, Release);
    }

    /// No write to the store is under way, and `stamp` is its current stamp.
    pub fn settled(&self, row: Row, stamp: Option<StoreStamp>) {
        // A half-written stamp must not be valid.
        self.at(row, HAS_STAMP).store(0, Release);
        compiler_fence(Release);
        if let Some(stamp) = stamp {
            self.at(row, SIZE).store(stamp.size_bytes, Relaxed);
            self.at(row, MODIFIED).store(stamp.modified_ns, Relaxed);
            self.at(row, CHANGED).store(stamp.changed_ns, Relaxed);
            self.at(row, HAS_STAMP).store(1, Release);
        }
        self.at(row, IS_WRITTEN).store(0, Release);
    }
}
