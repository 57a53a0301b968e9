//! Unclean marks: a mark on a store says that the store lacks data. A volume with a guard keeps a
//! write only while its mark is on stable storage. After an unclean end the next server therefore
//! knows that answered writes may be lost, and fails the first FLUSH, as a disk does that has lost
//! its cache.
//!
//! ```text
//!           a write comes            durable
//! Absent ─────────────────▶ Setting ─────────▶ Present ◀───────────────┐ dirty again
//!    ▲                                            │ clean for a while  │
//!    │        durable                 flushed     ▼                    │
//!    └──────────────────── Clearing ◀───────── Flushing ───────────────┘
//! ```
//!
//! Writes are kept in `Present` and `Flushing`. In the other states they go to the store, so no
//! write waits for the mark. A thread of its own sets and removes the mark, since both wait for a
//! disk.

use crate::UncleanMark;
use futae_policy::VolumeId;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After a mark could not be set, the time during which writes go to the store before the next
/// attempt.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Absent,
    Setting,
    Present,
    /// The store is being flushed; the value is the stamp of the newest write when the flush began.
    Flushing(u64),
    Clearing,
}

/// The state of one volume's mark. It decides what to do; its callers do it.
pub struct Guard {
    volume: VolumeId,
    mark: Arc<dyn UncleanMark>,
    phase: Phase,
    /// The loss after an earlier end, until a client has been informed.
    loss: Option<Arc<str>>,
    clean_since: Option<Instant>,
    retry_at: Option<Instant>,
}

/// Work on a mark, done without the cache's lock.
pub struct MarkWork {
    pub volume: VolumeId,
    pub mark: Arc<dyn UncleanMark>,
    /// Whether the mark is to be set or removed.
    pub sets: bool,
}

/// What to do with a mark at the end of the server.
pub enum AtEnd {
    /// The mark stays as it is.
    Leave,
    /// The mark is removed.
    Clear(Arc<dyn UncleanMark>),
    /// A thread is at work on the mark.
    Wait,
}

impl Guard {
    /// A guard for an absent mark; or, with a `loss`, for a mark that an earlier end has left.
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

    /// Whether an earlier end lost writes and no client has been informed.
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

    /// A write would be kept if the mark were set. Returns the work that sets it, if any.
    pub fn want(&mut self, now: Instant) -> Option<MarkWork> {
        let may_try = self.retry_at.is_none_or(|at| now >= at);
        if self.phase != Phase::Absent || !may_try || !self.mark.is_possible() {
            return None;
        }
        self.phase = Phase::Setting;
        Some(self.work(true))
    }

    /// Takes the loss, of which a client is being informed. If the cache never holds dirty data,
    /// the mark is removed, too.
    pub fn take_loss(&mut self, writes_back: bool) -> Option<(Arc<str>, Option<MarkWork>)> {
        let loss = self.loss.take()?;
        if writes_back || self.phase != Phase::Present {
            return Some((loss, None));
        }
        self.phase = Phase::Clearing;
        Some((loss, Some(self.work(false))))
    }

    /// Returns whether the volume has been clean for `clean_for`, so that its store is to be
    /// flushed and the mark removed. `stamp` is that of the newest write.
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

    /// The flush before the removal has ended. The mark stays if a write has come since.
    pub fn flushed(&mut self, is_ok: bool, is_clean: bool, stamp: u64) -> Option<MarkWork> {
        self.clean_since = None;
        if !is_ok || self.phase != Phase::Flushing(stamp) || !is_clean {
            self.phase = Phase::Present;
            return None;
        }
        self.phase = Phase::Clearing;
        Some(self.work(false))
    }

    /// The mark was set or removed, or the attempt failed.
    pub fn worked(&mut self, sets: bool, is_ok: bool, now: Instant) {
        // The remains of a failed attempt are replaced by the next attempt, or removed at the end.
        self.phase = if sets && is_ok {
            Phase::Present
        } else {
            Phase::Absent
        };
        self.retry_at = (!is_ok).then_some(now + RETRY_INTERVAL);
    }

    /// Another server has left its mark, which is this one's now: the next client that flushes is informed.
    pub fn lost(&mut self, loss: String) {
        self.loss.get_or_insert_with(|| Arc::from(loss));
    }

    /// Called at the end, after the last flush.
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
        assert!(!guard.is_present() && !guard.is_unclean());
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
        assert!(!known.is_unclean());
        assert!(known.age(now, true, 0, Duration::ZERO));
        let (_, work) = guard(Some("lost")).take_loss(false).expect("told");
        assert!(!work.expect("nothing will be dirty").sets);
    }
}
