//! A cache whose blocks are held by somebody else: the kernel's page cache of a mount. The level decides as always, on what it
//! hears of reads that never came here; no frame is used, and what is read goes through.

mod demote;
mod writing;

use super::effects::Effects;
use super::flights::Span;
use super::frames::Frame;
use super::front::Engine;
use super::keeper::{Elsewhere, Keeper};
use super::read::Reading;
use super::rest::Rest;
use super::state::State;
use super::steps::STEP_BLOCKS;
use crate::IoBuf;
use futae_policy::{AccessKind, BlockId, Class, Outcome, PolicySpec, Slot, VolumeId};
use std::sync::Arc;

impl Engine {
    /// Has somebody else hold the blocks, for good. To be called before the first request.
    pub fn keep_elsewhere(&self, keeper: Arc<dyn Keeper>) {
        let mut state = self.lock();
        let mut elsewhere = Elsewhere::new(keeper);
        elsewhere.spreads = !state.policy.takes_marks();
        state.elsewhere = Some(elsewhere);
    }

    /// Allows policies that decide by the order of hits where somebody else holds the blocks, and tells only how often each was hit:
    /// hits that are told together are then taken as evenly spread over the time since the last.
    pub fn approximate_hit_order(&self) {
        self.lock().approximates_order = true;
    }

    /// Whether hits that somebody else tells of are enough for a policy here.
    pub fn can_hear_for(&self, policy: &PolicySpec) -> bool {
        let state = self.lock();
        state.elsewhere.is_none() || state.approximates_order || policy.takes_counts()
    }

    /// The keeper holds blocks now whose data it was given ([`Keeper::put`]), or does not want them.
    pub fn hold(self: &Arc<Self>, blocks: &[BlockId]) {
        for some in blocks.chunks(STEP_BLOCKS as usize) {
            self.act(|state, _| {
                for &block in some {
                    state.steps.count(1);
                    state.note_data(block);
                }
            });
        }
    }

    /// Whether somebody else holds the blocks.
    pub fn is_kept_elsewhere(&self) -> bool {
        self.lock().elsewhere.is_some()
    }

    /// Decides on what the keeper saw. The keeper calls it now and then, so that its counts do not overflow; before each
    /// decision on a request it is done anyway.
    pub fn hear(self: &Arc<Self>) {
        self.act(|state, effects| state.hear(0, effects));
    }

    /// Takes those blocks off the list that are resident, or are being read or written.
    pub fn retain_unwanted(&self, blocks: &mut Vec<BlockId>) {
        let mut kept = Vec::with_capacity(blocks.len());
        for some in blocks.chunks(STEP_BLOCKS as usize) {
            kept.extend(self.lock().unwanted_of(some));
        }
        *blocks = kept;
    }

    /// The first resident blocks of a volume from `from` on, by their numbers, as many as one step may look at.
    pub fn resident_from(&self, volume: VolumeId, from: u64) -> Vec<u64> {
        let state = self.lock();
        let known = state.volumes.get(usize::from(volume.0));
        known.map_or_else(Vec::new, |known| {
            known.residents.within(from..u64::MAX, STEP_BLOCKS)
        })
    }

    /// Takes those blocks off the list that the keeper has not been given yet.
    pub fn retain_given(&self, blocks: &mut Vec<BlockId>) {
        for some in std::mem::take(blocks).chunks(STEP_BLOCKS as usize) {
            let state = self.lock();
            blocks.extend(some.iter().copied().filter(|&block| {
                let slot = state.level.find(block);
                slot.is_some_and(|slot| state.frames.get(slot) == Frame::Ready)
            }));
        }
    }

    /// Blocks resident now, but for those whose data nobody has read yet.
    pub fn resident_blocks(&self) -> u64 {
        let state = self.lock();
        u64::from(state.level.resident()).saturating_sub(state.frames.loading())
    }

