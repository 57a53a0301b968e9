//! Measured costs of a store's reads and writes.

use futae_policy::{BlockCost, Class, StoreCosts};
use std::time::Duration;

/// The weight of the newest operation in the moving average.
const NEWEST_SHARE: f64 = 1.0 / 32.0;
/// Number of operations after which the older ones count half in the percentile.
const KEPT_MAX: u32 = 2048;
/// An operation counts in the average as at most this multiple of the 99th percentile: a stall of
/// seconds predicts little about the next operation. A store that becomes slow counts as slow once
/// 1 of 100 operations was.
const STALL: f64 = 2.0;
/// Number of operations from which on the percentile is known.
const KNOWN: u32 = 64;
/// Steps of the histogram per factor of two, and in total: the range ends at half an hour.
const STEPS: usize = 8;
const BUCKETS: usize = 31 * STEPS;

/// One kind of operation: microseconds a block.
#[derive(Clone, Debug)]
pub struct Cost {
    mean: f64,
    kept: u32,
    counts: [u32; BUCKETS],
}

impl Default for Cost {
    fn default() -> Self {
        Self {
            mean: 0.0,
            kept: 0,
            counts: [0; BUCKETS],
        }
    }
}

impl Cost {
    /// Records how long an operation on this many blocks took.
    pub fn note(&mut self, took: Duration, blocks: u64) {
        let micros = took.as_secs_f64() * 1e6 / blocks.max(1) as f64;
        self.mean = match self.kept {
            0 => micros,
            _ => self.mean + (self.bounded(micros) - self.mean) * NEWEST_SHARE,
        };
        let step = (micros.max(1.0).log2() * STEPS as f64) as usize;
        self.counts[step.min(BUCKETS - 1)] += 1;
        self.kept += 1;
        if self.kept >= KEPT_MAX {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.kept = self.counts.iter().sum();
        }
    }

    fn bounded(&self, micros: f64) -> f64 {
        if self.kept < KNOWN || micros < STALL * self.mean {
            return micros;
        }
        let most = self.percentile_99().map(|slow| STALL * slow);
        most.map_or(micros, |most| micros.min(most))
    }

    /// The moving average; none before the first operation.
    pub fn mean(&self) -> Option<f64> {
        (self.kept > 0).then_some(self.mean)
    }

    /// The 99th percentile of the costs, to a tenth.
    pub fn percentile_99(&self) -> Option<f64> {
        let wanted = self.kept - self.kept / 100;
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted && seen > 0
        });
        bucket.map(|bucket| ((bucket + 1) as f64 / STEPS as f64).exp2())
    }
}

/// Reads and writes of one store.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    pub read: Cost,
    pub write: Cost,
}

/// The costs per class of stores. Each store is weighted by its recent operations. If a class has
/// had no write, a write is assumed to cost as much as a read.
pub fn by_class<'a>(stores: impl Iterator<Item = (Class, &'a Costs)>) -> StoreCosts {
    /// Per reads and writes: the sum of the costs, and the number of operations.
    type Sums = [(f64, f64); 2];
    let mut sums: Vec<Sums> = Vec::new();
    for (class, costs) in stores {
        if sums.len() <= class.store() {
            sums.resize(class.store() + 1, Sums::default());
        }
        let of = &mut sums[class.store()];
        for (sum, cost) in of.iter_mut().zip([&costs.read, &costs.write]) {
            sum.0 += cost.mean * f64::from(cost.kept);
            sum.1 += f64::from(cost.kept);
        }
    }
    let of = |[read, write]: Sums| {
        let mean = |(sum, count): (f64, f64)| (count > 0.0).then(|| sum / count);
        let (read, write) = (mean(read), mean(write));
        Some(BlockCost {
            read_micros: read.or(write)?,
            write_micros: write.or(read)?,
        })
    };
    sums.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_moves_and_the_percentile_sees_the_slow_ones() {
        let mut cost = Cost::default();
        assert_eq!((cost.mean(), cost.percentile_99()), (None, None));
        for at in 0..1000 {
            let micros = if at % 50 == 0 { 20_000 } else { 100 };
            cost.note(Duration::from_micros(micros), 1);
        }
        let slow = cost.percentile_99().expect("measured");
        assert!((20_000.0..22_100.0).contains(&slow), "{slow}");
        for _ in 0..5000 {
            cost.note(Duration::from_micros(800), 4);
        }
        let (mean, slow) = (cost.mean().expect("measured"), cost.percentile_99());
        assert!((199.0..201.0).contains(&mean), "{mean}");
        assert!(
            slow.is_some_and(|slow| (200.0..221.0).contains(&slow)),
            "{slow:?}"
        );
    }

    #[test]
    fn one_stall_says_little_and_many_slow_ones_say_all() {
        let mut cost = Cost::default();
        let times = |cost: &mut Cost, count, millis| {
            (0..count).for_each(|_| cost.note(Duration::from_millis(millis), 10));
        };
        times(&mut cost, 1000, 1);
        times(&mut cost, 1, 4000);
        let mean = cost.mean().expect("measured");
        assert!((100.0..110.0).contains(&mean), "{mean}");
        times(&mut cost, 150, 200);
        let mean = cost.mean().expect("measured");
        assert!((19_000.0..20_100.0).contains(&mean), "{mean}");
    }

    #[test]
    fn classes_of_stores_are_kept_apart() {
        let mut near = Costs::default();
        near.read.note(Duration::from_micros(100), 1);
        let mut far = Costs::default();
        far.read.note(Duration::from_micros(900), 1);
        far.write.note(Duration::from_micros(2000), 1);
        let named = [(Class::of_store(2), &far), (Class::NORMAL, &near)];
        let costs = by_class(named.into_iter().chain([(Class::REMOTE, &far)]));
        let of = |read_micros, write_micros| {
            Some(BlockCost {
                read_micros,
                write_micros,
            })
        };
        assert_eq!(costs.of(0), of(100.0, 100.0));
        assert_eq!(costs.of(1), of(900.0, 2000.0));
        assert_eq!((costs.of(2), costs.of(3)), (None, of(900.0, 2000.0)));
        assert_eq!(by_class(std::iter::empty()), StoreCosts::default());
    }
}
