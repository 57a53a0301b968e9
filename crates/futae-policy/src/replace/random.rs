//! Random: evicts a resident block chosen at random, each with the same probability.
//!
//! # Source
//! Belady 1966; RAND in Sugimoto and Yamaguchi 2015, section 5.
//! # Picture
//! new → { resident blocks } → one chosen at random
//! # Transitions
//! hit: nothing | miss: placed, in place of a block chosen at random
//! # Parameters
//! seed 0: added to the run's seed
//! # Deviations
//! the next victim is chosen when the previous one is evicted, so that `order` can name it
//! # Cost
//! O(1) per access; 8 bytes per slot

use crate::structures::Pool;
use crate::{Access, Arguments, Departure, Policy, Prng, Shape, SimulatorHints, Slot, SpecError};

/// Any, by lot.
#[derive(Debug)]
pub struct Random {
    prng: Prng,
    pool: Pool,
    /// The place in the pool of the next victim.
    drawn: Option<usize>,
}

/// Builds the policy; its parameter is `seed`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Random, SpecError> {
    let seed = arguments.count("seed", 0, 0)?;
    Ok(Random {
        prng: Prng::new(shape.seed.wrapping_add(seed)),
        pool: Pool::new(shape.slots),
        drawn: None,
    })
}

impl Policy for Random {
    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.pool.insert(slot);
    }

    #[inline]
    fn hit(&mut self, _slot: Slot, _access: &Access) {}

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        let held = self.pool.slots();
        if held.is_empty() {
            return None;
        }
        let below = held.len() as u64;
        let at = self
            .drawn
            .get_or_insert_with(|| self.prng.below(below) as usize);
        Some(held[*at])
    }

    #[inline]
    fn remove(&mut self, slot: Slot, _why: Departure) {
        self.pool.remove(slot);
        self.drawn = None;
    }

    fn order(&self) -> Vec<Slot> {
        let mut order = self.pool.slots().to_vec();
        if let Some(at) = self.drawn {
            let victim = order.remove(at);
            order.push(victim);
        }
        order
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.pool.slots().len(), resident as usize);
    }
}

impl SimulatorHints for Random {}

/// A list from which `Vec::swap_remove` takes the one that the same generator names.
#[cfg(test)]
mod reference {
    pub struct Random {
        pub slots: usize,
        pub blocks: Vec<u64>,
        pub prng: crate::Prng,
    }

    impl crate::contract::Reference for Random {
        fn access(&mut self, block: u64) -> bool {
            if self.blocks.contains(&block) {
                return true;
            }
            if self.blocks.len() == self.slots {
                let at = self.prng.below(self.slots as u64) as usize;
                self.blocks.swap_remove(at);
            }
            self.blocks.push(block);
            false
        }

        fn resident(&self) -> Vec<u64> {
            self.blocks.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, order_after, run};
    use crate::{BlockId, Prng};

    #[test]
    fn worked_example() {
        assert_eq!(order_after("random", 3, &[1, 2, 3]), [1, 2, 3]);
        let resident = order_after("random", 3, &[1, 2, 3, 4]);
        assert!(resident.contains(&4) && resident.len() == 3, "{resident:?}");
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("random", |slots, seed| reference::Random {
            slots,
            blocks: Vec::new(),
            prng: Prng::new(seed),
        });
    }

    #[test]
    fn every_block_goes_equally_often() {
        let mut gone = [0u32; 4];
        for seed in 0..4000 {
            let level = run("random", 4, seed, &[0, 1, 2, 3, 4]);
            let lost = (0..4).find(|&b| level.find(BlockId::on_first(b)).is_none());
            gone[lost.expect("one went") as usize] += 1;
        }
        assert!(gone.iter().all(|&n| (850..1150).contains(&n)), "{gone:?}");
    }
}
