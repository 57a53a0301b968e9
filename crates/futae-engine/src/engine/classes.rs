//! Changes the classes of volumes and of their resident blocks, in steps.

use super::front::Engine;
use super::state::State;
use futae_policy::{BlockId, Class, VolumeId};

/// A resident block and its last use.
type Used = (u64, BlockId);

impl Engine {
    /// Changes the classes of volumes. Resident blocks that lose their protection change class at
    /// once. Other resident blocks change class at their next use, or at once if `at_once` is set.
    /// The work is done in steps, between which other requests proceed. A block inserted meanwhile
    /// has its new class. If a volume is changed twice, the later call takes effect.
    pub fn set_classes(&self, classes: &[(VolumeId, Class)], at_once: bool) {
        let most = self.quiet_step(|state| state.steps.most() as usize);
        let mut changed = Vec::new();
        for part in classes.chunks(most) {
            self.quiet_step(|state| state.change_classes(part, at_once, &mut changed));
            self.state.give_way();
        }
        // All blocks in the order of their uses, so that they keep this order in their new class.
        let mut used = Vec::new();
        for &(volume, _) in &changed {
            let mut from = 0;
            while self.quiet_step(|state| state.note_uses(volume, &mut from, &mut used)) {
                self.state.give_way();
            }
        }
        used.sort_unstable();
        for part in used.chunks(most) {
            self.quiet_step(|state| state.take_over_classes(part));
            self.state.give_way();
        }
    }
}

impl State {
    /// Records the volumes whose blocks change class at once.
    fn change_classes(
        &mut self,
        classes: &[(VolumeId, Class)],
        at_once: bool,
        changed: &mut Vec<(VolumeId, Class)>,
    ) {
        self.steps.count(classes.len() as u64);
        for &(volume, class) in classes {
            let Some(known) = self.volumes.get_mut(usize::from(volume.0)) else {
                continue;
            };
            let before = std::mem::replace(&mut known.class, class);
            if before != class && (at_once || !class.has(Class::PROTECTED)) {
                changed.push((volume, class));
            }
        }
    }

    /// Adds some more of a volume's resident blocks. Returns whether others remain.
    fn note_uses(&mut self, volume: VolumeId, from: &mut u64, used: &mut Vec<Used>) -> bool {
        let left = self.steps.left();
        let residents = &self.volumes[usize::from(volume.0)].residents;
        let indexes = residents.within(*from..BlockId::INDEX_LIMIT, left);
        self.steps.count(indexes.len() as u64);
        for &index in &indexes {
            let block = BlockId::new(volume, index);
            if let Some(slot) = self.level.find(block) {
                used.push((self.frames.last_use(slot), block));
            }
        }
        *from = indexes.last().map_or(*from, |last| last + 1);
        indexes.len() as u64 == left
    }

    /// Gives the blocks the current classes of their volumes.
    fn take_over_classes(&mut self, blocks: &[Used]) {
        self.steps.count(blocks.len() as u64);
        for &(_, block) in blocks {
            let mut class = self.volumes[usize::from(block.volume().0)].class;
            if self.is_dirty(block) {
                class = class.with(Class::DIRTY);
            }
            let slot = self.level.find(block);
            if slot.is_some_and(|slot| self.level.class_in(slot) != class) {
                self.level.reclass_at_once(block, class);
            }
        }
    }
}
