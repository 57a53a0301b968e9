//! The utility of segments: observed from one snapshot to the next, then learned.

use crate::structures::{Features, Forest, Ghosts, Table};
use crate::{BlockId, Slot};

/// Segments in a snapshot at most; of more, every second, third and so on is taken.
pub const ROWS_MAX: usize = 8192;

/// A segment as it was at the snapshot.
#[derive(Clone, Debug)]
struct Row {
    features: Features,
    /// Blocks of it that have been used since.
    used: u32,
    /// The sum of `1 / accesses until the use`, without the first uses.
    utility: f64,
}

/// A snapshot, the uses since, and the forest learned from earlier ones.
#[derive(Clone, Debug)]
pub struct Learner {
    rows: Vec<Row>,
    /// When the rows were noted; `None` before the first time.
    since: Option<u64>,
    /// For each resident block that was in the snapshot and has not been used since, its row and 1.
    row_of: Table<u32>,
    /// The rows of such blocks that were evicted.
    evicted: Ghosts<u32>,
    /// Uses of a row that do not count: those of blocks that a merge would have kept.
    pub skipped: u32,
    pub forest: Option<Forest>,
}

impl Learner {
    pub fn new(slots: u32) -> Self {
        Self {
            rows: Vec::new(),
            since: None,
            row_of: Table::new(slots),
            evicted: Ghosts::new(u32::MAX),
            skipped: 0,
            forest: None,
        }
    }

    pub fn since(&self) -> Option<u64> {
        self.since
    }

    /// A resident block is used.
    #[inline]
    pub fn used(&mut self, slot: Slot, now: u64) {
        let row = std::mem::take(self.row_of.at(slot));
        if row > 0 {
            self.count(row - 1, now);
        }
    }

    /// A block that is not resident is used.
    pub fn missed(&mut self, block: BlockId, now: u64) {
        if let Some(row) = self.evicted.take(block) {
            self.count(row, now);
        }
    }

    /// A block leaves. It still counts for its row if it is remembered.
    pub fn left(&mut self, slot: Slot, block: BlockId, is_remembered: bool) {
        let row = std::mem::take(self.row_of.at(slot));
        if row > 0 && is_remembered {
            self.evicted.push(block, row - 1);
        }
    }

    fn count(&mut self, row: u32, now: u64) {
        let row = &mut self.rows[row as usize];
        row.used += 1;
        if row.used > self.skipped {
            let since = self.since.unwrap_or(now);
            row.utility += 1.0 / (now - since).max(1) as f64;
        }
    }

    /// Learns from the rows, if there are any.
    pub fn learn(&mut self) {
        let utilities = self.rows.iter().map(|row| row.utility);
        let (low, high) = utilities.fold((f64::MAX, 0.0f64), |(low, high), utility| {
            (low.min(utility), high.max(utility))
        });
        let range = if high > low { high - low } else { 1.0 };
        let share = |row: &Row| (row.features, ((row.utility - low) / range) as f32);
        let samples: Vec<(Features, f32)> = self.rows.iter().map(share).collect();
        if !samples.is_empty() {
            self.forest = Some(Forest::learn(&samples));
        }
    }

    /// Begins with new rows: segments by their features and blocks.
    pub fn snapshot<'a>(
        &mut self,
        now: u64,
        segments: impl Iterator<Item = (Features, &'a [Slot])>,
    ) {
        self.since = Some(now);
        self.rows.clear();
        self.row_of.clear();
        while self.evicted.pop_oldest().is_some() {}
        for (features, blocks) in segments {
            self.rows.push(Row {
                features,
                used: 0,
                utility: 0.0,
            });
            let row = self.rows.len() as u32;
            for &slot in blocks {
                self.row_of.set(slot, row);
            }
        }
    }

    pub fn number_blocks(&mut self, first: u64) {
        self.evicted.number_blocks(first);
    }

    #[inline]
    pub fn glance(&self, block: BlockId) -> u32 {
        self.evicted.glance(block)
    }
}
