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

use crate::UncleanMark;
use futae_policy::VolumeId;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After a mark could not be made: how long writes go through before it is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Absent,
    Setting,
    Present,
    /// The store is flushed; the newest write when that began.
    Flushing(u64),
    Clearing,
}

/// What is known of one volume's mark. It says what to do; others do it.
pub struct Guard {
    volume: VolumeId,
    mark: Arc<dyn UncleanMark>,
    phase: Phase,
    /// What an earlier end may have lost, until a client has been told.
    loss: Option<Arc<str>>,
    clean_since: Option<Instant>,
    retry_at: Option<Instant>,
}

/// Work on a mark, done without the cache's lock.
pub struct MarkWork {
    pub volume: VolumeId,
    pub mark: Arc<dyn UncleanMark>,
    /// Whether it is made; otherwise it is removed.
    pub sets: bool,
}

/// What to do with a mark at the end.
pub enum AtEnd {
    /// It stays as it is.
    Leave,
    /// It is removed.
    Clear(Arc<dyn UncleanMark>),
    /// Somebody is at work on it.
    Wait,
}

impl Guard {
    /// A mark that is not there; or, with a `loss`, one that an earlier end has left.
    pub fn new(volume: VolumeId, mark: Arc<dyn UncleanMark>, loss: Option<String>) -> Self {
        let phase = match loss {
            Some(_) => Phase::Present,
            None => Phase::Absent,
        };
        Self {
            volume,
            mark,
            phase,
            loss: loss.map(Arc::from),
            clean_since: None,
            retry_at: None,
        }
    }

    /// Whether an earlier end lost writes and no client knows.
    pub fn is_unclean(&self) -> bool {
        self.loss.is_some()
    }

    /// Whether the mark is on stable storage, so that writes may be kept.
    pub fn is_present(&self) -> bool {
        matches!(self.phase, Phase::Present | Phase::Flushing(_))
    }

    fn work(&self, sets: bool) -> MarkWork {
        MarkWork {
            volume: self.volume,
            mark: Arc::clone(&self.mark),
            sets,
        }
    }

    /// A write would be kept if the mark were there.
    pub fn want(&mut self, now: Instant) -> Option<MarkWork> {
        let may_try = self.retry_at.is_none_or(|at| now >= at);
        if self.phase != Phase::Absent || !may_try {
            return None;
        }
        self.phase = Phase::Setting;
        Some(self.work(true))
    }

    /// A client is told of what an earlier end has lost. Where nothing will ever be dirty the mark goes with that.
    pub fn take_loss(&mut self, writes_back: bool) -> Option<(Arc<str>, Option<MarkWork>)> {
        let loss = self.loss.take()?;
        if writes_back || self.phase != Phase::Present {
            return Some((loss, None));
        }
        self.phase = Phase::Clearing;
        Some((loss, Some(self.work(false))))
    }

    /// Time has passed: whether the volume has been clean for so long that its store is to be flushed and the mark
    /// removed. `stamp` is that of the newest write.
    pub fn age(&mut self, now: Instant, is_clean: bool, stamp: u64, clean_for: Duration) -> bool {
        if self.phase != Phase::Present || self.loss.is_some() || !is_clean {
            self.clean_since = None;
            return false;
        }
        let since = *self.clean_since.get_or_insert(now);
        if now.saturating_duration_since(since) < clean_for {
            return false;
        }
        self.phase = Phase::Flushing(stamp);
        true
    }

    /// The flush before the removal is over. The mark stays if anything was written since.
    pub fn flushed(&mut self, is_ok: bool, is_clean: bool, stamp: u64) -> Option<MarkWork> {
        self.clean_since = None;
        if !is_ok || self.phase != Phase::Flushing(stamp) || !is_clean {
            self.phase = Phase::Present;
            return None;
        }
        self.phase = Phase::Clearing;
        Some(self.work(false))
    }

