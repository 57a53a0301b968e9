//! A hash table from blocks to numbers.

use futae_policy::VolumeId;
use futae_policy::structures::prefetch;

/// Open addressing, an entry of 16 bytes, and so one cache miss where a general table has two.
/// Nothing is ever removed.
pub struct Far {
    entries: Box<[Entry]>,
    /// The upper bits of a hash that are a place in `entries`.
    shift: u32,
    used: usize,
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

impl Default for Far {
    fn default() -> Self {
        Self::of_bits(START_BITS)
    }
}

impl Far {
    fn of_bits(bits: u32) -> Self {
        let entries = vec![EMPTY; 1 << bits].into_boxed_slice();
        Self {
            entries,
            shift: u64::BITS - bits,
            used: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.used
    }

    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Whether the next block that is added makes the table grow.
    pub fn is_full(&self) -> bool {
        self.used >= self.entries.len() / 2
    }

    pub fn iter(&self) -> impl Iterator<Item = (VolumeId, u64, u32)> {
        let taken = self.entries.iter().filter(|entry| entry.number != NONE);
        taken.map(|entry| (entry.volume, entry.block, entry.number))
    }

    /// Where the search for a block begins. Its entry is asked of memory, without waiting for it: many such reads do not wait
    /// for each other, as those of one search after another do.
    #[inline]
    pub fn approach(&self, volume: VolumeId, block: u64) -> usize {
        let place = self.start(volume, block);
        prefetch(&self.entries, place);
        place
    }

    /// The block's number, if it has one, by the place that [`approach`](Self::approach) said.
    #[inline]
    pub fn get_from(&self, place: usize, volume: VolumeId, block: u64) -> Option<u32> {
        let number = self.entries[self.find_from(place, volume, block)].number;
        (number != NONE).then_some(number)
    }

    /// The block's number, if it has one.
    pub fn get(&self, volume: VolumeId, block: u64) -> Option<u32> {
        self.get_from(self.start(volume, block), volume, block)
    }

    /// Adds a block that is not in the table.
    pub fn add(&mut self, volume: VolumeId, block: u64, number: u32) {
        if self.is_full() {
            let mut larger = Self::of_bits(u64::BITS - self.shift + 1);
            self.iter().for_each(|entry| larger.put(entry));
            *self = larger;
        }
        self.put((volume, block, number));
    }

    fn put(&mut self, (volume, block, number): (VolumeId, u64, u32)) {
        self.entries[self.find(volume, block)] = Entry {
            block,
            volume,
            number,
        };
        self.used += 1;
    }

    #[inline]
    fn start(&self, volume: VolumeId, block: u64) -> usize {
        (hash(volume, block) >> self.shift) as usize
    }

    /// Where the block is, or where it would be.
    #[inline]
    fn find(&self, volume: VolumeId, block: u64) -> usize {
        self.find_from(self.start(volume, block), volume, block)
    }

    #[inline]
    fn find_from(&self, mut place: usize, volume: VolumeId, block: u64) -> usize {
        loop {
            let entry = &self.entries[place];
            if entry.number == NONE || (entry.block == block && entry.volume == volume) {
                return place;
            }
            place = (place + 1) & (self.entries.len() - 1);
        }
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
