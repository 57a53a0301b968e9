//! Weights by value, in bins of bounded relative width.

/// Number of bins per power of two, as a power of two.
const FINE_BITS: u32 = 10;
const FINE: u64 = 1 << FINE_BITS;

/// A histogram of weights. Values below 2,048 have a bin each. Above, a bin is at most a thousandth
/// of its value wide, so memory is bounded (55 thousand bins) and no scale has to be chosen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    weights: Vec<f64>,
    total: f64,
}

impl Histogram {
    /// Adds weight at a value.
    #[inline]
    pub fn add(&mut self, value: u64, weight: f64) {
        let bin = bin_of(value);
        if bin >= self.weights.len() {
            self.weights.resize(bin + 1, 0.0);
        }
        self.weights[bin] += weight;
        self.total += weight;
    }

    /// Multiplies all weight by `factor`, at least 0.
    pub fn scale(&mut self, factor: f64) {
        self.weights.iter_mut().for_each(|weight| *weight *= factor);
        self.total *= factor;
    }

    /// Adds the weights of another.
    pub fn merge(&mut self, other: &Self) {
        if other.weights.len() > self.weights.len() {
            self.weights.resize(other.weights.len(), 0.0);
        }
        for (weight, more) in self.weights.iter_mut().zip(&other.weights) {
            *weight += more;
        }
        self.total += other.total;
    }

    /// Removes all weight, and keeps the memory.
    pub fn clear(&mut self) {
        self.weights.clear();
        self.total = 0.0;
    }

    /// Its memory in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.weights.capacity() * size_of::<f64>()
    }

    /// The total weight.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.total
    }

    /// The non-empty bins, in order: lowest value, lowest value of the next bin, weight.
    pub fn bins(&self) -> impl Iterator<Item = (u64, u64, f64)> + '_ {
        let bins = self.weights.iter().enumerate();
        bins.filter(|&(_, &weight)| weight != 0.0)
            .map(|(bin, &weight)| (low_of(bin), low_of(bin + 1), weight))
    }

    /// The weight at values below `value`. If `value` is inside a bin, the bin's weight is assumed
    /// to be uniform.
    #[must_use]
    pub fn below(&self, value: f64) -> f64 {
        let mut sum = 0.0;
        for (low, high, weight) in self.bins() {
            if value <= low as f64 {
                break;
            }
            let share = (value - low as f64) / (high as f64 - low as f64);
            sum += weight * share.min(1.0);
        }
        sum
    }

    /// The value below which this fraction of the weight lies, from 0 to 1; 0 without weight.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        let (wanted, mut sum, mut end) = (share * self.total, 0.0, 0.0);
        for (low, high, weight) in self.bins() {
            if sum + weight >= wanted {
                let along = ((wanted - sum) / weight).clamp(0.0, 1.0);
                return low as f64 + along * (high - low) as f64;
            }
            sum += weight;
            end = high as f64;
        }
        end
    }

    /// The end of the highest non-empty bin.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.bins().last().map_or(0, |(_, high, _)| high)
    }
}

#[inline]
fn bin_of(value: u64) -> usize {
    let shift = (64 - value.leading_zeros()).saturating_sub(FINE_BITS + 1);
    (u64::from(shift) * FINE + (value >> shift)) as usize
}

fn low_of(bin: usize) -> u64 {
    let bin = bin as u64;
    let shift = (bin / FINE).saturating_sub(1);
    let value = u128::from(bin - shift * FINE) << shift;
    u64::try_from(value).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bin() {
        let powers = (0..64).flat_map(|bit| {
            let power = 1u64 << bit;
            [power - 1, power, power + power / 3]
        });
        for value in powers.chain([u64::MAX - 1]) {
            let bin = bin_of(value);
            let (low, high) = (low_of(bin), low_of(bin + 1));
            assert!(low <= value && value < high, "{value}: {low}..{high}");
            assert!((high - low) as f64 <= 1.0 + value as f64 / FINE as f64);
        }
        assert!((0..5000).all(|bin| bin_of(low_of(bin)) == bin));
    }

    #[test]
    fn shares_and_quantiles_are_inverse() {
        let mut histogram = Histogram::default();
        for value in 100..200 {
            histogram.add(value, 2.0);
        }
        assert_eq!(histogram.total(), 200.0);
        assert_eq!(histogram.below(100.0), 0.0);
        assert_eq!(histogram.below(150.0), 100.0);
        assert_eq!(histogram.below(1e9), 200.0);
        assert_eq!(histogram.quantile(0.5), 150.0);
        assert_eq!(histogram.end(), 200);
        assert_eq!(Histogram::default().quantile(0.5), 0.0);
    }

    #[test]
    fn weights_are_scaled_and_added() {
        let (mut one, mut other) = (Histogram::default(), Histogram::default());
        one.add(3, 2.0);
        other.add(3, 1.0);
        other.add(9000, 5.0);
        one.scale(0.5);
        one.merge(&other);
        assert_eq!((one.total(), one.below(4.0)), (7.0, 2.0));
        one.clear();
        assert_eq!((one.total(), one.bins().count()), (0.0, 0));
    }
}
