//! What reads and writes of a store take, measured.

use futae_policy::{BlockCost, Class, StoreCosts};
use std::time::Duration;

/// How much of the moving average the newest operation is.
const NEWEST_SHARE: f64 = 1.0 / 32.0;
/// Operations after which the older ones count half in the percentile.
const KEPT_MAX: u32 = 2048;
/// Steps of the histogram to a factor of two, and in all: up to half an hour.
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
    /// An operation on so many blocks took so long.
    pub fn note(&mut self, took: Duration, blocks: u64) {
        let micros = took.as_secs_f64() * 1e6 / blocks.max(1) as f64;
        self.mean = match self.kept {
            0 => micros,
            _ => self.mean + (micros - self.mean) * NEWEST_SHARE,
        };
        let step = (micros.max(1.0).log2() * STEPS as f64) as usize;
        self.counts[step.min(BUCKETS - 1)] += 1;
        self.kept += 1;
        if self.kept >= KEPT_MAX {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.kept = self.counts.iter().sum();
        }
    }

    /// The moving average; none before the first operation.
    pub fn mean(&self) -> Option<f64> {
        (self.kept > 0).then_some(self.mean)
    }

    /// What 99 of 100 operations took at most, to a tenth.
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

/// The costs of near and of far stores: each store counts as it was used lately. What was never
/// written is taken to cost what a read does.
pub fn by_distance<'a>(stores: impl Iterator<Item = (Class, &'a Costs)>) -> StoreCosts {
    /// Of reads and of writes: the sum, and of how many operations.
    type Sums = [(f64, f64); 2];
    let mut sums: [Sums; 2] = Default::default();
    for (class, costs) in stores {
        let of = &mut sums[usize::from(class.has(Class::REMOTE))];
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
    let [local, remote] = sums;
    StoreCosts {
        local: of(local),
        remote: of(remote),
    }
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
    fn far_and_near_are_kept_apart() {
        let mut near = Costs::default();
        near.read.note(Duration::from_micros(100), 1);
        let mut far = Costs::default();
        far.read.note(Duration::from_micros(900), 1);
        far.write.note(Duration::from_micros(2000), 1);
        let costs = by_distance([(Class::NORMAL, &near), (Class::REMOTE, &far)].into_iter());
        let of = |read_micros, write_micros| {
            Some(BlockCost {
                read_micros,
                write_micros,
            })
        };
        assert_eq!(costs.local, of(100.0, 100.0));
        assert_eq!(costs.remote, of(900.0, 2000.0));
        assert_eq!(by_distance(std::iter::empty()), StoreCosts::default());
    }
}
