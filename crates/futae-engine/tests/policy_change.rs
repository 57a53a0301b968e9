//! A cache that goes on with another policy: every block stays as it is.

mod common;

use common::{BLOCK, kept_up_to, setup_writing, take, write};
use futae_engine::{OnEviction, Operation};
use futae_policy::{Kind, PolicySpec};

const BLOCKS: u64 = 24;
const SLOTS: u32 = 16;

fn live() -> impl Iterator<Item = PolicySpec> {
    let all = Kind::ALL.iter().map(|&kind| PolicySpec::of(kind));
    all.filter(|spec| !spec.needs_future())
}

#[test]
fn dirty_and_clean_blocks_stay_and_read_as_before() {
    let setup = setup_writing(
        BLOCK,
        "lru",
        SLOTS,
        BLOCKS * BLOCK,
        OnEviction::None,
        Some(kept_up_to(1.0)),
    );
    let client = setup.engine.join(setup.volume);
    for block in 0..8 {
        let operation = write(block * BLOCK, &[block as u8 + 100; BLOCK as usize]);
        take(&setup.start(client, 0, operation))
            .expect("kept")
            .expect("a write");
    }
    for block in 8..u64::from(SLOTS) {
        take(&setup.start(client, 0, setup.read(block, 1)))
            .expect("there")
            .expect("a read");
    }
    let before = setup.engine.status();
    assert_eq!((before.resident_blocks, before.dirty_blocks), (16, 8));
    let reads = setup.store.get(|inside| inside.reads.len());
    for policy in live() {
        let is_other = setup.engine.policy() != policy;
        assert_eq!(
            setup.engine.change_policy(&policy).ok(),
            Some(is_other),
            "{policy}"
        );
        setup.engine.audit();
        let after = setup.engine.status();
        assert_eq!(after.policy, policy.to_string());
        assert_eq!(
            (after.resident_blocks, after.dirty_blocks),
            (16, 8),
            "{policy}"
        );
        assert_eq!(
            after.counters.evictions, before.counters.evictions,
            "{policy}"
        );
        for block in 0..u64::from(SLOTS) {
            let data = take(&setup.start(client, 0, setup.read(block, 1)));
            let data = data.expect("answered at once").expect("a read");
            if block < 8 {
                assert!(
                    data.iter().all(|&byte| byte == block as u8 + 100),
                    "{policy}: {block}"
                );
            }
        }
    }
    assert_eq!(
        setup.store.get(|inside| inside.reads.len()),
        reads,
        "no store was asked"
    );
    let flush = setup.start(client, 0, Operation::Flush);
    take(&flush).expect("at once").expect("a flush");
    assert_eq!(setup.store.bytes()[..BLOCK as usize], [100; BLOCK as usize]);
}

#[test]
fn the_order_of_eviction_is_kept() {
    let setup = setup_writing(BLOCK, "lru", 4, BLOCKS * BLOCK, OnEviction::Notice, None);
    let client = setup.engine.join(setup.volume);
    for block in [1, 2, 3, 4, 1] {
        take(&setup.start(client, 0, setup.read(block, 1)))
            .expect("there")
            .expect("a read");
    }
    setup
        .engine
        .change_policy(&"arc".parse().expect("a policy"))
        .expect("a change");
    for block in 10..14 {
        take(&setup.start(client, 0, setup.read(block, 1)))
            .expect("there")
            .expect("a read");
    }
    let evicted = setup.store.get(|inside| inside.notices.clone());
    let evicted: Vec<u64> = evicted.iter().map(|notice| notice.0 / BLOCK).collect();
    assert_eq!(evicted, [2, 3, 4, 1]);
}

#[test]
fn a_policy_that_cannot_run_is_refused_and_nothing_changes() {
    let setup = setup_writing(BLOCK, "lru", 4, BLOCKS * BLOCK, OnEviction::None, None);
    for (policy, problem) in [("opt", "future"), ("lru(depth=2)", "depth")] {
        let refused = setup
            .engine
            .change_policy(&policy.parse().expect("a string"));
        let said = refused.expect_err("refused").to_string();
        assert!(said.contains(problem), "{said}");
        assert_eq!(setup.engine.status().policy, "lru");
    }
}
