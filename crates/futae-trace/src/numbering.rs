//! Numbers for the distinct blocks of a trace.

use futae_policy::VolumeId;

/// A hash table from blocks to numbers that only grows: open addressing, an entry of 16 bytes, and
/// so one cache miss where a general table has two. Numbering is what reading a trace costs most.
pub struct Numbering {
    entries: Box<[Entry]>,
    /// The upper bits of a hash that are a place in `entries`.
    shift: u32,
    used: u32,
}

#[derive(Clone, Copy)]
struct Entry {
    block: u64,
    volume: VolumeId,
    number: u32,
}

/// The number in an empty entry; no block gets it.
const NONE: u32 = u32::MAX;
const EMPTY: Entry = Entry {
    block: 0,
    volume: VolumeId(0),
    number: NONE,
};
const START_BITS: u32 = 12;

impl Default for Numbering {
    fn default() -> Self {
        Self::of_bits(START_BITS)
    }
}

impl Numbering {
    fn of_bits(bits: u32) -> Self {
        let entries = vec![EMPTY; 1 << bits].into_boxed_slice();
        Self {
            entries,
            shift: u64::BITS - bits,
            used: 0,
        }
    }

    /// How many blocks have a number.
    pub fn count(&self) -> u32 {
        self.used
    }

    /// The block's number: the next one if it has none yet; none if there is no number left.
    #[inline]
    pub fn number(&mut self, volume: VolumeId, block: u64) -> Option<u32> {
        let place = self.find(volume, block);
        match self.entries[place].number {
            NONE => self.add(place, volume, block),
            number => Some(number),
        }
    }

    /// Brings the entries where the search for these blocks begins into the processor's cache.
    /// These reads do not wait for each other, as those of one search after another do.
    pub fn warm(&self, blocks: &[(VolumeId, u64)]) {
        let touched = blocks.iter().fold(0, |sum, &(volume, block)| {
            let place = (hash(volume, block) >> self.shift) as usize;
            sum ^ self.entries[place].number
        });
        std::hint::black_box(touched);
    }

    /// Where the block is, or where it would be.
    #[inline]
    fn find(&self, volume: VolumeId, block: u64) -> usize {
        let mut place = (hash(volume, block) >> self.shift) as usize;
        loop {
            let entry = &self.entries[place];
            if entry.number == NONE || (entry.block == block && entry.volume == volume) {
                return place;
            }
            place = (place + 1) & (self.entries.len() - 1);
        }
    }

    #[cold]
    fn add(&mut self, place: usize, volume: VolumeId, block: u64) -> Option<u32> {
        let number = self.used;
        if number == NONE {
            return None;
        }
        self.used += 1;
        self.entries[place] = Entry {
            block,
            volume,
            number,
        };
        if self.used as usize > self.entries.len() / 2 {
            self.grow();
        }
        Some(number)
    }

    fn grow(&mut self) {
        let mut larger = Self::of_bits(u64::BITS - self.shift + 1);
        larger.used = self.used;
        for entry in self.entries.iter().filter(|entry| entry.number != NONE) {
            let place = larger.find(entry.volume, entry.block);
            larger.entries[place] = *entry;
        }
        *self = larger;
    }
}

/// Spreads blocks over all 64 bits: both halves of a long product, so that no bit of the block is
/// without influence on the upper ones.
#[inline]
fn hash(volume: VolumeId, block: u64) -> u64 {
    let mixed = block ^ u64::from(volume.0).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let product = u128::from(mixed ^ 0xA076_1D64_78BD_642F) * 0xE703_7ED1_A0B4_28DB;
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::{Numbering, VolumeId};
    use proptest::prelude::{any, prop, prop_assert_eq, prop_oneof, proptest};
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn it_equals_a_map(
            blocks in prop::collection::vec(
                (0u16..3, prop_oneof![0u64..50, any::<u64>()]), 0..200)
        ) {
            let mut numbering = Numbering::default();
            let mut map = HashMap::new();
            for (volume, block) in blocks {
                let next = map.len() as u32;
                let expected = *map.entry((volume, block)).or_insert(next);
                prop_assert_eq!(numbering.number(VolumeId(volume), block), Some(expected));
                prop_assert_eq!(numbering.count() as usize, map.len());
            }
        }
    }

    #[test]
    fn numbers_stay_when_the_table_grows() {
        for step in [1u64, 8, 4096, 1 << 32, 1 << 44] {
            let mut numbering = Numbering::default();
            for round in 0..2 {
                for i in 0..20_000u32 {
                    let block = u64::from(i).wrapping_mul(step);
                    let found = numbering.number(VolumeId(7), block);
                    assert_eq!(found, Some(i), "step {step}, round {round}");
                }
            }
        }
    }
}
