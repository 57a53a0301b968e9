//! Free slots that a level does not use until it is larger. Their memory need not be kept.

use super::Level;
use crate::{Index, Policy, Slot};

impl<P: Policy, I: Index> Level<P, I> {
    /// Slots that were used so far. Those from this number on are used in ascending order, once no other slot is free.
    pub fn used(&self) -> u32 {
        self.classes.len() as u32
    }

    /// Strips at most `most` free slots that a level of this capacity does not use, and returns them.
    pub fn strip(&mut self, most: usize) -> Vec<Slot> {
        let end = self.surplus(self.capacity).min(self.stripped + most);
        let those = self.free.get(self.stripped..end).unwrap_or_default();
        let those = those.to_vec();
        self.stripped += those.len();
        those
    }

    /// At most `most` of the stripped slots that a level of `capacity` slots uses: those that it uses first.
    pub fn stripped(&self, capacity: u32, most: usize) -> Vec<Slot> {
        let from = self
            .surplus(capacity)
            .max(self.stripped.saturating_sub(most));
        let those = self.free.get(from..self.stripped).unwrap_or_default();
        those.to_vec()
    }

    /// The stripped slots that [`stripped`](Self::stripped) returned, of this number, can be used again.
    pub fn fit_out(&mut self, slots: usize) {
        self.stripped = self.stripped.saturating_sub(slots);
    }

    /// How many of the free slots a level of `capacity` slots does not use. They are at the bottom.
    fn surplus(&self, capacity: u32) -> usize {
        let used = capacity.saturating_sub(self.resident) as usize;
        self.free.len().saturating_sub(used)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Access, BlockId, Departure, HashIndex, Level, Policy, PolicySpec, Prng, Shape};
    use std::collections::BTreeSet;

    fn level(slots: u32) -> Level<Box<dyn Policy>> {
        let shape = Shape { slots, seed: 1 };
        let policy = crate::build(&"lru".parse::<PolicySpec>().expect("a policy"), &shape);
        Level::new(policy.expect("plain"), HashIndex::default(), slots)
    }

    /// Whatever comes, no block gets a slot that is stripped, and no more slots have memory than the level is large.
    #[test]
    fn no_block_gets_a_slot_that_is_stripped() {
        let (mut level, mut prng, mut bare) = (level(20), Prng::new(3), BTreeSet::new());
        let (mut most, mut reused) = (20, 0);
        for _ in 0..20_000 {
            match prng.below(20) {
                0 => {
                    let capacity = 1 + prng.below(40) as u32;
                    loop {
                        let slots = level.stripped(capacity, 3);
                        if slots.is_empty() {
                            break;
                        }
                        reused += slots.len();
                        assert!(slots.iter().all(|slot| bare.remove(slot)));
                        level.fit_out(slots.len());
                    }
                    // Others come between.
                    level.access(&Access::read(BlockId::on_first(prng.below(60))));
                    level.resize(capacity);
                    most = most.max(capacity);
                    loop {
                        let slots = level.strip(2);
                        if slots.is_empty() {
                            break;
                        }
                        assert!(slots.into_iter().all(|slot| bare.insert(slot)));
                    }
                    let held = level.used().max(level.capacity()) as usize - bare.len();
                    assert!(
                        held <= level.capacity() as usize,
                        "{held} slots have memory"
                    );
                }
                1..=4 => {
                    let block = BlockId::on_first(prng.below(60));
                    level.remove(block, Departure::Invalidated);
                }
                _ => {
                    let block = BlockId::on_first(prng.below(60));
                    level.access(&Access::read(block));
                    let slot = level.find(block).expect("it was read");
                    assert!(!bare.contains(&slot), "{slot:?} has no memory");
                }
            }
            level.audit();
        }
        assert!(reused > 100 && most == 40, "{reused} {most}");
    }
}
