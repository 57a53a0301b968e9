//! When to connect again.

use std::time::{Duration, Instant};

/// Between the first attempt and the second; each pause is half as long again, up to the longest. A server that is started
/// again is there within some ten milliseconds.
const INTERVAL: Duration = Duration::from_millis(10);
const INTERVAL_MAX: Duration = Duration::from_secs(8);
/// A connection that was held for so long was a good one: the next attempt is made at once.
const STEADY: Duration = Duration::from_secs(1);

/// The times of attempts to connect.
pub(super) struct Pace {
    interval: Duration,
    /// When the last attempt began.
    last: Instant,
}

impl Pace {
    /// The first connection was made at `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            interval: INTERVAL,
            last: now,
        }
    }

    /// The connection was lost at `now`: when to try for the next. A server that takes clients in and drops them is tried
    /// ever more seldom, like one that takes none.
    pub(super) fn lost(&mut self, now: Instant) -> Instant {
        if now.saturating_duration_since(self.last) >= STEADY.max(self.interval) {
            self.interval = INTERVAL;
            return now;
        }
        self.next()
    }

    /// An attempt begins.
    pub(super) fn begin(&mut self, now: Instant) {
        self.last = now;
    }

    /// The attempt has failed: when to try again.
    pub(super) fn failed(&mut self) -> Instant {
        self.next()
    }

    fn next(&mut self) -> Instant {
        let at = self.last + self.interval;
        self.interval = (self.interval * 3 / 2).min(INTERVAL_MAX);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_gone_is_tried_at_once_then_ever_more_seldom() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let mut now = start + STEADY;
        assert_eq!(pace.lost(now), now, "at once");
        let mut gaps = Vec::new();
        for _ in 0..30 {
            pace.begin(now);
            let next = pace.failed();
            gaps.push(next - now);
            now = next;
        }
        assert_eq!(gaps[0], INTERVAL);
        assert!(gaps.is_sorted() && gaps[29] == INTERVAL_MAX, "{gaps:?}");
        // A server that is back within a tenth of a second is found within half as long again.
        let tenth = gaps.iter().scan(Duration::ZERO, |sum, gap| {
            *sum += *gap;
            Some(*sum)
        });
        let found = tenth.into_iter().find(|&sum| sum >= STEADY / 10);
        assert!(found.is_some_and(|sum| sum <= STEADY * 3 / 20), "{found:?}");
        // One that was held for longer than the pauses had become is lost: at once again.
        pace.begin(now);
        let later = now + INTERVAL_MAX;
        assert_eq!(pace.lost(later), later);
        pace.begin(later);
        assert_eq!(pace.failed(), later + INTERVAL);
    }

    #[test]
    fn a_server_that_drops_whom_it_took_in_is_tried_ever_more_seldom() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        let mut gaps = Vec::new();
        for _ in 0..20 {
            let next = pace.lost(now);
            gaps.push(next - now);
            now = next;
            pace.begin(now);
        }
        assert!(gaps.is_sorted() && gaps[19] > STEADY, "{gaps:?}");
    }
}
