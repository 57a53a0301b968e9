//! A heap over slots with changeable keys.

use crate::Slot;
use std::cmp::Ordering;

const ABSENT: u32 = u32::MAX;
const CHILDREN: usize = 4;

/// A number with a total order, to be a key.
#[derive(Clone, Copy, Debug)]
pub struct Real(pub f64);

impl PartialEq for Real {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Real {}

impl PartialOrd for Real {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Real {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// Slots with keys, the one with the lowest key on top. A key can be changed at any time.
/// Logarithmic time; 4 bytes per slot beside its key and number.
#[derive(Clone, Debug)]
pub struct Heap<K> {
    /// Each no greater than its four children.
    entries: Vec<(K, Slot)>,
    /// The index of each slot in `entries`.
    places: Vec<u32>,
}

impl<K: Ord + Copy> Heap<K> {
    /// An empty heap with room for `slots` slots; more are added as they come.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self {
            entries: Vec::with_capacity(slots as usize),
            places: Vec::with_capacity(slots as usize),
        }
    }

    /// Slots in the heap.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Whether the heap is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The slot with the lowest key, and that key.
    #[inline]
    #[must_use]
    pub fn top(&self) -> Option<(K, Slot)> {
        self.entries.first().copied()
    }

    /// The key of `slot`, if it is in the heap.
    #[inline]
    #[must_use]
    pub fn key(&self, slot: Slot) -> Option<K> {
        let place = *self.places.get(slot.i())?;
        Some(self.entries.get(place as usize)?.0)
    }

    /// Puts `slot` into the heap, or changes its key.
    #[inline]
    pub fn set(&mut self, slot: Slot, key: K) {
        if self.places.len() <= slot.i() {
            self.places.resize(slot.i() + 1, ABSENT);
        }
        let place = self.places[slot.i()];
        if place == ABSENT {
            self.entries.push((key, slot));
            self.rise(self.entries.len() - 1, (key, slot));
        } else {
            self.settle(place as usize, (key, slot));
        }
    }

    /// Takes `slot` out of the heap, if it is there.
    #[inline]
    pub fn remove(&mut self, slot: Slot) {
        let Some(place) = self.places.get_mut(slot.i()) else {
            return;
        };
        let place = std::mem::replace(place, ABSENT);
        if place == ABSENT {
            return;
        }
        let Some(last) = self.entries.pop() else {
            return;
        };
        if last.1 != slot {
            self.settle(place as usize, last);
        }
    }

    #[inline]
    fn settle(&mut self, place: usize, entry: (K, Slot)) {
        if place > 0 && entry.0 < self.entries[(place - 1) / CHILDREN].0 {
            self.rise(place, entry);
        } else {
            self.sink(place, entry);
        }
    }

    fn rise(&mut self, mut place: usize, entry: (K, Slot)) {
        while place > 0 {
            let parent = (place - 1) / CHILDREN;
            let above = self.entries[parent];
            if above.0 <= entry.0 {
                break;
            }
            self.put(place, above);
            place = parent;
        }
        self.put(place, entry);
    }

    fn sink(&mut self, mut place: usize, entry: (K, Slot)) {
        loop {
            let first = place * CHILDREN + 1;
            let last = (first + CHILDREN).min(self.entries.len());
            let Some(least) = (first..last).min_by_key(|&child| self.entries[child].0) else {
                break;
            };
            let below = self.entries[least];
            if entry.0 <= below.0 {
                break;
            }
            self.put(place, below);
            place = least;
        }
        self.put(place, entry);
    }

    #[inline]
    fn put(&mut self, place: usize, entry: (K, Slot)) {
        self.entries[place] = entry;
        self.places[entry.1.i()] = place as u32;
    }

    /// The slots with their keys, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (K, Slot)> + '_ {
        self.entries.iter().copied()
    }

    /// The slots, lowest key last.
    #[must_use]
    pub fn highest_first(&self) -> Vec<Slot> {
        let mut entries = self.entries.clone();
        entries.sort_by_key(|entry| entry.0);
        // Where keys are equal, the one on top goes first.
        if let (Some(&top), Some(at)) = (
            self.entries.first(),
            entries
                .iter()
                .position(|e| Some(e.1) == self.entries.first().map(|t| t.1)),
        ) {
            entries.remove(at);
            entries.insert(0, top);
        }
        entries.into_iter().rev().map(|entry| entry.1).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Equal to a plain map, searched for its lowest key, under any sequence of operations.
        #[test]
        fn equal_to_a_plain_map(steps in prop::collection::vec((0u8..5, 0u32..24, 0u8..50), 0..400)) {
            let mut heap = Heap::new(4);
            let mut model = BTreeMap::new();
            for (what, slot, key) in steps {
                if what == 0 {
                    heap.remove(Slot(slot));
                    model.remove(&slot);
                } else {
                    heap.set(Slot(slot), key);
                    model.insert(slot, key);
                }
                prop_assert_eq!(heap.len() as usize, model.len());
                prop_assert_eq!(heap.top().map(|(key, _)| key), model.values().min().copied());
                for slot in 0..24 {
                    prop_assert_eq!(heap.key(Slot(slot)), model.get(&slot).copied());
                }
                let order = heap.highest_first();
                let keys: Vec<u8> = order.iter().map(|slot| model[&slot.0]).collect();
                prop_assert!(keys.is_sorted_by(|a, b| a >= b));
                prop_assert_eq!(order.last().copied(), heap.top().map(|(_, slot)| slot));
            }
        }
    }
}
