//! The choice of the class that loses a block next: each in proportion to its weight times its
//! length (Sudo and others 1993, section 3.2.2, figure 3).

use crate::{Arguments, BlockCost, Class, SpecError, StoreCosts};
use std::str::FromStr;

/// Measured weights stay between this and its inverse.
const WEIGHT_MAX: f64 = 8.0;
/// Of near and of far stores, clean and dirty.
const WEIGHTS_DEFAULT: [[f64; 2]; 2] = [[4.0, 2.0], [3.0, 1.0]];
const PARAMETERS: [[&str; 2]; 2] = [
    ["local_clean", "local_dirty"],
    ["remote_clean", "remote_dirty"],
];

/// The classes with their weights and credits. First those of clean blocks, by the number of their
/// store ([`Class::store`]), then those of dirty ones.
#[derive(Clone, Debug)]
pub struct ClassWeights {
    stores: Vec<String>,
    weights: Vec<f64>,
    credits: Vec<f64>,
    /// Whether the weights follow the measured costs of stores.
    is_measured: bool,
}

/// The value of `weights=`.
enum Weights {
    Measured,
    Given(Vec<(String, f64)>),
}

impl FromStr for Weights {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text == "measured" {
            return Ok(Self::Measured);
        }
        let mut given: Vec<(String, f64)> = Vec::new();
        for part in text.split(',') {
            let (name, weight) = part.split_once(':').ok_or(())?;
            let (name, weight) = (name.trim(), weight.trim().parse().map_err(|_| ())?);
            if !is_weight(weight) || given.iter().any(|(other, _)| other == name) {
                return Err(());
            }
            given.push((name.to_owned(), weight));
        }
        Ok(Self::Given(given))
    }
}

fn is_weight(weight: f64) -> bool {
    weight > 0.0 && weight <= 1000.0
}

/// The value of `classes=`: names of classes of stores, `nfs+ceph`.
struct Names(Vec<String>);

impl FromStr for Names {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let names: Vec<String> = text.split('+').map(|name| name.trim().to_owned()).collect();
        let is_name = |name: &String| {
            let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            !name.is_empty() && name.chars().all(legal)
        };
        let is_taken = |at: usize| {
            let name = names[at].as_str();
            ["local", "remote"].contains(&name) || names[..at].contains(&names[at])
        };
        let fit = names.len() <= usize::from(Class::STORES_MAX);
        let good = names.iter().all(is_name) && !(0..names.len()).any(is_taken);
        (fit && good).then_some(Self(names)).ok_or(())
    }
}

impl ClassWeights {
    /// Parses the parameters of the weights.
    pub fn build(arguments: &mut Arguments) -> Result<Self, SpecError> {
        let expected = "a list of names such as nfs+ceph, none of them local or remote";
        let named = arguments.take("classes", expected, |_: &Names| true)?;
        let mut stores: Vec<String> = ["local", "remote"].map(str::to_owned).into();
        stores.extend(named.map_or_else(Vec::new, |Names(names)| names));
        let count = stores.len();
        let mut usual = WEIGHTS_DEFAULT;
        for (weights, keys) in usual.iter_mut().zip(PARAMETERS) {
            for (weight, key) in weights.iter_mut().zip(keys) {
                let expected = "a number above 0, up to 1000";
                let given = arguments.take(key, expected, |weight: &f64| is_weight(*weight))?;
                *weight = given.unwrap_or(*weight);
            }
        }
        let weight = |class: usize| usual[(class % count).min(1)][class / count];
        let mut class_weights = Self {
            weights: (0..2 * count).map(weight).collect(),
            credits: vec![0.0; 2 * count],
            stores,
            is_measured: false,
        };
        let names = class_weights.names();
        let expected = format!(
            "`measured`, or a list such as local-clean:2,remote-clean:1 of the classes {}",
            names.join(", ")
        );
        let all_known = |weights: &Weights| match weights {
            Weights::Measured => true,
            Weights::Given(given) => given.iter().all(|(name, _)| names.contains(name)),
        };
        match arguments.take("weights", &expected, all_known)? {
            None => {}
            Some(Weights::Measured) => class_weights.is_measured = true,
            Some(Weights::Given(given)) => {
                for (name, weight) in given {
                    let at = names.iter().position(|known| *known == name);
                    at.into_iter()
                        .for_each(|at| class_weights.weights[at] = weight);
                }
            }
        }
        Ok(class_weights)
    }

