//! Flushes: they wait for the blocks that were dirty at their arrival.

use crate::engine::dirt::Change;
use crate::engine::effects::Effects;
use crate::engine::flights::{Flush, FlushKind};
use crate::engine::state::State;
use crate::{Done, IoError};
use futae_policy::VolumeId;

impl State {
    /// Writes all dirty blocks of a volume. Then its flush is sent to the store or, if the data
    /// need not become stable, ends.
    pub fn flush_dirty(
        &mut self,
        volume: VolumeId,
        done: Done,
        kind: FlushKind,
        effects: &mut Effects,
    ) {
        let begun = self.losses(volume).now();
        let dirt = self.dirt_mut(volume);
        let flush = Flush {
            volume,
            done,
            stamp: dirt.stamp(),
            left: dirt.len(),
            error: match kind {
                // What could not be written then is dirty or has been written since. A client has yet to learn of it.
                FlushKind::Own => None,
                FlushKind::OfClient(_) | FlushKind::Settle => dirt.error.take(),
            },
            begun,
            kind,
        };
        dirt.hurry();
        let is_clean = flush.left == 0;
        let key = self.flushes.insert(flush);
        if is_clean {
            self.go_on_with_flush(key, effects);
        } else {
            self.dirt_mut(volume).flushes.push(key);
        }
    }

    /// A block's oldest missing write has changed: flushes that waited for it continue. Returns
    /// whether any did.
    pub fn note_change(
        &mut self,
        volume: VolumeId,
        change: Change,
        error: Option<&IoError>,
        effects: &mut Effects,
    ) -> bool {
        let waiting = &self.volumes[usize::from(volume.0)].dirt.flushes;
        if waiting.is_empty() {
            return false;
        }
        let mut is_any = false;
        for key in waiting.clone() {
            let flush = &mut self.flushes[key];
            if !change.frees(flush.stamp) {
                continue;
            }
            is_any = true;
            flush.left -= 1;
            if let Some(error) = error {
                flush.error.get_or_insert_with(|| error.clone());
            }
            if flush.left == 0 {
                self.dirt_mut(volume).flushes.retain(|&other| other != key);
                self.go_on_with_flush(key, effects);
            }
        }
        is_any
    }
}
