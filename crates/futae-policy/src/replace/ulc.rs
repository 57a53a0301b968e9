//! ULC, the upper level: places each block in this level, in the one below or in neither, by the distance
//! of its last two uses.
//!
//! # Source
//! Jiang and Zhang, "ULC: a file block placement and replacement protocol to effectively exploit
//! hierarchical locality in multi-level buffer caches", ICDCS 2004, for one client and two levels. The
//! paper was not at hand; followed are its abstract and the outline of its protocol: the uniLRUstack, its
//! yardsticks, and the messages Retrieve and Demote
//! # Picture
//! uniLRUstack, by recency: [ top ... Y1, the oldest block of this level ... Y2, the oldest of the level below ];
//! ghost entries among them, down to the older of Y1 and Y2
//! # Transitions
//! use of a block no older than Y1, or while this level has room: to this level; Y1 is demoted | else no
//! older than Y2, or while the level below has room: to the level below | else: served, not kept | every
//! use: to the top of the stack | demotion of Y1: to the level below, by its recency; if that is full, the
//! oldest block there is evicted | every read, write and demotion tells the level below whether to keep the
//! block, and when it was used last
//! # Parameters
//! below 0: slots of the level below; a simulation of several levels sets it. With 0 there is no level
//! below
//! history 2: ghost entries, as a multiple of the slots of both levels, at most 64
//! # Deviations
//! the paper's temporary buffer for blocks that pass through (tempLRU) is left out: a block that is not
//! kept misses if it is requested again at once. A Y1 that is older than every block of a full level below
//! is evicted without a message. `history` bounds the stack, which the paper only prunes. The server's gLRU
//! for several clients is left out: the level below would have to tell each client what it evicts, and no
//! message goes upwards. Write-back is refused: the level below is not told of a write that stays above. A
//! live cache sends no directives and has `below` 0
//! # Cost
//! O(log n) per access; about 60 bytes per slot of both levels and per ghost entry

use crate::structures::{Heap, Names, Table};
use crate::{
    Access, Admission, Arguments, BlockId, Departure, Directive, Policy, Shape, SimulatorHints,
    Slot, SpecError,
};

/// Levels of blocks: departed ones, and those of this level and of the level below.
const OUT: usize = 0;
const HERE: usize = 1;
const BELOW: usize = 2;

/// The stack, as the blocks of each level by their last use.
#[derive(Clone, Debug)]
pub struct Ulc {
    names: Names,
    /// By the name's number.
    levels: Table<u8>,
    slots_of: Table<u32>,
    /// The numbers of the names of each level, the oldest use on top.
    by_use: [Heap<u64>; 3],
    /// The number of the name of the block in each slot.
    numbers: Table<u32>,
    now: u64,
    slots: u32,
    below: u32,
    history: f64,
}

/// Builds the policy; its parameters are `below` and `history`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Ulc, SpecError> {
    let below = arguments.take("below", "a number of slots", |_: &u32| true)?;
    let history = arguments.take("history", "a number from 0 to 64", |share: &f64| {
        (0.0..=64.0).contains(share)
    })?;
    Ok(Ulc {
        names: Names::default(),
        levels: Table::new(shape.slots),
        slots_of: Table::new(shape.slots),
        by_use: [(); 3].map(|()| Heap::new(0)),
        numbers: Table::new(shape.slots),
        now: 0,
        slots: shape.slots,
        below: below.unwrap_or(0),
        history: history.unwrap_or(2.0),
    })
}

impl Ulc {
    fn level(&self, number: u32) -> usize {
        usize::from(self.levels.get(Slot(number)))
    }

    fn last_use(&self, number: u32) -> u64 {
        self.by_use[self.level(number)]
            .key(Slot(number))
            .unwrap_or(0)
    }

    fn oldest(&self, level: usize) -> Option<(u64, u32)> {
        self.by_use[level].top().map(|(used, at)| (used, at.0))
    }

