//! Decides whether demoted data may be accepted: only from a volume's one client, and only while no
//! newer write to that block has been seen.

use crate::ClientId;
use hashbrown::{HashMap, HashSet};
use std::collections::VecDeque;

/// Number of blocks whose recent writes are remembered. Demotions older than the oldest are
/// refused.
const REMEMBERED_BLOCKS_MAX: usize = 65_536;

/// A write to more blocks than this is remembered as a write to all blocks.
const RANGE_BLOCKS_MAX: u64 = 1024;

/// The clients of a volume, and its recent writes.
#[derive(Debug, Default)]
pub struct DemotionGuard {
    clients: HashSet<ClientId>,
    /// Clients whose own cache may be stale: another client wrote while they were connected.
    revoked: HashSet<ClientId>,
    written: HashMap<u64, u64>,
    order: VecDeque<(u64, u64)>,
    /// A demotion with a sequence at or below this is refused.
    floor: u64,
    /// Blocks to which a write has failed: the content of the store is unknown.
    unknown: HashSet<u64>,
}

impl DemotionGuard {
    /// A client has connected.
    pub fn join(&mut self, client: ClientId) {
        if self.clients.is_empty() {
            // Earlier writes do not matter: this client has cached nothing yet. (Sequences of
            // different clients are not comparable. Where they mix below, the higher one is kept,
            // which can only refuse too much.)
            self.written.clear();
            self.order.clear();
            self.floor = 0;
        }
        self.clients.insert(client);
    }

    /// A client has disconnected.
    pub fn leave(&mut self, client: ClientId) {
        self.clients.remove(&client);
        self.revoked.remove(&client);
    }

    /// `client` decided, at `sequence`, to write `blocks` blocks from index `first` on.
    pub fn note_write(&mut self, client: ClientId, sequence: u64, first: u64, blocks: u64) {
        if self.clients.is_empty() {
            return; // Nobody demotes. The first who joins has cached nothing yet.
        }
        // The caches of the other clients may be stale from now on.
        let others = self.clients.len() - usize::from(self.clients.contains(&client));
        let revoked = self.revoked.len() - usize::from(self.revoked.contains(&client));
        if revoked < others {
            let others = self.clients.iter().filter(|other| **other != client);
            self.revoked.extend(others.copied());
        }
        if blocks > RANGE_BLOCKS_MAX {
            self.floor = self.floor.max(sequence);
            return;
        }
        for block in first..first + blocks {
            let newest = self.written.entry(block).or_insert(sequence);
            *newest = sequence.max(*newest);
            self.order.push_back((block, *newest));
        }
        while self.order.len() > REMEMBERED_BLOCKS_MAX {
            let Some((block, sequence)) = self.order.pop_front() else {
                break;
            };
            self.floor = self.floor.max(sequence);
            if self.written.get(&block) == Some(&sequence) {
                self.written.remove(&block);
            }
        }
    }

    /// A write to these blocks has failed.
    pub fn note_failure(&mut self, first: u64, blocks: u64) {
        if blocks > RANGE_BLOCKS_MAX || self.unknown.len() >= REMEMBERED_BLOCKS_MAX {
            self.floor = u64::MAX;
        } else {
            self.unknown.extend(first..first + blocks);
        }
    }

    /// These whole blocks have been written successfully.
    pub fn note_success(&mut self, first: u64, blocks: u64) {
        if blocks > self.unknown.len() as u64 {
            self.unknown
                .retain(|block| !(first..first + blocks).contains(block));
        } else {
            for block in first..first + blocks {
                self.unknown.remove(&block);
            }
        }
    }

