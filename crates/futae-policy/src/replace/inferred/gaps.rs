//! How many blocks are served between two servings of one, and the least of that.

/// Number of gaps before an estimate is given.
const FEW: u32 = 64;
/// Number of gaps at which all counts are halved, so that old ones fade.
const MANY: u32 = 8192;
/// Gaps between two looks at the quantile.
const LOOK: u32 = 64;
/// Buckets a doubling, as a power of two: 16, so that a bucket is 4 to 6 % wide.
const FINE: u32 = 4;
const BUCKETS: usize = (u64::BITS as usize) << FINE;

/// Counts of gaps by their logarithm.
#[derive(Clone, Debug)]
pub struct Gaps {
    /// The fraction of gaps that may be shorter than the estimate of the earliest.
    early: f64,
    counts: Vec<u32>,
    total: u32,
    since_look: u32,
    earliest: Option<u64>,
}

impl Gaps {
    /// No gaps yet.
    pub fn new(early: f64) -> Self {
        Self {
            early,
            counts: vec![0; BUCKETS],
            total: 0,
            since_look: 0,
            earliest: None,
        }
    }

    /// Records that a block was served again after this many servings, at least 1.
    pub fn note(&mut self, gap: u64) {
        self.counts[bucket(gap)] += 1;
        self.total += 1;
        self.since_look += 1;
        if self.total >= MANY {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().sum();
        }
        if self.total >= FEW && self.since_look >= LOOK {
            self.since_look = 0;
            self.earliest = Some(self.quantile());
        }
    }

    /// The gap that a share of `early` is shorter than; none before enough are known.
    pub fn earliest(&self) -> Option<u64> {
        self.earliest
    }

    fn quantile(&self) -> u64 {
        let mut left = (self.early * f64::from(self.total)) as u32;
        let at = self.counts.iter().position(|&count| {
            let is_here = count > left;
            left = left.saturating_sub(count);
            is_here
        });
        at.map_or(u64::MAX, least)
    }
}

/// The bucket of a gap: its highest bit, and those after it.
fn bucket(gap: u64) -> usize {
    let gap = gap.max(1);
    let bits = gap.ilog2();
    let after = match bits.checked_sub(FINE) {
        Some(shift) => gap >> shift,
        None => gap << (FINE - bits),
    };
    ((bits << FINE) as usize) + (after as usize & ((1 << FINE) - 1))
}

/// The least gap in a bucket.
fn least(bucket: usize) -> u64 {
    let bits = (bucket >> FINE) as u32;
    let mantissa = (1_u64 << FINE) + (bucket as u64 & ((1 << FINE) - 1));
    match bits.checked_sub(FINE) {
        Some(shift) => mantissa << shift,
        None => mantissa >> (FINE - bits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_begins_with_its_least_gap() {
        for gap in (1..5000).chain([1 << 40, u64::MAX]) {
            let least = least(bucket(gap));
            assert!(least <= gap && gap - least <= gap / 16, "{gap}: {least}");
            assert_eq!(bucket(least), bucket(gap));
        }
    }

    #[test]
    fn the_earliest_is_a_low_quantile_and_follows() {
        let mut gaps = Gaps::new(0.02);
        (0..30).for_each(|_| gaps.note(7));
        assert_eq!(gaps.earliest(), None);
        for gap in 1000..3000 {
            gaps.note(gap);
        }
        // 40 of 2030 are the share of 2 %, so the 30 short ones do not count.
        let near =
            |gaps: &Gaps, gap: u64| gaps.earliest().expect("enough").abs_diff(gap) <= gap / 16;
        assert!(near(&gaps, 1000), "{:?}", gaps.earliest());
        let mut prng = crate::Prng::new(1);
        for _ in 0..40_000 {
            gaps.note(500 + prng.below(8500));
        }
        assert!(near(&gaps, 670), "{:?}", gaps.earliest());
    }
}
