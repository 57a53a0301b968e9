//! Write-back: a write is answered when its data is in frames, and goes to the store later. Dirty
//! blocks are written in the background, in ascending runs, when too many blocks are dirty or have
//! been for too long. A FLUSH writes all dirty blocks. An evicted dirty block is written at once.
//!
//! A dirty block's data is always in memory: in its frame, or beside the cache until the store has
//! it ([`super::dirt`]). Reads of it never go to the store. Operations that cannot be kept go to
//! the store as without write-back: writes that the policy does not admit, writes of parts of
//! blocks that are not resident, writes with FUA, trims and zeroings. Such an operation and a
//! write-back of the same blocks never run at the same time.

mod flush;
mod keep;
mod runs;
mod settle;

use super::dirt::{Dirt, Throttled};
use super::dirty_total::Room;
use super::effects::Effects;
use super::flights::Span;
use super::frames::Frame;
use super::generations;
use super::options::OnEviction;
use super::rest::Rest;
use super::state::State;
use super::under_way::Turn;
use crate::{IoBuf, Request};
use futae_policy::{BlockId, Class, Slot, VolumeId};
use std::time::Instant;

impl State {
    /// Whether the cache is in write-back mode.
    pub fn writes_back(&self) -> bool {
        self.write_back.is_some()
    }

    pub fn is_dirty(&self, block: BlockId) -> bool {
        self.writes_back() && self.dirt(block.volume()).has(block.index())
    }

    pub fn dirt(&self, volume: VolumeId) -> &Dirt {
        &self.volumes[usize::from(volume.0)].dirt
    }

    pub fn dirt_mut(&mut self, volume: VolumeId) -> &mut Dirt {
        &mut self.volumes[usize::from(volume.0)].dirt
    }

    /// The data of a dirty block that has no slot.
    pub fn unframed(&self, block: BlockId) -> Option<&IoBuf> {
        if !self.writes_back() {
            return None;
        }
        self.dirt(block.volume()).unframed(block.index())
    }

    /// Whether a write of `span` can be kept, has to wait until fewer blocks are dirty, or must go
    /// to the store because waiting would not help.
    pub fn room_for(&self, span: &Span) -> Room {
        let Some(write_back) = &self.write_back else {
            return Room::None;
        };
        let (first, end) = self.block_range(span);
        let dirt = self.dirt(span.volume);
        let fresh = (end - first) - dirt.count(first..end);
        let most = write_back.dirty_max_blocks;
        let room = most.saturating_sub(write_back.dirty_blocks);
        if fresh == 0 || fresh <= room && dirt.throttled.is_empty() {
            Room::Enough
        } else if fresh <= most && dirt.moves() && !dirt.is_failing() {
            Room::Later
        } else {
            Room::None
        }
    }

    /// Queues a write until fewer blocks are dirty. If it has a place in the line, it keeps that, where it claims `claim`.
    pub fn throttle(&mut self, request: Request, claim: Span) {
        self.tally.throttled_writes += 1;
        if let Some(write_back) = &mut self.write_back {
            write_back.busy.insert(request.volume.0);
        }
        let place = match self.under_way.turn {
            Turn::InLine(place) => Some(place),
            Turn::New | Turn::Again => None,
        };
        if let Some(place) = place {
            self.under_way.line.wait_elsewhere(place, claim);
        }
        let throttled = &mut self.dirt_mut(request.volume).throttled;
        throttled.push_back(Throttled { request, place });
    }

    /// Resumes queued writes, in order per volume, while there is room.
    pub fn resume_throttled(&mut self, effects: &mut Effects) {
        let (mut from, mut is_full) = (0, false);
        while let Some(busy) = self.next_busy(from) {
            from = busy + 1;
            let at = usize::from(busy);
            let mut queue = std::mem::take(&mut self.volumes[at].dirt.throttled);
            while let Some(next) = queue.pop_front() {
                let request = &next.request;
                let span = self.checked_span(request);
                if span.is_ok_and(|span| self.room_for(&span) == Room::Later) {
                    queue.push_front(next);
                    break;
                }
                if !self.steps.has_room_for(self.blocks_of(request)) {
                    queue.push_front(next);
                    is_full = true;
                    break;
                }
                match next.place {
                    Some(place) => self.decide_in_line(place, next.request, effects),
                    None => self.decide(next.request, Turn::Again, effects),
                }
            }
            queue.append(&mut self.volumes[at].dirt.throttled);
            self.volumes[at].dirt.throttled = queue;
            if is_full {
                return effects.later(Rest::Throttled);
            }
        }
    }

    fn mark_dirty(&mut self, block: BlockId, now: Instant) {
        let dirt = self.dirt_mut(block.volume());
        let before = dirt.len();
        dirt.mark(block.index(), now);
        let fresh = dirt.len() - before;
        if let Some(write_back) = &mut self.write_back {
            write_back.dirty_blocks += fresh;
            if before == 0 {
                write_back.busy.insert(block.volume().0);
            }
        }
    }

