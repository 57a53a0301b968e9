//! Names of departed blocks.

use super::{LogQueues, Names};
use crate::{BlockId, Slot};

const ORDER: usize = 0;

/// Names of departed blocks, oldest first, at most `limit` of them, each with a value. Constant
/// time; about 28 bytes per name beside the value.
#[derive(Clone, Debug)]
pub struct Ghosts<T = ()> {
    limit: u32,
    names: Names,
    /// The names' numbers, oldest first.
    order: LogQueues,
    values: Vec<T>,
}

impl<T: Copy> Ghosts<T> {
    /// No names yet, and room for `limit` of them.
    #[must_use]
    pub fn new(limit: u32) -> Self {
        Self {
            limit,
            names: Names::default(),
            order: LogQueues::new(0),
            values: Vec::new(),
        }
    }

    /// Announces that all blocks are numbered; see [`Names::number_blocks`].
    pub fn number_blocks(&mut self, first: u64) {
        self.names.number_blocks(first);
    }

    /// Reads ahead of time what finding `block` will need; see [`Names::glance`].
    #[inline]
    #[must_use]
    pub fn glance(&self, block: BlockId) -> u32 {
        self.names.glance(block)
    }

    /// Names remembered now.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u32 {
        self.order.len(ORDER)
    }

    /// Whether no name is remembered.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty(ORDER)
    }

    /// Changes the limit; drops the oldest names beyond it.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
        while self.len() > limit {
            self.pop_oldest();
        }
    }

    /// The value remembered with `block`.
    #[inline]
    #[must_use]
    pub fn get(&self, block: BlockId) -> Option<T> {
        let number = self.names.find(block)?;
        Some(self.values[number as usize])
    }

    /// Removes `block`. Returns its value, if it was remembered.
    #[inline]
    pub fn take(&mut self, block: BlockId) -> Option<T> {
        let number = self.names.take(block)?;
        self.order.remove(Slot(number));
        Some(self.values[number as usize])
    }

    /// Adds `block`, which must not be remembered, as the newest name; drops the oldest if the
    /// limit is exceeded.
    #[inline]
    pub fn push(&mut self, block: BlockId, value: T) {
        debug_assert!(self.names.find(block).is_none(), "remembered already");
        if self.limit == 0 {
            return;
        }
        if self.len() >= self.limit {
            self.pop_oldest();
        }
        let number = self.names.add(block);
        if self.values.len() <= number as usize {
            self.values.push(value);
        } else {
            self.values[number as usize] = value;
        }
        self.order.push_back(ORDER, Slot(number));
    }

    /// The oldest name.
    #[inline]
    #[must_use]
    pub fn oldest(&self) -> Option<(BlockId, T)> {
        let number = self.order.front(ORDER)?;
        Some((self.names.block(number.0), self.values[number.i()]))
    }

    /// Drops and returns the oldest name.
    #[inline]
    pub fn pop_oldest(&mut self) -> Option<(BlockId, T)> {
        let number = self.order.front(ORDER)?.0;
        let oldest = (self.names.block(number), self.values[number as usize]);
        self.order.remove(Slot(number));
        self.names.remove(number);
        Some(oldest)
    }

    /// The names with their values, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (BlockId, T)> + '_ {
        self.order
            .iter(ORDER)
            .map(|number| (self.names.block(number.0), self.values[number.i()]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Equal to a plain list under any sequence of operations.
        #[test]
        fn equal_to_a_plain_list(steps in prop::collection::vec((0u8..8, 0u64..24), 0..400)) {
            let mut ghosts = Ghosts::new(6);
            let mut limit = 6;
            let mut model: Vec<(u64, usize)> = Vec::new();
            for (at, (what, index)) in steps.into_iter().enumerate() {
                let block = BlockId::on_first(index);
                let known = model.iter().position(|&(name, _)| name == index);
                match what {
                    0 | 1 => {
                        let expected = known.map(|place| model.remove(place).1);
                        prop_assert_eq!(ghosts.take(block), expected);
                    }
                    2 => {
                        limit = index as usize % 9;
                        ghosts.set_limit(limit as u32);
                    }
                    3 => {
                        let expected = (!model.is_empty()).then(|| model.remove(0));
                        let got = ghosts.pop_oldest().map(|(block, value)| (block.index(), value));
                        prop_assert_eq!(got, expected);
                    }
                    _ if known.is_none() => {
                        ghosts.push(block, at);
                        if limit > 0 {
                            model.push((index, at));
                        }
                    }
                    _ => {}
                }
                model.drain(..model.len().saturating_sub(limit));
                let held: Vec<_> = ghosts.iter().map(|(block, value)| (block.index(), value)).collect();
                prop_assert_eq!(&held, &model);
                prop_assert_eq!(ghosts.len() as usize, model.len());
                let oldest = ghosts.oldest().map(|(block, value)| (block.index(), value));
                prop_assert_eq!(oldest, model.first().copied());
                for &(index, value) in &model {
                    prop_assert_eq!(ghosts.get(BlockId::on_first(index)), Some(value));
                }
            }
        }
    }
}
