//! Names of departed blocks in several lists.

use super::{Lines, Names};
use crate::{BlockId, Slot};
use std::hint::black_box;
use std::ops::Range;

/// Names of departed blocks in several lists, oldest first in each; a name is in one list only, so
/// that one look-up finds it wherever it is. Constant time; about 28 bytes a name.
#[derive(Clone, Debug)]
pub struct GhostLists<const LISTS: usize> {
    names: Names,
    /// The names' numbers.
    lists: Lines<LISTS>,
}

impl<const LISTS: usize> Default for GhostLists<LISTS> {
    fn default() -> Self {
        Self {
            names: Names::default(),
            lists: Lines::new(0),
        }
    }
}

impl<const LISTS: usize> GhostLists<LISTS> {
    /// Says that all blocks to come are these; see [`Names::number_blocks`].
    pub fn number_blocks(&mut self, blocks: Range<u64>) {
        self.names.number_blocks(blocks);
    }

    /// Names in `list`.
    #[inline]
    #[must_use]
    pub fn len(&self, list: usize) -> u32 {
        self.lists.len(list)
    }

    /// Whether `list` is empty.
    #[inline]
    #[must_use]
    pub fn is_empty(&self, list: usize) -> bool {
        self.lists.is_empty(list)
    }

    /// Names in all lists together.
    #[inline]
    #[must_use]
    pub fn total(&self) -> u32 {
        self.names.len()
    }

    /// Whether `block` is in any list.
    #[inline]
    #[must_use]
    pub fn has(&self, block: BlockId) -> bool {
        self.names.find(block).is_some()
    }

    /// Reads what it will take to have `block` join as the name `ahead` after the next, and the
    /// oldest name of `list` but `ahead` go for it: ahead of time, so that these reads from memory
    /// wait together with others.
    #[inline]
    pub fn foresee(&self, block: BlockId, list: usize, ahead: u32) {
        self.names.foresee(block);
        if let Some(number) = self.lists.about(list, ahead) {
            black_box(self.names.block(number.0));
        }
    }

    /// Takes `block` out; the list that it was in, if it was in one.
    #[inline]
    pub fn take(&mut self, block: BlockId) -> Option<usize> {
        let number = Slot(self.names.take(block)?);
        let list = self.lists.queue_of(number);
        self.lists.remove(number);
        Some(list)
    }

    /// Puts `block`, which must be in none, into `list` as its newest name.
    #[inline]
    pub fn push(&mut self, list: usize, block: BlockId) {
        let number = self.names.add(block);
        self.lists.push_back(list, Slot(number));
    }

    /// Forgets the oldest name of `list`; whether there was one.
    #[inline]
    pub fn pop_oldest(&mut self, list: usize) -> bool {
        let Some(number) = self.lists.front(list) else {
            return false;
        };
        self.lists.remove(number);
        self.names.remove(number.0);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Equal to plain lists under any sequence of operations.
        #[test]
        fn equal_to_plain_lists(steps in prop::collection::vec((0u8..4, 0usize..2, 0u64..16), 0..400)) {
            let mut ghosts = GhostLists::<2>::default();
            let mut model: [Vec<u64>; 2] = Default::default();
            for (what, list, index) in steps {
                let block = BlockId::on_first(index);
                let home = model.iter().position(|names| names.contains(&index));
                match what {
                    0 => {
                        prop_assert_eq!(ghosts.take(block), home);
                        model.iter_mut().for_each(|names| names.retain(|&name| name != index));
                    }
                    1 => {
                        prop_assert_eq!(ghosts.pop_oldest(list), !model[list].is_empty());
                        model[list].drain(..1.min(model[list].len()));
                    }
                    _ if home.is_none() => {
                        ghosts.push(list, block);
                        model[list].push(index);
                    }
                    _ => {}
                }
                for (list, names) in model.iter().enumerate() {
                    prop_assert_eq!(ghosts.len(list) as usize, names.len());
                    prop_assert_eq!(ghosts.is_empty(list), names.is_empty());
                }
                prop_assert_eq!(ghosts.total() as usize, model.concat().len());
                for index in 0..16 {
                    let known = model.concat().contains(&index);
                    prop_assert_eq!(ghosts.has(BlockId::on_first(index)), known);
                }
            }
        }
    }
}
