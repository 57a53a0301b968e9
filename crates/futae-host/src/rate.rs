//! Limits on the requests and bytes per second of one export's clients. Requests above the limits
//! wait; clients of other exports are not delayed.
//!
//! For requests and for bytes there is an instant until which the rate is used up. A request takes
//! its turn at that instant and is admitted when the instant has come. While an export is idle, the
//! instants fall behind the clock by at most [`BURST`], which is what may then be admitted at once.

use crate::mailbox::Mailbox;
use futae_units::Size;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tracing::info;

/// The largest credit that an idle export accumulates.
const BURST: Duration = Duration::from_millis(100);
/// Shortest time between two log lines about the same export.
const SILENCE: Duration = Duration::from_secs(60);
const NANOS: u128 = 1_000_000_000;

/// Limits per second of one export's clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// Requests per second; `None`: no limit.
    pub iops: Option<u64>,
    /// Bytes per second that requests carry or ask for; `None`: no limit.
    pub bandwidth_bytes: Option<u64>,
    /// The export's weight for its share of the requests that the server may have under way
    /// ([`crate::ServerOptions::requests_together`]); `None`: 1.
    pub weight: Option<u32>,
}

impl RateLimits {
    /// Limits as given on the command line.
    ///
    /// # Errors
    ///
    /// A limit is 0, or the bandwidth is not in bytes.
    pub fn new(iops: Option<u64>, bandwidth: Option<Size>) -> Result<Self, String> {
        let bytes = bandwidth.map(|size| size.bytes(1));
        let bytes = bytes
            .transpose()
            .map_err(|error| format!("bandwidth: {error}"))?;
        for (name, limit) in [("iops", iops), ("bandwidth", bytes)] {
            if limit == Some(0) {
                return Err(format!(
                    "{name}: nothing would be served; write 1 or more, or leave it out"
                ));
            }
        }
        Ok(Self {
            iops,
            bandwidth_bytes: bytes,
            weight: None,
        })
    }

    /// Sets the weight.
    ///
    /// # Errors
    ///
    /// The weight is not from 1 to 1000.
    pub fn with_weight(self, weight: Option<u32>) -> Result<Self, String> {
        match weight {
            Some(weight) if !(1..=1000).contains(&weight) => Err(format!(
                "weight: write a number from 1 to 1000, not {weight}"
            )),
            weight => Ok(Self { weight, ..self }),
        }
    }

    fn is_none(&self) -> bool {
        self.iops.is_none() && self.bandwidth_bytes.is_none()
    }
}

/// The clock for rates: the machine's, or one that a test provides.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Clock {
    /// A clock that returns the result of `now`, which never goes back.
    pub fn new(now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }
}

