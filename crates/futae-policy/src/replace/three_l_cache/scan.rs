//! The candidates for eviction: newcomers, and blocks that a scan through the order selects.

use super::super::lrb::Uses;
use crate::Slot;
use crate::structures::{Queues, Table};
use std::collections::VecDeque;

/// The list of the order, among the queues.
pub const ORDER: usize = 0;
/// The largest number of candidates per draw, beside newcomers.
const RATE_MAX: u32 = 1024;
/// Counts of victims by the magnitude of their uses.
const MAGNITUDES: usize = 16;

/// The position of the scan, and its statistics of where victims come from.
#[derive(Clone, Debug)]
pub struct Scan {
    /// Slots of the cache.
    pub slots: u32,
    /// Blocks that came since there is a forest and were no candidates yet, oldest first.
    newcomers: VecDeque<(Slot, u64)>,
    /// The number of the newcomer in a slot, 0 for none. A departed newcomer is still in the list,
    /// under another number.
    numbers: Table<u64>,
    came: u64,
    waiting: u32,
    next: Option<Slot>,
    /// The number of blocks when this round began, and of those scanned since.
    length: u32,
    passed: u32,
    tuned: Tuned,
    victims_by_uses: [u32; MAGNITUDES],
    /// Victims that the scan had passed, candidates, and both while it was among the oldest.
    victims: u64,
    candidates: u64,
    oldest_victims: u64,
    oldest_candidates: u64,
    /// When the block was last used that the scan chose last.
    reached: u64,
}

/// Parameters that a round sets for the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuned {
    /// The oldest part of the order, in percent, whose blocks are candidates regardless of their
    /// uses.
    pub oldest_percent: u32,
    /// The part of the cache, in percent, that newcomers fill before they become candidates.
    pub reserved_percent: u32,
    /// The largest number of uses of other candidates.
    pub uses_most: u32,
}

impl Scan {
    /// A scan at the oldest block.
    pub fn new(slots: u32) -> Self {
        Self {
            slots,
            newcomers: VecDeque::new(),
            numbers: Table::new(slots),
            came: 0,
            waiting: 0,
            next: None,
            length: 0,
            passed: 0,
            tuned: Tuned {
                oldest_percent: 1,
                reserved_percent: 2,
                uses_most: 1,
            },
            victims_by_uses: [0; MAGNITUDES],
            victims: 0,
            candidates: 0,
            oldest_victims: 0,
            oldest_candidates: 0,
            reached: 0,
        }
    }

    /// A block came while there is a forest.
    pub fn came(&mut self, slot: Slot) {
        self.came += 1;
        self.waiting += 1;
        self.newcomers.push_back((slot, self.came));
        self.numbers.set(slot, self.came);
    }

    /// A block is about to move to the newest end, or to leave: the scan continues after it.
    pub fn passes(&mut self, slot: Slot, order: &Queues) {
        if self.next == Some(slot) {
            self.next = order.after(slot);
        }
    }

    /// A block leaves.
    pub fn left(&mut self, slot: Slot) {
        if std::mem::take(self.numbers.at(slot)) > 0 {
            self.waiting -= 1;
        }
    }

    /// A candidate is evicted.
    pub fn evicted(&mut self, uses: &Uses) {
        let magnitude = uses.number().max(1).ilog2() as usize;
        self.victims_by_uses[magnitude.min(MAGNITUDES - 1)] += 1;
        self.victims += u64::from(uses.last() <= self.reached);
    }

    /// Blocks that the scan chooses at a time.
    fn rate(&self) -> u32 {
        match self.length {
            0..=2 => 1,
            length => RATE_MAX.min(length / 100 + 2),
        }
    }

    /// Candidates, at least one where there are blocks; and whether a round is over, so that older answers no longer count.
    pub fn draw(&mut self, order: &Queues, uses: &Table<Uses>) -> (Vec<Slot>, bool) {
        let mut chosen = Vec::new();
        if self.length == 0 {
            self.length = order.len(ORDER);
        }
        let share = |percent: u32| (u64::from(self.slots) * u64::from(percent) / 100) as u32;
        let reserved = share(self.tuned.reserved_percent);
        let many = share(10 * self.tuned.reserved_percent).max(1);
        let most = (self.rate() * 3 / 2) as usize;
        while self.waiting > reserved && chosen.len() < most {
            let Some((slot, number)) = self.newcomers.pop_front() else {
                break;
            };
            if self.numbers.get(slot) == number {
                self.numbers.set(slot, 0);
                self.waiting -= 1;
                chosen.push(slot);
            }
        }
        if self.waiting >= many && !chosen.is_empty() {
            return (chosen, false);
        }
        let mut found = 0;
        let mut is_over = false;
        while found < self.rate() && !is_over {
            let Some(slot) = self.next.or_else(|| order.front(ORDER)) else {
                break;
            };
            let oldest = self.length * self.tuned.oldest_percent / 100 + 2;
            if self.passed <= oldest {
                (self.oldest_victims, self.oldest_candidates) = (self.victims, self.candidates);
            }
            let of = uses.get(slot);
            if of.number() <= self.tuned.uses_most || self.passed < oldest {
                chosen.push(slot);
                self.reached = of.last();
                found += 1;
                self.candidates += 1;
            }
            self.passed += 1;
            self.next = order.after(slot);
            is_over = self.passed >= self.length;
        }
        if is_over {
            self.begin(order);
        }
        if chosen.is_empty() {
            chosen.extend(order.front(ORDER));
        }
        (chosen, is_over)
    }

    /// Begins a round, and tunes the shares by the last.
    fn begin(&mut self, order: &Queues) {
        let tuned = &mut self.tuned;
        let all: u32 = self.victims_by_uses.iter().sum();
        let mut seen = 0;
        for (magnitude, count) in self.victims_by_uses.iter().enumerate() {
            seen += u64::from(*count);
            if all > 0 && 100 * seen >= 99 * u64::from(all) {
                tuned.uses_most = 1 << magnitude;
                break;
            }
        }
        let (later_victims, later_candidates) = (
            self.victims - self.oldest_victims,
            self.candidates - self.oldest_candidates,
        );
        if self.oldest_victims * later_candidates > later_victims * self.oldest_candidates {
            tuned.oldest_percent = (tuned.oldest_percent + 1).min(100);
        } else {
            tuned.oldest_percent = (tuned.oldest_percent - 1).max(1);
        }
        if self.victims > u64::from(self.waiting) {
            tuned.reserved_percent = (tuned.reserved_percent + 1).min(100);
        } else {
            tuned.reserved_percent = (tuned.reserved_percent / 2).max(1);
        }
        self.length = order.len(ORDER);
        (self.passed, self.next) = (0, order.front(ORDER));
        (self.victims, self.candidates) = (0, 0);
        (self.oldest_victims, self.oldest_candidates) = (0, 0);
        self.victims_by_uses = [0; MAGNITUDES];
    }
}
