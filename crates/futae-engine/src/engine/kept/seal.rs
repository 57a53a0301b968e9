//! Seals and opens entries of the memory file, and verifies frames against them.

use super::known::MemoryStatus;
use crate::engine::flights::Span;
use crate::engine::frames::Frame;
use crate::engine::front::Engine;
use crate::engine::state::State;
use crate::engine::verify::{Mac, Macs};
use crate::memory_file::Entry;
use futae_policy::{BlockId, Slot, VolumeId};

/// Takes the place of the count of forgotten entries, which hashes of other tables include.
const OF_MEMORY: u64 = u64::MAX;
/// After a partial write, a frame of up to this many bytes is hashed again. A larger one stays open
/// until it is read or written as a whole.
const HASHED_AT_ONCE_BYTES: u64 = 64 << 10;

impl Engine {
    /// What became of the blocks that were found in a memory file.
    pub fn memory_status(&self) -> MemoryStatus {
        self.lock().memory_status()
    }
}

impl State {
    /// What became of the blocks that were found in a memory file; zeroes without one.
    pub fn memory_status(&self) -> MemoryStatus {
        self.kept
            .as_ref()
            .map_or_else(MemoryStatus::default, |kept| kept.tally)
    }

    /// A frame holds its block, which is clean and has this hash.
    pub fn seal(&mut self, block: BlockId, slot: Slot, mac: Option<Mac>) {
        let (Some(kept), Some(mac)) = (&self.kept, mac) else {
            return;
        };
        let Some(of) = self.volumes[usize::from(block.volume().0)].kept else {
            return;
        };
        if self.is_dirty(block) || self.frames.get(slot) != Frame::Ready {
            return;
        }
        let place = kept.keys.place(of.row.0, block.index(), of.era, OF_MEMORY);
        let (low, high) = mac.at(&place).halves();
        let entry = Entry {
            row: of.row,
            index: block.index(),
            mac: [low, high],
            order: 0,
        };
        if let Some(file) = self.arena.file_mut() {
            file.seal(slot, &entry);
        }
    }

    /// As [`seal`](Self::seal), for a block that the store now has: with the hash in `macs` if
    /// `span` covers the block, otherwise with a hash of its frame.
    pub fn seal_written(&mut self, block: BlockId, span: &Span, macs: &Macs) {
        let Some(kept) = &self.kept else { return };
        let Some(slot) = self.level.find(block) else {
            return;
        };
        let of = self.block_span(block);
        let mac = if of.overlap(span) == Some(of) {
            macs.of(block.index())
        } else if of.length <= HASHED_AT_ONCE_BYTES {
            let frame = &self.arena.frame(slot)[..of.length as usize];
            Some(kept.keys.mac(frame))
        } else {
            None
        };
        self.seal(block, slot, mac);
    }

    /// A store operation will change `span`. Called before the operation is sent to the store.
    pub fn note_store_write(&mut self, span: &Span) {
        self.volumes[usize::from(span.volume.0)].watch.note_write();
        if self.kept.is_none() {
            return;
        }
        let (first, end) = self.block_range(span);
        let residents = &self.volumes[usize::from(span.volume.0)].residents;
        for index in residents.within(first..end, end - first) {
            if let Some(slot) = self.level.find(BlockId::new(span.volume, index)) {
                self.arena.unseal(slot);
            }
        }
        let now_ns = self.world.wall_ns();
        let volume = &mut self.volumes[usize::from(span.volume.0)];
        if let (Some(of), Some(file)) = (&mut volume.kept, self.arena.file()) {
            of.writes += 1;
            of.is_written = true;
            file.rows().written(of.row, now_ns);
        }
    }

    /// A store's write has ended: its time stamp is not later than now.
    pub fn note_alive(&self, volume: VolumeId) {
        let of = self.volumes[usize::from(volume.0)].kept;
        if let (Some(of), Some(file)) = (of, self.arena.file()) {
            file.rows().alive(of.row, self.world.wall_ns());
        }
    }

    /// A block is requested. If it is from before the start, its content is compared with its hash
    /// first; if it does not match, the block is dropped as if it had not been found.
    #[inline]
    pub fn prove(&mut self, block: BlockId) {
        if self.frames.kept() > 0 {
            self.prove_kept(block);
        }
    }

    fn prove_kept(&mut self, block: BlockId) {
        let Some(slot) = self.level.find(block) else {
            return;
        };
        if self.frames.get(slot) != Frame::Kept {
            return;
        }
        let is_proven = self.is_proven(block, slot);
        let Some(kept) = &mut self.kept else { return };
        if is_proven {
            kept.tally.memory_verified_blocks += 1;
            self.frames.set(slot, Frame::Ready);
        } else {
            kept.tally.memory_refused_blocks += 1;
            let refused = kept.tally.memory_refused_blocks;
            // A damaged file has as many as the cache has blocks.
            if refused == 10u64.pow(refused.ilog10()) {
                tracing::warn!(
                    "a block that the memory file was to keep does not have its hash: it is read from its store again \
                     (block {} of {}; {refused} such blocks so far, memory_refused_blocks counts them)",
                    block.index(),
                    self.volumes[usize::from(block.volume().0)].name
                );
            }
            self.invalidate(block);
        }
    }

    fn is_proven(&self, block: BlockId, slot: Slot) -> bool {
        let (Some(kept), Some(file)) = (&self.kept, self.arena.file()) else {
            return false;
        };
        let of = self.volumes[usize::from(block.volume().0)].kept;
        let (Some(of), Some(entry)) = (of, file.sealed(slot)) else {
            return false;
        };
        let length = self.block_span(block).length as usize;
        let mac = kept.keys.mac(&self.arena.frame(slot)[..length]);
        let place = kept.keys.place(of.row.0, block.index(), of.era, OF_MEMORY);
        let (low, high) = mac.at(&place).halves();
        (entry.row, entry.index) == (of.row, block.index()) && entry.mac == [low, high]
    }

    /// Panics unless every sealed block is resident and clean, and no work on it is under way. For
    /// tests.
    pub fn audit_kept(&self) {
        let (Some(kept), Some(file)) = (&self.kept, self.arena.file()) else {
            return;
        };
        if !kept.is_recalled {
            return;
        }
        for slot in (0..file.slots()).map(Slot) {
            let Some(entry) = file.sealed(slot) else {
                continue;
            };
            let is_of = |volume: &crate::engine::volume::Volume| {
                volume.kept.is_some_and(|kept| kept.row == entry.row)
            };
            let volume = self.volumes.iter().position(is_of);
            let volume = volume.expect("an entry of a volume that is gone");
            let block = BlockId::new(VolumeId(volume as u16), entry.index);
            assert_eq!(self.level.find(block), Some(slot), "sealed, not resident");
            assert!(!self.is_dirty(block), "sealed and dirty");
            let frame = self.frames.get(slot);
            assert!(
                matches!(frame, Frame::Ready | Frame::Kept),
                "sealed: {frame:?}"
            );
            // Recalled blocks have not been verified yet.
            let is_sound = frame == Frame::Kept || self.is_proven(block, slot);
            assert!(is_sound, "sealed with another hash");
            let of = self.block_span(block);
            let over = self.under_way.write_over(&of);
            let has_begun = over.is_some_and(|key| self.under_way.writes[key].has_begun);
            assert!(!has_begun, "sealed while its store may change");
        }
    }
}
