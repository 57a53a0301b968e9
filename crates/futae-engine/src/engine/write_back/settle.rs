//! Updates dirty blocks after an operation that went to the store.

use crate::IoBuf;
use crate::engine::effects::Effects;
use crate::engine::flights::{Content, Span};
use crate::engine::state::State;
use futae_policy::BlockId;

impl State {
    /// A trim or zeroing has succeeded at the store: updates the dirty blocks of `span` from block
    /// `from` on. Returns the block to continue with if the step is full.
    pub fn settle_cleared(
        &mut self,
        span: &Span,
        content: Content,
        from: u64,
        effects: &mut Effects,
    ) -> Option<u64> {
        if !self.writes_back() {
            return None;
        }
        let (_, end) = self.block_range(span);
        let left = self.steps.left();
        let found = self.dirt(span.volume).within(from..end, left);
        self.steps.count(found.len() as u64);
        for &index in &found {
            let block = BlockId::new(span.volume, index);
            self.settle_block(block, span, (content, None), effects);
        }
        if (found.len() as u64) < left {
            return None;
        }
        Some(found.last().map_or(from, |last| last + 1)).filter(|&next| next < end)
    }

    /// A write, trim or zeroing of `span` has succeeded at the store. Updates the cached data of a
    /// dirty block; if the operation covers the block, the block is clean.
    pub fn settle_block(
        &mut self,
        block: BlockId,
        span: &Span,
        (content, data): (Content, Option<&IoBuf>),
        effects: &mut Effects,
    ) {
        let of = self.block_span(block);
        let Some(part) = of.overlap(span) else {
            return;
        };
        if part == of && content != Content::Data {
            return self.discard(block, effects);
        }
        let range = (part.offset - of.offset) as usize..(part.end() - of.offset) as usize;
        let slot = self.level.find(block);
        let held = match slot.filter(|_| self.elsewhere.is_none()) {
            Some(slot) => Some(&mut self.arena.frame_mut(slot)[range]),
            None => {
                let dirt = &mut self.volumes[usize::from(span.volume.0)].dirt;
                let unframed = dirt.unframed_mut(block.index());
                unframed.map(|unframed| &mut unframed.as_mut_slice()[range])
            }
        };
        match (held, data, content) {
            (Some(held), Some(data), Content::Data) => {
                let from = (part.offset - span.offset) as usize;
                held.copy_from_slice(&data.as_slice()[from..from + held.len()]);
            }
            // Nothing is promised of a trimmed range, but all reads of it are to agree, and what is written back with them.
            (Some(held), _, Content::Zeroes | Content::Anything) => held.fill(0),
            _ => {}
        }
        if part == of
            && let Some((change, cleaned)) = self.dirt_mut(span.volume).settle(block.index())
        {
            self.note_change(span.volume, change, None, effects);
            self.clean(block, cleaned, effects);
        }
    }

    /// Drops a dirty block whose content is no longer needed.
    pub fn discard(&mut self, block: BlockId, effects: &mut Effects) {
        let dirt = self.dirt_mut(block.volume());
        if let Some((change, _)) = dirt.settle(block.index()) {
            if let Some(write_back) = &mut self.write_back {
                write_back.dirty_blocks -= 1;
            }
            self.note_change(block.volume(), change, None, effects);
        }
        self.invalidate(block);
    }
}
