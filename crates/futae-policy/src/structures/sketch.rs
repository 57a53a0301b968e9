//! A frequency sketch of block accesses.

use crate::BlockId;

const ROWS: usize = 4;
const FULL: u64 = 15;
/// The upper three bits of each four-bit counter once the word has been shifted down by one.
const HALVED: u64 = 0x7777_7777_7777_7777;
/// Each row has its own odd multiplier, so that blocks that collide in one row differ in the
/// others.
const MULTIPLIERS: [u64; ROWS] = [
    0x9E37_79B9_7F4A_7C15,
    0xC2B2_AE3D_27D4_EB4F,
    0xD6E8_FEB8_6659_FD93,
    0xA076_1D64_78BD_642F,
];

/// A count-min sketch with four-bit counters that are all halved after ten counted uses per slot
/// (Cormode and Muthukrishnan 2005; the ageing is that of Einziger, Friedman and Manes, "TinyLFU",
/// ACM ToS 2017). Between two halvings it never underestimates, up to its maximum of 15. Constant
/// time except for the halving; 8 to 16 bytes per slot.
#[derive(Clone, Debug)]
pub struct Sketch {
    /// The rows one after the other; 16 counters a word.
    words: Vec<u64>,
    /// Counters in a row less one; a row has a power of two of them.
    mask: u64,
    counted: u64,
    halve_after: u64,
}

impl Sketch {
    /// A sketch for a cache of `slots` slots.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        let width = (u64::from(slots) * 4).next_power_of_two().max(16);
        Self {
            words: vec![0; (width as usize / 16) * ROWS],
            mask: width - 1,
            counted: 0,
            halve_after: u64::from(slots.max(1)) * 10,
        }
    }

    /// Word and shift of the counter of `block` in `row`.
    #[inline]
    fn place(&self, row: usize, block: BlockId) -> (usize, u64) {
        let mixed = (block.raw() ^ (block.raw() >> 32)).wrapping_mul(MULTIPLIERS[row]);
        let column = (mixed >> 32 ^ mixed >> 47) & self.mask;
        let words_in_row = self.words.len() / ROWS;
        (row * words_in_row + column as usize / 16, column % 16 * 4)
    }

    /// An upper bound of how often `block` was counted, with the halvings so far.
    #[inline]
    #[must_use]
    pub fn estimate(&self, block: BlockId) -> u32 {
        let counters = (0..ROWS).map(|row| {
            let (word, shift) = self.place(row, block);
            self.words[word] >> shift & FULL
        });
        counters.min().unwrap_or(0) as u32
    }

    /// Counts one use of `block`.
    #[inline]
    pub fn count(&mut self, block: BlockId) {
        let mut any = false;
        for row in 0..ROWS {
            let (word, shift) = self.place(row, block);
            if self.words[word] >> shift & FULL < FULL {
                self.words[word] += 1 << shift;
                any = true;
            }
        }
        self.counted += u64::from(any);
        if self.counted >= self.halve_after {
            self.halve();
        }
    }

    fn halve(&mut self) {
        for word in &mut self.words {
            *word = *word >> 1 & HALVED;
        }
        self.counted /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Never below the true count (as halved, and cut at 15), and mostly equal to it.
        #[test]
        fn never_counts_too_little(blocks in prop::collection::vec(0u64..200, 0..1500)) {
            let mut sketch = Sketch::new(64);
            let mut model: BTreeMap<u64, u32> = BTreeMap::new();
            let mut counted = 0;
            for index in blocks {
                let before = sketch.counted;
                sketch.count(BlockId::on_first(index));
                let count = model.entry(index).or_default();
                *count = (*count + 1).min(15);
                counted += 1;
                if sketch.counted < before {
                    model.values_mut().for_each(|count| *count /= 2);
                }
                prop_assert!(sketch.counted <= counted);
                prop_assert!(sketch.estimate(BlockId::on_first(index)) >= model[&index]);
            }
            let exact = model.iter().filter(|&(&index, &count)| {
                sketch.estimate(BlockId::on_first(index)) == count
            });
            prop_assert!(exact.count() * 10 >= model.len() * 7);
        }
    }

    #[test]
    fn after_ten_uses_a_slot_half_is_forgotten() {
        let mut sketch = Sketch::new(2);
        for use_number in 0..20 {
            sketch.count(BlockId::on_first(use_number % 2));
        }
        assert_eq!(sketch.estimate(BlockId::on_first(0)), 5);
    }
}
