//! The second half of a flush, once the store has all writes that it covers.

use super::effects::Effects;
use super::flights::{Flush, FlushKind};
use super::flush_turns::FlushTurns;
use super::front::Engine;
use super::losses::Losses;
use super::state::State;
use super::ticket::Ticket;
use crate::{ClientId, Done, IoBuf, IoError, StoreOperation};
use futae_policy::VolumeId;

impl Engine {
    /// A flush of a client, or a write with FUA, has failed with this error, and the client is gone before it could learn of that.
    /// Those that connected after it learn of the failure by their next flush, and those that connect until one of them has. The
    /// caller calls [`leave`](Self::leave) afterwards: then it is still known when the client connected.
    pub fn pass_on_failure(&self, volume: VolumeId, client: ClientId, error: &IoError) {
        self.lock().losses(volume).pass_on(client, error);
    }

    /// Whether the next flush of a client fails because of an earlier failure.
    pub fn owes_failure(&self, volume: VolumeId, client: ClientId) -> bool {
        self.lock().losses(volume).are_owed_to(client)
    }
}

impl State {
    /// A client's flush, or one of the server's own, which has nobody as its `client`.
    pub fn flush(&mut self, volume: VolumeId, client: ClientId, done: Done, effects: &mut Effects) {
        let kind = match client == ClientId::NOBODY {
            true => FlushKind::Own,
            false => FlushKind::OfClient(client),
        };
        self.begin_flush(volume, done, kind, effects);
    }

    /// Writes all dirty blocks back, and leaves it to the caller to make the store's data stable.
    pub fn settle(&mut self, volume: VolumeId, done: Done, effects: &mut Effects) {
        self.begin_flush(volume, done, FlushKind::Settle, effects);
    }

    fn begin_flush(
        &mut self,
        volume: VolumeId,
        done: Done,
        kind: FlushKind,
        effects: &mut Effects,
    ) {
        if self.writes_back() {
            return self.flush_dirty(volume, done, kind, effects);
        }
        let begun = self.losses(volume).now();
        let key = self.flushes.insert(Flush {
            volume,
            done,
            stamp: 0,
            left: 0,
            error: None,
            begun,
            kind,
        });
        self.go_on_with_flush(key, effects);
    }

    /// The store has received all writes that a flush covers, or has refused some of them.
    pub fn go_on_with_flush(&mut self, key: usize, effects: &mut Effects) {
        let Flush { volume, kind, .. } = self.flushes[key];
        if kind == FlushKind::Settle {
            let flush = self.flushes.remove(key);
            let result = flush.error.map_or(Ok(IoBuf::new(0)), Err);
            return self.answer_flush(volume, flush.done, result, effects);
        }
        let is_own = kind == FlushKind::Own;
        let turns = self.flush_turns(volume);
        if turns.begin(is_own) {
            self.flush_store(key, effects);
        } else {
            turns.wait(key, is_own);
        }
    }

    fn flush_store(&mut self, key: usize, effects: &mut Effects) {
        let volume = self.flushes[key].volume;
        let sequence = self.next_sequence();
        effects.start(
            self.store(volume),
            sequence,
            StoreOperation::Flush,
            Ticket::Flush(key),
        );
    }

    /// The store has ended a flush.
    pub fn finish_flush(
        &mut self,
        key: usize,
        result: Result<IoBuf, IoError>,
        effects: &mut Effects,
    ) {
        let flush = self.flushes.remove(key);
        self.note_flushed(flush.volume, &result);
        let untold = match flush.kind {
            FlushKind::OfClient(client) => self.losses(flush.volume).take(client, flush.begun),
            FlushKind::Own | FlushKind::Settle => None,
        };
        self.end_flush_turn(flush.volume, effects);
        let result = flush.error.or(untold).map_or(result, Err);
        self.answer_flush(flush.volume, flush.done, result, effects);
    }

    fn answer_flush(
        &mut self,
        volume: VolumeId,
        done: Done,
        result: Result<IoBuf, IoError>,
        effects: &mut Effects,
    ) {
        if result.is_err() {
            self.note_error(volume);
        }
        effects.answer(done, result);
    }

    /// The store has ended a flush. By a failure it may report a loss, and does so once.
    pub fn note_flushed(&mut self, volume: VolumeId, result: &Result<IoBuf, IoError>) {
        if let Err(error) = result {
            self.losses(volume).note(error);
        }
    }

    /// The failures of a volume that clients have yet to learn of.
    pub fn losses(&mut self, volume: VolumeId) -> &mut Losses {
        &mut self.volumes[usize::from(volume.0)].losses
    }

    /// A flush of the store has ended: those that waited for it begin.
    pub fn end_flush_turn(&mut self, volume: VolumeId, effects: &mut Effects) {
        self.flush_turns(volume).end();
        while let Some(key) = self.flush_turns(volume).next() {
            self.flush_store(key, effects);
        }
    }

    fn flush_turns(&mut self, volume: VolumeId) -> &mut FlushTurns {
        &mut self.volumes[usize::from(volume.0)].flush_turns
    }
}
