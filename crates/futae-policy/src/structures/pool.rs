//! The resident slots in any order, for random draws.

use crate::{Prng, Slot};

/// A set of slots from which one can be drawn with equal probability. Constant time; 8 bytes per
/// slot.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    held: Vec<Slot>,
    /// The index of each slot in `held`.
    places: Vec<u32>,
}

impl Pool {
    /// An empty pool with room for `slots` slots; more are added as they come.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self {
            held: Vec::with_capacity(slots as usize),
            places: Vec::with_capacity(slots as usize),
        }
    }

    /// The slots in the pool, in order of arrival, except that the last replaces each that leaves.
    #[inline]
    #[must_use]
    pub fn slots(&self) -> &[Slot] {
        &self.held
    }

    /// Puts `slot`, which must not be in the pool, into it.
    #[inline]
    pub fn insert(&mut self, slot: Slot) {
        if self.places.len() <= slot.i() {
            self.places.resize(slot.i() + 1, 0);
        }
        self.places[slot.i()] = self.held.len() as u32;
        self.held.push(slot);
    }

    /// Takes `slot`, which must be in the pool, out of it.
    #[inline]
    pub fn remove(&mut self, slot: Slot) {
        let place = self.places[slot.i()] as usize;
        debug_assert_eq!(self.held[place], slot, "slot is not in the pool");
        self.held.swap_remove(place);
        if let Some(&moved) = self.held.get(place) {
            self.places[moved.i()] = place as u32;
        }
    }

    /// Of `sample` slots drawn with replacement, or of all if there are no more than that, the
    /// first with the lowest rank. A slot's rank follows from its `known` data. These are at random
    /// addresses in memory and are read for many slots together, so that the latencies overlap.
    #[inline]
    pub fn lowest_of<T: Copy + Default, K: PartialOrd>(
        &self,
        sample: u32,
        prng: &mut Prng,
        known: impl Fn(Slot) -> T,
        rank: impl Fn(Slot, T) -> K,
    ) -> Option<Slot> {
        let all = self.held.len();
        let draws = (sample as usize).min(all);
        let mut lowest: Option<(K, Slot)> = None;
        let (mut slots, mut knows) = ([Slot(0); TOGETHER], [T::default(); TOGETHER]);
        for first in (0..draws).step_by(TOGETHER) {
            let some = TOGETHER.min(draws - first);
            for (at, slot) in slots[..some].iter_mut().enumerate() {
                let place = if all <= sample as usize {
                    first + at
                } else {
                    prng.below(all as u64) as usize
                };
                *slot = self.held[place];
            }
            for (known_of, &slot) in knows.iter_mut().zip(&slots[..some]) {
                *known_of = known(slot);
            }
            for (&slot, &known) in slots[..some].iter().zip(&knows) {
                let rank = rank(slot, known);
                if lowest.as_ref().is_none_or(|(least, _)| rank < *least) {
                    lowest = Some((rank, slot));
                }
            }
        }
        lowest.map(|(_, slot)| slot)
    }
}

/// The number of slots of a sample whose data are read together.
const TOGETHER: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Equal to a plain list with `swap_remove`; the lowest of all is the lowest.
        #[test]
        fn equal_to_a_plain_list(steps in prop::collection::vec(0u32..20, 0..300)) {
            let (mut pool, mut model) = (Pool::new(4), Vec::new());
            let mut prng = Prng::new(1);
            for slot in steps {
                if let Some(at) = model.iter().position(|&held| held == Slot(slot)) {
                    pool.remove(Slot(slot));
                    model.swap_remove(at);
                } else {
                    pool.insert(Slot(slot));
                    model.push(Slot(slot));
                }
                prop_assert_eq!(pool.slots(), &model[..]);
                let lowest = pool.lowest_of(20, &mut prng, |slot| slot.0, |_, rank| rank);
                prop_assert_eq!(lowest, model.iter().min().copied());
                let one = pool.lowest_of(1, &mut prng, |slot| slot.0, |_, rank| rank);
                prop_assert!(one.is_none_or(|slot| model.contains(&slot)));
            }
        }
    }
}
