//! A lower cache, as far as it matters above: it serves what was demoted to it.
//!
//! It believes a demotion if no write to its block with a higher sequence was seen, and no write to
//! it has failed. So a demotion with old data, which the cache above should not have sent, comes back
//! in a read.

use crate::content::SECTOR;
use std::collections::{BTreeMap, BTreeSet};

/// What was demoted for one volume.
#[derive(Default)]
pub struct Lower {
    /// By first byte: the sequence of the demotion, and the data.
    blocks: BTreeMap<u64, (u64, Vec<u8>)>,
    /// By sector: the highest sequence of a write.
    written: BTreeMap<u64, u64>,
    /// Sectors of which nobody knows what they hold.
    unknown: BTreeSet<u64>,
}

impl Lower {
    fn sectors(offset: u64, length: u64) -> std::ops::Range<u64> {
        offset / SECTOR..(offset + length).div_ceil(SECTOR)
    }

    /// A write comes.
    pub fn write(&mut self, sequence: u64, offset: u64, length: u64) {
        for sector in Self::sectors(offset, length) {
            let newest = self.written.entry(sector).or_insert(sequence);
            *newest = sequence.max(*newest);
        }
        let end = offset + length;
        self.blocks.retain(|&first, (decided, data)| {
            let is_apart = first >= end || first + data.len() as u64 <= offset;
            is_apart || *decided > sequence
        });
    }

    /// It is over.
    pub fn written(&mut self, offset: u64, length: u64, is_ok: bool) {
        for sector in Self::sectors(offset, length) {
            if is_ok {
                self.unknown.remove(&sector);
            } else {
                self.unknown.insert(sector);
            }
        }
    }

    /// A block comes down.
    pub fn demote(&mut self, sequence: u64, offset: u64, data: &[u8]) {
        let sectors = Self::sectors(offset, data.len() as u64);
        let is_good = sectors.into_iter().all(|sector| {
            let written = self.written.get(&sector);
            !self.unknown.contains(&sector) && written.is_none_or(|&written| sequence > written)
        });
        if is_good {
            self.blocks.insert(offset, (sequence, data.to_vec()));
        }
    }

    /// Puts what was demoted over what the disk has at `offset`, and forgets it.
    pub fn serve(&mut self, offset: u64, bytes: &mut [u8]) {
        let end = offset + bytes.len() as u64;
        self.blocks.retain(|&first, (_, data)| {
            let last = first + data.len() as u64;
            if first < offset || last > end {
                return true;
            }
            let from = (first - offset) as usize;
            bytes[from..from + data.len()].copy_from_slice(data);
            false
        });
    }
}