    fn names(&self) -> Vec<String> {
        let kinds = ["clean", "dirty"].into_iter();
        let of = |kind| {
            let names = self.stores.iter();
            names.map(move |store| format!("{store}-{kind}"))
        };
        kinds.flat_map(of).collect()
    }

    /// How many classes there are.
    pub fn classes(&self) -> usize {
        self.weights.len()
    }

    /// The number of a block's class. A store in a class without a name counts as a far one.
    #[inline]
    pub fn class_of(&self, class: Class) -> u8 {
        let store = class.store();
        let store = if store < self.stores.len() { store } else { 1 };
        let dirty = usize::from(class.has(Class::DIRTY));
        (store + dirty * self.stores.len()) as u8
    }

    /// The class that gives the next block; all classes are credited their shares by their
    /// lengths. None if all are empty.
    #[inline]
    pub fn next(&mut self, length: impl Fn(usize) -> u32) -> Option<usize> {
        let part = |class: usize| self.weights[class] * f64::from(length(class));
        let all: f64 = (0..self.weights.len()).map(part).sum();
        let mut next: Option<usize> = None;
        for class in 0..self.weights.len() {
            if length(class) == 0 {
                continue;
            }
            self.credits[class] += self.weights[class] * f64::from(length(class)) / all;
            if next.is_none_or(|next| self.credits[class] > self.credits[next]) {
                next = Some(class);
            }
        }
        self.credits[next?] -= 1.0;
        next
    }

    /// Adopts the costs of the stores, if the weights follow them.
    pub fn note_costs(&mut self, costs: &StoreCosts) {
        if self.is_measured {
            self.weights = weights_of(costs, self.stores.len());
        }
    }

    /// The classes by name with their weights.
    pub fn weights(&self) -> Vec<(String, f64)> {
        let weights = self.weights.iter().copied();
        self.names().into_iter().zip(weights).collect()
    }

    /// Panics if a class was skipped, or gave too many blocks.
    pub fn audit(&self) {
        let most = self.classes() as f64;
        assert!(self.credits.iter().all(|credit| credit.abs() < most));
    }
}

