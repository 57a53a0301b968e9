//! Names of departed blocks in several lists.

use super::{GhostMarks, LogQueues, Names};
use crate::{BlockId, Slot};
use std::hint::black_box;

/// Names of departed blocks in one or two lists, oldest first in each. A name is in one list only,
/// so a single look-up finds it. Constant time. About 28 bytes per name, or 4 to 8 and one for each
/// existing block once [`number_blocks`](Self::number_blocks) was called.
#[derive(Clone, Debug)]
pub struct GhostLists<const LISTS: usize>(Blocks<LISTS>);

#[derive(Clone, Debug)]
enum Blocks<const LISTS: usize> {
    /// For any blocks.
    Any {
        names: Names,
        /// The names' numbers.
        lists: LogQueues<LISTS>,
    },
    Numbered(GhostMarks<LISTS>),
}

use Blocks::{Any, Numbered};

impl<const LISTS: usize> Default for GhostLists<LISTS> {
    fn default() -> Self {
        Self(Any {
            names: Names::default(),
            lists: LogQueues::new(0),
        })
    }
}

impl<const LISTS: usize> GhostLists<LISTS> {
    /// Announces that all blocks are on volume 0, numbered densely from `first` on. Called while
    /// all lists are empty.
    pub fn number_blocks(&mut self, first: u64) {
        debug_assert_eq!(self.total(), 0, "there are names already");
        self.0 = Numbered(GhostMarks::new(first));
    }

    /// Reads ahead of time what finding `block` will need; returns an arbitrary number.
    #[inline]
    #[must_use]
    pub fn glance(&self, block: BlockId) -> u32 {
        match &self.0 {
            Any { names, .. } => names.glance(block),
            Numbered(marks) => marks.glance(block),
        }
    }

    /// Names in `list`.
    #[inline]
    #[must_use]
    pub fn len(&self, list: usize) -> u32 {
        match &self.0 {
            Any { lists, .. } => lists.len(list),
            Numbered(marks) => marks.len(list),
        }
    }

    /// Whether `list` is empty.
    #[inline]
    #[must_use]
    pub fn is_empty(&self, list: usize) -> bool {
        self.len(list) == 0
    }

    /// Names in all lists together.
    #[inline]
    #[must_use]
    pub fn total(&self) -> u32 {
        (0..LISTS).map(|list| self.len(list)).sum()
    }

    /// Whether `block` is in any list.
    #[inline]
    #[must_use]
    pub fn has(&self, block: BlockId) -> bool {
        match &self.0 {
            Any { names, .. } => names.find(block).is_some(),
            Numbered(marks) => marks.find(block).is_some(),
        }
    }

    /// Reads ahead of time what it will take to add `block` as the name `ahead` after the next, and
    /// to drop the name `ahead` after the oldest of `list`, so that these memory latencies overlap
    /// with others.
    #[inline]
    pub fn foresee(&self, block: BlockId, list: usize, ahead: u32) {
        match &self.0 {
            Any { names, lists } => {
                if let Some(number) = lists.about(list, ahead) {
                    black_box(names.block(number.0));
                }
            }
            Numbered(marks) => {
                black_box(marks.glance(block) ^ marks.foresee(list, ahead));
            }
        }
    }

    /// Removes `block`. Returns its list, if it was in one.
    #[inline]
    pub fn take(&mut self, block: BlockId) -> Option<usize> {
        match &mut self.0 {
            Any { names, lists } => {
                let number = Slot(names.take(block)?);
                let list = lists.queue_of(number);
                lists.remove(number);
                Some(list)
            }
            Numbered(marks) => marks.take(block),
        }
    }

    /// Adds `block`, which must be in no list, to `list` as its newest name.
    #[inline]
    pub fn push(&mut self, list: usize, block: BlockId) {
        match &mut self.0 {
            Any { names, lists } => {
                let number = names.add(block);
                lists.push_back(list, Slot(number));
            }
            Numbered(marks) => marks.push(list, block),
        }
    }

    /// Drops the oldest name of `list`. Returns whether there was one.
    #[inline]
    pub fn pop_oldest(&mut self, list: usize) -> bool {
        match &mut self.0 {
            Any { names, lists } => {
                let Some(number) = lists.front(list) else {
                    return false;
                };
                lists.remove(number);
                names.remove(number.0);
                true
            }
            Numbered(marks) => marks.pop_oldest(list),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Equal to plain lists under any sequence of operations.
        #[test]
        fn equal_to_plain_lists(
            numbered in proptest::bool::ANY,
            steps in prop::collection::vec((0u8..4, 0usize..2, 0u64..16), 0..400)
        ) {
            let mut ghosts = GhostLists::<2>::default();
            if numbered {
                ghosts.number_blocks(0);
            }
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
