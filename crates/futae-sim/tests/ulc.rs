//! ULC: one stack of recency directs two levels, and every block is where the stack says.

mod common;

use common::{hierarchy, run};
use futae_policy::{AccessKind, Prng};
use futae_sim::{Link, Run, SimulationError, SimulationSpec, WriteMode};

/// The protocol on one list: blocks by recency, the top first, each with its level; 0 is neither.
struct Stack {
    slots: [usize; 2],
    blocks: Vec<(u64, usize)>,
}

impl Stack {
    fn of(&self, level: usize) -> Vec<u64> {
        let all = self.blocks.iter().filter(|block| block.1 == level);
        all.map(|block| block.0).collect()
    }

    /// The place of the oldest block of a level.
    fn yardstick(&self, level: usize) -> Option<usize> {
        self.blocks.iter().rposition(|block| block.1 == level)
    }

    /// Returns the level that had the block.
    fn read(&mut self, block: u64) -> usize {
        let at = self.blocks.iter().position(|held| held.0 == block);
        let belongs = |level: &usize| {
            let has_room = self.of(*level).len() < self.slots[level - 1];
            let yardstick = self.yardstick(*level);
            has_room || at.zip(yardstick).is_some_and(|(at, oldest)| at <= oldest)
        };
        let to = [1, 2].into_iter().find(belongs).unwrap_or(0);
        let was = at.map_or(0, |at| self.blocks.remove(at).1);
        self.blocks.insert(0, (block, to));
        for (level, next) in [(1, 2), (2, 0)] {
            let is_over = self.of(level).len() > self.slots[level - 1];
            if let (true, Some(oldest)) = (is_over, self.yardstick(level)) {
                self.blocks[oldest].1 = next;
            }
        }
        while self.blocks.last().is_some_and(|last| last.1 == 0) {
            self.blocks.pop();
        }
        was
    }
}

#[test]
fn a_small_example_by_hand() {
    let mut pair = hierarchy(&[("ulc", 2), ("directed", 2)], Link::Demote, 10);
    // Block, the level that serves it (2 is the store), and the two levels afterwards.
    type Step = (u64, u32, &'static [u64], &'static [u64]);
    let steps: [Step; 11] = [
        (1, 2, &[1], &[]),
        (2, 2, &[2, 1], &[]),
        (3, 2, &[2, 1], &[3]),
        (4, 2, &[2, 1], &[4, 3]),
        // Unknown, and no room: kept nowhere.
        (5, 2, &[2, 1], &[4, 3]),
        // More recent than Y1 = 1, which is demoted and becomes Y2.
        (3, 1, &[3, 2], &[4, 1]),
        // Remembered, and more recent than Y1 = 2. The demoted 2 pushes out Y2 = 1.
        (5, 2, &[5, 3], &[4, 2]),
        // Older than Y1 = 3: it stays below.
        (4, 1, &[5, 3], &[4, 2]),
        (6, 2, &[5, 3], &[4, 2]),
        (6, 2, &[6, 5], &[4, 3]),
        // It was forgotten when it departed.
        (1, 2, &[6, 5], &[4, 3]),
    ];
    for (block, served, upper, lower) in steps {
        assert_eq!(pair.access(0, block, AccessKind::Read), served, "{block}");
        assert_eq!(pair.order(0, 0), upper, "above, after {block}");
        assert_eq!(pair.order(0, 1), lower, "below, after {block}");
    }
    assert_eq!(pair.counters(0, 0).demotions_out, 3);
    pair.audit();
}

#[test]
fn blocks_are_where_one_stack_says() {
    for (upper, lower) in [(1, 1), (1, 7), (7, 1), (5, 5), (8, 20)] {
        for seed in 1..13u64 {
            let (above, below) = (upper as u32, lower as u32);
            // Everything is remembered, as in the paper.
            let levels = [("ulc(history=64)", above), ("directed", below)];
            let mut pair = hierarchy(&levels, Link::Demote, 100);
            let mut stack = Stack {
                slots: [upper, lower],
                blocks: Vec::new(),
            };
            let mut prng = Prng::new(seed);
            for step in 0..3000u64 {
                let block = match seed % 3 {
                    0 => prng.below(30),
                    1 => prng.below(60) * prng.below(60) / 60,
                    _ if prng.below(8) == 0 => prng.below(60),
                    _ => step % (upper + lower + 3) as u64,
                };
                let writes = seed % 2 == 0 && prng.below(4) == 0;
                let kind = if writes {
                    AccessKind::Write
                } else {
                    AccessKind::Read
                };
                let served = match stack.read(block) {
                    0 => 2,
                    level => level as u32 - 1,
                };
                let at = format!("{upper} + {lower}, seed {seed}, step {step}, block {block}");
                assert_eq!(pair.access(0, block, kind), served, "{at}");
                assert_eq!(pair.order(0, 0), stack.of(1), "{at}");
                // Behind those to be kept are some that were read from there, until their places
                // are needed.
                let (held, kept) = (pair.order(0, 1), stack.of(2));
                assert!(held.starts_with(&kept), "{at}: {held:?}, {kept:?}");
            }
            pair.audit();
        }
    }
}

fn in_caches(run: &Run) -> u64 {
    run.reads - run.store_reads
}

/// DEMOTE has the hits of one LRU of both sizes, and sends down a block for every miss. ULC has more hits where some blocks come
/// again sooner than others, or all too late for LRU, and sends fewer.
#[test]
fn hits_and_demotions_beside_unified_lru_and_exclusive() {
    let both = |upper: &str, lower: &str, workload: &str| {
        let levels = [format!("{upper}:100blocks"), format!("{lower}:200blocks")];
        run(
            &levels.each_ref().map(String::as_str),
            None,
            workload,
            (10, 20),
        )
    };
    for workload in [
        "loop:400blocks",
        "zipf(1.0):1000blocks",
        "uniform:1000blocks",
    ] {
        let ulc = both("ulc", "directed", workload);
        let demote = both("lru", "exclusive", workload);
        let one = run(&["lru:300blocks"], None, workload, (10, 20));
        assert_eq!(in_caches(&demote), in_caches(&one), "{workload}");
        let sent = |run: &Run| run.levels[0].counters.demotions_out;
        let counts = [&ulc, &demote].map(|run| (in_caches(run), sent(run)));
        println!("{workload}: hits and demotions {counts:?}");
        // Where no block is better than another, as many.
        let least = in_caches(&demote)
            * if workload.starts_with("uniform") {
                98
            } else {
                103
            }
            / 100;
        assert!(in_caches(&ulc) >= least, "{workload}");
        assert!(in_caches(&ulc) > 0, "{workload}");
        assert!(2 * sent(&ulc) < sent(&demote), "{workload}");
    }
}

#[test]
fn several_guests_and_write_back_are_refused() {
    let mut spec: SimulationSpec = common::spec(
        &["ulc:10blocks", "directed:10blocks"],
        None,
        "uniform:40blocks",
        (1, 1),
    );
    spec.guests = 2;
    let error = futae_sim::simulate(&spec, &mut |_| {}).expect_err("two guests");
    assert!(
        matches!(error, SimulationError::DirectedByGuests(_)),
        "{error}"
    );
    spec.guests = 1;
    spec.write_mode = WriteMode::WriteBack;
    let error = futae_sim::simulate(&spec, &mut |_| {}).expect_err("write-back");
    assert!(
        matches!(error, SimulationError::DirectedWriteBack(_)),
        "{error}"
    );
}
