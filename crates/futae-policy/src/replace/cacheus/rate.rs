//! The learning rate of Cacheus: a hill climb by the hit ratios of periods as long as there are slots.

use crate::Prng;

const LEAST: f64 = 0.001;
const MOST: f64 = 1.0;
/// This many periods without a gain, and the rate starts again.
const PATIENCE: u32 = 10;

/// The rate, and the results of the last periods.
#[derive(Clone, Debug)]
pub(super) struct Rate {
    period: u64,
    now: u64,
    rate: f64,
    start: f64,
    current: f64,
    previous: f64,
    hits: u32,
    ratio_before: f64,
    without_hits: u32,
    with_fewer: u32,
}

/// To three digits.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

impl Rate {
    pub(super) fn new(slots: u32) -> Self {
        let period = u64::from(slots.max(1));
        let rate = (2.0 * std::f64::consts::LN_2 / period as f64).sqrt();
        Self {
            period,
            now: 0,
            rate,
            start: rate.clamp(LEAST, MOST),
            current: rate,
            previous: 0.0,
            hits: 0,
            ratio_before: 0.0,
            without_hits: 0,
            with_fewer: 0,
        }
    }

    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    pub(super) fn set_period(&mut self, slots: u32) {
        self.period = u64::from(slots.max(1));
    }

    pub(super) fn note_hit(&mut self) {
        self.hits += 1;
    }

    /// Counts an access; at the end of a period the rate changes.
    #[inline]
    pub(super) fn tick(&mut self, prng: &mut Prng) {
        self.now += 1;
        if self.now.is_multiple_of(self.period) {
            self.adapt(prng);
        }
    }

    fn adapt(&mut self, prng: &mut Prng) {
        let ratio = rounded(f64::from(self.hits) / self.period as f64);
        let gain = rounded(ratio - self.ratio_before);
        let change = rounded(self.current) - rounded(self.previous);
        let way = change * gain;
        if way != 0.0 {
            let step = (self.rate * change).abs();
            self.rate = (self.rate + step.copysign(way)).clamp(LEAST, MOST);
            (self.with_fewer, self.without_hits) = (0, 0);
        } else if gain <= 0.0 {
            self.go_on_without_gain(ratio, gain, prng);
        }
        (self.previous, self.current) = (self.current, self.rate);
        self.ratio_before = ratio;
        self.hits = 0;
    }

    fn go_on_without_gain(&mut self, ratio: f64, gain: f64, prng: &mut Prng) {
        let has_fewer = gain < 0.0;
        self.with_fewer += u32::from(has_fewer);
        self.without_hits += u32::from(has_fewer || ratio <= 0.0);
        if self.without_hits >= PATIENCE {
            self.rate = self.start;
            self.without_hits = 0;
        } else if has_fewer && self.with_fewer >= PATIENCE {
            self.rate = self.start;
            self.with_fewer = 0;
        } else if has_fewer {
            self.jump(prng);
        }
    }

    /// Off the ends of its range, or by lot up or down.
    fn jump(&mut self, prng: &mut Prng) {
        self.rate = if self.rate >= MOST {
            0.9
        } else if self.rate <= LEAST {
            0.005
        } else if prng.unit() < 0.5 {
            (self.rate * 1.25).min(MOST)
        } else {
            (self.rate * 0.75).max(LEAST)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::Rate;
    use crate::Prng;

    /// This many hits in a period of 100 accesses.
    fn period(rate: &mut Rate, hits: u32) -> f64 {
        for _ in 0..hits {
            rate.note_hit();
        }
        let mut prng = Prng::new(1);
        (0..100).for_each(|_| rate.tick(&mut prng));
        rate.rate()
    }

    #[test]
    fn goes_on_while_hits_rise_and_turns_when_they_fall() {
        let mut rate = Rate::new(100);
        let first = rate.rate();
        assert!((first - 0.117_74).abs() < 1e-5);
        // The rate rose from nothing to 0.118 and hits rose: up by 0.118 of itself.
        let second = period(&mut rate, 50);
        assert!((second - first * 1.118).abs() < 1e-9);
        // It rose by 0.014 and hits fell: down by as much of itself.
        let third = period(&mut rate, 40);
        assert!((third - second * (1.0 - 0.014)).abs() < 1e-9, "{third}");
        assert!(period(&mut rate, 41) < third, "it fell, and hits rose");
    }

    #[test]
    fn starts_again_after_ten_periods_without_a_hit() {
        let mut rate = Rate::new(100);
        let first = rate.rate();
        period(&mut rate, 50);
        assert_ne!(period(&mut rate, 0), first);
        let starts = (0..12).any(|_| period(&mut rate, 0) == first);
        assert!(starts);
    }
}
