//! Keys that are hashes, numbered in the order in which they appear.

use super::far::hash;
use futae_policy::VolumeId;
use futae_policy::structures::prefetch;

const START: usize = 1 << 12;
/// The highest number. The table stores numbers plus one.
const LAST: usize = u32::MAX as usize - 1;

/// An array of keys, and a hash table of places in it. Half the memory of a table of keys and numbers: much of the time of a
/// short trace goes into making memory available. Nothing is ever removed.
pub struct Keys {
    /// The key of each number.
    keys: Vec<u64>,
    /// Numbers plus one; 0 means none. The search for a key begins at the upper bits of its hash. At most half are taken.
    table: Vec<u32>,
    shift: u32,
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            table: vec![0; START],
            shift: u64::BITS - START.ilog2(),
        }
    }
}

impl Keys {
    /// Prefetches where the search for each key begins, without waiting for it.
    #[inline]
    pub fn prefetch(&self, keys: &[u64]) {
        for &key in keys {
            prefetch(&self.table, self.start(key));
        }
    }

    /// The key's number, which it gets now if it is new. Keys beyond the highest number share it: no simulation has as many
    /// blocks.
    #[inline]
    pub fn number(&mut self, key: u64) -> u32 {
        let place = self.search(key);
        match self.table[place].checked_sub(1) {
            Some(number) => number,
            None => self.add(place, key),
        }
    }

    #[inline(never)]
    fn add(&mut self, mut place: usize, key: u64) -> u32 {
        if self.keys.len() == LAST {
            return LAST as u32;
        }
        if self.keys.len() >= self.table.len() / 2 {
            self.grow();
            place = self.search(key);
        }
        self.keys.push(key);
        self.table[place] = self.keys.len() as u32;
        self.keys.len() as u32 - 1
    }

    fn grow(&mut self) {
        self.table = vec![0; 2 * self.table.len()];
        self.shift -= 1;
        for (number, &key) in (1..).zip(&self.keys) {
            let mut place = self.start(key);
            while self.table[place] != 0 {
                place = self.after(place);
            }
            self.table[place] = number;
        }
    }

    /// Where the key's number is, or where it would be.
    #[inline]
    fn search(&self, key: u64) -> usize {
        let mut place = self.start(key);
        while let Some(number) = self.table[place].checked_sub(1)
            && self.keys[number as usize] != key
        {
            place = self.after(place);
        }
        place
    }

    #[inline]
    fn start(&self, key: u64) -> usize {
        (hash(VolumeId(0), key) >> self.shift) as usize
    }

    #[inline]
    fn after(&self, place: usize) -> usize {
        (place + 1) & (self.table.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::Keys;
    use proptest::prelude::{any, prop, prop_assert_eq, prop_oneof, proptest};
    use std::collections::HashMap;

    proptest! {
        /// Also after the table has grown.
        #[test]
        fn it_equals_a_map(keys in prop::collection::vec(prop_oneof![0u64..9, any::<u64>()], 0..9000)) {
            let mut numbered = Keys::default();
            let mut map = HashMap::new();
            for &key in keys.iter().chain(&keys) {
                let next = map.len() as u32;
                prop_assert_eq!(numbered.number(key), *map.entry(key).or_insert(next));
            }
        }
    }
}
