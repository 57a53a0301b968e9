//! What went through to the store, and the dirty blocks that it was about.

use crate::IoBuf;
use crate::engine::effects::Effects;
use crate::engine::flights::{Content, Write};
use crate::engine::state::State;
use futae_policy::BlockId;

impl State {
    /// A write, trim or zeroing that went through is over, and the store has it. What the cache
    /// holds of dirty blocks follows; those that it covers are clean.
    pub fn settle_through(&mut self, write: &Write, data: Option<&IoBuf>, effects: &mut Effects) {
        if !self.writes_back() {
            return;
        }
        let volume = write.span.volume;
        let (first, end) = self.block_range(&write.span);
        for index in self.dirt(volume).within(first..end) {
            let block = BlockId::new(volume, index);
            let of = self.block_span(block);
            let Some(part) = of.overlap(&write.span) else {
                continue;
            };
            if part == of && write.content != Content::Data {
                self.discard(block, effects);
                continue;
            }
            let range = (part.offset - of.offset) as usize..(part.end() - of.offset) as usize;
            let slot = self.level.find(block);
            let held = match slot {
                Some(slot) => Some(&mut self.arena.frame_mut(slot)[range]),
                None => {
                    let dirt = &mut self.volumes[usize::from(volume.0)].dirt;
                    let stray = dirt.stray_mut(index);
                    stray.map(|stray| &mut stray.as_mut_slice()[range])
                }
            };
            match (held, data, write.content) {
                (Some(held), Some(data), Content::Data) => {
                    let from = (part.offset - write.span.offset) as usize;
                    held.copy_from_slice(&data.as_slice()[from..from + held.len()]);
                }
                (Some(held), _, Content::Zeroes) => held.fill(0),
                _ => {}
            }
            if part == of
                && let Some((change, cleaned)) = self.dirt_mut(volume).settle(index)
            {
                self.note_change(volume, change, None, effects);
                self.clean(block, cleaned, effects);
            }
        }
        self.resume_throttled(effects);
    }

    /// Forgets a dirty block whose content nobody needs.
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
