//! Which resident blocks the upper level holds, too.

use super::state::State;
use futae_policy::{AccessKind, BlockId, Slot};

impl State {
    /// The upper level got a resident block, or has reported its eviction.
    #[inline]
    pub fn note_holder(&mut self, slot: Slot, block: BlockId, kind: AccessKind) {
        let is_held = match kind {
            // A block that a keeper holds exists once.
            AccessKind::Read | AccessKind::Write => self.elsewhere.is_none(),
            AccessKind::Demotion | AccessKind::Notice => false,
            AccessKind::Preload => return,
        };
        if self.frames.set_held_above(slot, is_held) != is_held {
            let count = &mut self.volumes[usize::from(block.volume().0)].held_above_blocks;
            *count = count.wrapping_add_signed(if is_held { 1 } else { -1 });
        }
    }

    /// A block loses its slot: it is no longer in both levels.
    pub fn release(&mut self, slot: Slot, block: BlockId) {
        self.arena.unseal(slot);
        if self.frames.set_held_above(slot, false) {
            self.volumes[usize::from(block.volume().0)].held_above_blocks -= 1;
        }
    }
}
