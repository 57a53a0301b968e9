//! The blocks named by notices that still await a decision. A notice may be dropped: for each
//! volume only a bounded number of blocks wait, and only a bounded number are read at a time,
//! however long the range in the notice is.

use std::collections::VecDeque;
use std::ops::Range;

/// Limits on the reads for notices of one volume: when their number or their bytes reach these,
/// further blocks wait.
const FLIGHTS_MAX: u32 = 8;
const BYTES_MAX: u64 = 4 << 20;
/// The largest number of ranges of one volume that wait.
const RANGES_MAX: usize = 1024;
/// Of a volume, at most this fraction of the cache's blocks may wait, or a fixed minimum in a small
/// cache.
const WAITING_SHARE: u64 = 4;
const WAITING_BLOCKS_MIN: u64 = 64;

/// The pending notices of a volume's clients.
#[derive(Debug, Default)]
pub struct Notices {
    /// Blocks that await a decision, by index.
    waiting: VecDeque<Range<u64>>,
    /// Their number.
    blocks: u64,
    /// Reads under way, and their bytes.
    flights: u32,
    bytes: u64,
}

impl Notices {
    /// A read for notices has begun.
    pub fn depart(&mut self, bytes: u64) {
        self.flights += 1;
        self.bytes += bytes;
    }

    /// A read for notices has ended.
    pub fn arrive(&mut self, bytes: u64) {
        self.flights -= 1;
        self.bytes -= bytes;
    }

    /// Adds blocks that begin with `first`, as far as the limit for a cache of `capacity` blocks
    /// allows. Returns how many were added; the others are dropped.
    pub fn take(&mut self, first: u64, blocks: u64, capacity: u64) -> u64 {
        let most = (capacity / WAITING_SHARE).max(WAITING_BLOCKS_MIN);
        if self.waiting.len() >= RANGES_MAX {
            return 0;
        }
        let taken = blocks.min(most.saturating_sub(self.blocks));
        if taken > 0 {
            self.blocks += taken;
            self.waiting.push_back(first..first + taken);
        }
        taken
    }

    /// The next adjacent blocks to decide on, at most `most`.
    pub fn next(&mut self, most: u64) -> Option<Range<u64>> {
        let first = self.waiting.front_mut()?;
        let end = first.end.min(first.start.saturating_add(most));
        let next = first.start..end;
        first.start = end;
        if first.is_empty() {
            self.waiting.pop_front();
        }
        self.blocks -= next.end - next.start;
        Some(next)
    }

    /// The blocks that await a decision or are being read.
    pub fn pending_blocks(&self, block_bytes: u64) -> u64 {
        self.blocks + self.bytes.div_ceil(block_bytes)
    }

    /// Whether blocks wait and the number of reads under way allows another.
    pub fn may_go_on(&self) -> bool {
        self.blocks > 0 && self.flights < FLIGHTS_MAX && self.bytes < BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_much_of_a_notice_waits_and_the_rest_is_dropped() {
        let mut notices = Notices::default();
        assert_eq!(notices.take(10, 300, 800), 200);
        assert_eq!(notices.take(500, 1, 800), 0, "no room");
        assert_eq!(notices.next(150), Some(10..160));
        assert_eq!(notices.take(500, 9, 800), 9);
        assert_eq!(notices.next(150), Some(160..210), "not beyond its range");
        assert_eq!(notices.next(150), Some(500..509));
        assert_eq!(notices.next(150), None);
        assert_eq!(notices.take(0, 500, 4), WAITING_BLOCKS_MIN, "a small cache");
        let mut notices = Notices::default();
        let taken = (0..2000).filter(|at| notices.take(2 * at, 1, 1 << 20) == 1);
        assert_eq!(taken.count(), RANGES_MAX);
    }

    #[test]
    fn few_reads_are_under_way_at_a_time() {
        let mut notices = Notices::default();
        assert!(!notices.may_go_on(), "nothing waits");
        notices.take(0, 9, 800);
        for _ in 0..FLIGHTS_MAX {
            assert!(notices.may_go_on());
            notices.depart(1);
        }
        assert!(!notices.may_go_on(), "many reads");
        assert_eq!(notices.pending_blocks(1), 9 + u64::from(FLIGHTS_MAX));
        notices.arrive(1);
        assert!(notices.may_go_on());
        notices.depart(BYTES_MAX);
        notices.arrive(1);
        assert!(!notices.may_go_on(), "many bytes");
    }
}
