//! Gradient boosting (Friedman, "Greedy function approximation: a gradient boosting machine",
//! Annals of Statistics 29(5), 2001) of small regression trees over one-byte features. The same
//! samples in the same order give the same forest.

/// Features of one sample.
pub const FEATURES: usize = 7;
/// The features of a sample. A learner that has fewer leaves the others 0.
pub type Features = [u8; FEATURES];

/// The magnitude of a number in quarters of a power of two, as a feature.
#[inline]
#[must_use]
pub fn magnitude(number: u64) -> u8 {
    if number == 0 {
        return 0;
    }
    let power = number.ilog2();
    let quarters = if power >= 2 {
        number >> (power - 2)
    } else {
        number << (2 - power)
    } & 3;
    (1 + 4 * power + quarters as u32).min(254) as u8
}

const TREES: usize = 16;
/// Questions from a tree's root to a leaf.
const DEPTH: usize = 4;
const LEAVES: usize = 1 << DEPTH;
/// The learning rate: the fraction of a tree's result that is added.
const RATE: f64 = 0.3;
/// No question may leave fewer samples on a side.
const FEWEST: u32 = 8;
const VALUES: usize = 256;

/// Goes to the right where the feature's value is above the border.
#[derive(Clone, Copy, Debug)]
struct Question {
    feature: u8,
    border: u8,
}

/// All go to the left.
const NONE: Question = Question {
    feature: 0,
    border: u8::MAX,
};

#[derive(Clone, Debug)]
struct Tree {
    /// Level by level.
    questions: [Question; LEAVES - 1],
    leaves: [f32; LEAVES],
}

/// A sum of trees.
#[derive(Clone, Debug)]
pub struct Forest {
    base: f32,
    trees: Vec<Tree>,
}

/// Sum and number of the samples with one value of a feature.
#[derive(Clone, Copy, Default)]
struct Bin {
    sum: f64,
    number: u32,
}

impl Bin {
    fn add(&mut self, other: Self) {
        self.sum += other.sum;
        self.number += other.number;
    }

    /// The contribution of this side to the gain of a split, for comparing splits.
    fn weight(self) -> f64 {
        self.sum * self.sum / f64::from(self.number.max(1))
    }
}

impl Tree {
    /// Where the sample continues from `place`, counted level by level from the root, 0.
    fn below(questions: &[Question], place: usize, sample: &Features) -> usize {
        let Question { feature, border } = questions[place];
        2 * place + 1 + usize::from(sample[feature as usize] > border)
    }

    fn leaf(&self, sample: &Features) -> usize {
        let mut place = 0;
        for _ in 0..DEPTH {
            place = Self::below(&self.questions, place, sample);
        }
        place - (LEAVES - 1)
    }

    fn learn(samples: &[(Features, f32)], missing: &[f64]) -> Self {
        let mut questions = [NONE; LEAVES - 1];
        let mut places = vec![0; samples.len()];
        for level in 0..DEPTH {
            let first = (1 << level) - 1;
            let mut bins = vec![[[Bin::default(); VALUES]; FEATURES]; 1 << level];
            for ((sample, _), (&place, &missing)) in samples.iter().zip(places.iter().zip(missing))
            {
                for (values, &value) in bins[place - first].iter_mut().zip(sample) {
                    values[value as usize].add(Bin {
                        sum: missing,
                        number: 1,
                    });
                }
            }
            for (question, bins) in questions[first..].iter_mut().zip(&bins) {
                *question = best(bins);
            }
            for ((sample, _), place) in samples.iter().zip(&mut places) {
                *place = Self::below(&questions, *place, sample);
            }
        }
        let mut sums = [Bin::default(); LEAVES];
        for (&place, &sum) in places.iter().zip(missing) {
            sums[place - (LEAVES - 1)].add(Bin { sum, number: 1 });
        }
        let mean = |bin: Bin| RATE * bin.sum / f64::from(bin.number.max(1));
        Self {
            questions,
            leaves: sums.map(|bin| mean(bin) as f32),
        }
    }
}

