//! A hash table from blocks to numbers.

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
    Narrow(Table<Narrow>),
    Wide(Table<Wide>),
}

impl Default for Far {
    fn default() -> Self {
        Self(Entries::Narrow(Table::of_bits(START_BITS)))
    }
}

impl Far {
    pub fn len(&self) -> usize {
        match &self.0 {
            Entries::Narrow(table) => table.used,
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

    pub fn iter(&self) -> Box<dyn Iterator<Item = Wide> + '_> {
        match &self.0 {
            Entries::Narrow(table) => Box::new(table.iter()),
            Entries::Wide(table) => Box::new(table.iter()),
        }
    }

    /// Where the search for each block begins. The entries there are asked of memory, without
    /// waiting for them: many such reads do not wait for each other, as those of one search after
    /// another do.
    #[inline]
    pub fn approach(&self, volumes: impl Volumes, blocks: &[u64], places: &mut [usize; BATCH]) {
        match &self.0 {
            Entries::Narrow(table) => table.approach(volumes, blocks, places),
            Entries::Wide(table) => table.approach(volumes, blocks, places),
        }
    }

    /// Looks up, by the places that [`approach`](Self::approach) said, those blocks that are not known yet or not of
    /// the first volume: their numbers plus one, 0 if they have none.
    #[inline]
    pub fn find(
        &self,
        places: &[usize; BATCH],
        volumes: impl Volumes,
        blocks: &[u64],
        known: &mut [u32],
    ) {
        match &self.0 {
            Entries::Narrow(table) => table.find(places, volumes, blocks, known),
            Entries::Wide(table) => table.find(places, volumes, blocks, known),
        }
    }

    /// The block's number, if it has one.
    #[inline]
    pub fn get(&self, volume: VolumeId, block: u64) -> Option<u32> {
        let number = match &self.0 {
            Entries::Narrow(table) => table.number(volume, block),
            Entries::Wide(table) => table.number(volume, block),
        };
        (number != NONE).then_some(number)
    }

    /// Adds a block that is not in the table.
    pub fn add(&mut self, volume: VolumeId, block: u64, number: u32) {
        let wide = Wide {
            block,
            volume,
            number,
        };
        if let Entries::Narrow(table) = &mut self.0 {
            match Narrow::of(wide) {
                Some(narrow) => return table.add(narrow),
                None => self.0 = Entries::Wide(table.widened()),
            }
        }
        if let Entries::Wide(table) = &mut self.0 {
            table.add(wide);
        }
    }
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

/// What is known of a block.
trait Entry: Copy {
    const EMPTY: Self;
    fn is(self, volume: VolumeId, block: u64) -> bool;
    fn wide(self) -> Wide;
    fn number(self) -> u32;
}

/// The number in an empty entry; no block gets it.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Narrow {
    block: u32,
    number: u32,
}

impl Narrow {
    fn of(entry: Wide) -> Option<Self> {
        let block = u32::try_from(entry.block).ok()?;
        (entry.volume.0 == 0).then_some(Self {
            block,
            number: entry.number,
        })
    }
}

impl Entry for Narrow {
    const EMPTY: Self = Self {
        block: 0,
        number: NONE,
    };

    #[inline]
    fn is(self, volume: VolumeId, block: u64) -> bool {
        u64::from(self.block) == block && volume.0 == 0
    }

    fn wide(self) -> Wide {
        Wide {
            block: self.block.into(),
            volume: VolumeId(0),
            number: self.number,
        }
    }

    #[inline]
    fn number(self) -> u32 {
        self.number
    }
}

#[derive(Clone, Copy)]
pub struct Wide {
    pub block: u64,
    pub volume: VolumeId,
    pub number: u32,
}

impl Entry for Wide {
    const EMPTY: Self = Self {
        block: 0,
        volume: VolumeId(0),
        number: NONE,
    };

    #[inline]
    fn is(self, volume: VolumeId, block: u64) -> bool {
        self.block == block && self.volume == volume
    }

    fn wide(self) -> Wide {
        self
    }

    #[inline]
    fn number(self) -> u32 {
        self.number
    }
}

const START_BITS: u32 = 12;

struct Table<E> {
    entries: Box<[E]>,
    /// The upper bits of a hash that are a place in `entries`.
    shift: u32,
    used: usize,
}

impl<E: Entry> Table<E> {
    fn of_bits(bits: u32) -> Self {
        Self {
            entries: vec![E::EMPTY; 1 << bits].into_boxed_slice(),
            shift: u64::BITS - bits,
            used: 0,
        }
    }

    fn is_full(&self) -> bool {
        self.used >= self.entries.len() / 2
    }

    fn taken(&self) -> impl Iterator<Item = E> {
        let entries = self.entries.iter().copied();
        entries.filter(|entry| entry.number() != NONE)
    }

    fn iter(&self) -> impl Iterator<Item = Wide> {
        self.taken().map(E::wide)
    }

    fn widened(&self) -> Table<Wide> {
        let mut wide = Table::of_bits(u64::BITS - self.shift);
        self.iter().for_each(|entry| wide.put(entry));
        wide
    }

    fn add(&mut self, entry: E) {
        if self.is_full() {
            let mut larger = Self::of_bits(u64::BITS - self.shift + 1);
            self.taken().for_each(|entry| larger.put(entry));
            *self = larger;
        }
        self.put(entry);
    }

    fn put(&mut self, entry: E) {
        let Wide { block, volume, .. } = entry.wide();
        let place = self.search(self.start(volume, block), volume, block);
        self.entries[place] = entry;
        self.used += 1;
    }

    #[inline]
    fn approach(&self, volumes: impl Volumes, blocks: &[u64], places: &mut [usize; BATCH]) {
        for (at, (place, &block)) in places.iter_mut().zip(blocks).enumerate() {
            *place = self.start(volumes.of(at), block);
            prefetch(&self.entries, *place);
        }
    }

    #[inline]
    fn find(
        &self,
        places: &[usize; BATCH],
        volumes: impl Volumes,
        blocks: &[u64],
        known: &mut [u32],
    ) {
        let all = known.iter_mut().zip(places).zip(blocks).enumerate();
        for (at, ((known, &place), &block)) in all {
            let volume = volumes.of(at);
            if *known == 0 || volume.0 != 0 {
                let found = self.entries[self.search(place, volume, block)];
                // An empty one comes to 0.
                *known = found.number().wrapping_add(1);
            }
        }
    }

    #[inline]
    fn number(&self, volume: VolumeId, block: u64) -> u32 {
        let place = self.search(self.start(volume, block), volume, block);
        self.entries[place].number()
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
            if entry.number() == NONE || entry.is(volume, block) {
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

    /// Another block seldom lies where the search for one begins, so the map below would not show it.
    #[test]
    fn a_narrow_entry_is_of_one_block() {
        let entry = Narrow {
            block: 7,
            number: 1,
        };
        let is = |volume, block| entry.is(VolumeId(volume), block);
        assert!(is(0, 7) && !is(1, 7) && !is(0, 8) && !is(0, WIDE + 7));
    }

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