    /// Bytes of blocks that may still become dirty, and of which there will be copies then.
    pub fn may_become_dirty_bytes(&self) -> u64 {
        let state = self.lock();
        let write_back = state.write_back.as_ref();
        let blocks = write_back.map_or(0, |known| {
            known.dirty_max_blocks.saturating_sub(known.dirty_blocks)
        });
        blocks * self.block_bytes
    }

    /// Drops blocks that the keeper does not hold. The keeper has dropped `unreported` pages without an event: at most that many
    /// of the blocks count as reclaimed. Returns how many did.
    pub fn forget(self: &Arc<Self>, blocks: &[BlockId], unreported: u64) -> u64 {
        let mut reclaimed = 0;
        for some in blocks.chunks(STEP_BLOCKS as usize) {
            self.act(|state, effects| {
                let before = reclaimed;
                for &block in some {
                    if state.is_inside(block) && state.note_loss(block, effects) {
                        reclaimed = unreported.min(reclaimed + 1);
                    } else {
                        state.steps.count(1);
                        state.invalidate(block);
                    }
                }
                if let Some(elsewhere) = &mut state.elsewhere {
                    elsewhere.reclaimed += reclaimed - before;
                }
            });
        }
        reclaimed
    }
}

impl State {
    /// Decides on what the keeper saw, as far as this step has room beside `reserved` blocks; the rest follows in the next ones.
    pub fn hear(&mut self, reserved: u64, effects: &mut Effects) {
        let Some(elsewhere) = &mut self.elsewhere else {
            return;
        };
        let mut news = std::mem::take(&mut elsewhere.news);
        if news.used.is_empty() && news.left.is_empty() {
            elsewhere.keeper.news(&mut news);
            if elsewhere.spreads {
                news.spread();
            }
        }
        let mut reclaimed = 0;
        while let Some(block) = news.left.pop() {
            reclaimed += u64::from(self.is_inside(block) && self.note_loss(block, effects));
            if self.steps.left() <= reserved {
                break;
            }
        }
        while self.steps.left() > reserved {
            let Some((block, times)) = news.used.pop() else {
                break;
            };
            if times > 1 {
                news.used.push((block, times - 1));
            }
            if self.is_inside(block) {
                self.offer_elsewhere(block, AccessKind::Read, Class::NORMAL, effects);
            }
        }
        if !news.used.is_empty() || !news.left.is_empty() {
            effects.later(Rest::News);
        }
        if let Some(elsewhere) = &mut self.elsewhere {
            elsewhere.reclaimed += reclaimed;
            elsewhere.news = news;
        }
    }

    /// The keeper may have lost a resident block. What its store does not have of it is here. Whether it has.
    fn note_loss(&mut self, block: BlockId, effects: &mut Effects) -> bool {
        let slot = self.level.find(block);
        // What it is still to be given it may have had before.
        let slot = slot.filter(|&slot| self.frames.get(slot) == Frame::Ready);
        let holds = |elsewhere: &Elsewhere| elsewhere.keeper.holds(block);
        let Some(slot) = slot.filter(|_| !self.elsewhere.as_ref().is_none_or(holds)) else {
            return false;
        };
        self.steps.count(1);
        if self.is_dirty(block) {
            self.evict(block, slot);
        } else {
            self.see_off_elsewhere(block, effects);
        }
        self.invalidate(block);
        true
    }

    /// Puts a block before the level; one that it does not want is let go. Whether it is resident then.
    pub fn offer_elsewhere(
        &mut self,
        block: BlockId,
        kind: AccessKind,
        marks: Class,
        effects: &mut Effects,
    ) -> bool {
        if self.is_unwatched() {
            return false;
        }
        let is_resident = self.offer_marked(block, kind, marks, effects) != Outcome::Bypassed;
        if is_resident {
            self.note_data(block);
        } else {
            self.let_go(block);
        }
        is_resident
    }