/// The question after which the two sides differ most.
fn best(bins: &[[Bin; VALUES]; FEATURES]) -> Question {
    let mut all = Bin::default();
    bins[0].iter().for_each(|&bin| all.add(bin));
    let (mut best, mut gain) = (NONE, all.weight() + 1e-9);
    for (feature, values) in bins.iter().enumerate() {
        let mut left = Bin::default();
        for (value, &bin) in values.iter().enumerate() {
            left.add(bin);
            let right = Bin {
                sum: all.sum - left.sum,
                number: all.number - left.number,
            };
            let is_allowed = left.number.min(right.number) >= FEWEST;
            if is_allowed && left.weight() + right.weight() > gain {
                gain = left.weight() + right.weight();
                best = Question {
                    feature: feature as u8,
                    border: value as u8,
                };
            }
        }
    }
    best
}

impl Forest {
    /// Learns from labelled samples, at least one.
    #[must_use]
    pub fn learn(samples: &[(Features, f32)]) -> Self {
        let sum: f64 = samples.iter().map(|(_, label)| f64::from(*label)).sum();
        let base = sum / samples.len().max(1) as f64;
        let mut missing: Vec<f64> = samples
            .iter()
            .map(|(_, label)| f64::from(*label) - base)
            .collect();
        // Of fewer samples no question can be asked, and a tree would add nothing.
        let is_enough = samples.len() >= 2 * FEWEST as usize;
        let number = if is_enough { TREES } else { 0 };
        let mut trees = Vec::with_capacity(number);
        for _ in 0..number {
            let tree = Tree::learn(samples, &missing);
            for ((sample, _), missing) in samples.iter().zip(&mut missing) {
                *missing -= f64::from(tree.leaves[tree.leaf(sample)]);
            }
            trees.push(tree);
        }
        Self {
            base: base as f32,
            trees,
        }
    }

    /// The predicted label of the sample.
    #[inline]
    #[must_use]
    pub fn predict(&self, sample: &Features) -> f32 {
        let parts = self.trees.iter().map(|tree| tree.leaves[tree.leaf(sample)]);
        self.base + parts.sum::<f32>()
    }
}

#[cfg(test)]
mod tests {
    use super::{FEATURES, Forest, magnitude};
    use crate::Prng;

    #[test]
    fn magnitudes_are_quarters_of_powers_of_two() {
        let scale = [0, 1, 2, 3, 4, 5, 8, 16, 1 << 20, u64::MAX];
        assert_eq!(scale.map(magnitude), [0, 1, 5, 7, 9, 10, 13, 17, 81, 254]);
    }

    fn samples(label: impl Fn([u8; FEATURES]) -> f32) -> Vec<([u8; FEATURES], f32)> {
        let mut prng = Prng::new(1);
        let mut sample = || std::array::from_fn(|_| prng.below(40) as u8);
        (0..3000).map(|_| sample()).map(|s| (s, label(s))).collect()
    }

    /// The mean squared error of the forest's predictions.
    fn error(forest: &Forest, samples: &[([u8; FEATURES], f32)]) -> f32 {
        let squares = samples
            .iter()
            .map(|(sample, label)| (forest.predict(sample) - label).powi(2));
        squares.sum::<f32>() / samples.len() as f32
    }

    #[test]
    fn learns_a_step_and_what_depends_on_two_features() {
        let step = samples(|s| if s[3] > 17 { 10.0 } else { -10.0 });
        assert!(error(&Forest::learn(&step), &step) < 0.01);
        let both = samples(|s| f32::from(u8::from(s[0] > 9) ^ u8::from(s[6] > 30)));
        let (seen, unseen) = both.split_at(2000);
        let forest = Forest::learn(seen);
        assert!(error(&forest, unseen) < 0.02, "{}", error(&forest, unseen));
    }

    #[test]
    fn equal_labels_and_few_samples_give_their_mean() {
        let same = samples(|_| 4.0);
        assert!(error(&Forest::learn(&same), &same) < 1e-6);
        let forest = Forest::learn(&[([1; FEATURES], 2.0), ([2; FEATURES], 4.0)]);
        assert!((forest.predict(&[2; FEATURES]) - 3.0).abs() < 1e-6);
    }
}
