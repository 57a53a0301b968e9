//! The second half of a flush, once the store has all writes that it covers.

use super::effects::{Effects, Ticket};
use super::flights::Flush;
use super::state::State;
use crate::{Done, IoBuf, IoError, StoreOperation};
use futae_policy::VolumeId;

impl State {
    pub fn flush(&mut self, volume: VolumeId, done: Done, stable: bool, effects: &mut Effects) {
        if self.writes_back() {
            return self.flush_dirty(volume, done, stable, effects);
        }
        let key = self.flushes.insert(Flush {
            volume,
            done,
            stamp: 0,
            left: 0,
            error: None,
            is_stable: stable,
        });
        self.go_on_with_flush(key, effects);
    }

    /// The store has received all writes that a flush covers, or has refused some of them.
    pub fn go_on_with_flush(&mut self, key: usize, effects: &mut Effects) {
        let Flush {
            volume, is_stable, ..
        } = self.flushes[key];
        if !is_stable {
            return self.finish_flush(key, Ok(IoBuf::new(0)), effects);
        }
        let sequence = self.next_sequence();
        effects.start(
            self.store(volume),
            sequence,
            StoreOperation::Flush,
            Ticket::Flush(key),
        );
    }

    /// A flush has ended.
    pub fn finish_flush(
        &mut self,
        key: usize,
        result: Result<IoBuf, IoError>,
        effects: &mut Effects,
    ) {
        let flush = self.flushes.remove(key);
        let result = flush.error.map_or(result, Err);
        if result.is_err() {
            self.note_error(flush.volume);
        }
        effects.answer(flush.done, result);
    }
}
