//! Blocks that a policy asks for by itself: loaded in the background, and put before it again when
//! they have arrived.

use super::effects::Effects;
use super::flights::Flight;
use super::state::{Frame, State};
use crate::IoBuf;
use futae_policy::{AccessKind, BlockId, Outcome};

/// Bytes that are loaded at a time without anybody waiting for them; one block at least.
const PRELOAD_BYTES_MAX: u64 = 1 << 20;

impl State {
    /// Starts loading what the policy asks for, a little at a time. A block that cannot be loaded
    /// now is left out: the policy will ask again if it still matters.
    pub fn preload(&mut self, effects: &mut Effects) {
        let blocks_max = (PRELOAD_BYTES_MAX / self.block_bytes).max(1);
        while self.preloading < blocks_max {
            let Some(block) = self.level.review() else {
                return;
            };
            let inside = self
                .volumes
                .get(usize::from(block.volume().0))
                .is_some_and(|volume| block.index() < volume.size_bytes.div_ceil(self.block_bytes));
            if !inside || self.flight_of.contains_key(&block) {
                continue;
            }
            let span = self.block_span(block);
            if self.write_over(&span).is_some() {
                continue;
            }
            self.preloading += 1;
            self.tally.preload_reads += 1;
            let flight = Flight {
                span: Some(span),
                whole: true,
                preload: Some(block),
                ..Flight::default()
            };
            let key = self.flights.insert(flight);
            self.flight_of.insert(block, key);
            self.launch(&[key], effects);
        }
    }

    /// A block that the policy asked for is here: it decides again whether it still wants it.
    pub fn land_preload(&mut self, block: BlockId, data: Option<&IoBuf>, effects: &mut Effects) {
        self.preloading -= 1;
        let Some(data) = data else { return };
        if self.level.find(block).is_some() {
            return;
        }
        if let Outcome::Admitted { slot, .. } = self.offer(block, AccessKind::Preload, effects) {
            let frame = self.arena.frame_mut(slot);
            frame[..data.len()].copy_from_slice(data.as_slice());
            self.frames[slot.i()] = Frame::Ready;
        }
    }
}
