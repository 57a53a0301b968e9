//! A hash table from blocks to numbers.

use super::narrow::Narrow;
use futae_policy::VolumeId;
use futae_policy::structures::prefetch;

/// This many blocks are numbered together.
pub const BATCH: usize = 64;

/// Open addressing, and so one cache miss where a general table has two. Nothing is ever removed.
///
/// An entry has 8 bytes as long as all blocks are of the first volume and below 2^32, and 16 bytes
/// from then on: tables that fit into a processor's cache are looked up in less time.
pub struct Far(Entries);

enum Entries {
    Narrow(Narrow),
    Wide(Table),
}

impl Default for Far {
    fn default() -> Self {
        Self(Entries::Narrow(Narrow::default()))
    }
}

impl Far {
    pub fn len(&self) -> usize {
        match &self.0 {
            Entries::Narrow(table) => table.len(),
            Entries::Wide(table) => table.used,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the next block that is added makes the table grow.
    pub fn is_full(&self) -> bool {
        match &self.0 {
            Entries::Narrow(table) => table.is_full(),
            Entries::Wide(table) => table.is_full(),
        }
    }

    pub fn iter(&self) -> Box<dyn Iterator<Item = Entry> + '_> {
        match &self.0 {
            Entries::Narrow(table) => Box::new(table.iter().map(Entry::of_narrow)),
            Entries::Wide(table) => Box::new(table.iter()),
        }
    }

    /// Where the search for each block begins. The entries there are asked of memory, without
    /// waiting for them: many such reads do not wait for each other, as those of one search after
    /// another do.
    #[inline]
    pub fn approach(&self, volumes: impl Volumes, blocks: &[u64; BATCH]) -> [usize; BATCH] {
        let mut places = [0; BATCH];
        match &self.0 {
            Entries::Narrow(table) => {
                for (place, &block) in places.iter_mut().zip(blocks) {
                    // A larger block, or one of another volume, is not searched for.
                    *place = table.approach(block as u32);
                }
            }
            Entries::Wide(table) => {
                for (at, place) in places.iter_mut().enumerate() {
                    *place = table.approach(volumes.of(at), blocks[at]);
                }
            }
        }
        places
    }

    /// Looks up, by the places that [`approach`](Self::approach) said, those blocks that are not known yet or not of
    /// the first volume: their numbers plus one, 0 if they have none. Calls `meanwhile` as [`Numbering`](super::Numbering) does.
    #[inline]
    pub fn find<T>(
        &self,
        places: &[usize; BATCH],
        volumes: impl Volumes,
        blocks: &[u64; BATCH],
        known: &mut [u32; BATCH],
        mut value: T,
        meanwhile: impl Fn(T, usize) -> T,
    ) -> T {
        match &self.0 {
            Entries::Narrow(table) => {
                for at in 0..BATCH {
                    if volumes.of(at).0 != 0 {
                        known[at] = 0;
                    } else if let Ok(block) = u32::try_from(blocks[at]) {
                        known[at] |= table.find(places[at], block);
                    }
                    value = meanwhile(value, at);
                }
            }
            Entries::Wide(table) => {
                for at in 0..BATCH {
                    let volume = volumes.of(at);
                    if known[at] == 0 || volume.0 != 0 {
                        let found = table.entries[table.search(places[at], volume, blocks[at])];
                        // An empty one comes to 0.
                        known[at] = found.number.wrapping_add(1);
                    }
                    value = meanwhile(value, at);
                }
            }
        }
        value
    }

    /// The block's number, if it has one.
    #[inline]
    pub fn get(&self, volume: VolumeId, block: u64) -> Option<u32> {
        match &self.0 {
            Entries::Narrow(table) => {
                let block = narrow(volume, block)?;
                table.find(table.start(block), block).checked_sub(1)
            }
            Entries::Wide(table) => {
                let number = table.number(volume, block);
                (number != NONE).then_some(number)
            }
        }
    }

    /// Adds a block that is not in the table.
    pub fn add(&mut self, volume: VolumeId, block: u64, number: u32) {
        if let Entries::Narrow(table) = &mut self.0 {
            if let Some(block) = narrow(volume, block) {
                return table.add(block, number);
            }
            let mut wide = Table::for_entries(table.len());
            table
                .iter()
                .for_each(|narrow| wide.put(Entry::of_narrow(narrow)));
            self.0 = Entries::Wide(wide);
        }
        if let Entries::Wide(table) = &mut self.0 {
            table.add(Entry {
                block,
                volume,
                number,
            });
        }
    }
}

/// The block, if a narrow table can have it.
#[inline]
fn narrow(volume: VolumeId, block: u64) -> Option<u32> {
    u32::try_from(block).ok().filter(|_| volume.0 == 0)
}

/// The volume of each block of a batch.
pub trait Volumes: Copy {
    fn of(self, at: usize) -> VolumeId;
}

impl Volumes for &[VolumeId] {
    #[inline]
    fn of(self, at: usize) -> VolumeId {
        self[at]
    }
}

/// All blocks are on the first volume.
#[derive(Clone, Copy)]
pub struct OnFirst;

impl Volumes for OnFirst {
    #[inline]
    fn of(self, _at: usize) -> VolumeId {
        VolumeId(0)
    }
}

/// The number in an empty entry; no block gets it.
const NONE: u32 = u32::MAX;

/// What is known of a block.
#[derive(Clone, Copy)]
pub struct Entry {
    pub block: u64,
    pub volume: VolumeId,
    pub number: u32,
}

impl Entry {
    const EMPTY: Self = Self {
        block: 0,
        volume: VolumeId(0),
        number: NONE,
    };

