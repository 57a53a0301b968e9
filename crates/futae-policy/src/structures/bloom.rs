//! A set of names that may have more than was added, in few bits for each.

use crate::BlockId;

const WORD_BITS: u64 = 64;

/// A Bloom filter (Bloom, CACM 1970).
#[derive(Clone, Debug)]
pub struct Bloom {
    words: Vec<u64>,
    /// Bits that each name sets: ln 2 of the bits for each, for which false names are fewest.
    places: u64,
}

impl Bloom {
    /// A filter for this many names, with so many bits for each.
    #[must_use]
    pub fn new(names: u64, bits: u64) -> Self {
        let words = (names * bits).div_ceil(WORD_BITS).max(1);
        Self {
            words: vec![0; words as usize],
            // ln 2 as a fraction, so that it is the same number on every machine.
            places: ((bits * 693 + 500) / 1000).max(1),
        }
    }

    /// The bits of a name: each a word and a mask.
    fn bits(&self, block: BlockId) -> impl Iterator<Item = (usize, u64)> + use<> {
        // So that block 0 is mixed, too.
        let mut mixed = block.raw() ^ 0xA076_1D64_78BD_642F;
        mixed = mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let first = mixed ^ (mixed >> 31);
        let all = self.words.len() as u128 * u128::from(WORD_BITS);
        (0..self.places).map(move |place| {
            // Not by double hashing: with it a name has few bits of its own in a filter of a word or two.
            let hash = first.wrapping_add(place.wrapping_mul(0xC2B2_AE3D_27D4_EB4F));
            let hash = (hash ^ (hash >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
            let hash = hash ^ (hash >> 32);
            let bit = ((u128::from(hash) * all) >> 64) as u64;
            ((bit / WORD_BITS) as usize, 1 << (bit % WORD_BITS))
        })
    }

    /// Whether a name was added, or is thought to have been.
    #[must_use]
    pub fn has(&self, block: BlockId) -> bool {
        self.bits(block)
            .all(|(word, bit)| self.words[word] & bit != 0)
    }

    /// Adds a name.
    pub fn add(&mut self, block: BlockId) {
        for (word, bit) in self.bits(block) {
            self.words[word] |= bit;
        }
    }

    /// Forgets all names.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::Bloom;
    use crate::{BlockId, Prng};

    /// The share of false names in a filter that is full: (1 - exp(-k n / m))^k.
    #[test]
    fn names_that_were_added_are_there_and_few_others() {
        for (names, bits, expected) in
            [(10_000, 10, 0.0082), (10_000, 4, 0.147), (500, 16, 0.00046)]
        {
            let mut filter = Bloom::new(names, bits);
            let mut prng = Prng::new(names + bits);
            let added: Vec<BlockId> = (0..names)
                .map(|_| BlockId::on_first(prng.below(1 << 40)))
                .collect();
            added.iter().for_each(|&block| filter.add(block));
            assert!(added.iter().all(|&block| filter.has(block)));
            let others = 200_000;
            // Numbers in sequence, as blocks are, and none of the above.
            let first = 1 << 41;
            let found = (first..first + others).filter(|&at| filter.has(BlockId::on_first(at)));
            let share = found.count() as f64 / others as f64;
            assert!(
                share > expected / 2.0 && share < expected * 2.0,
                "{names} names of {bits} bits: {share}"
            );
            filter.clear();
            assert!(!added.iter().any(|&block| filter.has(block)));
        }
    }
}
