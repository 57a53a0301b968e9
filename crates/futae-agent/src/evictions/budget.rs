//! What evicted pages may cost.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// How much of the budget may be saved up, and how long a debt holds pages back.
const BUDGET_WINDOW: Duration = Duration::from_secs(1);

/// What evicted pages may cost.
pub struct Budget {
    /// Processor time a second.
    share: f64,
    balance: Duration,
    debt: Duration,
    at: Instant,
    spent: Duration,
}

impl Budget {
    /// A share of all processors.
    #[must_use]
    pub fn new(share: f64) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            share: share * processors as f64,
            balance: Duration::ZERO,
            debt: Duration::ZERO,
            at: Instant::now(),
            spent: Duration::ZERO,
        }
    }

    /// Whether pages may still be sent with their data, `spent` processor time having gone into them so far.
    pub fn allows(&mut self, spent: Duration, now: Instant) -> bool {
        let earned = now.duration_since(self.at).mul_f64(self.share);
        let cost = spent.saturating_sub(self.spent);
        (self.at, self.spent) = (now, spent);
        let most = BUDGET_WINDOW.mul_f64(self.share);
        let (plus, minus) = (self.balance + earned, self.debt + cost);
        self.balance = plus.saturating_sub(minus).min(most);
        self.debt = minus.saturating_sub(plus).min(most);
        self.debt.is_zero()
    }
}

/// Processor time of the calling thread so far.
#[must_use]
pub fn thread_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime)
        .try_into()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_is_spent_comes_back_with_time() {
        let mut budget = Budget {
            share: 0.1,
            ..Budget::new(1.0)
        };
        let begin = budget.at;
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let ms = Duration::from_millis;
        assert!(budget.allows(ms(0), at(100)), "10 ms are saved");
        assert!(budget.allows(ms(10), at(100)), "and spent");
        assert!(!budget.allows(ms(30), at(100)), "20 ms too many");
        assert!(!budget.allows(ms(30), at(200)));
        assert!(budget.allows(ms(30), at(300)), "earned back");
        assert!(budget.allows(ms(30), at(1_000_000)));
        assert!(
            budget.allows(ms(130), at(1_000_000)),
            "a second's worth is kept"
        );
        assert!(!budget.allows(ms(131), at(1_000_000)), "and no more");
    }
}