    /// The level that a block belongs to that is used now.
    fn level_for(&self, number: Option<u32>) -> usize {
        let belongs = |level: usize, capacity: u32| {
            let has_room = self.by_use[level].len() < capacity;
            let is_recent = number
                .zip(self.oldest(level))
                .is_some_and(|(number, (oldest, _))| self.last_use(number) >= oldest);
            capacity > 0 && (has_room || is_recent)
        };
        if belongs(HERE, self.slots) {
            HERE
        } else if belongs(BELOW, self.below) {
            BELOW
        } else {
            OUT
        }
    }

    fn place(&mut self, number: u32, level: usize, used: u64) {
        let from = self.level(number);
        self.by_use[from].remove(Slot(number));
        self.by_use[level].set(Slot(number), used);
        self.levels.set(Slot(number), level as u8);
    }

    fn forget(&mut self, number: u32) {
        let level = self.level(number);
        self.by_use[level].remove(Slot(number));
        self.names.remove(number);
    }

    /// Lets the oldest blocks below depart while there are too many, and forgets departed blocks at
    /// the bottom of the stack.
    fn settle(&mut self) {
        while self.by_use[BELOW].len() > self.below
            && let Some((used, number)) = self.oldest(BELOW)
        {
            self.place(number, OUT, used);
        }
        let of = |level: usize| self.oldest(level).map(|(used, _)| used);
        let bottom = of(HERE).into_iter().chain(of(BELOW)).min();
        let slots = f64::from(self.slots) + f64::from(self.below);
        let limit = (slots * self.history) as u32;
        while let Some((used, number)) = self.oldest(OUT)
            && (self.by_use[OUT].len() > limit || bottom.is_none_or(|bottom| used < bottom))
        {
            self.forget(number);
        }
    }

    fn used(&mut self, block: BlockId, level: usize) -> u32 {
        self.now += 1;
        let number = self.names.find(block);
        let number = number.unwrap_or_else(|| {
            let number = self.names.add(block);
            self.levels.set(Slot(number), OUT as u8);
            number
        });
        self.place(number, level, self.now);
        number
    }
}

impl Policy for Ulc {
    fn miss(&mut self, access: &Access) -> Admission {
        match self.level_for(self.names.find(access.block)) {
            HERE => {
                // It leaves the level below before Y1 comes there.
                if let Some(number) = self.names.find(access.block) {
                    self.forget(number);
                }
                Admission::Admit
            }
            level => {
                self.used(access.block, level);
                self.settle();
                Admission::Bypass
            }
        }
    }

    fn insert(&mut self, slot: Slot, access: &Access) {
        let number = self.used(access.block, HERE);
        self.slots_of.set(Slot(number), slot.0);
        self.numbers.set(slot, number);
        self.settle();
    }

    fn hit(&mut self, _slot: Slot, access: &Access) {
        self.used(access.block, HERE);
        self.settle();
    }

    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        let (_, number) = self.oldest(HERE)?;
        Some(Slot(self.slots_of.get(Slot(number))))
    }

    fn remove(&mut self, slot: Slot, why: Departure) {
        let number = self.numbers.get(slot);
        if why == Departure::Evicted {
            let level = if self.below > 0 { BELOW } else { OUT };
            self.place(number, level, self.last_use(number));
            self.settle();
        } else {
            self.forget(number);
            self.settle();
        }
    }

    fn directive(&self, block: BlockId) -> Option<Directive> {
        if self.below == 0 {
            return None;
        }
        let number = self.names.find(block);
        let kept = number.filter(|&number| self.level(number) == BELOW);
        Some(Directive {
            block,
            used: kept.map_or(self.now, |number| self.last_use(number)),
            is_kept: kept.is_some(),
        })
    }

    fn resize(&mut self, slots: u32) {
        self.slots = slots;
        self.settle();
    }

    fn order(&self) -> Vec<Slot> {
        let mut all = self.by_use[HERE].clone();
        let mut order = Vec::new();
        while let Some((_, number)) = all.top() {
            all.remove(number);
            order.push(Slot(self.slots_of.get(number)));
        }
        order.reverse();
        order
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.by_use[HERE].len(), resident);
        assert!(self.by_use[BELOW].len() <= self.below);
        let all: u32 = self.by_use.iter().map(Heap::len).sum();
        assert_eq!(all, self.names.len());
    }
}

