//! When candidates are compared: all the time at first, later in turns with ever longer pauses.

/// Requests for each slot, and requests at least, before the first pause.
const AT_FIRST: u64 = 100;
const AT_FIRST_MIN: u64 = 1 << 18;
/// A pause lasts for the number of requests so far by this, and for this many requests for each slot at most. So the loss by a change
/// of load that is seen late is bounded.
const SHARE: u64 = 5;
const PAUSE_MAX: u64 = 300;
/// Requests for each slot between two pauses. The first of them are not compared: the shadows hold what was requested before the pause.
const BETWEEN: u64 = 30;
pub const WARMING: u32 = 10;

/// The fewest requests of a window of which the hit ratio is computed.
const WINDOW_MIN: u64 = 1024;
/// A pause ends if the hit ratio of a window is this far from the usual one, and by this factor further than is usual.
const SHIFT: f64 = 0.02;
const UNUSUAL: f64 = 4.0;
/// How much a window adds to what is usual.
const WEIGHT: f64 = 0.25;
const WEIGHT_OF_SPREAD: f64 = 0.125;

/// The hit ratio of the cache, and its mean distance from that.
struct Usual {
    ratio: f64,
    spread: f64,
}

/// Counts the requests of the cache itself, in or out of a pause.
pub struct Pauses {
    slots: u64,
    requests: u64,
    is_paused: bool,
    /// The number of requests after which the pause ends, or the next one may begin.
    until: u64,
    /// Requests of this window, and those that hit.
    seen: u64,
    hits: u64,
    /// Of the windows that were in no pause.
    usual: Option<Usual>,
}

impl Pauses {
    /// No pause yet, for a cache of this size.
    pub fn new(slots: u32) -> Self {
        let slots = u64::from(slots);
        Self {
            slots,
            requests: 0,
            is_paused: false,
            until: (AT_FIRST * slots).max(AT_FIRST_MIN),
            seen: 0,
            hits: 0,
            usual: None,
        }
    }

    /// Whether candidates are not compared.
    #[inline]
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// A request, which the cache hit or not. Returns whether a pause ends.
    #[inline]
    pub fn see(&mut self, is_hit: bool) -> bool {
        self.requests += 1;
        self.seen += 1;
        self.hits += u64::from(is_hit);
        if self.seen >= self.slots.max(WINDOW_MIN) {
            self.end_window();
        }
        let ends = self.is_paused && self.requests >= self.until;
        if ends {
            self.is_paused = false;
            self.until = self.requests + BETWEEN * self.slots;
        }
        ends
    }

    /// Ends a pause if the hit ratio of the window is unusual.
    #[cold]
    fn end_window(&mut self) {
        let seen = std::mem::take(&mut self.seen);
        let ratio = std::mem::take(&mut self.hits) as f64 / seen as f64;
        let Some(usual) = &mut self.usual else {
            self.usual = Some(Usual { ratio, spread: 0.0 });
            return;
        };
        let apart = (ratio - usual.ratio).abs();
        if !self.is_paused {
            usual.ratio += (ratio - usual.ratio) * WEIGHT;
            usual.spread += (apart - usual.spread) * WEIGHT_OF_SPREAD;
        } else if apart > SHIFT.max(UNUSUAL * usual.spread) {
            self.until = self.requests;
        }
    }

    /// Ends a pause with the next request.
    pub fn end(&mut self) {
        if self.is_paused {
            self.until = self.requests;
        }
    }

    /// No candidate leads. Begins a pause if the last one is long ago, and returns whether it has.
    pub fn begin(&mut self) -> bool {
        if self.requests < self.until {
            return false;
        }
        self.is_paused = true;
        let most = (PAUSE_MAX * self.slots).max(AT_FIRST_MIN);
        self.until = self.requests + (self.requests / SHARE).min(most);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests of which one in `every` misses, from a number on. Returns how many came until a pause ended.
    fn until_resumed(pauses: &mut Pauses, every: u64) -> u64 {
        let ended = (1..).find(|at| pauses.see(at % every != 0));
        ended.expect("an end")
    }

    #[test]
    fn a_pause_is_a_fifth_of_the_requests_so_far_and_the_first_one_comes_late() {
        let mut pauses = Pauses::new(10_000);
        for at in 0..1_000_000 {
            assert!(!pauses.begin(), "{at}");
            pauses.see(at % 2 == 0);
        }
        assert!(pauses.begin() && pauses.is_paused());
        assert_eq!(until_resumed(&mut pauses, 2), 200_000);
        assert!(!pauses.is_paused());
        for at in 0..300_000 {
            assert!(!pauses.begin(), "{at}");
            pauses.see(at % 2 == 0);
        }
        assert!(pauses.begin());
    }

    #[test]
    fn no_pause_is_longer_than_300_requests_for_each_slot() {
        let mut pauses = Pauses::new(10_000);
        (0..20_000_000).for_each(|at| assert!(!pauses.see(at % 2 == 0)));
        assert!(pauses.begin());
        assert_eq!(until_resumed(&mut pauses, 2), 3_000_000);
    }

    #[test]
    fn a_small_cache_has_no_pause_in_its_first_requests() {
        let mut pauses = Pauses::new(1);
        (1..AT_FIRST_MIN).for_each(|_| assert!(!pauses.see(true) && !pauses.begin()));
        pauses.see(true);
        assert!(pauses.begin());
    }

    #[test]
    fn another_hit_ratio_ends_a_pause() {
        let mut pauses = Pauses::new(1000);
        (0..AT_FIRST_MIN).for_each(|at| assert!(!pauses.see(at % 2 == 0)));
        assert!(pauses.begin());
        assert!(until_resumed(&mut pauses, 4) <= 2 * WINDOW_MIN);
    }

    #[test]
    fn a_pause_that_is_to_end_ends_with_the_next_request() {
        let mut pauses = Pauses::new(1000);
        pauses.end();
        assert!(!pauses.begin(), "that is no pause");
        (0..AT_FIRST_MIN).for_each(|at| assert!(!pauses.see(at % 2 == 0)));
        assert!(pauses.begin());
        pauses.end();
        assert!(pauses.see(true));
    }
}
