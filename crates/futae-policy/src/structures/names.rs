//! Small numbers for blocks.

use super::grown;
use crate::BlockId;
use hashbrown::HashTable;

/// The same on every machine; the upper and the lower bits of the product both affect the result.
#[inline]
fn hash(block: BlockId) -> u64 {
    let product = u128::from(block.raw() ^ 0x9E37_79B9_7F4A_7C15) * 0xD6E8_FEB8_6659_FD93_u128;
    (product >> 64) as u64 ^ product as u64
}

/// A set of blocks in which each has a small number, an index into plain arrays. Numbers of removed
/// blocks are reused. Constant time. About 16 bytes per name, or 8 and 4 for each existing block
/// once [`number_blocks`](Self::number_blocks) was called.
#[derive(Clone, Debug, Default)]
pub struct Names {
    numbers: Numbers,
    /// The block with each number; `NOBODY` for a free number.
    blocks: Vec<BlockId>,
    free: Vec<u32>,
    length: u32,
}

#[derive(Clone, Debug)]
enum Numbers {
    /// For any blocks.
    Table(HashTable<u32>),
    /// For the blocks of volume 0 from `first` on: the last number of each, valid only if that
    /// number's block is this one.
    Array { first: u64, numbers: Vec<u32> },
}

impl Default for Numbers {
    fn default() -> Self {
        Self::Table(HashTable::new())
    }
}

/// The last block of the last volume, which lies past the end of any store.
const NOBODY: BlockId = BlockId::LAST;

impl Names {
    /// Announces that all blocks are on volume 0, numbered densely from `first` on. Called while
    /// the set is empty.
    pub fn number_blocks(&mut self, first: u64) {
        debug_assert!(self.is_empty(), "there are names already");
        self.numbers = Numbers::Array {
            first,
            numbers: Vec::new(),
        };
    }

    /// Blocks in the set.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.length
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The number of `block`, if it is in the set.
    #[inline]
    #[must_use]
    pub fn find(&self, block: BlockId) -> Option<u32> {
        let is_own = |&number: &u32| self.blocks.get(number as usize) == Some(&block);
        match &self.numbers {
            Numbers::Table(table) => table.find(hash(block), is_own).copied(),
            Numbers::Array { first, numbers } => {
                let place = block.index().wrapping_sub(*first) as usize;
                numbers.get(place).copied().filter(is_own)
            }
        }
    }

    /// Reads ahead of time what [`find`](Self::find) will need for `block`, and returns an
    /// arbitrary number that depends on it. The code has no branch on the value read: such branches
    /// are often mispredicted, and a misprediction discards the reads for the following blocks.
    #[inline]
    #[must_use]
    pub fn glance(&self, block: BlockId) -> u32 {
        match &self.numbers {
            Numbers::Table(_) => self.find(block).unwrap_or(0),
            Numbers::Array { first, numbers } => {
                let place = block.index().wrapping_sub(*first) as usize;
                let number = numbers.get(place).copied().unwrap_or(0);
                let held = self.blocks.get(number as usize);
                number ^ held.map_or(0, |held| held.index() as u32)
            }
        }
    }

    /// Adds `block`, which must not be in the set. Returns its number.
    #[inline]
    pub fn add(&mut self, block: BlockId) -> u32 {
        debug_assert!(self.find(block).is_none(), "a name twice");
        self.length += 1;
        let number = if let Some(number) = self.free.pop() {
            self.blocks[number as usize] = block;
            number
        } else {
            self.blocks.push(block);
            self.blocks.len() as u32 - 1
        };
        let blocks = &self.blocks;
        match &mut self.numbers {
            Numbers::Table(table) => {
                let again = |&other: &u32| hash(blocks[other as usize]);
                table.insert_unique(hash(block), number, again);
            }
            Numbers::Array { first, numbers } => {
                let place = block.index().wrapping_sub(*first) as usize;
                *grown(numbers, place, 0) = number;
            }
        }
        number
    }

    /// The block with this number, which must be in the set.
    #[inline]
    #[must_use]
    pub fn block(&self, number: u32) -> BlockId {
        self.blocks[number as usize]
    }

    /// Removes `block`. Returns its number, if it was in the set.
    #[inline]
    pub fn take(&mut self, block: BlockId) -> Option<u32> {
        let number = self.find(block)?;
        self.remove(number);
        Some(number)
    }

    /// Removes the block with this number, which must be in the set.
    #[inline]
    pub fn remove(&mut self, number: u32) {
        let block = std::mem::replace(&mut self.blocks[number as usize], NOBODY);
        debug_assert_ne!(block, NOBODY, "no such name");
        if let Numbers::Table(table) = &mut self.numbers
            && let Ok(entry) = table.find_entry(hash(block), |&other| other == number)
        {
            entry.remove();
        }
        self.free.push(number);
        self.length -= 1;
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
        fn equal_to_a_plain_map(
            numbered in proptest::bool::ANY,
            steps in prop::collection::vec((0u8..3, 0u64..40), 0..400)
        ) {
            let mut names = Names::default();
            if numbered {
                names.number_blocks(0);
            }
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
