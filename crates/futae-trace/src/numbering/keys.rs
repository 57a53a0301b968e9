//! Keys that are hashes, numbered in the order in which they appear.

use super::far::{BATCH, hash};
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
    /// The hash of each of at most [`BATCH`] keys. What a search for each will look at first is prefetched: many such reads do not
    /// wait for each other, as those of one search after another do.
    #[inline]
    pub fn approach(&self, keys: &[u64]) -> [u64; BATCH] {
        let mut hashes = [0; BATCH];
        for (hash, &key) in hashes.iter_mut().zip(keys) {
            *hash = hash_of(key);
            prefetch(&self.table, self.start(*hash));
        }
        for &hash in hashes.iter().take(keys.len()) {
            let number = self.table[self.start(hash)];
            prefetch(&self.keys, (number as usize).wrapping_sub(1));
        }
        hashes
    }

    /// The number of the key, which has this hash. It gets one now if it is new. Keys beyond the highest number share it: no
    /// simulation has as many blocks.
    #[inline]
    pub fn number(&mut self, hash: u64, key: u64) -> u32 {
        let place = self.search(hash, key);
        match self.table[place].checked_sub(1) {
            Some(number) => number,
            None => self.add(place, hash, key),
        }
    }

    #[inline(never)]
    fn add(&mut self, mut place: usize, hash: u64, key: u64) -> u32 {
        if self.keys.len() == LAST {
            return LAST as u32;
        }
        if self.keys.len() >= self.table.len() / 2 {
            self.grow();
            place = self.search(hash, key);
        }
        self.keys.push(key);
        self.table[place] = self.keys.len() as u32;
        self.keys.len() as u32 - 1
    }

    fn grow(&mut self) {
        self.table = vec![0; 2 * self.table.len()];
        self.shift -= 1;
        for (number, &key) in (1..).zip(&self.keys) {
            let mut place = self.start(hash_of(key));
            while self.table[place] != 0 {
                place = self.after(place);
            }
            self.table[place] = number;
        }
    }

    /// Where the key's number is, or where it would be.
    #[inline]
    fn search(&self, hash: u64, key: u64) -> usize {
        let mut place = self.start(hash);
        while let Some(number) = self.table[place].checked_sub(1)
            && self.keys[number as usize] != key
        {
            place = self.after(place);
        }
        place
    }

    #[inline]
    fn start(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    #[inline]
    fn after(&self, place: usize) -> usize {
        (place + 1) & (self.table.len() - 1)
    }
}

/// What a search for a key begins with.
#[inline]
pub fn hash_of(key: u64) -> u64 {
    hash(VolumeId(0), key)
}

#[cfg(test)]
mod tests {
    use super::{BATCH, Keys};
    use proptest::prelude::{any, prop, prop_assert_eq, prop_oneof, proptest};
    use std::collections::HashMap;

    proptest! {
        /// Also after the table has grown.
        #[test]
        fn it_equals_a_map(keys in prop::collection::vec(prop_oneof![0u64..9, any::<u64>()], 0..9000)) {
            let mut numbered = Keys::default();
            let mut map = HashMap::new();
            for few in keys.chunks(BATCH).chain(keys.chunks(BATCH)) {
                let hashes = numbered.approach(few);
                for (&hash, &key) in hashes.iter().zip(few) {
                    let next = map.len() as u32;
                    prop_assert_eq!(numbered.number(hash, key), *map.entry(key).or_insert(next));
                }
            }
        }
    }
}
