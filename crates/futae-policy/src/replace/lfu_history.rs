//! Access-history LFU: reviews choose the contents by use counts over the last accesses; a miss between
//! reviews changes nothing.
//!
//! # Source
//! Yoshida, Kourai and Yamaguchi 2018, LFU Cache FS (section 3.1).
//! # Picture
//! every access → [ the last N accesses ] → counts per block;
//! every K misses: resident block with the lowest count ↔ other block with the highest count
//! # Transitions
//! hit: enters the history | miss: enters the history, served, not kept | review: while there is a free
//! slot, the other block with the highest count is loaded; then it replaces the resident block with the
//! lowest count if its count is higher by more than min_gain | demotion, notice: not kept
//! # Parameters
//! history 100: N, accesses in the history (paper 100)
//! review 10: K, misses between reviews (paper 10)
//! min_gain 10: by how much the count of the new block must be higher; 0 is the literal rule of the paper
//! swaps_per_review 1: limit on replacements per review (paper 1)
//! prefill false: at the start, load the first blocks of the volume, as many as there are slots
//! # Deviations
//! min_gain is not in the paper: with the paper's N and K, chance makes every review exchange blocks under
//! uniform reads. The paper has no rule for ties; here the block with the lowest number is evicted, or
//! loaded
//! # Cost
//! O(log slots) per access; about 56 bytes per slot, and as much per block in the history

use crate::SpecError;
use crate::structures::{Heap, Names, Table};
use crate::{
    Access, AccessKind, Admission, Arguments, BlockId, Departure, Policy, Shape, SimulatorHints,
    Slot,
};
use std::cmp::Reverse;
use std::collections::VecDeque;

/// A block that is resident or in the history, by its number in `names`.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    count: u32,
    slot: Option<Slot>,
}

/// A history of accesses, and the blocks that it favours.
#[derive(Debug)]
pub struct LfuHistory {
    history_limit: usize,
    misses_to_review: u64,
    min_gain: u32,
    swaps_per_review: u64,
    slots: u32,
    misses: u64,
    /// Replacements that the current review may still make.
    swaps_left: u64,
    /// The next block to fill the empty cache with, until there are none.
    prefill: Option<u64>,
    /// The block that was named last, until it comes.
    wanted: Option<BlockId>,
    names: Names,
    known: Table<Known>,
    /// The number of the block in each slot.
    numbers: Table<u32>,
    history: VecDeque<u32>,
    /// Least counted on top; slots.
    residents: Heap<(u32, BlockId)>,
    /// Most counted on top; numbers of blocks that are in the history and not resident.
    others: Heap<(Reverse<u32>, BlockId)>,
}

/// Builds the policy; its parameters are `history`, `review`, `min_gain`, `swaps_per_review` and
/// `prefill`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<LfuHistory, SpecError> {
    let small = |n: &u32| *n < 1 << 30;
    let history = arguments.take("history", "1 to a thousand million", |n| small(n) && *n > 0)?;
    let min_gain = arguments.take("min_gain", "0 to a thousand million", small)?;
    let prefill = arguments.take("prefill", "true or false", |_: &bool| true)?;
    Ok(LfuHistory {
        history_limit: history.unwrap_or(100) as usize,
        misses_to_review: arguments.count("review", 10, 1)?,
        min_gain: min_gain.unwrap_or(10),
        swaps_per_review: arguments.count("swaps_per_review", 1, 1)?,
        slots: shape.slots,
        misses: 0,
        swaps_left: 0,
        prefill: prefill.unwrap_or(false).then_some(0),
        wanted: None,
        names: Names::default(),
        known: Table::new(0),
        numbers: Table::new(shape.slots),
        history: VecDeque::new(),
        residents: Heap::new(shape.slots),
        others: Heap::new(0),
    })
}

impl LfuHistory {
    fn number(&mut self, block: BlockId) -> Slot {
        let number = self.names.find(block);
        Slot(number.unwrap_or_else(|| {
            let number = self.names.add(block);
            self.known.set(Slot(number), Known::default());
            number
        }))
    }

    /// Moves a block to the place of its count: among the residents, the others, or neither.
    fn place(&mut self, number: Slot) {
        let Known { count, slot } = self.known.get(number);
        let block = self.names.block(number.0);
        if let Some(slot) = slot {
            self.others.remove(number);
            self.residents.set(slot, (count, block));
        } else if count > 0 {
            self.others.set(number, (Reverse(count), block));
        } else {
            self.others.remove(number);
            self.names.remove(number.0);
        }
    }

