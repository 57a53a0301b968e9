//! Blocks that were held elsewhere are demoted once their data have come, if they are what the store has.

use crate::Pages;
use crate::common::{BLOCK, Setup, fresh, kept_up_to, setup, setup_of, setup_writing, take, write};
use futae_engine::{IoBuf, OnEviction, OnRefusal, Verification};
use futae_policy::BlockId;
use std::sync::Arc;

/// Room for the hashes of all blocks of these tests.
const HASHES_BYTES: u64 = 1 << 22;

/// A cache below an application's pages, which demotes what it gives up to the cache below.
struct Above {
    setup: Setup,
    pages: Arc<Pages>,
}

impl Above {
    fn of(setup: Setup) -> Self {
        let pages = Pages::of(&setup);
        let how = Verification {
            memory_bytes: HASHES_BYTES,
            on_refusal: OnRefusal::Notice,
            compare_with_store: false,
        };
        setup.engine.verify_demotions(how).expect("verification");
        Self { setup, pages }
    }

    /// A cache of this many blocks.
    fn new(slots: u32) -> Self {
        Self::of(setup("fifo", slots, 4096, OnEviction::Demote))
    }

    fn block(&self, index: u64) -> BlockId {
        BlockId::new(self.setup.volume, index)
    }

    /// The pages' owner drops blocks, and tells of it.
    fn lose(&self, blocks: &[BlockId]) {
        let mut inside = self.pages.inside.lock().expect("whole");
        for block in blocks {
            inside.held.remove(block);
        }
        inside.left.extend(blocks);
        drop(inside);
        self.setup.engine.hear();
    }

    /// The data of dropped blocks come: pages of `BLOCK` bytes.
    fn bring(&self, blocks: &[(BlockId, Vec<u8>)]) {
        let one = |(block, data): &(BlockId, Vec<u8>)| (*block, IoBuf::copy_of(data));
        let blocks = blocks.iter().map(one).collect();
        self.setup.engine.demote_held(blocks);
    }

    /// Brings what the store has of a block.
    fn bring_true(&self, index: u64) {
        self.bring(&[(self.block(index), fresh(index))]);
    }

    /// Where the store was sent demoted blocks, and their data.
    fn demoted(&self) -> Vec<(u64, Vec<u8>)> {
        let all = self
            .setup
            .store
            .set(|inside| std::mem::take(&mut inside.demotions));
        all.into_iter()
            .map(|(_, offset, data)| (offset, data))
            .collect()
    }
}

#[test]
fn what_was_given_up_is_demoted_when_its_data_come() {
    let above = Above::new(2);
    for index in 5..8 {
        above.pages.read(&above.setup, index);
    }
    // The third evicted the first.
    assert_eq!(above.demoted(), [], "nobody has brought data yet");
    above.bring_true(5);
    assert_eq!(above.demoted(), [(5 * BLOCK, fresh(5))]);
    above.bring_true(5);
    assert_eq!(above.demoted(), [], "it was waited for once");
    // What its owner drops by himself is given up, too.
    above.lose(&[above.block(6)]);
    above.bring_true(6);
    assert_eq!(above.demoted(), [(6 * BLOCK, fresh(6))]);
    // Its data may come before the news.
    above.pages.inside.lock().expect("whole").held.clear();
    above.bring_true(7);
    assert_eq!(above.demoted(), [(7 * BLOCK, fresh(7))]);
    assert_eq!(above.setup.engine.resident_blocks(), 0);
    above.setup.engine.audit();
}

/// Its owner may have had no room to tell of all.
#[test]
fn what_was_found_gone_is_demoted_too() {
    let above = Above::new(4);
    for index in 0..3 {
        above.pages.read(&above.setup, index);
    }
    let all: Vec<BlockId> = (0..3).map(|index| above.block(index)).collect();
    let mut inside = above.pages.inside.lock().expect("whole");
    inside.held = [all[2]].into();
    drop(inside);
    let engine = &above.setup.engine;
    // It has dropped one by itself; the other it never had.
    assert_eq!(engine.forget(&all[..2], 1), 1);
    let status = engine.status();
    assert_eq!(status.kernel.expect("kept").reclaimed, 1);
    assert_eq!(engine.resident_blocks(), 1);
    above.bring_true(0);
    above.bring_true(1);
    let demoted = [(0, fresh(0)), (BLOCK, fresh(1))];
    assert_eq!(above.demoted(), demoted);
    engine.audit();
}

#[test]
fn what_nobody_gave_up_or_is_resident_again_is_not_demoted() {
    let above = Above::new(2);
    above.pages.read(&above.setup, 0);
    above.bring_true(0);
    above.bring_true(1);
    assert_eq!(above.demoted(), [], "the one is held, the other never was");
    assert_eq!(above.setup.engine.resident_blocks(), 1);
    above.lose(&[above.block(0)]);
    above.pages.read(&above.setup, 0);
    above.bring_true(0);
    assert_eq!(above.demoted(), [], "it has come again");
    let beyond = above.block(1 << 30);
    above.bring(&[(beyond, fresh(0))]);
    assert_eq!(above.demoted(), []);
}