    /// The first volume from this number on that has dirty blocks or queued writes.
    fn next_busy(&self, from: u16) -> Option<u16> {
        self.write_back.as_ref()?.next_busy(from)
    }

    /// A dirty block lost its slot: its data is kept beside the cache until the store has it.
    pub fn evict(&mut self, block: BlockId, slot: Slot) {
        let evicted_under = self.on_eviction != OnEviction::None;
        let evicted_under = evicted_under.then(|| self.generations.of(slot));
        if self.elsewhere.is_some() {
            let dirt = self.dirt_mut(block.volume());
            return dirt.lose_slot(block.index(), evicted_under);
        }
        // The last block of a growing volume may be longer by then.
        let length = if self.volumes[usize::from(block.volume().0)].grows {
            self.block_bytes as usize
        } else {
            self.block_span(block).length as usize
        };
        // It may stay for long, and is copied to be written.
        let data = IoBuf::packed_copy_of(&self.arena.frame(slot)[..length]);
        let dirt = self.dirt_mut(block.volume());
        dirt.evict(block.index(), data, evicted_under);
    }

    /// A block got a slot. Returns whether its data was beside the cache; it is then in the frame
    /// now.
    pub fn adopt(&mut self, block: BlockId, slot: Slot) -> bool {
        if !self.writes_back() {
            return false;
        }
        if self.elsewhere.is_some() {
            self.dirt_mut(block.volume()).regain_slot(block.index());
            return false;
        }
        let Some(data) = self.dirt_mut(block.volume()).adopt(block.index()) else {
            return false;
        };
        self.arena.frame_mut(slot)[..data.len()].copy_from_slice(data.as_slice());
        self.frames.set(slot, Frame::Ready);
        self.generations.landed(slot, generations::UNKNOWN);
        true
    }

    /// Adds the byte ranges of some more of the dirty blocks `from..end`: first and one past the
    /// last, ascending. Returns the block to continue with, if any are left.
    pub fn note_dirty_ranges(
        &mut self,
        volume: VolumeId,
        (from, end): (u64, u64),
        found: &mut Vec<(u64, u64)>,
    ) -> Option<u64> {
        let (bytes, left) = (self.block_bytes, self.steps.left());
        let dirty = self.dirt(volume).within(from..end, left);
        self.steps.count(dirty.len() as u64);
        found.extend(
            dirty
                .iter()
                .map(|index| (index * bytes, (index + 1) * bytes)),
        );
        let is_all = (dirty.len() as u64) < left;
        dirty
            .last()
            .map(|last| last + 1)
            .filter(|&next| !is_all && next < end)
    }

    /// The cache is about to shrink: applies the smaller limit of dirty blocks from now on. Returns
    /// the number of dirty blocks above it, which are being written.
    pub fn shrink_dirty(&mut self, capacity_blocks: u32) -> u64 {
        let Some(write_back) = &mut self.write_back else {
            return 0;
        };
        if capacity_blocks >= self.level.capacity() {
            return 0;
        }
        write_back.resize(capacity_blocks);
        write_back
            .dirty_blocks
            .saturating_sub(write_back.dirty_max_blocks)
    }

    /// Makes blocks due that are too old. Returns false if the lock has to be released before the
    /// rest.
    pub fn age_dirty(&mut self, now: Instant) -> bool {
        let Some(write_back) = &self.write_back else {
            return true;
        };
        let age_max = write_back.age_max();
        let mut from = 0;
        while let Some(busy) = self.next_busy(from) {
            from = busy + 1;
            if !self.dirt_mut(VolumeId(busy)).age(now, age_max) {
                return false;
            }
        }
        true
    }

    /// Panics unless the dirty blocks are consistent. For tests.
    pub fn audit_dirty(&self) {
        let Some(write_back) = &self.write_back else {
            return;
        };
        let mut dirty_blocks = 0;
        for (at, volume) in self.volumes.iter().enumerate() {
            volume.dirt.audit();
            dirty_blocks += volume.dirt.len();
            for index in volume.dirt.within(0..BlockId::INDEX_LIMIT, u64::MAX) {
                let block = BlockId::new(VolumeId(at as u16), index);
                let slot = self.level.find(block);
                assert_eq!(
                    slot.is_none() || self.elsewhere.is_some(),
                    self.unframed(block).is_some(),
                    "data of {block:?}"
                );
                if let Some(slot) = slot {
                    let is_here = self.frames.get(slot) == Frame::Ready;
                    assert!(is_here || self.elsewhere.is_some(), "dirty without data");
                    assert!(self.level.class_in(slot).has(Class::DIRTY), "not marked");
                }
            }
        }
        assert_eq!(
            dirty_blocks, write_back.dirty_blocks,
            "dirty blocks are miscounted"
        );
        for block in self.level.order() {
            let class = self.level.find(block).map(|slot| self.level.class_in(slot));
            let is_marked = class.is_some_and(|class| class.has(Class::DIRTY));
            assert_eq!(is_marked, self.is_dirty(block), "the mark of {block:?}");
        }
    }
}
