//! State that survives a restart: saved and restored in steps, so that requests proceed meanwhile.

use super::effects::Effects;
use super::front::Engine;
use super::state::State;
use crate::WarmState;
use futae_policy::{BlockId, VolumeId};
use std::sync::Arc;

/// A resident block: the policy's rank of it, and its last use.
type Standing = (u64, u64, BlockId);

/// The position in a scan of the resident blocks: the volume, and its next block.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    volume: usize,
    index: u64,
}

impl Engine {
    /// The state that survives a restart. Scans the resident blocks in steps, between which
    /// requests proceed. A block that is inserted or evicted meanwhile may or may not be included.
    /// Each block is included once at most, with its rank at the time of its step. The history is
    /// that at the end of the scan.
    pub fn warm_state(&self) -> WarmState {
        WarmState {
            residents: self.standings(),
            history: self.quiet_step(|state| state.level.history()),
        }
    }

    /// The resident blocks, the safest first, as in [`warm_state`](Self::warm_state).
    pub(super) fn standings(&self) -> Vec<BlockId> {
        let (mut place, mut found) = (Place::default(), Vec::new());
        while self.quiet_step(|state| state.note_standings(&mut place, &mut found)) {
            self.state.give_way();
        }
        found.sort_unstable_by(|one: &Standing, other| other.cmp(one));
        found.into_iter().map(|(.., block)| block).collect()
    }

    /// Restores the state of an earlier cache over the same volumes, before the first request: the
    /// history at once, the blocks as their data is loaded. Blocks beyond the end of a volume are
    /// skipped. If there are too many blocks, the next victims are skipped.
    pub fn recall(self: &Arc<Self>, memory: &WarmState) {
        let (capacity, most) = self.quiet_step(|state| {
            let capacity = state.level.capacity() as usize;
            (capacity, state.steps.most() as usize)
        });
        for part in memory.history.chunks(most) {
            self.quiet_step(|state| {
                state.steps.count(part.len() as u64);
                state.level.recall(part);
            });
            self.state.give_way();
        }
        let kept = memory.residents.len().min(capacity);
        let mut parts: Vec<_> = memory.residents[..kept].rchunks(most).collect();
        let last = parts.pop().unwrap_or_default();
        for part in parts {
            self.act(|state, effects| state.restore(part, true, effects));
            self.state.give_way();
        }
        self.act(|state, effects| state.restore(last, false, effects));
    }

    /// Whether a block waits to be loaded in the background, or is being loaded.
    pub fn is_loading(&self) -> bool {
        self.quiet_step(|state| !state.loads.are_none())
    }
}

impl State {
    /// Adds the ranks of some more resident blocks. Returns whether others remain.
    fn note_standings(&mut self, place: &mut Place, found: &mut Vec<Standing>) -> bool {
        while let Some(volume) = self.volumes.get(place.volume) {
            let left = self.steps.left();
            let range = place.index..BlockId::INDEX_LIMIT;
            let indexes = volume.residents.within(range, left);
            self.steps.count(indexes.len() as u64);
            for &index in &indexes {
                let block = BlockId::new(VolumeId(place.volume as u16), index);
                if let Some(slot) = self.level.find(block) {
                    found.push((self.level.rank(slot), self.frames.last_use(slot), block));
                }
            }
            if indexes.len() as u64 == left {
                place.index = indexes.last().map_or(place.index, |last| last + 1);
                return true;
            }
            self.steps.count(1);
            *place = Place {
                volume: place.volume + 1,
                index: 0,
            };
        }
        false
    }

    /// Places blocks that were resident before a restart in free slots, the last one first. The
    /// block placed last is loaded first; nothing is loaded while `more` blocks are to come.
    fn restore(&mut self, blocks: &[BlockId], more: bool, effects: &mut Effects) {
        self.loads.hold(true);
        for &block in blocks.iter().rev() {
            let is_free = self.level.resident() < self.level.capacity();
            if is_free && self.is_inside(block) && self.level.find(block).is_none() {
                self.place_unasked(block, effects);
            } else {
                self.steps.count(1);
            }
        }
        self.loads.hold(more);
    }
}
