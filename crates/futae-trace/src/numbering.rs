//! Numbers for the distinct blocks of a trace.

mod far;
mod keys;
mod narrow;

pub use far::BATCH;
use far::{Entry, Far};
pub(crate) use far::{OnFirst, Volumes};
use futae_policy::VolumeId;
use futae_policy::structures::prefetch;
pub(crate) use keys::{Keys, hash_of};

/// Numbers blocks in the order of their first access.
///
/// Numbering dominates the cost of reading a trace, and its cost is memory latency. Therefore small
/// block numbers of the first volume, which most traces consist of, index a plain array. All others
/// are in a hash table, from which they move to the array once they fill at least an eighth of it.
/// If block numbers are all multiples of a power of two, they are divided by it first: both are
/// looked up by the block's bits, rotated. If block numbers begin high up, as those of hashed keys
/// do, the array begins there.
///
/// Memory: at most 16 MiB for the array, as far as it is touched, and 64 bytes per distinct block.
pub struct Numbering {
    /// Numbers plus one of the blocks whose rotated bits are below the array's length; 0 means none
    /// yet.
    near: Vec<u32>,
    far: Far,
    /// How far the bits are rotated; none before the first blocks were seen.
    turn: Option<u32>,
    /// The block with which the array begins.
    origin: u64,
    /// Where numbers of hashed keys begin.
    keyed: u64,
    used: u32,
}

/// So few of them often are all known, even where new ones come all the time.
const FEW: usize = 8;

const NEAR_START: usize = 1 << 22;
const NEAR_MAX: usize = 1 << 34;
/// The array has at most this many places for each block in it.
const NEAR_SPARSE: usize = 8;

impl Default for Numbering {
    fn default() -> Self {
        Self {
            near: vec![0; NEAR_START],
            far: Far::default(),
            turn: None,
            origin: 0,
            keyed: u64::MAX,
            used: 0,
        }
    }
}

impl Numbering {
    /// Numbers for blocks of which those from `keyed` on are numbered densely. If most of the first ones are, the array is for
    /// them.
    pub fn keyed_from(keyed: u64) -> Self {
        Self {
            keyed,
            ..Self::default()
        }
    }

    /// How many blocks have a number.
    pub fn count(&self) -> u32 {
        self.used
    }

    /// The volume and the block of each number.
    pub fn blocks(&self) -> Vec<(VolumeId, u64)> {
        let mut blocks = vec![(VolumeId(0), 0); self.used as usize];
        let from_turned = |turned: u64| {
            let block = turned.rotate_left(self.turn.unwrap_or(0));
            block.wrapping_add(self.origin)
        };
        for (place, &number) in (0_u64..).zip(&self.near) {
            if let Some(number) = number.checked_sub(1) {
                blocks[number as usize].1 = from_turned(place);
            }
        }
        for entry in self.far.iter() {
            blocks[entry.number as usize] = (entry.volume, from_turned(entry.block));
        }
        blocks
    }

    /// Prefetches the entries of these blocks of the first volume, without waiting for them.
    #[inline]
    pub fn prefetch(&self, blocks: &[u64]) {
        // Where most blocks are in the hash table, their places in the array do not exist.
        if self.far.len() > self.used as usize / 2 {
            return;
        }
        for &block in blocks {
            prefetch(&self.near, self.turned(block) as usize);
        }
    }