    /// Whether the data of block `block`, which `client` evicted at `sequence`, is the newest
    /// version.
    pub fn accepts(&self, client: ClientId, sequence: u64, block: u64) -> bool {
        self.clients.len() == 1
            && self.clients.contains(&client)
            && !self.revoked.contains(&client)
            && sequence > self.floor
            && !self.unknown.contains(&block)
            && self
                .written
                .get(&block)
                .is_none_or(|&written| sequence > written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);

    fn alone() -> DemotionGuard {
        let mut guard = DemotionGuard::default();
        guard.join(A);
        guard
    }

    #[test]
    fn older_than_a_write_is_refused_in_any_order_of_arrival() {
        let mut guard = alone();
        assert!(guard.accepts(A, 5, 7));
        guard.note_write(A, 6, 7, 1);
        assert!(!guard.accepts(A, 5, 7), "decided before the write");
        assert!(!guard.accepts(A, 6, 7), "as old as the write");
        assert!(guard.accepts(A, 7, 7), "decided after the write");
        assert!(guard.accepts(A, 5, 8), "another block");
        guard.note_write(A, 4, 7, 1);
        assert!(
            !guard.accepts(A, 5, 7),
            "an older write that arrives late changes nothing"
        );
    }

    #[test]
    fn a_second_client_suspends_demotions_and_its_write_ends_them() {
        let mut guard = alone();
        guard.join(B);
        assert!(!guard.accepts(A, 100, 9) && !guard.accepts(B, 100, 9));
        guard.leave(B);
        assert!(guard.accepts(A, 100, 9), "B only looked");
        guard.join(B);
        guard.note_write(A, 101, 3, 1);
        guard.leave(B);
        assert!(guard.accepts(A, 102, 3), "A knows what it wrote");
        assert!(!guard.accepts(A, 100, 3));
    }

    #[test]
    fn the_write_of_a_stranger_ends_demotions_for_good() {
        let mut guard = alone();
        guard.note_write(B, 1, 0, 1);
        assert!(!guard.accepts(A, 100, 9));
        let mut guard = alone();
        guard.join(B);
        guard.note_write(B, 1, 0, 1);
        guard.leave(B);
        assert!(!guard.accepts(A, 100, 9), "B has written");
        guard.leave(A);
        guard.join(B);
        assert!(guard.accepts(B, 1, 9), "a new client alone");
    }

    #[test]
    fn after_a_failed_write_only_a_good_one_makes_demotions_good_again() {
        let mut guard = alone();
        guard.note_write(A, 1, 4, 2);
        guard.note_failure(4, 2);
        assert!(!guard.accepts(A, 2, 4) && !guard.accepts(A, 2, 5));
        guard.note_write(A, 3, 4, 1);
        guard.note_success(4, 1);
        assert!(guard.accepts(A, 4, 4) && !guard.accepts(A, 4, 5));
        guard.note_failure(0, 1 << 30);
        assert!(!guard.accepts(A, 5, 77));
    }

    #[test]
    fn a_good_write_to_many_blocks_makes_good_only_those() {
        let mut guard = alone();
        guard.note_failure(4, 2);
        guard.note_failure(200, 1);
        assert!(guard.accepts(A, 1, 6));
        guard.note_success(5, 100);
        let good = [4, 5, 200].map(|block| guard.accepts(A, 1, block));
        assert_eq!(good, [false, true, false]);
    }

    #[test]
    fn without_clients_nothing_is_remembered() {
        let mut guard = DemotionGuard::default();
        guard.note_write(B, 9, 7, 1);
        assert!(guard.written.is_empty() && guard.order.is_empty());
        guard.join(A);
        assert!(guard.accepts(A, 1, 7), "read after it came");
        guard.note_write(A, 2, 7, 1);
        assert!(!guard.accepts(A, 1, 7));
    }

    #[test]
    fn memory_is_bounded_and_forgetting_is_safe() {
        let mut guard = alone();
        for sequence in 1..=200_000u64 {
            guard.note_write(A, sequence, sequence, 1);
        }
        assert!(guard.order.len() <= REMEMBERED_BLOCKS_MAX);
        assert!(
            !guard.accepts(A, 1000, 5_000_000),
            "older than what is remembered"
        );
        assert!(guard.accepts(A, 200_001, 3));
        guard.note_write(A, 300_000, 0, 1 << 40);
        assert!(!guard.accepts(A, 299_999, 77), "a wide write covers all");
    }

    #[test]
    fn clients_that_write_in_turn_end_each_others_demotions() {
        let mut guard = alone();
        guard.join(B);
        guard.note_write(B, 1, 0, 1);
        guard.note_write(A, 2, 1, 1);
        guard.leave(A);
        assert!(!guard.accepts(B, 100, 9), "A has written beside it");
    }

    #[test]
    fn the_longest_remembered_write_says_nothing_of_other_blocks() {
        let mut guard = alone();
        guard.note_write(A, 9, 0, RANGE_BLOCKS_MAX);
        assert!(!guard.accepts(A, 8, RANGE_BLOCKS_MAX - 1));
        assert!(guard.accepts(A, 8, RANGE_BLOCKS_MAX));
        guard.note_failure(0, RANGE_BLOCKS_MAX);
        assert!(!guard.accepts(A, 10, RANGE_BLOCKS_MAX - 1));
        assert!(guard.accepts(A, 10, RANGE_BLOCKS_MAX));
    }

    #[test]
    fn the_oldest_write_is_forgotten_only_when_there_is_no_room() {
        let (mut guard, most) = (alone(), REMEMBERED_BLOCKS_MAX as u64);
        for sequence in 1..=most {
            guard.note_write(A, sequence, sequence, 1);
        }
        assert!(guard.accepts(A, 1, 0), "all are remembered");
        guard.note_write(A, most + 1, 0, 1);
        assert!(!guard.accepts(A, 1, most + 9) && guard.accepts(A, 2, most + 9));
        for sequence in most + 2..most + 200 {
            guard.note_write(A, sequence, sequence * 1000, 1000);
        }
        assert!(guard.order.len() <= REMEMBERED_BLOCKS_MAX);
        assert!(guard.written.len() <= REMEMBERED_BLOCKS_MAX);
    }

    #[test]
    fn to_forget_an_old_write_to_a_block_leaves_the_newer_one() {
        let (mut guard, most) = (alone(), REMEMBERED_BLOCKS_MAX as u64);
        guard.note_write(A, 1, 7, 1);
        guard.note_write(A, 10 * most, 7, 1);
        for block in 0..most - 1 {
            guard.note_write(A, 2, 100 + block, 1);
        }
        assert!(!guard.accepts(A, 1, 0), "the first was forgotten");
        assert!(guard.accepts(A, 5 * most, 0) && !guard.accepts(A, 5 * most, 7));
    }
}
