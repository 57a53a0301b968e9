//! SIEVE: a queue whose order never changes, and a hand that passes over it from the oldest block to the
//! newest.
//!
//! # Source
//! Zhang, Yang, Yue, Vigfusson and Rashmi, "SIEVE is simpler than LRU", NSDI 2024, algorithm 1.
//! # Picture
//! [ oldest ... hand → ... newest ] ← new; visited: clear the mark, next block | not visited: victim
//! # Transitions
//! hit: marked as visited | miss: placed at the newest end, not visited | the hand continues at the oldest
//! block after the newest one
//! # Parameters
//! none
//! # Deviations
//! none
//! # Cost
//! O(1) per access, amortised; a hit only sets a mark; 12 bytes per slot

use crate::structures::{LogQueue, Table};
use crate::{Access, Arguments, Departure, Policy, Shape, SimulatorHints, Slot, SpecError};

/// The bits of a slot's note: whether it is visited, and its row; its place is in the bits above.
const VISITED: u32 = 1;
const ROW: u32 = 2;
const PLACE_SHIFT: u32 = 2;
/// A hand over a queue in order of arrival. The queue has two rows: the blocks that the hand has
/// still to pass in this round, and before them those that it has spared. Thus a block that leaves
/// creates no gap.
#[derive(Debug)]
pub struct Sieve {
    rows: [LogQueue; 2],
    /// The row whose front is at the hand.
    coming: usize,
    notes: Table<u32>,
}

/// Builds the policy; it has no parameters.
pub fn build(_arguments: &mut Arguments, shape: &Shape) -> Result<Sieve, SpecError> {
    Ok(Sieve {
        rows: [LogQueue::new(shape.slots), LogQueue::new(shape.slots)],
        coming: 0,
        notes: Table::new(shape.slots),
    })
}

fn note(row: usize, place: u32) -> u32 {
    place << PLACE_SHIFT | (row as u32) << 1
}

impl Sieve {
    #[inline]
    fn push(&mut self, row: usize, slot: Slot) {
        let place = self.rows[row].push(slot);
        self.notes.set(slot, note(row, place));
    }

    /// After the newest the hand goes to the oldest.
    #[inline]
    fn go_round(&mut self) {
        if self.rows[self.coming].is_empty() {
            self.coming = 1 - self.coming;
        }
    }

    #[cold]
    fn close_gaps(&mut self, row: usize) {
        let notes = &mut self.notes;
        self.rows[row].close(|slot, place| {
            let visited = notes.get(slot) & VISITED;
            notes.set(slot, note(row, place) | visited);
        });
    }
}

impl Policy for Sieve {
    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.push(self.coming, slot);
    }

    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        *self.notes.at(slot) |= VISITED;
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        loop {
            let slot = self.rows[self.coming].front()?;
            if self.notes.get(slot) & VISITED == 0 {
                return Some(slot);
            }
            self.rows[self.coming].pop();
            self.push(1 - self.coming, slot);
            self.go_round();
        }
    }

    #[inline]
    fn remove(&mut self, slot: Slot, _why: Departure) {
        let noted = self.notes.get(slot);
        let row = usize::from(noted & ROW != 0);
        self.rows[row].leave(noted >> PLACE_SHIFT);
        if self.rows[row].is_gappy() {
            self.close_gaps(row);
        }
        self.go_round();
    }

    /// The hand takes unvisited blocks in its first round, all others in its second.
    fn order(&self) -> Vec<Slot> {
        let rows = [&self.rows[self.coming], &self.rows[1 - self.coming]];
        let mut next: Vec<Slot> = rows.into_iter().flat_map(LogQueue::iter).collect();
        next.sort_by_key(|&slot| self.notes.get(slot) & VISITED != 0);
        next.reverse();
        next
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.rows[0].len() + self.rows[1].len(), resident);
        let is_round = self.rows[1 - self.coming].is_empty();
        assert!(is_round || !self.rows[self.coming].is_empty(), "no hand");
        for row in [0, 1] {
            for slot in self.rows[row].iter() {
                let noted = self.notes.get(slot);
                assert_eq!(usize::from(noted & ROW != 0), row, "not where it stands");
            }
        }
    }
}

impl SimulatorHints for Sieve {
    #[inline]
    fn foresee(&self, ahead: u32) -> Option<Slot> {
        let coming = &self.rows[self.coming];
        let slot = match ahead.checked_sub(coming.places()) {
            None => coming.about(ahead)?,
            Some(ahead) => self.rows[1 - self.coming].about(ahead)?,
        };
        std::hint::black_box(self.notes.get(slot));
        Some(slot)
    }
}

/// The paper's algorithm on a list, newest first, with the hand as an index.
#[cfg(test)]
mod reference {
    pub struct Sieve {
        pub slots: usize,
        pub blocks: Vec<(u64, bool)>,
        pub hand: Option<usize>,
    }

    impl crate::contract::Reference for Sieve {
        fn access(&mut self, block: u64) -> bool {
            if let Some(held) = self.blocks.iter_mut().find(|held| held.0 == block) {
                held.1 = true;
                return true;
            }
            if self.blocks.len() == self.slots {
                let tail = self.blocks.len() - 1;
                let mut at = self.hand.unwrap_or(tail);
                while self.blocks[at].1 {
                    self.blocks[at].1 = false;
                    at = at.checked_sub(1).unwrap_or(tail);
                }
                self.blocks.remove(at);
                self.hand = at.checked_sub(1);
            }
            self.blocks.insert(0, (block, false));
            self.hand = self.hand.map(|hand| hand + 1);
            false
        }

        fn resident(&self) -> Vec<u64> {
            self.blocks.iter().map(|held| held.0).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, order_after};

    #[test]
    fn worked_example() {
        assert_eq!(order_after("sieve", 3, &[1, 2, 3, 1]), [1, 3, 2]);
        // The hand spares 1 and takes 2; it stands at 3, the next victim, though 1 is older.
        assert_eq!(order_after("sieve", 3, &[1, 2, 3, 1, 4]), [1, 4, 3]);
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("sieve", |slots, _| reference::Sieve {
            slots,
            blocks: Vec::new(),
            hand: None,
        });
    }
}