    fn remember(&mut self, block: BlockId) {
        let number = self.number(block);
        self.history.push_back(number.0);
        self.known.at(number).count += 1;
        self.place(number);
        if self.history.len() > self.history_limit
            && let Some(oldest) = self.history.pop_front()
        {
            self.known.at(Slot(oldest)).count -= 1;
            self.place(Slot(oldest));
        }
    }

    /// The resident that goes for a block counted `count` times.
    fn loser(&self, count: u32) -> Option<Slot> {
        let ((least, _), slot) = self.residents.top()?;
        (count > least + self.min_gain).then_some(slot)
    }
}

impl Policy for LfuHistory {
    fn miss(&mut self, access: &Access) -> Admission {
        if access.kind.is_demand() {
            self.remember(access.block);
            self.misses += 1;
            if self.misses.is_multiple_of(self.misses_to_review) {
                self.swaps_left = self.swaps_per_review;
            }
        }
        if access.kind == AccessKind::Preload {
            Admission::Admit
        } else {
            Admission::Bypass
        }
    }

    fn insert(&mut self, slot: Slot, access: &Access) {
        if self.wanted == Some(access.block) {
            self.wanted = None;
        }
        let number = self.number(access.block);
        self.numbers.set(slot, number.0);
        self.known.at(number).slot = Some(slot);
        self.place(number);
    }

    fn hit(&mut self, _slot: Slot, access: &Access) {
        if access.kind.is_demand() {
            self.remember(access.block);
        }
    }

    fn victim(&mut self, incoming: &Access) -> Option<Slot> {
        if self.wanted != Some(incoming.block) {
            return None;
        }
        let number = self.names.find(incoming.block)?;
        self.loser(self.known.get(Slot(number)).count)
    }

    fn surplus(&mut self) -> Option<Slot> {
        self.residents.top().map(|(_, slot)| slot)
    }

    fn remove(&mut self, slot: Slot, _why: Departure) {
        let number = Slot(self.numbers.get(slot));
        self.residents.remove(slot);
        self.known.at(number).slot = None;
        self.place(number);
    }

    fn review(&mut self) -> Option<BlockId> {
        if let Some(index) = self.prefill {
            let more = index < u64::from(self.slots) && self.residents.len() < self.slots;
            self.prefill = more.then_some(index + 1);
            if more {
                return Some(BlockId::on_first(index));
            }
        }
        let left = std::mem::take(&mut self.swaps_left).checked_sub(1)?;
        let ((Reverse(count), block), _) = self.others.top()?;
        if self.residents.len() >= self.slots {
            self.loser(count)?;
        }
        self.swaps_left = left;
        self.wanted = Some(block);
        self.wanted
    }

    fn history(&self) -> Vec<BlockId> {
        let block = |&number: &u32| self.names.block(number);
        self.history.iter().map(block).collect()
    }

    fn recall(&mut self, history: &[BlockId]) {
        for &block in history {
            self.remember(block);
        }
    }

    fn resize(&mut self, slots: u32) {
        self.slots = slots;
    }

    fn rank(&self, slot: Slot) -> u64 {
        let key = self.residents.key(slot);
        key.map_or(0, |(count, _)| u64::from(count))
    }

    fn order(&self) -> Vec<Slot> {
        self.residents.highest_first()
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.residents.len(), resident);
        assert_eq!(self.names.len(), resident + self.others.len());
        assert!(self.history.len() <= self.history_limit);
        let counts = self.residents.iter().map(|((count, _), _)| count);
        let others = self.others.iter().map(|((Reverse(count), _), _)| count);
        let counted: u32 = counts.chain(others).sum();
        assert_eq!(counted as usize, self.history.len());
    }
}

impl SimulatorHints for LfuHistory {}

/// The paper's rule on lists: counts are found by going through the history.
#[cfg(test)]
mod reference {
    pub struct LfuHistory {
        pub slots: usize,
        pub min_gain: usize,
        pub swaps: usize,
        pub prefill: bool,
        pub misses: usize,
        pub history: Vec<u64>,
        pub blocks: Vec<u64>,
    }

    impl LfuHistory {
        fn count(&self, block: u64) -> usize {
            self.history.iter().filter(|&&used| used == block).count()
        }

