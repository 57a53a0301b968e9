//! What a restart need not lose: taken down and taken up in steps, so that requests go on meanwhile.

use super::effects::Effects;
use super::front::Engine;
use super::state::State;
use crate::WarmState;
use futae_policy::{BlockId, VolumeId};
use std::sync::Arc;

/// A resident block: the rank that the policy gives it, and its last use.
type Standing = (u64, u64, BlockId);

/// How far the resident blocks have been gone through: the volume, and the block of it that is next.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    volume: usize,
    index: u64,
}

impl Engine {
    /// What a restart need not lose. Goes through the resident blocks in steps, between which the cache goes on:
    /// a block that comes or goes meanwhile may be left out or named, each is named once, and each stands where
    /// it did when its step came. The history is that of the end.
    pub fn warm_state(&self) -> WarmState {
        WarmState {
            residents: self.standings(),
            history: self.quiet_step(|state| state.level.history()),
        }
    }

    /// The resident blocks, the safest first, as [`warm_state`](Self::warm_state) finds them.
    pub(super) fn standings(&self) -> Vec<BlockId> {
        let (mut place, mut found) = (Place::default(), Vec::new());
        while self.quiet_step(|state| state.note_standings(&mut place, &mut found)) {
            self.state.give_way();
        }
        found.sort_unstable_by(|one: &Standing, other| other.cmp(one));
        found.into_iter().map(|(.., block)| block).collect()
    }

    /// Takes up what an earlier cache over the same volumes remembered, before the first request:
    /// its history at once, its blocks as their data has been loaded. Blocks that are beyond a
    /// volume or for which there is no room are left out, those next to go first.
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
}

impl State {
    /// Notes where some more of the resident blocks stand; whether there are others.
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

    /// Places blocks that were resident before a restart, the last one first, in slots that are free. The
    /// last to be placed is the first to be loaded; nothing is loaded while `more` blocks are to come.
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
