//! LRFU: the weight of each use decays with its age; one parameter moves it between LRU and LFU.
//!
//! # Source
//! Lee, Choi, Kim, Noh, Min, Cho and Kim, "LRFU: a spectrum of policies that subsumes the least recently
//! used and least frequently used policies", IEEE Transactions on Computers 50(12), 2001.
//! # Picture
//! victim ← [ least Σ ½^(λ × age of each use) ... most ]
//! # Transitions
//! hit: a use of weight 1 is added | miss: placed with one use
//! # Parameters
//! lambda 0.001: how fast the weight decays; 0 is LFU in the cache, 1 is LRU
//! # Deviations
//! none; there is no correlated period. The weights are stored as logarithms relative to the start, so that
//! they need no aging and their order never changes. Ties are broken by the time of the last use
//! # Cost
//! O(log slots) per access; 28 bytes per slot

use crate::structures::{Heap, Real};
use crate::{Access, Arguments, Departure, Policy, Shape, SimulatorHints, Slot, SpecError};

/// Least combined recency and frequency first.
#[derive(Debug)]
pub struct Lrfu {
    lambda: f64,
    now: u64,
    /// log2 of the combined weight as of time 0, and the time of the last use.
    weights: Heap<(Real, u64)>,
}

/// The parameter `lambda`: how fast uses lose weight, from 0 to 1.
///
/// # Errors
///
/// It is given, and is no share.
pub fn lambda(arguments: &mut Arguments) -> Result<f64, SpecError> {
    arguments.share("lambda", 0.001)
}

/// Builds the policy; its parameter is `lambda`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Lrfu, SpecError> {
    Ok(Lrfu {
        lambda: lambda(arguments)?,
        now: 0,
        weights: Heap::new(shape.slots),
    })
}

impl Lrfu {
    fn add_use(&mut self, slot: Slot) {
        self.now += 1;
        // A use now has weight 1 now, and 2^(λ now) as of time 0.
        let one = self.lambda * self.now as f64;
        let before = self.weights.key(slot).map(|(weight, _)| weight.0);
        let weight = before.map_or(one, |before| one + (before - one).exp2().ln_1p() * LOG2_E);
        self.weights.set(slot, (Real(weight), self.now));
    }
}

const LOG2_E: f64 = std::f64::consts::LOG2_E;

impl Policy for Lrfu {
    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.add_use(slot);
    }

    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.add_use(slot);
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        self.weights.top().map(|(_, slot)| slot)
    }

    #[inline]
    fn remove(&mut self, slot: Slot, _why: Departure) {
        self.weights.remove(slot);
    }

    fn order(&self) -> Vec<Slot> {
        self.weights.highest_first()
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.weights.len(), resident);
        assert!(
            self.weights
                .iter()
                .all(|((weight, _), _)| weight.0.is_finite())
        );
    }
}

impl SimulatorHints for Lrfu {}

/// Every use of every resident block, summed up anew.
#[cfg(test)]
mod reference {
    pub struct Lrfu {
        pub slots: usize,
        pub lambda: f64,
        pub now: u64,
        pub blocks: Vec<(u64, Vec<u64>)>,
    }

    impl Lrfu {
        fn weight(&self, uses: &[u64]) -> f64 {
            let weight = |used: &u64| 0.5f64.powf(self.lambda * (self.now - used) as f64);
            uses.iter().map(weight).sum()
        }
    }

    impl crate::contract::Reference for Lrfu {
        fn access(&mut self, block: u64) -> bool {
            self.now += 1;
            if let Some(held) = self.blocks.iter_mut().find(|held| held.0 == block) {
                held.1.push(self.now);
                return true;
            }
            if self.blocks.len() == self.slots {
                let least = self.blocks.iter().min_by(|a, b| {
                    let by_weight = self.weight(&a.1).total_cmp(&self.weight(&b.1));
                    by_weight.then(a.1.last().cmp(&b.1.last()))
                });
                let least = least.map(|held| held.0);
                self.blocks.retain(|held| Some(held.0) != least);
            }
            self.blocks.push((block, vec![self.now]));
            false
        }

        fn resident(&self) -> Vec<u64> {
            self.blocks.iter().map(|held| held.0).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, order_after};

    #[test]
    fn worked_example() {
        // Two uses against one: with λ = 0 they win at any age; with λ = 1 the last use wins.
        let reads = [1, 1, 2, 3, 3];
        assert_eq!(order_after("lrfu(lambda=0)", 3, &reads), [3, 1, 2]);
        assert_eq!(order_after("lrfu(lambda=1)", 3, &reads), [3, 2, 1]);
    }

    #[test]
    fn equals_its_reference_model() {
        for lambda in [0.0, 0.1] {
            equals_reference(&format!("lrfu(lambda={lambda})"), |slots, _| {
                reference::Lrfu {
                    slots,
                    lambda,
                    now: 0,
                    blocks: Vec::new(),
                }
            });
        }
    }
}
