//! Marks on stores that lack data. A volume with a guard keeps a write only while its mark is on stable
//! storage: after an unclean end the next server then knows that answered writes may be lost, and says so to
//! the first FLUSH, as a disk does that has lost its cache.
//!
//! ```text
//!           a write comes            durable
//! Absent ─────────────────▶ Setting ─────────▶ Present ◀───────────────┐ dirty again
//!    ▲                                            │ clean for a while  │
//!    │        durable                 flushed     ▼                    │
//!    └──────────────────── Clearing ◀───────── Flushing ───────────────┘
//! ```
//!
//! Writes are kept in `Present` and `Flushing`, and go through otherwise: nobody waits for the mark. It is made and
//! removed by a thread of its own, since both wait for a disk.

use super::Engine;
use super::effects::{Effects, Ticket};
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
/// After a mark could not be made: how long writes go through before it is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// At the end: how long a mark that is being made or removed is waited for.
const END_PATIENCE: Duration = Duration::from_secs(5);
const END_PAUSE: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Absent,
    Setting,
    Present,
    /// The store is flushed; the newest write when that began.
    Flushing(u64),
    Clearing,
}

/// What is known of one volume's mark.
pub struct Guard {
    mark: Arc<dyn UncleanMark>,
    phase: Phase,
    /// What an earlier end may have lost, until a client has been told.
    loss: Option<Arc<str>>,
    clean_since: Option<Instant>,
    retry_at: Option<Instant>,
}

/// Work on a mark, done without the cache's lock.
pub struct MarkWork {
    volume: VolumeId,
    mark: Arc<dyn UncleanMark>,
    sets: bool,
}

impl MarkWork {
    /// Has a thread do it.
    pub fn start(self, engine: &Arc<Engine>) {
        let (volume, sets, owner) = (self.volume, self.sets, Arc::clone(engine));
        let work = move || {
            let result = if self.sets {
                self.mark.set()
            } else {
                self.mark.clear()
            };
            owner.act(|state, _| state.marked(volume, sets, result));
        };
        let thread = std::thread::Builder::new().name("futae-mark".into());
        if let Err(error) = thread.spawn(work) {
            engine.lock().marked(volume, sets, Err(error));
        }
    }
}

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
        match guard.phase {
            Phase::Present | Phase::Flushing(_) => return true,
            Phase::Setting | Phase::Clearing => return false,
            Phase::Absent => {}
        }
        if guard.retry_at.is_none_or(|at| Instant::now() >= at) {
            guard.phase = Phase::Setting;
            let mark = Arc::clone(&guard.mark);
            let sets = true;
            effects.mark(MarkWork { volume, mark, sets });
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
        let guard = self.guard_mut(volume)?;
        let loss = guard.loss.take()?;
        if !writes_back && guard.phase == Phase::Present {
            // Nothing will ever be dirty here.
            guard.phase = Phase::Clearing;
            let mark = Arc::clone(&guard.mark);
            let sets = false;
            effects.mark(MarkWork { volume, mark, sets });
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
            let dirt = self.dirt(volume);
            let (stamp, is_clean) = (dirt.stamp(), self.is_clean(volume));
            let Some(guard) = self.guard_mut(volume) else {
                continue;
            };
            if guard.phase != Phase::Present || guard.loss.is_some() || !is_clean {
                guard.clean_since = None;
                continue;
            }
            let since = *guard.clean_since.get_or_insert(now);
            if now.saturating_duration_since(since) < clean_for {
                continue;
            }
            guard.phase = Phase::Flushing(stamp);
            let (store, sequence) = (self.store(volume), self.next_sequence());
            let flush = StoreOperation::Flush;
            effects.start(store, sequence, flush, Ticket::Mark(volume));
        }
    }

    fn is_clean(&self, volume: VolumeId) -> bool {
        let dirt = self.dirt(volume);
        dirt.len() == 0 && dirt.throttled.is_empty()
    }

    /// The flush before the removal of a mark is over. The mark stays if anything was written since.
    pub fn finish_clean(
        &mut self,
        volume: VolumeId,
        result: &Result<IoBuf, IoError>,
        effects: &mut Effects,
    ) {
        let (stamp, is_clean) = (self.dirt(volume).stamp(), self.is_clean(volume));
        let Some(guard) = self.guard_mut(volume) else {
            return;
        };
        guard.clean_since = None;
        if result.is_err() || guard.phase != Phase::Flushing(stamp) || !is_clean {
            guard.phase = Phase::Present;
            return;
        }
        guard.phase = Phase::Clearing;
        let mark = Arc::clone(&guard.mark);
        let sets = false;
        effects.mark(MarkWork { volume, mark, sets });
    }

    /// A mark was made or removed, or could not be.
    fn marked(&mut self, volume: VolumeId, sets: bool, result: io::Result<()>) {
        let Some(guard) = self.guard_mut(volume) else {
            return;
        };
        guard.phase = match (sets, &result) {
            (true, Ok(())) => Phase::Present,
            // What is left of it is replaced by the next one, or removed at the end.
            (true, Err(_)) | (false, _) => Phase::Absent,
        };
        guard.retry_at = None;
        if let Err(error) = result {
            guard.retry_at = Some(Instant::now() + RETRY_INTERVAL);
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
    /// Has a mark say while a volume has data that is not on stable storage. Writes are kept only while the mark
    /// is there. `loss`: the mark was found, left by an earlier end; the first FLUSH, or write with
    /// FUA, fails with this sentence. The mark then stays until that has happened.
    pub fn guard(&self, volume: VolumeId, mark: Arc<dyn UncleanMark>, loss: Option<String>) {
        let phase = match loss {
            Some(_) => Phase::Present,
            None => Phase::Absent,
        };
        let mut state = self.lock();
        if let Some(known) = state.volumes.get_mut(usize::from(volume.0)) {
            known.guard = Some(Box::new(Guard {
                mark,
                phase,
                loss: loss.map(Arc::from),
                clean_since: None,
                retry_at: None,
            }));
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
            let Some(guard) = state.guard_mut(volume) else {
                return Ok(());
            };
            let is_marked = guard.phase == Phase::Present || guard.retry_at.is_some();
            if matches!(guard.phase, Phase::Present | Phase::Absent) {
                if !is_marked || !is_clean || guard.loss.is_some() {
                    return Ok(());
                }
                guard.phase = Phase::Clearing;
                let mark = Arc::clone(&guard.mark);
                drop(state);
                return mark.clear();
            }
            drop(state);
            if begun.elapsed() > END_PATIENCE {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(END_PAUSE);
        }
    }
}

impl Guard {
    /// Whether an earlier end lost writes and no client knows.
    pub fn is_unclean(&self) -> bool {
        self.loss.is_some()
    }

    /// Whether the mark is on stable storage.
    pub fn is_present(&self) -> bool {
        matches!(self.phase, Phase::Present | Phase::Flushing(_))
    }
}
