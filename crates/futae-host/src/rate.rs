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
    /// Connections whose turns have not come.
    waiting: Vec<Waiting>,
    said: Option<Duration>,
}

/// A connection that waits for its turn, which comes earlier if another gives up a turn before it.
struct Waiting {
    mailbox: Weak<Mailbox>,
    taken: Taken,
}

/// The turn of a connection's next request, until the request is carried out. If it is not carried
/// out, because the client leaves before that, the turn costs the export nothing.
pub(crate) struct Turn {
    rate: Arc<Rate>,
    mailbox: Arc<Mailbox>,
    taken: Option<Taken>,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    requests: Span,
    bytes: Span,
    generation: u64,
}

/// The time for which a request uses up a rate.
#[derive(Clone, Copy, Debug)]
struct Span {
    begin: Duration,
    length: Duration,
}

impl Taken {
    /// When the request may be carried out.
    fn at(&self) -> Duration {
        self.requests.begin.max(self.bytes.begin)
    }
}

impl Turn {
    /// Without a turn yet. The mailbox is rung when the turn comes earlier than [`Self::wait`] said.
    pub(crate) fn new(rate: &Arc<Rate>, mailbox: &Arc<Mailbox>) -> Self {
        Self {
            rate: Arc::clone(rate),
            mailbox: Arc::clone(mailbox),
            taken: None,
        }
    }

    /// Whether the next request of the connection, which carries or asks for this many bytes, may be
    /// carried out. If not, [`Self::wait`] returns how long to wait.
    pub(crate) fn admits(&mut self, bytes: u64) -> bool {
        self.rate.admits(&mut self.taken, bytes, &self.mailbox)
    }

    /// How long a request that was not admitted has to wait; `None` if its turn has come.
    pub(crate) fn wait(&self) -> Option<Duration> {
        let wait = self.taken?.at().saturating_sub((self.rate.clock.0)());
        (!wait.is_zero()).then_some(wait)
    }

    /// The request is carried out: the next one takes a turn of its own.
    pub(crate) fn used(&mut self) {
        self.taken = None;
    }

    /// The request will not be carried out: its turn is for those behind it.
    pub(crate) fn give_up(&mut self) {
        if let Some(taken) = self.taken.take() {
            self.rate.give_back(taken, &self.mailbox);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.give_up();
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
            if let Some(mailbox) = waiting.mailbox.upgrade() {
                mailbox.ring();
            }
        }
        true
    }

    fn admits(&self, turn: &mut Option<Taken>, bytes: u64, mailbox: &Arc<Mailbox>) -> bool {
        if self.is_open.load(Acquire) {
            return true;
        }
        let now = (self.clock.0)();
        let mut inner = self.lock();
        let is_valid = |taken: &Taken| taken.generation == inner.generation;
        if turn.as_ref().is_some_and(is_valid) {
            let Some(at) = inner.position(mailbox) else {
                return true;
            };
            let taken = inner.waiting[at].taken;
            *turn = Some(taken);
            let has_come = taken.at() <= now;
            if has_come {
                inner.waiting.swap_remove(at);
            }
            return has_come;
        }
        let taken = inner.take(now, bytes);
        *turn = Some(taken);
        if taken.at() <= now {
            return true;
        }
        inner.delays.requests += 1;
        inner.delays.time += taken.at() - now;
        inner.waiting.push(Waiting {
            mailbox: Arc::downgrade(mailbox),
            taken,
        });
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

    /// Takes back a turn that was not used. The turns behind it come earlier.
    fn give_back(&self, mut taken: Taken, mailbox: &Arc<Mailbox>) {
        let now = (self.clock.0)();
        let mut inner = self.lock();
        if taken.generation != inner.generation {
            return;
        }
        if let Some(at) = inner.position(mailbox) {
            taken = inner.waiting.swap_remove(at).taken;
            let waits_no_more = taken.at().saturating_sub(now);
            inner.delays.time = inner.delays.time.saturating_sub(waits_no_more);
        }
        inner.close_gap(&taken, now);
    }
}

impl Inner {
    fn position(&self, mailbox: &Arc<Mailbox>) -> Option<usize> {
        let is_it = |one: &Waiting| one.mailbox.as_ptr() == Arc::as_ptr(mailbox);
        self.waiting.iter().position(is_it)
    }

    /// Takes the next turn.
    fn take(&mut self, now: Duration, bytes: u64) -> Taken {
        let Self { limits, .. } = *self;
        Taken {
            requests: take(&mut self.requests, now, limits.iops, 1),
            bytes: take(&mut self.bytes, now, limits.bandwidth_bytes, bytes),
            generation: self.generation,
        }
    }

    /// Moves everything behind the turn forward by its length.
    fn close_gap(&mut self, gap: &Taken, now: Duration) {
        let before = self.delays(now);
        let waiting = &mut self.waiting;
        close_gap(&mut self.requests, waiting, gap.requests, now, |taken| {
            &mut taken.requests
        });
        close_gap(&mut self.bytes, waiting, gap.bytes, now, |taken| {
            &mut taken.bytes
        });
        let shorter = before.saturating_sub(self.delays(now));
        if shorter.is_zero() {
            return;
        }
        self.delays.time = self.delays.time.saturating_sub(shorter);
        for one in &self.waiting {
            if let Some(mailbox) = one.mailbox.upgrade() {
                mailbox.ring();
            }
        }
    }