impl SimulatorHints for Ulc {
    fn number_blocks(&mut self, first: u64) {
        self.names.number_blocks(first);
    }

    #[inline]
    fn glance(&self, block: BlockId) -> u32 {
        self.names.glance(block)
    }
}

/// The stack as the paper draws it: all blocks by recency, each with its level.
#[cfg(test)]
mod reference {
    pub struct Ulc {
        pub slots: usize,
        pub below: usize,
        /// The top first, with the level: 0 is neither.
        pub stack: Vec<(u64, u8)>,
    }

    impl Ulc {
        fn count(&self, level: u8) -> usize {
            self.stack.iter().filter(|block| block.1 == level).count()
        }

        fn yardstick(&self, level: u8) -> Option<usize> {
            self.stack.iter().rposition(|block| block.1 == level)
        }

        fn shift(&mut self, from: u8, to: u8, capacity: usize) {
            if self.count(from) > capacity
                && let Some(at) = self.yardstick(from)
            {
                self.stack[at].1 = to;
            }
        }
    }

    impl crate::contract::Reference for Ulc {
        fn access(&mut self, block: u64) -> bool {
            let at = self.stack.iter().position(|held| held.0 == block);
            let is_at_most = |yardstick: usize| at.is_some_and(|at| at <= yardstick);
            let belongs = |level, capacity| {
                self.count(level) < capacity || self.yardstick(level).is_some_and(is_at_most)
            };
            let to = match (belongs(1, self.slots), belongs(2, self.below)) {
                (true, _) => 1,
                (false, true) => 2,
                (false, false) => 0,
            };
            let was = at.map_or(0, |at| self.stack.remove(at).1);
            self.stack.insert(0, (block, to));
            self.shift(1, 2, self.slots);
            self.shift(2, 0, self.below);
            while self.stack.last().is_some_and(|last| last.1 == 0) {
                self.stack.pop();
            }
            while self.count(0) > 2 * (self.slots + self.below)
                && let Some(at) = self.yardstick(0)
            {
                self.stack.remove(at);
            }
            was == 1
        }

        fn resident(&self) -> Vec<u64> {
            let here = self.stack.iter().filter(|block| block.1 == 1);
            here.map(|block| block.0).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, order_after, run};
    use crate::{BlockId, PolicySpec};

    /// Two slots here and two below. The simulator's tests have the same example with both levels.
    #[test]
    fn worked_example() {
        let order = |reads: &[u64]| order_after("ulc(below=2)", 2, reads);
        // 3 and 4 go below, 5 nowhere.
        assert_eq!(order(&[1, 2, 3, 4, 5]), [2, 1]);
        // 3 is more recent than Y1, which is 1.
        assert_eq!(order(&[1, 2, 3, 4, 5, 3]), [3, 2]);
        let level = run("ulc(below=2)", 2, 1, &[1, 2, 3, 4, 5, 3]);
        let kept = |index| {
            let directive = level.directive(BlockId::on_first(index)).expect("directs");
            directive.is_kept.then_some(directive.used)
        };
        assert_eq!(
            [1, 2, 3, 4, 5].map(kept),
            [Some(1), None, None, Some(4), None]
        );
        assert!(
            run("ulc", 2, 1, &[1])
                .directive(BlockId::on_first(1))
                .is_none()
        );
    }

    #[test]
    fn the_level_below_is_set_unless_it_is_written() {
        for (text, expected) in [
            ("ulc", "ulc(below=9)"),
            ("ulc(below=3)", "ulc(below=3)"),
            ("lru", "lru"),
        ] {
            let mut spec: PolicySpec = text.parse().expect("valid");
            spec.set_below(9);
            assert_eq!(spec.to_string(), expected);
        }
    }

    #[test]
    fn equals_its_reference_model() {
        for below in [0, 1, 5, 30] {
            equals_reference(&format!("ulc(below={below})"), |slots, _| reference::Ulc {
                slots,
                below,
                stack: Vec::new(),
            });
        }
    }
}