/// Each class's 1 / (read, and write if dirty), relative to the geometric mean of the known ones.
fn weights_of(costs: &StoreCosts, stores: usize) -> Vec<f64> {
    let clean = |cost: BlockCost| 1.0 / cost.read_micros.max(0.01);
    let dirty = |cost: BlockCost| 1.0 / (cost.read_micros + cost.write_micros).max(0.01);
    let of_clean = (0..stores).map(|store| costs.of(store).map(clean));
    let of_dirty = (0..stores).map(|store| costs.of(store).map(dirty));
    let raw: Vec<Option<f64>> = of_clean.chain(of_dirty).collect();
    let known: Vec<f64> = raw.iter().flatten().map(|weight| weight.ln()).collect();
    let mean = (known.iter().sum::<f64>() / known.len().max(1) as f64).exp();
    let bounded = |weight: f64| (weight / mean).clamp(1.0 / WEIGHT_MAX, WEIGHT_MAX);
    raw.into_iter()
        .map(|weight| weight.map_or(1.0, bounded))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::ClassWeights;
    use crate::{Arguments, BlockCost, Class, PolicySpec, SpecError, StoreCosts};

    fn class_weights(text: &str) -> Result<ClassWeights, SpecError> {
        let spec: PolicySpec = text.parse().expect("well formed");
        ClassWeights::build(&mut Arguments::new(&spec))
    }

    #[test]
    fn weights_are_read_as_one_list() {
        let given = class_weights("cost(weights=local-clean:2, remote-dirty:0.5)").expect("valid");
        assert_eq!(given.weights, [2.0, 3.0, 2.0, 0.5]);
        for text in [
            "far:1",
            "local-clean",
            "local-clean:0",
            "local-clean:1,local-clean:2",
        ] {
            let built = class_weights(&format!("cost(weights={text})"));
            let error = built.expect_err(text).to_string();
            assert!(error.contains("measured"), "{error}");
        }
    }

    #[test]
    fn stores_can_be_in_classes_of_their_own() {
        let text = "cost(classes=nfs+my-ceph,weights=my-ceph-dirty:0.25,nfs-clean:7,local-clean:5)";
        let class_weights = class_weights(text).expect("valid");
        let expected = [
            ("local-clean", 5.0),
            ("remote-clean", 3.0),
            ("nfs-clean", 7.0),
            ("my-ceph-clean", 3.0),
            ("local-dirty", 2.0),
            ("remote-dirty", 1.0),
            ("nfs-dirty", 1.0),
            ("my-ceph-dirty", 0.25),
        ];
        assert_eq!(
            class_weights.weights(),
            expected.map(|(name, weight)| (name.to_owned(), weight))
        );
        let class = |class: Class| {
            class_weights.weights()[usize::from(class_weights.class_of(class))]
                .0
                .clone()
        };
        assert_eq!(class(Class::of_store(1)), "nfs-clean");
        assert_eq!(
            class(Class::of_store(2).with(Class::DIRTY)),
            "my-ceph-dirty"
        );
        assert_eq!(
            class(Class::of_store(2).with(Class::PROTECTED)),
            "my-ceph-clean"
        );
        assert_eq!(
            class(Class::of_store(9)),
            "remote-clean",
            "nobody has named it"
        );
        for text in ["local", "nfs+nfs", "a b", "+"] {
            let error = super::tests::class_weights(&format!("cost(classes={text})"));
            assert!(error.is_err(), "{text}");
        }
        let unknown = super::tests::class_weights("cost(classes=nfs,weights=ceph-clean:1)");
        let error = unknown.expect_err("unknown").to_string();
        assert!(error.contains("nfs-clean"), "{error}");
    }

    #[test]
    fn measured_weights_follow_the_costs_and_are_bounded() {
        let cost = |read_micros, write_micros| {
            Some(BlockCost {
                read_micros,
                write_micros,
            })
        };
        let costs = |of: &[Option<BlockCost>]| of.iter().copied().collect::<StoreCosts>();
        let mut measured = class_weights("cost(weights=measured)").expect("valid");
        measured.note_costs(&costs(&[cost(100.0, 100.0), cost(400.0, 400.0)]));
        // 1/100, 1/400, 1/200, 1/800: each is a half, or a quarter, of another.
        let expected = [8f64.sqrt(), 0.5f64.sqrt(), 2f64.sqrt(), 0.125f64.sqrt()];
        for (weight, expected) in measured.weights.iter().zip(expected) {
            assert!((weight - expected).abs() < 1e-9, "{:?}", measured.weights);
        }
        measured.note_costs(&costs(&[cost(10.0, 10.0), cost(20_000.0, 20_000.0)]));
        assert_eq!(measured.weights, [8.0, 0.125, 8.0, 0.125]);
        measured.note_costs(&costs(&[cost(10.0, 0.0)]));
        let is_one = |weight: &f64| (weight - 1.0).abs() < 1e-9;
        assert!(
            measured.weights.iter().all(is_one),
            "{:?}",
            measured.weights
        );
        let mut by_hand = class_weights("cost").expect("valid");
        by_hand.note_costs(&StoreCosts::default());
        assert_eq!(by_hand.weights, [4.0, 3.0, 2.0, 1.0]);
    }
}