#[test]
fn data_that_the_store_does_not_have_are_not_demoted() {
    let above = Above::new(2);
    let engine = &above.setup.engine;
    let client = engine.join(above.setup.volume);
    let mut changed = fresh(0);
    changed[4095] ^= 1;
    for (data, what) in [
        (changed, "another byte"),
        (fresh(1), "another block"),
        (fresh(0)[..4095].to_vec(), "a byte less"),
    ] {
        above.pages.read(&above.setup, 0);
        above.lose(&[above.block(0)]);
        above.bring(&[(above.block(0), data)]);
        assert_eq!(above.demoted(), [], "{what}");
    }
    // A write that is not done yet: the store has the old data or the new ones.
    above.pages.read(&above.setup, 0);
    above.lose(&[above.block(0)]);
    above.setup.store.hold(true);
    let answer = above.setup.start(client, 1, write(10, &[9; 10]));
    above.bring_true(0);
    assert_eq!(above.demoted(), [], "it is being written");
    above.setup.store.release_all();
    take(&answer).expect("answered").expect("written");
}

#[test]
fn a_dirty_block_is_not_demoted_before_the_store_has_it() {
    let bytes = 64 * BLOCK;
    let above = Above::of(setup_writing(
        BLOCK,
        "fifo",
        2,
        bytes,
        OnEviction::Demote,
        Some(kept_up_to(1.0)),
    ));
    above.pages.read(&above.setup, 0);
    above.lose(&[above.block(0)]);
    let client = above.setup.engine.join(above.setup.volume);
    above.setup.store.hold(true);
    let written = above.setup.start(client, 0, write(0, &fresh(0)));
    take(&written).expect("answered").expect("kept");
    assert_eq!(above.setup.engine.status().dirty_blocks, 1);
    above.lose(&[above.block(0)]);
    above.bring_true(0);
    assert_eq!(above.demoted(), []);
    above.setup.store.hold(false);
    above.setup.store.release_all();
}

#[test]
fn the_short_last_block_is_demoted_without_what_its_page_has_beyond_it() {
    // The last of 10 blocks has half of its bytes.
    let blocks_of = 2 * BLOCK;
    let above = Above::of(setup_of(
        blocks_of,
        "fifo",
        2,
        19 * BLOCK,
        OnEviction::Demote,
    ));
    let client = above.setup.engine.join(above.setup.volume);
    for (offset, length) in [(16 * BLOCK, 2 * BLOCK), (18 * BLOCK, BLOCK)] {
        let read = above
            .setup
            .engine
            .read_blocking(above.setup.volume, client, offset, length);
        read.expect("a read");
    }
    above.lose(&[above.block(8), above.block(9)]);
    let mut page = fresh(18);
    page.resize(blocks_of as usize, 0);
    let whole = [fresh(16), fresh(17)].concat();
    above.bring(&[(above.block(9), page), (above.block(8), whole.clone())]);
    let mut demoted = above.demoted();
    demoted.sort();
    assert_eq!(demoted, [(16 * BLOCK, whole), (18 * BLOCK, fresh(18))]);
}

#[test]
fn many_blocks_are_demoted_in_steps() {
    let above = Above::new(2000);
    for index in 0..2000 {
        above.pages.read(&above.setup, index);
    }
    let blocks: Vec<_> = (0..2000).map(|index| above.block(index)).collect();
    above.lose(&blocks);
    let pages: Vec<_> = blocks
        .iter()
        .map(|&block| (block, fresh(block.index())))
        .collect();
    above.bring(&pages);
    assert_eq!(above.demoted().len(), 2000);
    assert!(above.setup.engine.status().lock_step_blocks_max <= 1024);
}

#[test]
fn nothing_waits_without_end() {
    let above = Above::of(setup("fifo", 1, (1 << 16) + 8, OnEviction::Demote));
    let first = above.block(0);
    above.pages.read(&above.setup, 0);
    above.lose(&[first]);
    // As many more as may be waited for; nobody brings their data.
    let client = above.setup.engine.join(above.setup.volume);
    let read = |index: u64| {
        let read =
            above
                .setup
                .engine
                .read_blocking(above.setup.volume, client, index * BLOCK, BLOCK);
        read.expect("a read");
    };
    (1..1 << 16).for_each(read);
    above.bring_true(1);
    assert_eq!(above.demoted().len(), 1, "so far all are waited for");
    // The last read evicted the one before it; the two after it bring the number to its limit and over it.
    ((1 << 16)..(1 << 16) + 3).for_each(read);
    above.bring_true(0);
    assert_eq!(above.demoted(), [], "its data are not waited for any more");
}

#[test]
fn names_are_told_where_data_are_not_wanted() {
    let above = Above::new(1);
    above.setup.engine.demote_by_notice();
    above.pages.read(&above.setup, 3);
    above.pages.read(&above.setup, 4);
    assert_eq!(
        above.setup.store.get(|inside| inside.notices.clone()),
        [(3 * BLOCK, BLOCK)]
    );
    above.bring_true(3);
    assert_eq!(above.demoted(), []);
}

#[test]
fn nothing_is_demoted_that_cannot_be_checked() {
    let setup = setup("fifo", 1, 4096, OnEviction::Demote);
    let pages = Pages::of(&setup);
    pages.read(&setup, 3);
    pages.read(&setup, 4);
    let block = BlockId::new(setup.volume, 3);
    setup
        .engine
        .demote_held(vec![(block, IoBuf::copy_of(&fresh(3)))]);
    assert!(setup.store.get(|inside| inside.demotions.is_empty()));
}
