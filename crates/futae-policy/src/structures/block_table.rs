//! A table with a number for each block, resident or not.

use super::grown;
use crate::BlockId;
use hashbrown::HashMap;

/// A number for each block; 0 unless set. Constant time. About 24 bytes per block that was set, or
/// 4 for each existing block once [`number_blocks`](Self::number_blocks) was called.
#[derive(Clone, Debug)]
pub enum BlockTable {
    /// For any blocks.
    Table(HashMap<BlockId, u32>),
    /// For the blocks of volume 0 from `first` on.
    Array {
        /// The first block.
        first: u64,
        /// Each block's number.
        numbers: Vec<u32>,
    },
}

impl Default for BlockTable {
    fn default() -> Self {
        Self::Table(HashMap::new())
    }
}

impl BlockTable {
    /// Announces that all blocks are on volume 0, numbered densely from `first` on. Called before
    /// any number is set.
    pub fn number_blocks(&mut self, first: u64) {
        *self = Self::Array {
            first,
            numbers: Vec::new(),
        };
    }

    /// The number of `block`.
    #[inline]
    #[must_use]
    pub fn get(&self, block: BlockId) -> u32 {
        let number = match self {
            Self::Table(table) => table.get(&block),
            Self::Array { first, numbers } => {
                numbers.get(block.index().wrapping_sub(*first) as usize)
            }
        };
        number.copied().unwrap_or(0)
    }

    /// The number of `block`, which is then reset to 0.
    #[inline]
    pub fn take(&mut self, block: BlockId) -> u32 {
        match self {
            Self::Table(table) => table.remove(&block).unwrap_or(0),
            Self::Array { first, numbers } => {
                let place = block.index().wrapping_sub(*first) as usize;
                numbers.get_mut(place).map_or(0, std::mem::take)
            }
        }
    }

    /// Sets the number of `block`.
    #[inline]
    pub fn set(&mut self, block: BlockId, number: u32) {
        match self {
            Self::Table(table) => {
                table.insert(block, number);
            }
            Self::Array { first, numbers } => {
                let place = block.index().wrapping_sub(*first) as usize;
                *grown(numbers, place, 0) = number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::BlockTable;
    use crate::BlockId;

    #[test]
    fn both_kinds_remember_until_taken() {
        let (table, mut array) = (BlockTable::default(), BlockTable::default());
        array.number_blocks(100);
        for mut memory in [table, array] {
            let block = |at| BlockId::on_first(at);
            memory.set(block(100), 7);
            memory.set(block(199), 9);
            assert_eq!(
                [100, 101, 199, 99, 200].map(|at| memory.get(block(at))),
                [7, 0, 9, 0, 0]
            );
            assert_eq!([100, 100, 200].map(|at| memory.take(block(at))), [7, 0, 0]);
        }
    }
}
