//! Names of blocks, numbered.

use crate::BlockId;
use hashbrown::HashTable;

/// A set of blocks in which each has a small number, so that what is known of it can stand in
/// plain arrays. Numbers of removed blocks are given out again. Constant time; about 16 bytes a
/// name.
#[derive(Clone, Debug, Default)]
pub struct Names {
    numbers: HashTable<u32>,
    blocks: Vec<BlockId>,
    free: Vec<u32>,
}

/// Equal on every machine; the upper and the lower bits of the product both reach the result.
#[inline]
fn hash(block: BlockId) -> u64 {
    let product = u128::from(block.raw() ^ 0x9E37_79B9_7F4A_7C15) * 0xD6E8_FEB8_6659_FD93_u128;
    (product >> 64) as u64 ^ product as u64
}

impl Names {
    /// Blocks in the set.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.numbers.len() as u32
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// The number of `block`, if it is in the set.
    #[inline]
    #[must_use]
    pub fn find(&self, block: BlockId) -> Option<u32> {
        self.numbers
            .find(hash(block), |&number| self.blocks[number as usize] == block)
            .copied()
    }

    /// Adds `block`, which must not be in the set, and says its number.
    #[inline]
    pub fn add(&mut self, block: BlockId) -> u32 {
        debug_assert!(self.find(block).is_none(), "a name twice");
        let number = if let Some(number) = self.free.pop() {
            self.blocks[number as usize] = block;
            number
        } else {
            self.blocks.push(block);
            self.blocks.len() as u32 - 1
        };
        let blocks = &self.blocks;
        self.numbers
            .insert_unique(hash(block), number, |&other| hash(blocks[other as usize]));
        number
    }

    /// The block with this number, which must be in the set.
    #[inline]
    #[must_use]
    pub fn block(&self, number: u32) -> BlockId {
        self.blocks[number as usize]
    }

    /// Removes `block`; the number that it had, if it was in the set.
    #[inline]
    pub fn take(&mut self, block: BlockId) -> Option<u32> {
        let blocks = &self.blocks;
        let found = self
            .numbers
            .find_entry(hash(block), |&number| blocks[number as usize] == block);
        let (number, _) = found.ok()?.remove();
        self.free.push(number);
        Some(number)
    }

    /// Removes the block with this number, which must be in the set.
    #[inline]
    pub fn remove(&mut self, number: u32) {
        let block = self.block(number);
        if let Ok(entry) = self
            .numbers
            .find_entry(hash(block), |&other| other == number)
        {
            entry.remove();
            self.free.push(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Equal to a plain map from block to number under any sequence of operations.
        #[test]
        fn equal_to_a_plain_map(steps in prop::collection::vec((0u8..3, 0u64..40), 0..400)) {
            let mut names = Names::default();
            let mut model = BTreeMap::new();
            for (what, index) in steps {
                let block = BlockId::on_first(index);
                match (what, model.get(&index).copied()) {
                    (0, None) => {
                        let number = names.add(block);
                        prop_assert!(model.values().all(|&held| held != number));
                        prop_assert!((number as usize) < 40);
                        model.insert(index, number);
                    }
                    (1, known) => {
                        prop_assert_eq!(names.take(block), known);
                        model.remove(&index);
                    }
                    (2, Some(number)) => {
                        names.remove(number);
                        model.remove(&index);
                    }
                    _ => {}
                }
                prop_assert_eq!(names.len() as usize, model.len());
                for index in 0..40 {
                    let block = BlockId::on_first(index);
                    prop_assert_eq!(names.find(block), model.get(&index).copied());
                    if let Some(number) = names.find(block) {
                        prop_assert_eq!(names.block(number), block);
                    }
                }
            }
        }
    }
}