    /// Numbers `blocks`; returns `None` if no number is left. `meanwhile` is called for each, by its index and with what it returned
    /// for the one before, to use the time in which the processor waits for memory. What it returned last is in `value` then.
    #[inline]
    pub fn number_all<T: Copy>(
        &mut self,
        volumes: impl Volumes,
        blocks: &[u64; BATCH],
        known: &mut [u32; BATCH],
        value: &mut T,
        meanwhile: impl Fn(T, usize) -> T,
    ) -> Option<()> {
        let turn = match self.turn {
            Some(turn) => turn,
            None => self.choose_turn(blocks),
        };
        let origin = self.origin;
        // All entries are fetched before any is examined: these reads do not wait for each other,
        // and a misprediction about one does not discard those after it.
        let mut turned = [0; BATCH];
        for (turned, &block) in turned.iter_mut().zip(blocks) {
            *turned = block.wrapping_sub(origin).rotate_right(turn);
        }
        let look = |at: usize| self.near.get(turned[at] as usize).copied().unwrap_or(0);
        let has_far = !self.far.is_empty();
        // A value of its own stays in a register.
        let mut now = *value;
        if has_far {
            let places = self.far.approach(volumes, &turned);
            (0..BATCH).for_each(|at| known[at] = look(at));
            now = self
                .far
                .find(&places, volumes, &turned, known, now, meanwhile);
        } else {
            for (at, known) in known.iter_mut().enumerate() {
                *known = look(at);
                now = meanwhile(now, at);
            }
        }
        *value = now;
        let volume_bits = (0..blocks.len()).fold(0, |bits, at| bits | volumes.of(at).0);
        // What the hash table knows it knows of the block's own volume.
        let is_sure = has_far || volume_bits == 0;
        for (begin, known) in (0..).step_by(FEW).zip(known.chunks_mut(FEW)) {
            let are_known = known.iter().fold(true, |are, &known| are & (known != 0));
            if are_known && is_sure {
                known.iter_mut().for_each(|known| *known -= 1);
                continue;
            }
            for (at, known) in (begin..).zip(known) {
                let volume = volumes.of(at);
                *known = if *known != 0 && (volume.0 == 0 || has_far) {
                    *known - 1
                } else {
                    self.number_slowly(volume, blocks[at])?
                };
            }
        }
        Some(())
    }

    /// The block's number, assigned now if it has none; `None` if no number is left.
    pub fn number(&mut self, volume: VolumeId, block: u64) -> Option<u32> {
        if self.turn.is_none() {
            self.choose_turn(&[block]);
        }
        self.number_slowly(volume, block)
    }

    #[cold]
    fn choose_turn(&mut self, blocks: &[u64]) -> u32 {
        let keyed = blocks.iter().filter(|&&block| block >= self.keyed).count();
        if keyed > blocks.len() / 2 {
            self.origin = self.keyed;
        }
        let from_origin = blocks.iter().filter(|&&block| block >= self.origin);
        let bits = from_origin.fold(0, |bits, block| bits | (block - self.origin));
        let turn = if bits == 0 { 0 } else { bits.trailing_zeros() };
        self.turn = Some(turn);
        turn
    }

    #[inline]
    fn turned(&self, block: u64) -> u64 {
        block
            .wrapping_sub(self.origin)
            .rotate_right(self.turn.unwrap_or(0))
    }

    #[inline(never)]
    fn number_slowly(&mut self, volume: VolumeId, block: u64) -> Option<u32> {
        let turned = self.turned(block);
        let place = usize::try_from(turned).unwrap_or(usize::MAX);
        if volume.0 == 0 && place < self.near.len() {
            if self.near[place] == 0 {
                self.near[place] = self.used.checked_add(1)?;
                self.used += 1;
            }
            return Some(self.near[place] - 1);
        }
        if let Some(number) = self.far.get(volume, turned) {
            return Some(number);
        }
        let number = self.used;
        self.used = number.checked_add(1)?;
        if self.far.is_full() {
            self.widen();
            if volume.0 == 0 && place < self.near.len() {
                self.near[place] = self.used;
                return Some(number);
            }
        }
        self.far.add(volume, turned, number);
        Some(number)
    }

    /// Makes the array as long as the blocks in the hash table warrant, and moves them there.
    fn widen(&mut self) {
        // How many there are below each power of two.
        let mut below = [0usize; 65];
        for entry in self.far.iter().filter(|entry| entry.volume.0 == 0) {
            below[(u64::BITS - entry.block.leading_zeros()) as usize] += 1;
        }
        let mut length = self.near.len();
        let mut held = self.used as usize - self.far.len();
        for (bits, &count) in below.iter().enumerate().take(NEAR_MAX.ilog2() as usize + 1) {
            held += count;
            if 1 << bits > length && held >= (1 << bits) / NEAR_SPARSE {
                length = 1 << bits;
            }
        }
        if length == self.near.len() {
            return;
        }
        let mut near = vec![0; length];
        near[..self.near.len()].copy_from_slice(&self.near);
        let mut far = Far::default();
        for Entry {
            block,
            volume,
            number,
        } in self.far.iter()
        {
            match near.get_mut(usize::try_from(block).unwrap_or(usize::MAX)) {
                Some(place) if volume.0 == 0 => *place = number + 1,
                _ => far.add(volume, block, number),
            }
        }
        self.near = near;
        self.far = far;
    }
}