impl Default for Clock {
    fn default() -> Self {
        let start = Instant::now();
        Self::new(move || start.elapsed())
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// The limits of an export, and how many requests they delayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RateReport {
    /// The limit of requests per second, if there is one.
    pub iops_limit: Option<u64>,
    /// The limit of bytes per second, if there is one.
    pub bandwidth_limit_bytes: Option<u64>,
    /// Requests that had to wait.
    pub delayed_requests: u64,
    /// The sum of their waiting times.
    pub delayed_seconds: f64,
    /// Its weight for a share of the server's requests under way, if one was given.
    pub weight: Option<u32>,
    /// Requests that waited because the server had the largest number of requests under way.
    pub held_requests: u64,
}

#[derive(Clone, Copy, Default)]
struct Delays {
    requests: u64,
    time: Duration,
}

/// The rates of one export.
pub(crate) struct Rate {
    export: String,
    clock: Clock,
    /// Without limits no connection takes the lock.
    is_open: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    limits: RateLimits,
    /// Changes with the limits: turns taken under earlier limits are void.
    generation: u64,
    /// The instants until which the rates of requests and of bytes are used up.
    requests: Duration,
    bytes: Duration,
    delays: Delays,
    /// Connections that are to try again when the limits change.
    waiting: Vec<Weak<Mailbox>>,
    said: Option<Duration>,
}

/// The turn of a connection's next request, until the request is carried out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn(Option<Taken>);

#[derive(Clone, Copy, Debug)]
struct Taken {
    at: Duration,
    generation: u64,
}

impl Turn {
    /// The request is carried out: the next one takes a turn of its own.
    pub(crate) fn used(&mut self) {
        self.0 = None;
    }
}

impl Rate {
    pub(crate) fn new(export: &str, limits: RateLimits, clock: &Clock) -> Self {
        Self {
            export: export.to_owned(),
            clock: clock.clone(),
            is_open: AtomicBool::new(limits.is_none()),
            inner: Mutex::new(Inner {
                limits,
                ..Inner::default()
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn report(&self) -> RateReport {
        let Inner { limits, delays, .. } = *self.lock();
        RateReport {
            iops_limit: limits.iops,
            bandwidth_limit_bytes: limits.bandwidth_bytes,
            delayed_requests: delays.requests,
            delayed_seconds: delays.time.as_secs_f64(),
            weight: limits.weight,
            held_requests: 0,
        }
    }

    /// Changes the limits; waiting requests are reconsidered. Returns whether the limits differ.
    pub(crate) fn set(&self, limits: RateLimits) -> bool {
        let mut inner = self.lock();
        if inner.limits == limits {
            return false;
        }
        inner.limits = limits;
        inner.generation += 1;
        (inner.requests, inner.bytes) = Default::default();
        self.is_open.store(limits.is_none(), Release);
        for waiting in inner.waiting.drain(..) {
            if let Some(mailbox) = waiting.upgrade() {
                mailbox.ring();
            }
        }
        true
    }

    /// Whether the next request of a connection, which carries or asks for this many bytes, may be
    /// carried out. If not, [`Self::wait`] returns how long to wait; the mailbox is rung if the
    /// limits change earlier.
    pub(crate) fn admits(&self, turn: &mut Turn, bytes: u64, mailbox: &Arc<Mailbox>) -> bool {
        if self.is_open.load(Acquire) {
            return true;
        }
        let now = (self.clock.0)();
        let mut inner = self.lock();
        if let Some(taken) = turn.0.filter(|taken| taken.generation == inner.generation) {
            return taken.at <= now;
        }
        let at = inner.take(now, bytes);
        turn.0 = Some(Taken {
            at,
            generation: inner.generation,
        });
        if at <= now {
            return true;
        }
        inner.delays.requests += 1;
        inner.delays.time += at - now;
        let is_known = |known: &Weak<Mailbox>| known.as_ptr() == Arc::as_ptr(mailbox);
        if !inner.waiting.iter().any(is_known) {
            inner.waiting.retain(|known| known.strong_count() > 0);
            inner.waiting.push(Arc::downgrade(mailbox));
        }
        let was_said = |said: Duration| now.saturating_sub(said) < SILENCE;
        if !inner.said.is_some_and(was_said) {
            inner.said = Some(now);
            let export = &self.export;
            info!(
                export,
                "export {export}: its clients ask for more than they are served in a second; requests wait (iops= and \
                 bandwidth= of the export)"
            );
        }
        false
    }

    /// How long a request that was not admitted has to wait; `None` if its turn has come.
    pub(crate) fn wait(&self, turn: &Turn) -> Option<Duration> {
        let wait = turn.0?.at.saturating_sub((self.clock.0)());
        (!wait.is_zero()).then_some(wait)
    }
}

impl Inner {
    /// Takes the next turn. Returns its instant.
    fn take(&mut self, now: Duration, bytes: u64) -> Duration {
        let Self { limits, .. } = *self;
        let requests = take(&mut self.requests, now, limits.iops, 1);
        requests.max(take(&mut self.bytes, now, limits.bandwidth_bytes, bytes))
    }
}

fn take(paid: &mut Duration, now: Duration, limit: Option<u64>, count: u64) -> Duration {
    let Some(limit) = limit else {
        return now;
    };
    let at = (*paid).max(now.saturating_sub(BURST));
    let nanos = u128::from(count) * NANOS / u128::from(limit.max(1));
    *paid = at.saturating_add(Duration::from_nanos(
        u64::try_from(nanos).unwrap_or(u64::MAX),
    ));
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;

    const MIB: u64 = 1 << 20;

    struct Rig {
        milliseconds: Arc<AtomicU64>,
        rate: Rate,
        mailbox: Arc<Mailbox>,
    }

    impl Rig {
        fn new(iops: Option<u64>, bandwidth_bytes: Option<u64>) -> Self {
            // Not at 0, where no credit could have accumulated.
            let milliseconds = Arc::new(AtomicU64::new(10_000));
            let shown = Arc::clone(&milliseconds);
            let clock = Clock::new(move || Duration::from_millis(shown.load(Relaxed)));
            let limits = RateLimits {
                iops,
                bandwidth_bytes,
                weight: None,
            };
            Self {
                milliseconds,
                rate: Rate::new("a", limits, &clock),
                mailbox: Arc::new(Mailbox::new().expect("an eventfd")),
            }
        }

        fn pass(&self, milliseconds: u64) {
            self.milliseconds.fetch_add(milliseconds, Relaxed);
        }

        /// The number of requests carried out now, for a connection with an endless supply.
        fn served(&self, turn: &mut Turn, bytes: u64) -> u64 {
            let mut served = 0;
            while served < 1_000_000 && self.rate.admits(turn, bytes, &self.mailbox) {
                turn.used();
                served += 1;
            }
            served
        }
    }

    #[test]
    fn requests_and_bytes_come_at_their_rate_after_a_short_burst() {
        for (iops, bandwidth, bytes, burst, a_second) in [
            (Some(50), None, 4096, 6, 50),
            (None, Some(10 * MIB), MIB, 2, 10),
            (Some(1000), Some(10 * MIB), MIB, 2, 10),
            (Some(20), Some(10 * MIB), 4096, 3, 20),
        ] {
            let (rig, mut turn) = (Rig::new(iops, bandwidth), Turn::default());
            assert_eq!(
                rig.served(&mut turn, bytes),
                burst,
                "{iops:?} {bandwidth:?}"
            );
            assert_eq!(rig.served(&mut turn, bytes), 0, "time stands still");
            let mut served = 0;
            for _ in 0..10_000 {
                rig.pass(1);
                served += rig.served(&mut turn, bytes);
            }
            assert_eq!(served, 10 * a_second, "{iops:?} {bandwidth:?}");
            // The credit is limited to a burst.
            rig.pass(3_600_000);
            assert!(rig.served(&mut turn, bytes) <= burst + 1);
        }
    }

    #[test]
    fn connections_take_turns_and_long_requests_are_paid_for_afterwards() {
        let rig = Rig::new(None, Some(MIB));
        let (mut greedy, mut modest) = (Turn::default(), Turn::default());
        let admits = |turn: &mut Turn, bytes| rig.rate.admits(turn, bytes, &rig.mailbox);
        assert!(
            admits(&mut greedy, 32 * MIB),
            "longer than a second's worth"
        );
        greedy.used();
        assert!(!admits(&mut modest, 4096));
        assert!(!admits(&mut greedy, 32 * MIB));
        let wait = rig.rate.wait(&modest).expect("it waits");
        assert_eq!(wait, Duration::from_millis(31_900));
        rig.pass(31_900);
        assert!(admits(&mut modest, 4096), "it was there first");
        assert!(!admits(&mut greedy, 32 * MIB));
        let report = rig.rate.report();
        assert_eq!(report.delayed_requests, 2);
        assert!(report.delayed_seconds > 60.0, "{report:?}");
    }

    #[test]
    fn other_limits_hold_for_who_waits_already() {
        let (rig, mut turn) = (Rig::new(Some(1), None), Turn::default());
        while rig.served(&mut turn, 0) > 0 {}
        assert!(rig.rate.wait(&turn).is_some());
        let same = RateLimits {
            iops: Some(1),
            ..RateLimits::default()
        };
        assert!(!rig.rate.set(same));
        assert_eq!(rig.served(&mut turn, 0), 0);
        let faster = RateLimits {
            iops: Some(100),
            ..RateLimits::default()
        };
        assert!(rig.rate.set(faster));
        assert_eq!(rig.served(&mut turn, 0), 11);
        assert!(rig.rate.set(RateLimits::default()));
        assert_eq!(rig.served(&mut turn, 0), 1_000_000, "without end");
    }
}