    /// The mark was made or removed, or could not be.
    pub fn worked(&mut self, sets: bool, is_ok: bool, now: Instant) {
        // What is left of one that could not be made is replaced by the next one, or removed at the end.
        self.phase = if sets && is_ok {
            Phase::Present
        } else {
            Phase::Absent
        };
        self.retry_at = (!is_ok).then_some(now + RETRY_INTERVAL);
    }

    /// The end, after the last flush.
    pub fn end(&mut self, is_clean: bool) -> AtEnd {
        if !matches!(self.phase, Phase::Present | Phase::Absent) {
            return AtEnd::Wait;
        }
        let may_be_there = self.phase == Phase::Present || self.retry_at.is_some();
        if !may_be_there || !is_clean || self.loss.is_some() {
            return AtEnd::Leave;
        }
        self.phase = Phase::Clearing;
        AtEnd::Clear(Arc::clone(&self.mark))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    struct NoMark;

    impl UncleanMark for NoMark {
        fn set(&self) -> io::Result<()> {
            Ok(())
        }
        fn clear(&self) -> io::Result<()> {
            Ok(())
        }
    }

    const LONG: Duration = Duration::from_secs(1);

    fn guard(loss: Option<&str>) -> Guard {
        Guard::new(VolumeId(3), Arc::new(NoMark), loss.map(str::to_owned))
    }

    #[test]
    fn a_mark_comes_before_what_is_kept_and_goes_after_a_flush() {
        let (mut guard, now) = (guard(None), Instant::now());
        assert!(!guard.is_present());
        let work = guard.want(now).expect("to be made");
        assert!(work.sets && work.volume == VolumeId(3));
        assert!(guard.want(now).is_none() && !guard.is_present(), "not yet");
        guard.worked(true, true, now);
        assert!(guard.is_present());
        assert!(!guard.age(now, true, 7, LONG), "just now");
        assert!(!guard.age(now + LONG, false, 7, LONG), "dirty again");
        assert!(!guard.age(now + LONG, true, 7, LONG), "anew");
        assert!(guard.age(now + 2 * LONG, true, 7, LONG));
        assert!(guard.is_present(), "what is written meanwhile is kept");
        assert!(guard.flushed(true, true, 8).is_none() && guard.is_present());
        assert!(!guard.age(now, true, 8, LONG) && guard.age(now + LONG, true, 8, LONG));
        let work = guard.flushed(true, true, 8).expect("to be removed");
        assert!(!work.sets && !guard.is_present());
        guard.worked(false, true, now);
        assert!(matches!(guard.end(true), AtEnd::Leave), "not there");
    }

    #[test]
    fn a_mark_that_cannot_be_made_is_tried_again_later_and_removed_at_the_end() {
        let (mut guard, now) = (guard(None), Instant::now());
        assert!(guard.want(now).is_some());
        assert!(matches!(guard.end(true), AtEnd::Wait));
        guard.worked(true, false, now);
        assert!(guard.want(now).is_none());
        assert!(matches!(guard.end(false), AtEnd::Leave));
        assert!(guard.want(now + RETRY_INTERVAL).is_some());
        guard.worked(true, false, now);
        assert!(matches!(guard.end(true), AtEnd::Clear(_)));
    }

    #[test]
    fn a_loss_is_told_once_and_keeps_the_mark_until_then() {
        let (mut known, now) = (guard(Some("lost")), Instant::now());
        assert!(known.is_unclean() && known.is_present());
        assert!(!known.age(now, true, 0, Duration::ZERO));
        assert!(matches!(known.end(true), AtEnd::Leave));
        let (loss, work) = known.take_loss(true).expect("told");
        assert!(&*loss == "lost" && work.is_none() && known.take_loss(true).is_none());
        assert!(known.age(now, true, 0, Duration::ZERO));
        let (_, work) = guard(Some("lost")).take_loss(false).expect("told");
        assert!(!work.expect("nothing will be dirty").sets);
    }
}
