//! Unclean marks on stores, set and removed as their [guards](super::mark_guard) decide.

use super::effects::Effects;
use super::front::Engine;
use super::mark_guard::{AtEnd, Guard, MarkWork};
use super::state::State;
use super::ticket::Ticket;
use crate::{ClientId, IoBuf, IoError, IoErrorKind, StoreOperation, UncleanMark};
use futae_policy::VolumeId;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::warn;

/// How long a volume must be clean before its mark is removed, at most; less if blocks may be dirty
/// for a shorter time. A writer that flushes often thus does not pay for a new mark each time.
const CLEAN_FOR_MAX: Duration = Duration::from_secs(1);
/// At the end, how long to wait for a mark that is being set or removed.
const END_TIMEOUT: Duration = Duration::from_secs(5);
const END_PAUSE: Duration = Duration::from_millis(5);

impl State {
    fn guard_mut(&mut self, volume: VolumeId) -> Option<&mut Guard> {
        let known = self.volumes.get_mut(usize::from(volume.0))?;
        known.guard.as_deref_mut()
    }

    /// Whether a volume's mark allows a write to be kept. Starts to set the mark if it is absent.
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

    /// The failure by which a client of a volume learns that an earlier end lost writes; the other clients that are connected
    /// learn of it by [`Self::losses`]. Only a client's FLUSH fails because of it.
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
            "{name}: the first FLUSH of each connected client fails, once, so that it learns of this: {loss}"
        );
        let error = IoError::new(IoErrorKind::Store, &*loss);
        let losses = self.losses(volume);
        losses.note(&error);
        losses.take(client, losses.now())
    }

    /// Starts to remove the marks of volumes that have been clean for a while, after a flush.
    pub fn age_marks(&mut self, now: Instant, effects: &mut Effects) {
        let Some(write_back) = &self.write_back else {
            return;
        };
        let clean_for = write_back.age_max().min(CLEAN_FOR_MAX);
        for at in 0..self.guarded.len() {
            let volume = self.guarded[at];
            let (stamp, is_clean) = (self.dirt(volume).stamp(), self.is_clean(volume));
            let known = &mut self.volumes[usize::from(volume.0)];
            let (guard, turns) = (known.guard.as_mut(), &mut known.flush_turns);
            // While another flush is under way, a later look is early enough.
            let is_old = turns.is_idle()
                && guard.is_some_and(|guard| guard.age(now, is_clean, stamp, clean_for));
            if is_old && turns.begin(true) {
                let (store, sequence) = (self.store(volume), self.next_sequence());
                let flush = StoreOperation::Flush;
                effects.start(store, sequence, flush, Ticket::Mark(volume));
            }
        }
    }

    /// Whether all that was written is in the store, as far as is known.
    fn is_clean(&self, volume: VolumeId) -> bool {
        let dirt = self.dirt(volume);
        let may_have_lost = self.volumes[usize::from(volume.0)].losses.is_unheard();
        dirt.len() == 0 && dirt.throttled.is_empty() && !may_have_lost
    }

    /// The flush before the removal of a mark has ended.
    pub fn finish_clean(
        &mut self,
        volume: VolumeId,
        result: &Result<IoBuf, IoError>,
        effects: &mut Effects,
    ) {
        self.note_flushed(volume, result);
        self.end_flush_turn(volume, effects);
        let (stamp, is_clean) = (self.dirt(volume).stamp(), self.is_clean(volume));
        let guard = self.guard_mut(volume);
        if let Some(work) = guard.and_then(|guard| guard.flushed(result.is_ok(), is_clean, stamp)) {
            effects.mark(work);
        }
    }

    /// A mark was set or removed, or the attempt failed.
    fn marked(
        &mut self,
        volume: VolumeId,
        sets: bool,
        left: Option<String>,
        result: io::Result<()>,
    ) {
        let now = self.world.now();
        let Some(guard) = self.guard_mut(volume) else {
            return;
        };
        if let Some(loss) = left {
            guard.lost(loss);
        }
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
    /// Sets or removes a mark on a thread of its own.
    pub(super) fn work_on(self: &Arc<Self>, work: MarkWork) {
        let (volume, sets, owner) = (work.volume, work.sets, Arc::clone(self));
        let work = move || {
            let left = if sets { work.mark.left() } else { None };
            let result = if sets {
                work.mark.set()
            } else {
                work.mark.clear()
            };
            owner.act(|state, _| state.marked(volume, sets, left, result));
        };
        if let Err(error) = self.world.apart("futae-mark", Box::new(work)) {
            self.lock().marked(volume, sets, None, Err(error));
        }
    }

    /// Attaches an unclean mark, which is set while the volume has data that is not on stable
    /// storage. Writes are kept only while the mark is set. `loss`: an earlier end left the mark;
    /// the first FLUSH, or write with FUA, fails with this sentence, and the mark stays until then.
    pub fn guard(&self, volume: VolumeId, mark: Arc<dyn UncleanMark>, loss: Option<String>) {
        let mut state = self.lock();
        if let Some(known) = state.volumes.get_mut(usize::from(volume.0)) {
            known.guard = Some(Box::new(Guard::new(volume, mark, loss)));
            state.guarded.push(volume);
        }
    }

    /// After the last successful FLUSH, removes the mark of a clean volume, unless no client has
    /// been informed of an earlier loss yet. Waits for the disk.
    ///
    /// # Errors
    ///
    /// The mark cannot be removed; the next server will consider this end unclean.
    pub fn end_clean(&self, volume: VolumeId) -> io::Result<()> {
        let begun = Instant::now();
        loop {
            let mut state = self.lock();
            let is_clean = state.is_clean(volume);
            let at_end = state.guard_mut(volume).map(|guard| guard.end(is_clean));
            drop(state);
            match at_end {
                None | Some(AtEnd::Leave) => return Ok(()),
                Some(AtEnd::Clear(mark)) => {
                    let result = mark.clear();
                    // An export that cannot be removed goes on.
                    let mut state = self.lock();
                    let now = state.world.now();
                    if let Some(guard) = state.guard_mut(volume) {
                        guard.worked(false, result.is_ok(), now);
                    }
                    return result;
                }
                Some(AtEnd::Wait) if begun.elapsed() > END_TIMEOUT => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Some(AtEnd::Wait) => std::thread::sleep(END_PAUSE),
            }
        }
    }
}
