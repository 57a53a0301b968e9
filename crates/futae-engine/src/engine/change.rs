//! Changes to a growing volume's store that bypass the cache. They run while nothing else is under
//! way in their range and no block in it is dirty.

use super::effects::Effects;
use super::flights::{Content, Run, Span, Write};
use super::front::Engine;
use super::rest::{Rest, Waiting};
use super::state::State;
use crate::request::{Change, Granted};
use crate::{ClientId, IoBuf, IoError, IoErrorKind, Operation, Request, StoreDone};
use futae_policy::VolumeId;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

impl Engine {
    /// Runs `work`, which bypasses the cache to change bytes `offset..offset + length` of a growing
    /// volume's store, or finds out how they have changed. Dirty blocks in the range are written
    /// back first. Nothing else is under way in the range while `work` runs. Afterwards the cache
    /// forgets the blocks of the range and asks the store for its size. This function blocks, so a
    /// store must not call it. `work` must not wait for requests of the volume, wherever: they may
    /// stand behind one that waits for the change.
    ///
    /// # Errors
    ///
    /// A dirty block could not be written back; it stays dirty, and `work` has not run.
    pub fn change<T>(
        self: &Arc<Self>,
        volume: VolumeId,
        offset: u64,
        length: u64,
        work: impl FnOnce() -> T,
    ) -> Result<T, IoError> {
        self.exclusively(volume, (offset, length), None, None, work)
    }

    /// As [`change`](Self::change), but waits at most `timeout` for what is under way in the range.
    ///
    /// # Errors
    ///
    /// As [`change`](Self::change); or the time is over, and `work` has not run.
    pub(super) fn change_within<T>(
        self: &Arc<Self>,
        volume: VolumeId,
        (offset, length): (u64, u64),
        timeout: Duration,
        work: impl FnOnce() -> T,
    ) -> Result<T, IoError> {
        self.exclusively(volume, (offset, length), None, Some(timeout), work)
    }

    /// As [`change`](Self::change), for work that changes only the size of the volume's store.
    /// Dirty data beyond a lower size is not written back: it is dropped once the store ends before
    /// it.
    ///
    /// # Errors
    ///
    /// As [`change`](Self::change).
    pub fn change_size<T>(
        self: &Arc<Self>,
        volume: VolumeId,
        size_bytes: u64,
        work: impl FnOnce() -> T,
    ) -> Result<T, IoError> {
        let range = (size_bytes, u64::MAX);
        self.exclusively(volume, range, Some(size_bytes), None, work)
    }

    fn exclusively<T>(
        self: &Arc<Self>,
        volume: VolumeId,
        (offset, length): (u64, u64),
        size_bytes: Option<u64>,
        timeout: Option<Duration>,
        work: impl FnOnce() -> T,
    ) -> Result<T, IoError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        // Locked while the change is granted or given up.
        let is_given_up = Arc::new(Mutex::new(false));
        let (given_up, engine) = (Arc::clone(&is_given_up), Arc::downgrade(self));
        let granted: Granted = Box::new(move |key| {
            let given_up = given_up.lock().unwrap_or_else(PoisonError::into_inner);
            if !*given_up {
                // The receiver waits below.
                let _ = sender.send(key);
                return;
            }
            drop(given_up);
            if let (Ok(key), Some(engine)) = (key, engine.upgrade()) {
                drop(Changing { engine, key });
            }
        });
        let change = Change {
            offset,
            length,
            size_bytes,
            granted,
        };
        self.submit(Request {
            volume,
            client: ClientId::NOBODY,
            sequence: 0,
            operation: Operation::Change(change),
            done: Box::new(drop),
        });
        let answer = match timeout {
            None => receiver.recv().ok(),
            Some(timeout) => match receiver.recv_timeout(timeout) {
                Err(RecvTimeoutError::Timeout) => {
                    *is_given_up.lock().unwrap_or_else(PoisonError::into_inner) = true;
                    let late = receiver.try_recv();
                    let message = "its store does not answer";
                    let error = || Err(IoError::new(IoErrorKind::Store, message));
                    Some(late.unwrap_or_else(|_| error()))
                }
                answer => answer.ok(),
            },
        };
        // Without an answer the volume does not exist, so no other work can conflict.
        let key = answer.transpose()?;
        let _changing = key.map(|key| Changing {
            engine: Arc::clone(self),
            key,
        });
        Ok(work())
    }
}