#[cfg(test)]
mod tests {
    use super::{BATCH, NEAR_START, Numbering, OnFirst, VolumeId};
    use proptest::prelude::{Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn it_equals_a_map(
            blocks in prop_oneof![
                prop::collection::vec(
                    (0u16..3, prop_oneof![0u64..50, any::<u64>(), (0u64..1 << 23).prop_map(|b| b * 8)]),
                    0..400),
                // At the end of the array, and most on the first volume.
                prop::collection::vec((0u16..1, NEAR_START as u64 - 20..NEAR_START as u64 + 400), 0..900),
                prop::collection::vec(
                    ((0u16..200).prop_map(|it| it / 199), NEAR_START as u64 - 20..NEAR_START as u64 + 90),
                    0..400),
            ]
        ) {
            let (mut one, mut all) = (Numbering::default(), Numbering::default());
            let mut map = HashMap::new();
            let mut expected = Vec::new();
            for &(volume, block) in &blocks {
                let next = map.len() as u32;
                expected.push(*map.entry((volume, block)).or_insert(next));
                prop_assert_eq!(one.number(VolumeId(volume), block), expected.last().copied());
                prop_assert_eq!(one.count() as usize, map.len());
            }
            let mut found = Vec::new();
            let (batches, rest) = blocks.as_chunks::<BATCH>();
            for batch in batches {
                let (volumes, batch) = (batch.map(|it| VolumeId(it.0)), batch.map(|it| it.1));
                let (mut numbers, mut visited) = ([0; BATCH], 0);
                let numbered = if volumes.iter().all(|it| it.0 == 0) {
                    all.number_all(OnFirst, &batch, &mut numbers, &mut visited, |before, at| before + at)
                } else {
                    all.number_all(&volumes[..], &batch, &mut numbers, &mut visited, |before, at| before + at)
                };
                prop_assert_eq!((numbered, visited), (Some(()), BATCH * (BATCH - 1) / 2));
                found.extend(numbers);
            }
            found.extend(rest.iter().filter_map(|&(volume, block)| all.number(VolumeId(volume), block)));
            prop_assert_eq!(found, expected);
            let named: Vec<_> = all.blocks().into_iter().map(|(volume, block)| (volume.0, block)).collect();
            prop_assert_eq!(map.len(), named.len());
            for (number, name) in named.iter().enumerate() {
                prop_assert_eq!(map[name] as usize, number);
            }
        }
    }

    #[test]
    fn numbers_stay_when_the_tables_grow() {
        for (volume, step) in [
            (7, 1u64),
            (0, 1),
            (0, 50),
            (7, 4096),
            (0, 1 << 32),
            (7, 1 << 44),
        ] {
            // Beyond the first array, below and above it in turn.
            let start = if step == 50 { 1 << 22 } else { 0 };
            let mut numbering = Numbering::default();
            for round in 0..2 {
                for i in 0..50_000u32 {
                    let block = (u64::from(i) ^ 1).wrapping_mul(step).wrapping_add(start);
                    let found = numbering.number(VolumeId(volume), block);
                    assert_eq!(found, Some(i), "step {step}, round {round}");
                }
            }
        }
    }

    #[test]
    fn many_far_blocks_become_near() {
        let mut numbering = Numbering::default();
        let count = 1_500_000;
        for _ in 0..2 {
            for i in 0..count {
                let block = u64::from(i) * 5 + 1;
                assert_eq!(numbering.number(VolumeId(0), block), Some(i));
            }
        }
        assert!(numbering.near.len() > 1 << 22 && numbering.far.len() < count as usize / 4);
    }
}
