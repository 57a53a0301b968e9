//! Marks on stores that lack data, made and removed as their [guards](super::mark_guard) say.

use super::effects::{Effects, Ticket};
use super::front::Engine;
use super::mark_guard::{AtEnd, Guard, MarkWork};
use super::state::State;
use crate::{ClientId, IoBuf, IoError, IoErrorKind, StoreOperation, UncleanMark};
use futae_policy::VolumeId;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::warn;

/// How long nothing is dirty at most before the mark is removed, or as long as a block may be dirty: a writer that
/// flushes often does not pay for a new mark each time.
const CLEAN_FOR_MAX: Duration = Duration::from_secs(1);
/// At the end: how long a mark that is being made or removed is waited for.
const END_PATIENCE: Duration = Duration::from_secs(5);
const END_PAUSE: Duration = Duration::from_millis(5);

impl State {
    fn guard_mut(&mut self, volume: VolumeId) -> Option<&mut Guard> {
        let known = self.volumes.get_mut(usize::from(volume.0))?;
        known.guard.as_deref_mut()
    }

    /// Whether a write to a volume may be kept as far as its mark goes. Has the mark made if there is none.
    pub fn is_marked(&mut self, volume: VolumeId, effects: &mut Effects) -> bool {
        if !self.writes_back() {
            return true;
        }
        let Some(guard) = self.guard_mut(volume) else {
            return true;
        };
        if guard.is_present() {
            return true;
        }
        let now = self.world.now();
        let guard = self.guard_mut(volume);
        if let Some(work) = guard.and_then(|guard| guard.want(now)) {
            effects.mark(work);
        }
        false
    }

    /// The one failure by which clients of a volume learn that an earlier end lost writes. A FLUSH
    /// that is no client's does not fail because of it.
    pub fn take_loss(
        &mut self,
        client: ClientId,
        volume: VolumeId,
        effects: &mut Effects,
    ) -> Option<IoError> {
        if client == ClientId::NOBODY {
            return None;
        }
        let writes_back = self.writes_back();
        let (loss, work) = self.guard_mut(volume)?.take_loss(writes_back)?;
        if let Some(work) = work {
            effects.mark(work);
        }
        self.note_error(volume);
        let name = &self.volumes[usize::from(volume.0)].name;
        warn!(
            volume = name,
            "{name}: a FLUSH fails, once, so that its client learns of this: {loss}"
        );
        Some(IoError::new(IoErrorKind::Store, &*loss))
    }

    /// Time has passed: marks of volumes that have been clean for a while go, after a flush.
    pub fn age_marks(&mut self, now: Instant, effects: &mut Effects) {
        let Some(write_back) = &self.write_back else {
            return;
        };
        let clean_for = write_back.age_max().min(CLEAN_FOR_MAX);
        for at in 0..self.guarded.len() {
            let volume = self.guarded[at];
            let (stamp, is_clean) = (self.dirt(volume).stamp(), self.is_clean(volume));
            let guard = self.guard_mut(volume);
            if guard.is_some_and(|guard| guard.age(now, is_clean, stamp, clean_for)) {
                let (store, sequence) = (self.store(volume), self.next_sequence());
                let flush = StoreOperation::Flush;
                effects.start(store, sequence, flush, Ticket::Mark(volume));
            }
        }
    }

    fn is_clean(&self, volume: VolumeId) -> bool {
        let dirt = self.dirt(volume);
        dirt.len() == 0 && dirt.throttled.is_empty()
    }

    /// The flush before the removal of a mark is over.
    pub fn finish_clean(
        &mut self,
        volume: VolumeId,
        result: &Result<IoBuf, IoError>,
        effects: &mut Effects,
    ) {
        let (stamp, is_clean) = (self.dirt(volume).stamp(), self.is_clean(volume));
        let guard = self.guard_mut(volume);
        if let Some(work) = guard.and_then(|guard| guard.flushed(result.is_ok(), is_clean, stamp)) {
            effects.mark(work);
        }
    }

    /// A mark was made or removed, or could not be.
    fn marked(&mut self, volume: VolumeId, sets: bool, result: io::Result<()>) {
        let now = self.world.now();
        let Some(guard) = self.guard_mut(volume) else {
            return;
        };
        guard.worked(sets, result.is_ok(), now);
        if let Err(error) = result {
            let name = &self.volumes[usize::from(volume.0)].name;
            let what = if sets { "made" } else { "removed" };
            warn!(
                volume = name,
                "{name}: its unclean mark cannot be {what}: {error}"
            );
            self.note_error(volume);
        }
    }
}

impl Engine {
    /// Has a thread make or remove a mark.
    pub(super) fn work_on(self: &Arc<Self>, work: MarkWork) {
        let (volume, sets, owner) = (work.volume, work.sets, Arc::clone(self));
        let work = move || {
            let result = if sets {
                work.mark.set()
            } else {
                work.mark.clear()
            };
            owner.act(|state, _| state.marked(volume, sets, result));
        };
        if let Err(error) = self.world.apart("futae-mark", Box::new(work)) {
            self.lock().marked(volume, sets, Err(error));
        }
    }

    /// Has a mark say while a volume has data that is not on stable storage. Writes are kept only while the mark
    /// is there. `loss`: the mark was found, left by an earlier end; the first FLUSH, or write with
    /// FUA, fails with this sentence. The mark then stays until that has happened.
    pub fn guard(&self, volume: VolumeId, mark: Arc<dyn UncleanMark>, loss: Option<String>) {
        let mut state = self.lock();
        if let Some(known) = state.volumes.get_mut(usize::from(volume.0)) {
            known.guard = Some(Box::new(Guard::new(volume, mark, loss)));
            state.guarded.push(volume);
        }
    }

    /// After the last FLUSH has ended well: removes the mark of a volume that is clean, unless no client has
    /// heard of an earlier loss yet. Waits for the disk.
    ///
    /// # Errors
    ///
    /// The mark cannot be removed; the next server will take this end for an unclean one.
    pub fn end_clean(&self, volume: VolumeId) -> io::Result<()> {
        let begun = Instant::now();
        loop {
            let mut state = self.lock();
            let is_clean = state.is_clean(volume);
            let at_end = state.guard_mut(volume).map(|guard| guard.end(is_clean));
            drop(state);
            match at_end {
                None | Some(AtEnd::Leave) => return Ok(()),
                Some(AtEnd::Clear(mark)) => return mark.clear(),
                Some(AtEnd::Wait) if begun.elapsed() > END_PATIENCE => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Some(AtEnd::Wait) => std::thread::sleep(END_PAUSE),
            }
        }
    }
}
