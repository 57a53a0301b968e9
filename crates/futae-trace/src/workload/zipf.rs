//! Zipf: the block of rank r is asked for with a probability proportional to 1/r^exponent.
//!
//! Ranks are drawn by rejection-inversion (W. Hörmann and G. Derflinger, "Rejection-inversion to
//! generate variates from monotone discrete distributions", ACM TOMACS 6(3), 1996): invert the
//! integral of the continuous 1/x^exponent, round to a rank, and reject the little that the
//! integral has too much. The cost of a draw does not depend on the number of blocks. The ranks
//! are then scattered over the blocks by a seeded permutation.
//!
//! Logarithms and powers come from the `libm` crate, because those of the platform differ from
//! machine to machine in the last bit.

use super::generator::Source;
use super::parse::Raw;
use super::piece::Problem;
use super::region::Region;
use super::scatter::Scatter;
use futae_policy::Prng;

/// `zipf(exponent):SIZE`.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    pub exponent: f64,
    pub region: Region,
}

impl Spec {
    pub fn parse(raw: &Raw<'_>) -> Result<Self, Problem> {
        raw.plain_at_most(1)?;
        let exponent = raw
            .plain
            .first()
            .ok_or_else(|| raw.missing("its exponent, as in `zipf(1.0):10GiB`"))?;
        let exponent = exponent.number("an exponent above 0 and up to 20", |&e: &f64| {
            e > 0.0 && e <= 20.0
        })?;
        Ok(Self {
            exponent,
            region: raw.region()?,
        })
    }
}

#[derive(Clone)]
pub struct Draw {
    ranks: Ranks,
    scatter: Scatter,
    prng: Prng,
}

impl Draw {
    pub fn new(blocks: u64, exponent: f64, mut prng: Prng) -> Self {
        let scatter = Scatter::new(blocks, &mut prng);
        Self {
            ranks: Ranks::new(blocks, exponent),
            scatter,
            prng,
        }
    }
}

impl Source for Draw {
    #[inline]
    fn draw(&mut self) -> u64 {
        self.scatter.place(self.ranks.draw(&mut self.prng) - 1)
    }
}

/// The distribution of ranks `1..=count`.
#[derive(Clone, Debug)]
pub struct Ranks {
    count: f64,
    exponent: f64,
    /// 1 / (1 - exponent), infinite for exponent 1.
    steepness: f64,
    /// The integral where rank 1 begins, so that rank 1 takes exactly its weight.
    low: f64,
    /// The integral where the last rank ends.
    high: f64,
    /// A rank that was rounded down by at most this much needs no test.
    sure: f64,
}

impl Ranks {
    pub fn new(count: u64, exponent: f64) -> Self {
        let mut ranks = Self {
            count: count as f64,
            exponent,
            steepness: 1.0 / (1.0 - exponent),
            low: 0.0,
            high: 0.0,
            sure: 0.0,
        };
        ranks.low = ranks.integral(1.5) - 1.0;
        ranks.high = ranks.integral(ranks.count + 0.5);
        ranks.sure = 2.0 - ranks.inverse(ranks.integral(2.5) - ranks.weight(2.0));
        ranks
    }

    /// The next rank, from 1.
    #[inline]
    pub fn draw(&self, prng: &mut Prng) -> u64 {
        loop {
            let u = self.high + prng.unit() * (self.low - self.high);
            let x = self.inverse(u);
            let rank = (x + 0.5).floor().clamp(1.0, self.count);
            if rank - x <= self.sure || u >= self.integral(rank + 0.5) - self.weight(rank) {
                return rank as u64;
            }
        }
    }

    /// h(x) = 1/x^exponent.
    fn weight(&self, x: f64) -> f64 {
        libm::exp(-self.exponent * libm::log(x))
    }

    /// H(x) = (x^(1-exponent) - 1) / (1-exponent), or ln x for exponent 1: the integral of h from
    /// 1 to x, written so that it stays exact as the exponent comes near 1.
    fn integral(&self, x: f64) -> f64 {
        let log = libm::log(x);
        let t = (1.0 - self.exponent) * log;
        if t.abs() < 1e-8 {
            log * (1.0 + t / 2.0)
        } else {
            log * (libm::expm1(t) / t)
        }
    }

    /// The x whose [`Ranks::integral`] is `area`.
    #[inline]
    fn inverse(&self, area: f64) -> f64 {
        if self.exponent == 1.0 {
            return libm::exp(area);
        }
        // Rounding must not lead past the pole of exponents above 1.
        let t = ((1.0 - self.exponent) * area).max(-1.0);
        let log = if t.abs() < 1e-8 {
            area * (1.0 - t / 2.0)
        } else {
            libm::log1p(t) * self.steepness
        };
        libm::exp(log)
    }
}

#[cfg(test)]
mod tests {
    use super::{Prng, Ranks};

    /// Every share that is looked at must be within three sigma of the exact 1/r^a / sum.
    #[test]
    fn ranks_have_their_exact_shares() {
        const DRAWS: u64 = 1_000_000;
        for exponent in [
            0.1,
            0.5,
            0.8,
            0.99,
            0.999_999_999_9,
            1.0,
            1.000_001,
            1.2,
            2.0,
            5.0,
        ] {
            for count in [1u64, 2, 1000, 20_480] {
                let ranks = Ranks::new(count, exponent);
                let mut prng = Prng::new(count);
                let mut seen = vec![0u64; count as usize + 1];
                (0..DRAWS).for_each(|_| seen[ranks.draw(&mut prng) as usize] += 1);
                let sum: f64 = (1..=count).map(|r| (r as f64).powf(-exponent)).sum();
                for rank in [1, 2, 3, 10, 100, 1000] {
                    if rank > count {
                        break;
                    }
                    let p = (rank as f64).powf(-exponent) / sum;
                    let mean = p * DRAWS as f64;
                    let sigma = (mean * (1.0 - p)).sqrt();
                    let off = (seen[rank as usize] as f64 - mean).abs();
                    assert!(
                        off <= 3.0 * sigma + 1e-6,
                        "exponent {exponent}, {count} ranks: rank {rank} off by {off} of {sigma}"
                    );
                }
            }
        }
    }

    #[test]
    fn extreme_exponents_and_counts_stay_in_range() {
        for exponent in [1e-9, 1.0, 20.0] {
            for count in [1, 3, 1 << 48] {
                let ranks = Ranks::new(count, exponent);
                let mut prng = Prng::new(1);
                for _ in 0..10_000 {
                    assert!((1..=count).contains(&ranks.draw(&mut prng)));
                }
            }
        }
    }
}
