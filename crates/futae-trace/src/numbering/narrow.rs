//! A hash table from blocks below 2^32 to numbers.

use futae_policy::structures::prefetch;

/// As many slots as fit into a line of a processor's cache.
const SLOTS: usize = 8;
const START_BITS: u32 = 9;

/// A line of a processor's cache. Slots are filled from the first on.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Bucket {
    blocks: [u32; SLOTS],
    /// Numbers plus one; 0 means an empty slot.
    numbers: [u32; SLOTS],
}

impl Bucket {
    const EMPTY: Self = Self {
        blocks: [0; SLOTS],
        numbers: [0; SLOTS],
    };

    /// The block's number plus one; 0 if it is not here. All slots are compared, which takes less time than branches that the
    /// processor predicts wrong.
    #[inline]
    fn find(&self, block: u32) -> u32 {
        let slots = self.blocks.iter().zip(&self.numbers);
        slots.fold(0, |found, (&it, &number)| {
            found | if it == block { number } else { 0 }
        })
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.numbers[SLOTS - 1] != 0
    }
}

/// Buckets of a line each: a search reads one line, and rarely another one. Nothing is ever removed.
pub struct Narrow {
    buckets: Box<[Bucket]>,
    /// The upper bits of a hash that are a place in `buckets`.
    shift: u32,
    used: usize,
}

impl Default for Narrow {
    fn default() -> Self {
        Self::of_bits(START_BITS)
    }
}

impl Narrow {
    fn of_bits(bits: u32) -> Self {
        Self {
            buckets: vec![Bucket::EMPTY; 1 << bits].into_boxed_slice(),
            shift: u64::BITS - bits,
            used: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.used
    }

    pub fn is_full(&self) -> bool {
        self.used >= self.buckets.len() * SLOTS / 4 * 3
    }

    /// The blocks and their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        let slots = self.buckets.iter();
        let slots = slots.flat_map(|bucket| bucket.blocks.iter().zip(&bucket.numbers));
        slots.filter_map(|(&block, number)| Some((block, number.checked_sub(1)?)))
    }

    /// Adds a block that is not in the table.
    pub fn add(&mut self, block: u32, number: u32) {
        if self.is_full() {
            let mut larger = Self::of_bits(u64::BITS - self.shift + 1);
            self.iter()
                .for_each(|(block, number)| larger.put(block, number));
            *self = larger;
        }
        self.put(block, number);
    }

    fn put(&mut self, block: u32, number: u32) {
        let mut place = self.start(block);
        while self.buckets[place].is_full() {
            place = self.after(place);
        }
        let bucket = &mut self.buckets[place];
        let slot = bucket
            .numbers
            .iter()
            .position(|&number| number == 0)
            .unwrap_or(0);
        bucket.blocks[slot] = block;
        bucket.numbers[slot] = number + 1;
        self.used += 1;
    }

    /// Prefetches where the search for the block begins, and returns that place.
    #[inline]
    pub fn approach(&self, block: u32) -> usize {
        let place = self.start(block);
        prefetch(&self.buckets, place);
        place
    }

    /// The block's number plus one, searched from where the search for it begins; 0 if it has none.
    #[inline]
    pub fn find(&self, mut place: usize, block: u32) -> u32 {
        loop {
            let bucket = &self.buckets[place];
            let found = bucket.find(block);
            if found != 0 || !bucket.is_full() {
                return found;
            }
            place = self.after(place);
        }
    }

    #[inline]
    pub fn start(&self, block: u32) -> usize {
        // By the product alone, the multiples of some numbers come to few buckets.
        let mixed = u64::from(block ^ block >> 15).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> self.shift) as usize
    }

    #[inline]
    fn after(&self, place: usize) -> usize {
        (place + 1) & (self.buckets.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::{Bucket, Narrow, SLOTS};
    use proptest::prelude::{any, prop, prop_assert_eq, prop_oneof, proptest};
    use std::collections::BTreeMap;

    /// Also where the products of these blocks with an odd number have the same upper bits.
    #[test]
    fn blocks_at_any_stride_are_where_the_search_for_them_begins() {
        for stride in [
            1, 7, 64, 1000, 1802, 1853, 2052, 4096, 10_959, 15_128, 34_756,
        ] {
            let mut table = Narrow::default();
            let blocks: Vec<u32> = (0..=u32::MAX).step_by(stride).take(300_000).collect();
            for (&block, number) in blocks.iter().zip(0..) {
                table.add(block, number);
            }
            let mut others = 0;
            for &block in &blocks {
                let mut place = table.start(block);
                while table.buckets[place].find(block) == 0 {
                    place = table.after(place);
                    others += 1;
                }
            }
            let count = blocks.len();
            assert!(
                others < count,
                "{others} more buckets for {count} blocks at stride {stride}"
            );
        }
    }

    /// Block 0 is not what an empty slot has, and a full bucket has eight different ones.
    #[test]
    fn a_bucket_has_the_blocks_that_were_put_into_it() {
        let mut bucket = Bucket::EMPTY;
        let blocks = [7, 0, u32::MAX, 1, 8, 1 << 31, 6, 2];
        for (slot, block) in blocks.into_iter().enumerate() {
            assert_eq!(
                (bucket.find(block), bucket.is_full()),
                (0, false),
                "{block}"
            );
            bucket.blocks[slot] = block;
            bucket.numbers[slot] = slot as u32 + 1;
            let found: Vec<u32> = blocks.iter().map(|&block| bucket.find(block)).collect();
            let expected =
                (1..=SLOTS as u32).map(|number| if number <= slot as u32 + 1 { number } else { 0 });
            assert_eq!(found, expected.collect::<Vec<_>>());
        }
        assert!(bucket.is_full());
    }

    proptest! {
        /// Also where buckets overflow, and after the table has grown.
        #[test]
        fn it_equals_a_map(blocks in prop::collection::vec(prop_oneof![0..9_u32, any::<u32>()], 0..9000)) {
            let (mut table, mut map) = (Narrow::default(), BTreeMap::new());
            for &block in blocks.iter().chain(&blocks) {
                let place = table.approach(block);
                let number = map.get(&block).copied();
                prop_assert_eq!(table.find(place, block), number.map_or(0, |number: u32| number + 1));
                if number.is_none() {
                    table.add(block, map.len() as u32);
                    map.insert(block, map.len() as u32);
                }
            }
            prop_assert_eq!(table.len(), map.len());
            prop_assert_eq!(table.iter().collect::<BTreeMap<_, _>>(), map);
        }
    }
}