/// Ends the change when dropped, even if its work panics.
struct Changing {
    engine: Arc<Engine>,
    key: usize,
}

impl Drop for Changing {
    fn drop(&mut self) {
        let key = self.key;
        self.engine
            .act(|state, effects| state.end_change(key, effects));
    }
}

impl State {
    pub fn begin_change(&mut self, request: Request, effects: &mut Effects) {
        let volume = request.volume;
        let Operation::Change(change) = &request.operation else {
            return;
        };
        let size = self.volumes[usize::from(volume.0)].size_bytes;
        let (offset, end) = match change.size_bytes {
            Some(new) => (new.min(size), u64::MAX),
            None => (change.offset, change.offset.saturating_add(change.length)),
        };
        let blocks = self.in_blocks(volume, offset, offset, end);
        if let Some(awaited) = self.under_way.before_writing(&blocks) {
            return self.wait(awaited, blocks, request);
        }
        let Operation::Change(change) = request.operation else {
            return;
        };
        let cuts = change.size_bytes.is_some_and(|new| new < size);
        let write = Write {
            span: blocks,
            blocks,
            content: Content::Anything,
            has_begun: cuts,
            done: request.done,
            parked: Vec::new(),
        };
        // No other work begins in the range from here on, so its dirty blocks only decrease.
        let waiting = Waiting {
            key: self.under_way.add_write(write),
            blocks,
            cuts,
            granted: change.granted,
        };
        if self.is_held_up(&waiting) {
            if !cuts {
                self.dirt_mut(volume).hurry();
            }
            self.changes.push(waiting);
        } else {
            self.begin_grant(waiting, effects);
        }
    }

    /// Whether a change has to wait for write-backs.
    fn is_held_up(&self, change: &Waiting) -> bool {
        if !self.writes_back() {
            return false;
        }
        let (first, end) = self.block_range(&change.blocks);
        let is_dirty = || {
            !self
                .dirt(change.blocks.volume)
                .within(first..end, 1)
                .is_empty()
        };
        self.under_way.run_over(&change.blocks).is_some() || (!change.cuts && is_dirty())
    }

    /// Called when nothing else is under way in the range and no block in it is dirty.
    fn begin_grant(&mut self, change: Waiting, effects: &mut Effects) {
        self.under_way.writes[change.key].has_begun = true;
        let first = self.block_range(&change.blocks).0;
        self.grant(change, first, effects);
    }

    /// Drops the blocks of a change's range from block `from` on, then lets the change run.
    pub fn grant(&mut self, change: Waiting, from: u64, effects: &mut Effects) {
        let (key, blocks) = (change.key, change.blocks);
        let size = self.volumes[usize::from(blocks.volume.0)].size_bytes;
        let known = Span {
            length: size.saturating_sub(blocks.offset).min(blocks.length),
            ..blocks
        };
        if let Some(next) = self.invalidate_some(&known, from) {
            return effects.later(Rest::Grant(change, next));
        }
        let granted = change.granted;
        let granted: StoreDone = Box::new(move |_| granted(Ok(key)));
        effects.answer(granted, Ok(IoBuf::new(0)));
    }

    /// A write-back has ended: changes that waited for it continue, or get its error.
    pub fn resume_changes(&mut self, run: &Run, error: Option<&IoError>, effects: &mut Effects) {
        for change in std::mem::take(&mut self.changes) {
            let failed = error.filter(|_| change.blocks.overlap(&run.span).is_some());
            match failed {
                Some(error) if !change.cuts => {
                    let (error, granted) = (error.clone(), change.granted);
                    let told: StoreDone = Box::new(move |_| granted(Err(error)));
                    effects.answer(told, Ok(IoBuf::new(0)));
                    self.leave_change(change.key, effects);
                }
                _ if self.is_held_up(&change) => self.changes.push(change),
                _ => self.begin_grant(change, effects),
            }
        }
    }

    /// The change's work has run.
    pub fn end_change(&mut self, key: usize, effects: &mut Effects) {
        let volume = self.under_way.writes[key].span.volume;
        if self.settle_failure(volume, effects) {
            self.leave_change(key, effects);
        } else {
            effects.later(Rest::Changed(key));
        }
    }

    fn leave_change(&mut self, key: usize, effects: &mut Effects) {
        let write = self.under_way.remove_write(key);
        // Dirty blocks may have been cut off.
        self.resume_throttled(effects);
        effects.answer(write.done, Ok(IoBuf::new(0)));
        self.go_on_parked(write.parked, effects);
    }
}
