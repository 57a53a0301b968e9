//! How fast one agent may speak.

use super::Stop;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// Bytes that are read of an agent in a period.
const BYTES_MAX: usize = 32 << 20;
/// How often an agent that has said enough is looked at again, where only its owner can say when.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Evicted ranges of one agent are at most this many steps in each span; with steps of 32 blocks, half a
/// million blocks a second.
const STEPS_A_SPAN: u32 = 512;
const SPAN: Duration = Duration::from_millis(32);

/// 32 MiB a period of one agent; the rest waits in the agent's own buffers.
#[derive(Debug)]
pub struct Allowance {
    /// None: a period lasts until [`Self::renew`].
    period: Option<Duration>,
    used: Mutex<(Instant, usize)>,
}

impl Allowance {
    fn with(period: Option<Duration>) -> Self {
        Self {
            period,
            used: Mutex::new((Instant::now(), 0)),
        }
    }

    /// One that is renewed every second.
    #[must_use]
    pub fn a_second() -> Self {
        Self::with(Some(Duration::from_secs(1)))
    }

    /// One that is renewed by [`Receiver::renew`](super::Receiver::renew) alone.
    #[must_use]
    pub fn until_renewed() -> Self {
        Self::with(None)
    }

    pub(super) fn renew(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = (Instant::now(), 0);
    }

    pub(super) fn take(&self, bytes: usize) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.1 = used.1.saturating_add(bytes);
    }

    /// How long not to read; none if there is something left.
    pub(super) fn wait(&self) -> Option<Duration> {
        self.wait_at(Instant::now())
    }

    fn wait_at(&self, now: Instant) -> Option<Duration> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let since = now.saturating_duration_since(used.0);
        if self.period.is_some_and(|period| since >= period) {
            *used = (now, 0);
        }
        if used.1 <= BYTES_MAX {
            return None;
        }
        let left = |period: Duration| period.saturating_sub(since);
        Some(self.period.map_or(LOOK_INTERVAL, left))
    }
}

/// Keeps an agent that tells of more than a disk can read from taking the cache's lock from others.
#[derive(Debug, Default)]
pub(super) struct Pace {
    steps: u32,
    since: Option<Instant>,
}

impl Pace {
    /// Waits if steps come too quickly; false if all is to end.
    pub(super) fn step(&mut self, stop: &Stop) -> bool {
        if stop.has_come() {
            return false;
        }
        let pause = self.pause_at(Instant::now());
        pause.is_zero() || !stop.within(pause)
    }

    /// How long to wait after a step.
    fn pause_at(&mut self, now: Instant) -> Duration {
        let since = *self.since.get_or_insert(now);
        self.steps += 1;
        if self.steps < STEPS_A_SPAN {
            return Duration::ZERO;
        }
        *self = Self::default();
        SPAN.saturating_sub(now.saturating_duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_has_said_enough_waits_for_the_next_period() {
        let allowance = Allowance::a_second();
        let begin = Instant::now();
        allowance.take(BYTES_MAX);
        assert_eq!(allowance.wait_at(begin), None);
        allowance.take(1);
        let wait = allowance.wait_at(begin).expect("enough");
        assert!(wait <= Duration::from_secs(1), "{wait:?}");
        assert_eq!(allowance.wait_at(begin + Duration::from_secs(2)), None);
        let allowance = Allowance::until_renewed();
        allowance.take(BYTES_MAX + 1);
        let later = begin + Duration::from_secs(3600);
        assert!(allowance.wait_at(later).is_some());
        allowance.renew();
        assert_eq!(allowance.wait_at(later), None);
    }

    #[test]
    fn steps_that_come_too_quickly_wait_until_all_ends() {
        let (stop, mut pace) = (Stop::new().expect("a descriptor"), Pace::default());
        let begin = Instant::now();
        for later in [Duration::ZERO, SPAN / 4, 2 * SPAN] {
            let first = (1..STEPS_A_SPAN).map(|_| pace.pause_at(begin)).max();
            assert_eq!(first, Some(Duration::ZERO));
            assert_eq!(pace.pause_at(begin + later), SPAN.saturating_sub(later));
        }
        assert!(pace.step(&stop));
        stop.tell();
        assert!(!pace.step(&stop));
    }
}