        fn review(&mut self) {
            let others = self
                .history
                .iter()
                .filter(|used| !self.blocks.contains(used));
            let most = others
                .copied()
                .max_by_key(|&x| (self.count(x), u64::MAX - x));
            let least = self
                .blocks
                .iter()
                .copied()
                .min_by_key(|&v| (self.count(v), v));
            let Some(x) = most else { return };
            if self.blocks.len() < self.slots {
                self.blocks.push(x);
            } else if let Some(v) = least.filter(|&v| self.count(x) > self.count(v) + self.min_gain)
            {
                self.blocks.retain(|&held| held != v);
                self.blocks.push(x);
            }
        }
    }

    impl crate::contract::Reference for LfuHistory {
        fn access(&mut self, block: u64) -> bool {
            self.history.push(block);
            if self.history.len() > 100 {
                self.history.remove(0);
            }
            let hit = self.blocks.contains(&block);
            if std::mem::take(&mut self.prefill) {
                self.blocks = (0..self.slots as u64).collect();
            }
            if !hit {
                self.misses += 1;
                if self.misses.is_multiple_of(10) {
                    (0..self.swaps).for_each(|_| self.review());
                }
            }
            hit
        }

        fn resident(&self) -> Vec<u64> {
            self.blocks.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, level_of, order_after};
    use crate::{Access, AccessKind, BlockId, Outcome};

    #[test]
    fn worked_example() {
        // 1 slot, a review every two misses. The second miss: 5 and 6 once each, 5 comes.
        let text = "lfu-history(review=2,min_gain=0,history=4)";
        assert_eq!(order_after(text, 1, &[6]), []);
        assert_eq!(order_after(text, 1, &[6, 5]), [5]);
        // 6 misses twice: history 6 5 6 6; three against one.
        assert_eq!(order_after(text, 1, &[6, 5, 6, 6]), [6]);
        // 7 misses twice, then 8, history 6 7 7 8: still no more than a draw for 7 in between.
        assert_eq!(order_after(text, 1, &[6, 5, 6, 6, 7, 7]), [6]);
        assert_eq!(order_after(text, 1, &[6, 5, 6, 6, 7, 7, 8, 8]), [7]);
    }

    #[test]
    fn a_block_that_loads_late_comes_only_while_it_still_gains() {
        let mut level = level_of("lfu-history(review=1,min_gain=0,history=3)", 1, 1);
        let block = BlockId::on_first;
        level.access(&Access::read(block(1)));
        assert_eq!(level.review(), Some(block(1)));
        level.access(&Access::of(block(1), AccessKind::Preload));
        level.access(&Access::read(block(2)));
        level.access(&Access::read(block(2)));
        assert_eq!(level.review(), Some(block(2)));
        // Before 2 has been loaded, 1 is asked for three times.
        for _ in 0..3 {
            level.access(&Access::read(block(1)));
        }
        let late = level.access(&Access::of(block(2), AccessKind::Preload));
        assert_eq!((late, level.order()), (Outcome::Bypassed, vec![block(1)]));
    }

    #[test]
    fn a_history_goes_on_where_it_was_saved() {
        let text = "lfu-history(review=2,min_gain=0,history=6)";
        let mut first = level_of(text, 1, 1);
        let block = BlockId::on_first;
        for index in [7, 8, 8, 9, 8, 7, 7, 9] {
            first.access(&Access::read(block(index)));
        }
        let history = first.history();
        assert_eq!(history, [8, 9, 8, 7, 7, 9].map(block));
        let mut second = level_of(text, 1, 1);
        second.recall(&history);
        assert_eq!(second.history(), history);
        // 7 and one miss more: 7 has most counts now, as it has where nothing was saved.
        second.access(&Access::read(block(7)));
        second.access(&Access::read(block(1)));
        assert_eq!(second.review(), Some(block(7)));
    }

    #[test]
    fn equals_its_reference_model() {
        for (arguments, min_gain, swaps, prefill) in [
            ("min_gain=0", 0, 1, false),
            ("min_gain=3,swaps_per_review=2", 3, 2, false),
            ("min_gain=1,prefill=true", 1, 1, true),
        ] {
            equals_reference(&format!("lfu-history({arguments})"), |slots, _| {
                reference::LfuHistory {
                    slots,
                    min_gain,
                    swaps,
                    prefill,
                    misses: 0,
                    history: Vec::new(),
                    blocks: Vec::new(),
                }
            });
        }
    }
}
