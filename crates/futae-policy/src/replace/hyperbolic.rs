//! Hyperbolic: evicts, from a random sample, the block with the fewest uses per time since it was placed.
//!
//! # Source
//! Blankstein, Sen and Freedman, "Hyperbolic caching: flexible caching for web applications", USENIX ATC
//! 2017.
//! # Picture
//! { resident blocks } → a random sample → victim: least uses ÷ time since it was placed
//! # Transitions
//! hit: count + 1 | miss: placed with one use
//! # Parameters
//! sample 64: blocks in a sample (paper 64); all of them in a cache with no more
//! # Deviations
//! size and cost are 1; the sample is drawn with replacement. `order` lists all blocks by their rank; a
//! random sample need not contain the first victim of that list
//! # Cost
//! O(1) per hit, O(sample) per eviction; 24 bytes per slot

use crate::structures::{Pool, Table};
use crate::{Access, Arguments, Departure, Policy, Prng, Shape, SimulatorHints, Slot, SpecError};

/// Uses and since when.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    since: u64,
    uses: u32,
}

/// Fewest uses for its time first, of a sample.
#[derive(Debug)]
pub struct Hyperbolic {
    sample: u32,
    now: u64,
    prng: Prng,
    pool: Pool,
    known: Table<Known>,
}

/// Builds the policy; its parameter is `sample`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Hyperbolic, SpecError> {
    let sample = arguments.take("sample", "1 to 65536", |n: &u32| (1..=1 << 16).contains(n))?;
    Ok(Hyperbolic {
        sample: sample.unwrap_or(64),
        now: 0,
        prng: Prng::new(shape.seed),
        pool: Pool::new(shape.slots),
        known: Table::new(shape.slots),
    })
}

fn rank(known: Known, now: u64) -> f64 {
    f64::from(known.uses) / (now - known.since) as f64
}

impl Policy for Hyperbolic {
    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.pool.insert(slot);
        let known = Known {
            since: self.now,
            uses: 1,
        };
        self.known.set(slot, known);
        self.now += 1;
    }

    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        let known = self.known.at(slot);
        known.uses = known.uses.saturating_add(1);
        self.now += 1;
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        let (now, known) = (self.now, &self.known);
        let of = |slot| known.get(slot);
        let rank = |_, known| rank(known, now);
        self.pool.lowest_of(self.sample, &mut self.prng, of, rank)
    }

    #[inline]
    fn remove(&mut self, slot: Slot, _why: Departure) {
        self.pool.remove(slot);
    }

    fn order(&self) -> Vec<Slot> {
        let rank = |slot: &Slot| rank(self.known.get(*slot), self.now);
        let mut next = self.pool.slots().to_vec();
        next.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
        next.reverse();
        next
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.pool.slots().len(), resident as usize);
        let known = |slot: &Slot| self.known.get(*slot);
        let mut all = self.pool.slots().iter().map(known);
        assert!(all.all(|known| known.uses > 0 && known.since < self.now));
    }
}

impl SimulatorHints for Hyperbolic {}

/// A list of (block, uses, since) from which the same lots are drawn.
#[cfg(test)]
mod reference {
    pub struct Hyperbolic {
        pub slots: usize,
        pub sample: usize,
        pub now: u64,
        pub prng: crate::Prng,
        pub blocks: Vec<(u64, f64, u64)>,
    }

    impl crate::contract::Reference for Hyperbolic {
        fn access(&mut self, block: u64) -> bool {
            let now = self.now;
            self.now += 1;
            if let Some(held) = self.blocks.iter_mut().find(|held| held.0 == block) {
                held.1 += 1.0;
                return true;
            }
            if self.blocks.len() == self.slots {
                let drawn: Vec<usize> = if self.slots <= self.sample {
                    (0..self.slots).collect()
                } else {
                    let lot = |_| self.prng.below(self.slots as u64) as usize;
                    (0..self.sample).map(lot).collect()
                };
                let rank = |&at: &usize| self.blocks[at].1 / (now - self.blocks[at].2) as f64;
                let least = drawn
                    .iter()
                    .copied()
                    .min_by(|a, b| rank(a).total_cmp(&rank(b)));
                self.blocks.swap_remove(least.expect("not empty"));
            }
            self.blocks.push((block, 1.0, now));
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
    use crate::Prng;
    use crate::contract::{equals_reference, order_after};

    #[test]
    fn worked_example() {
        // After seven reads: 1 has 3 uses in 7, 2 has 1 in 4, 3 has 1 in 3: 2 goes.
        assert_eq!(
            order_after("hyperbolic", 3, &[1, 1, 1, 2, 3, 3, 3]),
            [3, 1, 2]
        );
        assert_eq!(
            order_after("hyperbolic", 3, &[1, 1, 1, 2, 3, 3, 3, 4]),
            [4, 3, 1]
        );
    }

    #[test]
    fn equals_its_reference_model() {
        for sample in [4, 64] {
            equals_reference(&format!("hyperbolic(sample={sample})"), |slots, seed| {
                reference::Hyperbolic {
                    slots,
                    sample,
                    now: 0,
                    prng: Prng::new(seed),
                    blocks: Vec::new(),
                }
            });
        }
    }
}
