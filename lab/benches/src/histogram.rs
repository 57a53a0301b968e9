//! Latencies in fixed memory, to within a thirty-second of their value.

const STEPS_BITS: u32 = 5;
const STEPS: usize = 1 << STEPS_BITS;
const BUCKETS: usize = (u64::BITS - STEPS_BITS + 1) as usize * STEPS;

/// Counts of durations by size.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64]>,
    total: u64,
    sum_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS].into_boxed_slice(),
            total: 0,
            sum_ns: 0,
        }
    }
}

fn bucket(ns: u64) -> usize {
    let octave = (u64::BITS - ns.leading_zeros()).saturating_sub(STEPS_BITS + 1);
    octave as usize * STEPS + (ns >> octave) as usize
}

/// The largest duration of a bucket.
fn top(bucket: usize) -> u64 {
    let octave = (bucket / STEPS).saturating_sub(1);
    let step = (bucket - octave * STEPS) as u64;
    ((step + 1) << octave).wrapping_sub(1)
}

impl Histogram {
    /// Counts a duration.
    #[inline]
    pub fn add(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.total += 1;
        self.sum_ns += ns;
    }

    /// Counts all that `other` has counted.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.sum_ns += other.sum_ns;
    }

    /// How many there are.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The mean in nanoseconds; 0 if there are none.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        self.sum_ns as f64 / self.total.max(1) as f64
    }

    /// The duration in nanoseconds that `part` of all are at most.
    #[must_use]
    pub fn quantile_ns(&self, part: f64) -> u64 {
        let wanted = ((self.total as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return top(bucket);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_narrow_and_in_order() {
        let numbers = (0..100_000).chain((17..64).map(|bit| 1 << bit));
        let mut last = 0;
        for ns in numbers.chain([u64::MAX]) {
            let at = bucket(ns);
            assert!(at < BUCKETS && top(at) >= ns, "{ns}");
            assert!(top(at) - ns <= ns / STEPS as u64, "{ns} {}", top(at));
            assert!(
                at == last || at == last + 1 || ns > 100_000 && at > last,
                "{ns}"
            );
            last = at;
        }
    }

    #[test]
    fn quantiles_and_means() {
        let (mut all, mut half) = (Histogram::default(), Histogram::default());
        assert_eq!(all.quantile_ns(0.5), 0);
        for ns in 1..=1000 {
            if ns % 2 == 0 { &mut all } else { &mut half }.add(ns * 1000);
        }
        all.merge(&half);
        assert_eq!(all.total(), 1000);
        assert!((all.mean_ns() - 500_500.0).abs() < 1e-6);
        let median = all.quantile_ns(0.5);
        assert!((500_000..=516_000).contains(&median), "{median}");
        let high = all.quantile_ns(0.99);
        assert!((990_000..=1_022_000).contains(&high), "{high}");
    }
}
