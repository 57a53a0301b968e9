//! The resident blocks of a volume by index, so that a range can be dropped without a scan of all
//! resident blocks or of all blocks in the range.

use std::collections::BTreeMap;
use std::ops::Range;

/// Blocks per word of the map.
const WORD: u64 = 64;

/// The resident blocks of one volume, by index: words of 64 blocks. Empty words are left out.
#[derive(Debug, Default)]
pub struct Residents {
    words: BTreeMap<u64, u64>,
    count: u64,
}

impl Residents {
    /// A block got a slot.
    pub fn insert(&mut self, index: u64) {
        let bits = self.words.entry(index / WORD).or_default();
        let bit = 1 << (index % WORD);
        self.count += u64::from(*bits & bit == 0);
        *bits |= bit;
    }

    /// A block lost its slot.
    pub fn remove(&mut self, index: u64) {
        let word = index / WORD;
        if let Some(bits) = self.words.get_mut(&word) {
            let bit = 1 << (index % WORD);
            self.count -= u64::from(*bits & bit != 0);
            *bits &= !bit;
            if *bits == 0 {
                self.words.remove(&word);
            }
        }
    }

    /// The first resident blocks of a range, ascending, at most `most`.
    pub fn within(&self, range: Range<u64>, most: u64) -> Vec<u64> {
        let mut found = Vec::new();
        if range.is_empty() {
            return found;
        }
        for (word, bits) in self
            .words
            .range(range.start / WORD..=(range.end - 1) / WORD)
        {
            let mut bits = *bits;
            while bits != 0 {
                let index = word * WORD + u64::from(bits.trailing_zeros());
                bits &= bits - 1;
                if !range.contains(&index) {
                    continue;
                }
                if found.len() as u64 == most {
                    return found;
                }
                found.push(index);
            }
        }
        found
    }

    /// Number of resident blocks.
    pub fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futae_policy::Prng;
    use std::collections::BTreeSet;

    #[test]
    fn equal_to_a_plain_set() {
        let mut prng = Prng::new(3);
        let (mut residents, mut plain) = (Residents::default(), BTreeSet::new());
        for _ in 0..4000 {
            let index = prng.below(600);
            if prng.below(2) == 0 {
                residents.insert(index);
                plain.insert(index);
            } else {
                residents.remove(index);
                plain.remove(&index);
            }
            let from = prng.below(600);
            let range = from..from + prng.below(300);
            let most = prng.below(100);
            let inside: Vec<u64> = plain.range(range.clone()).copied().collect();
            let first = &inside[..inside.len().min(most as usize)];
            assert_eq!(residents.within(range, most), first);
            assert_eq!(residents.count(), plain.len() as u64);
        }
        plain.iter().for_each(|index| residents.remove(*index));
        assert!(residents.words.is_empty(), "no words are left behind");
    }
}