    /// How long those who wait now have to wait from now on, all together.
    fn delays(&self, now: Duration) -> Duration {
        let waits = self.waiting.iter().map(|one| one.taken.at());
        waits.map(|at| at.saturating_sub(now)).sum()
    }
}

fn take(paid: &mut Duration, now: Duration, limit: Option<u64>, count: u64) -> Span {
    let Some(limit) = limit else {
        return Span {
            begin: now,
            length: Duration::ZERO,
        };
    };
    let begin = (*paid).max(now.saturating_sub(BURST));
    let nanos = u128::from(count) * NANOS / u128::from(limit.max(1));
    let length = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    *paid = begin.saturating_add(length);
    Span { begin, length }
}

/// Moves the turns behind a gap forward, and the instant until which the rate is used up. None of
/// them gets more credit than an idle export has: a gap in the past would otherwise become a burst
/// of its length.
fn close_gap(
    paid: &mut Duration,
    waiting: &mut [Waiting],
    gap: Span,
    now: Duration,
    of: impl Fn(&mut Taken) -> &mut Span,
) {
    let spans = waiting.iter_mut().map(|one| of(&mut one.taken));
    let behind = spans.filter(|span| span.begin > gap.begin);
    let first = behind.map(|span| span.begin).min().unwrap_or(*paid);
    let earliest = now.saturating_sub(BURST);
    let shift = gap.length.min(first.saturating_sub(earliest));
    *paid = paid.saturating_sub(shift);
    for one in waiting {
        let span = of(&mut one.taken);
        if span.begin > gap.begin {
            span.begin -= shift;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;

    const MIB: u64 = 1 << 20;

    struct Rig {
        milliseconds: Arc<AtomicU64>,
        rate: Arc<Rate>,
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
                rate: Arc::new(Rate::new("a", limits, &clock)),
            }
        }

        fn turn(&self) -> Turn {
            Turn::new(&self.rate, &Arc::new(Mailbox::new().expect("an eventfd")))
        }

        fn pass(&self, milliseconds: u64) {
            self.milliseconds.fetch_add(milliseconds, Relaxed);
        }

        /// The number of requests carried out now, for a connection with an endless supply.
        fn served(&self, turn: &mut Turn, bytes: u64) -> u64 {
            let mut served = 0;
            while served < 1_000_000 && turn.admits(bytes) {
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
            let rig = Rig::new(iops, bandwidth);
            let mut turn = rig.turn();
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
        let (mut greedy, mut modest) = (rig.turn(), rig.turn());
        assert!(greedy.admits(32 * MIB), "longer than a second's worth");
        greedy.used();
        assert!(!modest.admits(4096));
        assert!(!greedy.admits(32 * MIB));
        let wait = modest.wait().expect("it waits");
        assert_eq!(wait, Duration::from_millis(31_900));
        rig.pass(31_900);
        assert!(modest.admits(4096), "it was there first");
        assert!(!greedy.admits(32 * MIB));
        let report = rig.rate.report();
        assert_eq!(report.delayed_requests, 2);
        assert!(report.delayed_seconds > 60.0, "{report:?}");
    }

    #[test]
    fn other_limits_hold_for_who_waits_already() {
        let rig = Rig::new(Some(1), None);
        let mut turn = rig.turn();
        while rig.served(&mut turn, 0) > 0 {}
        assert!(turn.wait().is_some());
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

    #[test]
    fn a_turn_that_is_not_used_costs_nothing() {
        let rig = Rig::new(None, Some(MIB));
        for _ in 0..20 {
            assert!(rig.turn().admits(32 * MIB), "the one before has left");
        }
        // Nor does it bring more than an idle export has.
        rig.pass(3_600_000);
        assert!(rig.turn().admits(32 * MIB));
        let mut turn = rig.turn();
        assert_eq!(rig.served(&mut turn, MIB / 10), 2);
    }

    #[test]
    fn those_behind_a_turn_that_is_given_up_come_earlier() {
        let rig = Rig::new(None, Some(MIB));
        let (mut first, mut leaves, mut last) = (rig.turn(), rig.turn(), rig.turn());
        assert!(first.admits(MIB));
        first.used();
        assert!(!leaves.admits(32 * MIB) && !last.admits(MIB) && !first.admits(MIB));
        let wait = |turn: &Turn| turn.wait().expect("it waits").as_millis();
        assert_eq!([&leaves, &last, &first].map(wait), [900, 32_900, 33_900]);
        drop(leaves);
        assert!(!last.admits(MIB) && !first.admits(MIB));
        assert_eq!([&last, &first].map(wait), [900, 1900]);
        let report = rig.rate.report();
        assert_eq!((report.delayed_requests, report.delayed_seconds), (3, 2.8));
        rig.pass(900);
        assert!(last.admits(MIB) && !first.admits(MIB));
        // A request whose turn has come does not wait for its client any longer, either.
        drop(last);
        assert!(first.admits(MIB));
    }

    #[test]
    fn a_turn_given_up_late_makes_no_burst() {
        let rig = Rig::new(None, Some(MIB));
        let mut slow = rig.turn();
        assert!(slow.admits(32 * MIB));
        let mut waiting: Vec<_> = (0..10).map(|_| rig.turn()).collect();
        for turn in &mut waiting {
            assert!(!turn.admits(MIB));
        }
        rig.pass(31_000);
        drop(slow);
        let admitted = waiting.iter_mut().map(|turn| turn.admits(MIB));
        assert_eq!(admitted.filter(|&it| it).count(), 1, "one a second");
        rig.pass(900);
        let admitted = waiting[1..].iter_mut().map(|turn| turn.admits(MIB));
        assert_eq!(admitted.filter(|&it| it).count(), 1);
    }
}