    /// The keeper has the data of a block, or gets it by the request that is being decided on.
    fn note_data(&mut self, block: BlockId) {
        let slot = self.level.find(block);
        let slot = slot.filter(|&slot| self.frames.get(slot) == Frame::Loading);
        if let Some(slot) = slot {
            self.frames.set(slot, Frame::Ready);
        }
    }

    /// Whether data of a block may be given to the keeper that nobody has asked for.
    pub fn may_put(&self, block: BlockId) -> bool {
        let takes = |elsewhere: &Elsewhere| elsewhere.keeper.takes(block);
        self.elsewhere.as_ref().is_none_or(takes) && !self.is_dirty(block)
    }

    /// Whether more may be loaded that nobody has asked for.
    pub fn has_room_to_put(&self) -> bool {
        let has_room = |elsewhere: &Elsewhere| elsewhere.keeper.has_room();
        self.elsewhere.as_ref().is_none_or(has_room)
    }

    /// Whether nothing may be decided on, since nobody sees what becomes of it.
    pub fn is_unwatched(&self) -> bool {
        let is_watching = |elsewhere: &Elsewhere| elsewhere.keeper.is_watching();
        !self.elsewhere.as_ref().is_none_or(is_watching)
    }

    /// Data of a resident block have come that were read for nobody, or for readers, to whom they go.
    pub fn put_elsewhere(&mut self, (block, slot): (BlockId, Slot), data: IoBuf, is_read: bool) {
        let Some(elsewhere) = &self.elsewhere else {
            return;
        };
        if is_read {
            self.frames.set(slot, Frame::Ready);
            return;
        }
        self.frames.set(slot, Frame::Loading);
        elsewhere.keeper.put(block, data);
    }

    /// Decides on a written block that is kept until the store has it, if it can be: all of it is written, or it is dirty, and
    /// so here already. Whether it is.
    pub fn place_kept(&mut self, block: BlockId, is_whole: bool, effects: &mut Effects) -> bool {
        let is_dirty = self.is_dirty(block);
        if is_whole || is_dirty {
            let write = AccessKind::Write;
            return self.offer_elsewhere(block, write, Class::DIRTY, effects) || is_dirty;
        }
        self.place_part(block, effects);
        false
    }

    /// Decides on a block of which a part is written, and whose other parts are not here.
    pub fn place_part(&mut self, block: BlockId, effects: &mut Effects) {
        if self.level.find(block).is_some() {
            self.offer_elsewhere(block, AccessKind::Write, Class::NORMAL, effects);
        } else {
            self.tally.write_around_blocks += 1;
            self.let_go(block);
        }
    }

    /// A dirty block was written with the data of `span`: where no frame has its data, it is kept beside the cache.
    pub fn hold_elsewhere(&mut self, block: BlockId, span: &Span, data: &IoBuf) {
        if self.elsewhere.is_none() {
            return;
        }
        let of = self.block_span(block);
        // The last block of a volume that grows may be a longer one by then.
        let length = if self.volumes[usize::from(block.volume().0)].grows {
            self.block_bytes
        } else {
            of.length
        };
        let new = || IoBuf::packed(length as usize);
        if let Some(held) = self.dirt_mut(block.volume()).hold(block.index(), new) {
            span.copy(data.as_slice(), &of, held.as_mut_slice());
        }
    }

    /// A block is not to be held, or not any more.
    pub fn let_go(&self, block: BlockId) {
        if let Some(elsewhere) = &self.elsewhere {
            elsewhere.keeper.let_go(block);
        }
    }

    /// A block of a read that came here: it is not where it is to be held, so it is read from the store in any case.
    pub fn read_elsewhere(
        &mut self,
        block: BlockId,
        is_decided: bool,
        reading: &mut Reading,
        effects: &mut Effects,
    ) {
        if !is_decided {
            self.offer_elsewhere(block, AccessKind::Read, Class::NORMAL, effects);
        }
        // What the store does not have yet is not read from there.
        let of = self.block_span(block);
        match self.unframed(block) {
            Some(data) => reading.copy(&of, data),
            None => self.fetch(block, None, reading),
        }
    }
}
