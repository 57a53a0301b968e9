//! Recalls the content of the memory file before the first request.

use super::changed::{UNSEEN, why_changed};
use super::known::{Kept, KeptVolume, MemoryStatus, MemoryTrust};
use crate::arena::Arena;
use crate::engine::frames::Frame;
use crate::engine::front::Engine;
use crate::engine::generations;
use crate::engine::state::State;
use crate::engine::verify::Keys;
use crate::memory_file::Row;
use crate::{MemoryFile, SetupError};
use futae_policy::{BlockId, Slot, VolumeId};
use std::sync::Arc;
use tracing::{info, warn};

/// A block in the file: its rank in the order, and its slot.
type Found = (u64, Slot, BlockId);

impl Engine {
    /// Moves the frames of this cache into a file, so that they outlive the process. Call it before
    /// [`verify_demotions`](Self::verify_demotions) and [`add_volume`](Self::add_volume), and call
    /// [`recall_memory`](Self::recall_memory) once all volumes are added.
    ///
    /// # Errors
    ///
    /// Memory is short, or blocks are loaded in pieces (they are larger than 1 MiB).
    pub fn keep_memory(
        self: &Arc<Self>,
        memory: MemoryFile,
        trust: MemoryTrust,
    ) -> Result<(), SetupError> {
        let mut state = self.lock();
        if state.in_pieces() {
            let bytes = self.block_bytes;
            let message = format!(
                "blocks of {bytes} bytes are loaded in pieces, and cannot be kept in {}; choose blocks of 1MiB at most",
                memory.path().display()
            );
            return Err(SetupError::Size(message));
        }
        if self.keys.get().is_some() || !state.volumes.is_empty() {
            let message = "the memory of a cache is chosen before all else".to_owned();
            return Err(SetupError::Size(message));
        }
        let slots = state.level.capacity();
        let is_empty = memory.empty().is_some();
        let keys = match memory.keys() {
            Some(words) => Keys::from_words(words),
            None => Keys::draw()?,
        };
        let mut arena = Arena::in_file(self.block_bytes as usize, slots, memory)?;
        if let (true, Some(file)) = (is_empty, arena.file_mut()) {
            file.begin(keys.words());
        }
        state.arena = arena;
        state.kept = Some(Box::new(Kept {
            keys: keys.clone(),
            trust,
            is_recalled: false,
            tally: MemoryStatus::default(),
            order_noted: None,
        }));
        // The state is locked: no other thread sets the keys.
        let _ = self.keys.set(keys);
        drop(state);
        self.see_to_clock()
    }

    /// Recalls the blocks that the memory file holds of the added volumes, and returns their
    /// number. Each is compared with its hash at its first request.
    pub fn recall_memory(&self) -> u64 {
        let found = self.lock().recall_memory();
        // Writes that were under way when the last server was killed have ended: no other process
        // has the lock.
        self.settle_stores();
        found
    }
}

impl State {
    /// Finds or allocates a new volume's place in the memory file.
    pub fn keep_volume(&mut self, id: VolumeId) {
        let (Some(kept), Some(file)) = (&self.kept, self.arena.file()) else {
            return;
        };
        let volume = &self.volumes[usize::from(id.0)];
        let name = &volume.name;
        if volume.grows {
            return;
        }
        let not_kept = |why: &str| info!("{name}: its blocks are not kept over a restart: {why}");
        let Some(identity) = volume.store.identity() else {
            return not_kept("its store does not say which it is");
        };
        let stamp = volume.store.stamp();
        if stamp.is_none() && kept.trust == MemoryTrust::Files {
            return not_kept(UNSEEN);
        }
        let rows = file.rows();
        let found = rows.find(identity);
        let is_taken = |row| {
            let mut of = self.volumes.iter().filter_map(|other| other.kept);
            of.any(|other| other.row == row)
        };
        let mut of = None;
        if let Some((row, known)) = found {
            if is_taken(row) {
                return not_kept("another export has the same image");
            }
            match why_changed(&known, volume.size_bytes, stamp, kept.trust) {
                Ok(()) if !kept.is_recalled => {
                    of = Some(KeptVolume {
                        row,
                        era: known.era,
                        has_blocks: true,
                        is_written: known.is_written,
                        writes: 0,
                    });
                }
                Ok(()) => {}
                Err(why) => warn!(
                    "{name}: what {} holds of it is dropped: {why}",
                    file.path().display()
                ),
            }
        }
        if of.is_none() {
            let Some(row) = found.map(|(row, _)| row).or_else(|| rows.free()) else {
                return not_kept("the memory file has no room for more exports");
            };
            let era = rows.give(row, identity, volume.size_bytes);
            rows.written(row, self.world.wall_ns());
            of = Some(KeptVolume {
                row,
                era,
                has_blocks: false,
                is_written: true,
                writes: 0,
            });
        }
        self.volumes[usize::from(id.0)].kept = of;
    }

    fn recall_memory(&mut self) -> u64 {
        let Some(file) = self.arena.file() else {
            return 0;
        };
        let mut volumes = vec![None; usize::from(u16::MAX) + 1];
        let mut rows = vec![false; usize::from(u16::MAX) + 1];
        for (at, volume) in self.volumes.iter().enumerate() {
            if let Some(of) = volume.kept {
                rows[usize::from(of.row.0)] = true;
                volumes[usize::from(of.row.0)] = of.has_blocks.then_some(VolumeId(at as u16));
            }
        }
        let mut found: Vec<Found> = Vec::new();
        for slot in (0..file.slots()).map(Slot) {
            let Some(entry) = file.sealed(slot) else {
                continue;
            };
            let volume = volumes[usize::from(entry.row.0)];
            let block = volume.map(|volume| BlockId::new(volume, entry.index));
            match block.filter(|&block| self.is_inside(block)) {
                Some(block) => found.push((entry.order, slot, block)),
                None => file.unseal(slot),
            }
        }
        for row in (0..u16::MAX).map(Row) {
            if !rows[usize::from(row.0)] && file.rows().known(row).is_some() {
                file.rows().clear(row);
            }
        }
        found.sort_unstable();
        let surplus = found.len().saturating_sub(self.level.capacity() as usize);
        found
            .drain(..surplus)
            .for_each(|(_, slot, _)| file.unseal(slot));
        if let Some(kept) = &mut self.kept {
            kept.is_recalled = true;
        }
        self.take_up(&found)
    }

    /// Puts blocks back in their slots, the next victim first.
    fn take_up(&mut self, found: &[Found]) -> u64 {
        let marks = found.iter().map(|&(_, slot, block)| {
            let class = self.volumes[usize::from(block.volume().0)].class;
            (slot, block, class)
        });
        let marks: Vec<_> = marks.collect();
        let kind = self.policy.handover_kind();
        let placed = self.level.restore(&marks, kind);
        let mut order = 0;
        for (&(slot, block, _), is_placed) in marks.iter().zip(placed) {
            if !is_placed {
                // The file names the block twice; neither a kill nor chance causes that.
                self.arena.unseal(slot);
                continue;
            }
            order += 1;
            if let Some(file) = self.arena.file() {
                file.set_order(slot, order);
            }
            self.frames.place(slot);
            self.frames.set(slot, Frame::Kept);
            self.note_resident(block, true);
            self.generations.came(slot, generations::UNKNOWN);
        }
        if let Some(kept) = &mut self.kept {
            kept.tally.memory_found_blocks = order;
        }
        order
    }
}
