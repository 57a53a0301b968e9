//! Volumes that get other classes, with their resident blocks, in steps.

use super::front::Engine;
use super::state::State;
use futae_policy::{BlockId, Class, VolumeId};

/// A resident block and its last use.
type Used = (u64, BlockId);

impl Engine {
    /// Gives volumes other classes. Resident blocks that are not protected any more get theirs at once;
    /// those that are now, when they are next used, or at once if `at_once`: in steps, between which the cache
    /// goes on. A block that comes meanwhile comes with its new class, and of two calls for one volume the
    /// later one counts.
    pub fn set_classes(&self, classes: &[(VolumeId, Class)], at_once: bool) {
        let most = self.quiet_step(|state| state.steps.most() as usize);
        let mut changed = Vec::new();
        for part in classes.chunks(most) {
            self.quiet_step(|state| state.change_classes(part, at_once, &mut changed));
            self.state.give_way();
        }
        // All together in the order of their uses, so that they keep it where they move to.
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
    /// Notes which volumes' blocks are to follow at once.
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

    /// Notes some more of a volume's resident blocks; whether there are others.
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

    /// Gives blocks the classes that their volumes have now.
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