    fn of_narrow((block, number): (u32, u32)) -> Self {
        Self {
            block: block.into(),
            volume: VolumeId(0),
            number,
        }
    }
}

const START_BITS: u32 = 12;

struct Table {
    entries: Box<[Entry]>,
    /// The upper bits of a hash that are a place in `entries`.
    shift: u32,
    used: usize,
}

impl Table {
    fn of_bits(bits: u32) -> Self {
        Self {
            entries: vec![Entry::EMPTY; 1 << bits].into_boxed_slice(),
            shift: u64::BITS - bits,
            used: 0,
        }
    }

    /// With room for as many entries and one more.
    fn for_entries(count: usize) -> Self {
        Self::of_bits(
            (2 * (count + 1))
                .next_power_of_two()
                .ilog2()
                .max(START_BITS),
        )
    }

    fn is_full(&self) -> bool {
        self.used >= self.entries.len() / 2
    }

    fn iter(&self) -> impl Iterator<Item = Entry> {
        let entries = self.entries.iter().copied();
        entries.filter(|entry| entry.number != NONE)
    }

    fn add(&mut self, entry: Entry) {
        if self.is_full() {
            let mut larger = Self::of_bits(u64::BITS - self.shift + 1);
            self.iter().for_each(|entry| larger.put(entry));
            *self = larger;
        }
        self.put(entry);
    }

    fn put(&mut self, entry: Entry) {
        let Entry { block, volume, .. } = entry;
        let place = self.search(self.start(volume, block), volume, block);
        self.entries[place] = entry;
        self.used += 1;
    }

    /// Prefetches where the search for the block begins, and returns that place.
    #[inline]
    fn approach(&self, volume: VolumeId, block: u64) -> usize {
        let place = self.start(volume, block);
        prefetch(&self.entries, place);
        place
    }

    #[inline]
    fn number(&self, volume: VolumeId, block: u64) -> u32 {
        let place = self.search(self.start(volume, block), volume, block);
        self.entries[place].number
    }

    #[inline]
    fn start(&self, volume: VolumeId, block: u64) -> usize {
        (hash(volume, block) >> self.shift) as usize
    }

    /// Where the block is, or where it would be, from this place on.
    #[inline]
    fn search(&self, mut place: usize, volume: VolumeId, block: u64) -> usize {
        loop {
            let entry = self.entries[place];
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
pub(super) fn hash(volume: VolumeId, block: u64) -> u64 {
    let mixed = block ^ u64::from(volume.0).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let product = u128::from(mixed ^ 0xA076_1D64_78BD_642F) * 0xE703_7ED1_A0B4_28DB;
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop, prop_assert_eq, prop_oneof, proptest};
    use std::collections::BTreeMap;

    const WIDE: u64 = 1 << 32;

    proptest! {
        /// Also after a block that does not fit into a narrow entry, at whatever time it comes.
        #[test]
        fn it_equals_a_map(
            narrow in prop::collection::vec(0..WIDE, 0..5000),
            wide in prop::collection::vec((0u16..3, prop_oneof![0u64..9, WIDE - 2..WIDE + 9]), 0..9),
        ) {
            let mut far = Far::default();
            let mut map = BTreeMap::new();
            let narrow = narrow.into_iter().chain(0..9).map(|block| (0, block));
            for (volume, block) in narrow.chain(wide) {
                // Blocks of other volumes with the same number, and what is a power of two away.
                for (volume, block) in [(volume, block), (volume + 1, block), (0, block ^ WIDE)] {
                    let known = far.get(VolumeId(volume), block);
                    prop_assert_eq!(known, map.get(&(volume, block)).copied());
                }
                let next = map.len() as u32;
                if let std::collections::btree_map::Entry::Vacant(entry) = map.entry((volume, block)) {
                    far.add(VolumeId(volume), block, *entry.insert(next));
                }
            }
            let mut held: Vec<_> = far.iter().map(|it| ((it.volume.0, it.block), it.number)).collect();
            held.sort_unstable();
            prop_assert_eq!(held, map.into_iter().collect::<Vec<_>>());
        }
    }
}
