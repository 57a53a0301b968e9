//! What the cache asks of its store, how it fails, and how it changes size.

mod common;

use common::{BLOCK, initial, setup, take, write};
use futae_engine::{Engine, EngineOptions, IoErrorKind, OnEviction, Operation, SetupError};

#[test]
fn concurrent_misses_on_a_block_make_one_read() {
    for policy in ["lru", "exclusive"] {
        let setup = setup(policy, 8, 64, OnEviction::None);
        let client = setup.engine.join(setup.volume);
        setup.store.set(|inside| inside.hold = true);
        let answers: Vec<_> = (0..10)
            .map(|_| setup.start(client, 0, setup.read(5, 1)))
            .collect();
        assert_eq!(setup.store.get(|inside| inside.held.len()), 1, "{policy}");
        setup.store.release_all();
        for answer in answers {
            let data = take(&answer).expect("answered").expect("read");
            assert_eq!(data[7], initial(5 * BLOCK + 7));
        }
        let status = setup.engine.status();
        assert_eq!(
            (status.store_reads, status.shared_reads),
            (1, 9),
            "{policy}"
        );
    }
}

#[test]
fn adjacent_misses_are_one_larger_read() {
    let setup = setup("lru", 32, 64, OnEviction::None);
    let client = setup.engine.join(setup.volume);
    take(&setup.start(client, 0, setup.read(4, 1)))
        .expect("answered")
        .expect("read");
    let data = take(&setup.start(client, 0, setup.read(0, 8)))
        .expect("answered")
        .expect("read");
    assert!(data.iter().zip(0..).all(|(&byte, at)| byte == initial(at)));
    let reads = setup.store.get(|inside| inside.reads.clone());
    let block = BLOCK as usize;
    assert_eq!(
        reads,
        [(4 * BLOCK, block), (0, 4 * block), (5 * BLOCK, 3 * block)]
    );
    let status = setup.engine.status();
    assert_eq!((status.counters.hits, status.counters.misses), (1, 8));
}

#[test]
fn a_block_that_is_not_kept_is_read_no_further_than_asked() {
    let setup = setup("fix", 1, 64, OnEviction::None);
    let client = setup.engine.join(setup.volume);
    take(&setup.start(client, 0, setup.read(0, 1)))
        .expect("answered")
        .expect("read");
    let read = Operation::Read {
        offset: 9 * BLOCK + 100,
        length: 50,
    };
    let data = take(&setup.start(client, 0, read))
        .expect("answered")
        .expect("read");
    assert_eq!(data[0], initial(9 * BLOCK + 100));
    let reads = setup.store.get(|inside| inside.reads.clone());
    assert_eq!(reads[1], (9 * BLOCK + 100, 50));
}

#[test]
fn a_failed_read_is_an_error_is_counted_and_is_not_cached() {
    let setup = setup("lru", 8, 64, OnEviction::None);
    let client = setup.engine.join(setup.volume);
    setup.store.set(|inside| inside.fail_reads = true);
    let error = take(&setup.start(client, 0, setup.read(3, 2)))
        .expect("answered")
        .expect_err("fails");
    assert_eq!((error.kind, error.kind.errno()), (IoErrorKind::Store, 5));
    assert_eq!(setup.engine.status().resident_blocks, 0);
    assert_eq!(setup.engine.status().errors, 1);
    setup.store.set(|inside| inside.fail_reads = false);
    let data = take(&setup.start(client, 0, setup.read(3, 2)))
        .expect("answered")
        .expect("read");
    assert_eq!(data[0], initial(3 * BLOCK));
    setup.engine.audit();
}

#[test]
fn what_is_written_through_is_counted_and_zeroes_have_no_bytes() {
    let setup = setup("lru", 8, 16, OnEviction::None);
    let client = setup.engine.join(setup.volume);
    let zero = Operation::WriteZeroes {
        offset: 4 * BLOCK,
        length: BLOCK,
        fua: false,
        no_hole: false,
    };
    let operations = [write(0, &[1; 100]), write(BLOCK, &[2; 5000]), zero];
    for operation in operations {
        let answer = setup.start(client, 0, operation);
        take(&answer).expect("answered").expect("written");
    }
    let status = setup.engine.status();
    assert_eq!(status.store_writes, 3);
    assert_eq!(
        (status.bytes_written, status.bytes_store_written),
        (5100, 5100)
    );
}

#[test]
fn a_failed_write_is_an_error_and_its_blocks_are_forgotten() {
    let setup = setup("lru", 8, 64, OnEviction::None);
    let client = setup.engine.join(setup.volume);
    take(&setup.start(client, 0, setup.read(3, 1)))
        .expect("answered")
        .expect("read");
    setup.store.set(|inside| inside.fail_writes = true);
    let answer = setup.start(client, 1, write(3 * BLOCK, &[9; BLOCK as usize]));
    take(&answer).expect("answered").expect_err("fails");
    setup.store.set(|inside| inside.fail_writes = false);
    let data = take(&setup.start(client, 0, setup.read(3, 1)))
        .expect("answered")
        .expect("read");
    assert_eq!(data[0], initial(3 * BLOCK), "read from the store again");
    assert_eq!(setup.store.get(|inside| inside.reads.len()), 2);
}

#[test]
fn ranges_beyond_the_volume_are_refused() {
    let setup = setup("lru", 8, 4, OnEviction::None);
    let client = setup.engine.join(setup.volume);
    for operation in [
        Operation::Read {
            offset: 4 * BLOCK,
            length: 1,
        },
        Operation::Read {
            offset: u64::MAX,
            length: 2,
        },
        write(4 * BLOCK - 1, &[1, 2]),
        Operation::Trim {
            offset: 0,
            length: 5 * BLOCK,
        },
    ] {
        let error = take(&setup.start(client, 0, operation))
            .expect("answered")
            .expect_err("beyond");
        assert_eq!(error.kind, IoErrorKind::OutOfRange, "{error}");
    }
    assert!(
        take(&setup.start(client, 0, setup.read(4, 0)))
            .expect("answered")
            .is_ok()
    );
}

#[test]
fn what_is_evicted_is_demoted_after_the_read_that_evicts_it() {
    let setup = setup("lru", 2, 16, OnEviction::Demote);
    let client = setup.engine.join(setup.volume);
    for block in [0, 1, 2] {
        take(&setup.start(client, 0, setup.read(block, 1)))
            .expect("answered")
            .expect("read");
    }
    let demotions = setup.store.get(|inside| inside.demotions.clone());
    assert_eq!(demotions.len(), 1);
    let (_, offset, data) = &demotions[0];
    assert_eq!(*offset, 0);
    assert!(data.iter().zip(0..).all(|(&byte, at)| byte == initial(at)));
    let status = setup.engine.status();
    assert_eq!(
        (status.counters.demotions_out, status.bytes_demoted_out),
        (1, BLOCK)
    );
}

#[test]
fn shrinking_demotes_and_gives_memory_back() {
    let blocks = 16_384; // 64 MiB
    let setup = setup("lru", blocks, u64::from(blocks), OnEviction::Notice);
    let client = setup.engine.join(setup.volume);
    let read = setup.read(0, u64::from(blocks));
    drop(
        take(&setup.start(client, 0, read))
            .expect("answered")
            .expect("read"),
    );
    let full = resident_bytes();
    setup.engine.resize(256).expect("smaller");
    setup.engine.audit();
    let small = resident_bytes();
    assert!(
        full - small > 56 << 20,
        "{full} bytes before, {small} bytes after"
    );
    assert_eq!(
        setup.store.get(|inside| inside.notices.len()),
        blocks as usize - 256
    );
    assert_eq!(setup.engine.status().resident_blocks, 256);
    setup.engine.resize(blocks).expect("larger");
    let read = setup.read(0, u64::from(blocks));
    let data = take(&setup.start(client, 0, read))
        .expect("answered")
        .expect("read");
    assert!(data.iter().zip(0..).all(|(&byte, at)| byte == initial(at)));
    assert_eq!(setup.engine.status().resident_blocks, u64::from(blocks));
}

#[test]
fn a_cache_gives_way_to_what_is_beside_it_and_takes_it_back() {
    let setup = setup("lru", 100, 200, OnEviction::None);
    let client = setup.engine.join(setup.volume);
    let fill = || {
        let read = setup.read(0, 200);
        drop(take(&setup.start(client, 0, read)).expect("answered"));
        setup.engine.audit();
        let status = setup.engine.status();
        assert_eq!(status.capacity_blocks, status.resident_blocks);
        status.capacity_blocks
    };
    assert_eq!(fill(), 100);
    setup.engine.set_aside(20 * BLOCK - 1);
    assert_eq!(fill(), 80);
    setup.engine.resize(120).expect("larger");
    assert_eq!((fill(), setup.engine.wanted_bytes()), (100, 120 * BLOCK));
    setup.engine.set_aside(u64::MAX);
    assert_eq!(fill(), 60, "half of it stays");
    setup.engine.resize(1).expect("small");
    assert_eq!(fill(), 1);
    setup.engine.resize(120).expect("larger");
    setup.engine.set_aside(0);
    assert_eq!(fill(), 120);
}

#[test]
fn a_cache_grows_no_further_than_its_policy_can_order() {
    let too_many = 1 << 30;
    let setup = setup("slru", 8, 64, OnEviction::None);
    let refused = setup.engine.resize(too_many).expect_err("too many slots");
    let why = "can order 1073741822 blocks at most";
    assert!(refused.to_string().contains(why), "{refused}");
    assert_eq!(setup.engine.wanted_bytes(), 8 * BLOCK);
}

fn resident_bytes() -> i64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages: i64 = statm
        .split(' ')
        .nth(1)
        .and_then(|n| n.parse().ok())
        .expect("pages");
    pages * 4096
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let options = |block_bytes, capacity_blocks| EngineOptions {
        block_bytes,
        capacity_blocks,
        policy: "lru".parse().expect("a policy"),
        seed: 0,
        on_eviction: OnEviction::None,
        decision_log: None,
        write_back: None,
    };
    for (block_bytes, capacity) in [
        (4096, 0),
        (5000, 8),
        (2048, 8),
        (512 << 20, 8),
        (256 << 20, u32::MAX),
    ] {
        let result = Engine::new(&options(block_bytes, capacity)).map(drop);
        assert!(
            matches!(result, Err(SetupError::Size(_))),
            "{block_bytes} × {capacity}"
        );
    }
}

#[test]
fn a_policy_that_chooses_its_contents_gets_what_it_asks_for() {
    let setup = setup("const(pin=2-4)", 3, 16, OnEviction::None);
    let client = setup.engine.join(setup.volume);
    for block in [9, 2, 3, 4, 9] {
        let data = setup
            .engine
            .read_blocking(setup.volume, client, block * BLOCK, BLOCK);
        assert_eq!(
            data.expect("read").as_slice()[5],
            initial(block * BLOCK + 5)
        );
    }
    let status = setup.engine.status();
    assert_eq!(
        (
            status.preload_reads,
            status.counters.hits,
            status.counters.misses
        ),
        (3, 3, 2)
    );
}

#[test]
fn a_policy_that_needs_the_future_is_refused() {
    let options = EngineOptions {
        block_bytes: BLOCK,
        capacity_blocks: 4,
        policy: "exclusive(opt)".parse().expect("a policy"),
        seed: 0,
        on_eviction: OnEviction::None,
        decision_log: None,
        write_back: None,
    };
    let error = Engine::new(&options)
        .map(drop)
        .expect_err("nobody knows the future");
    assert!(matches!(error, SetupError::NeedsFuture(_)), "{error}");
}

#[test]
fn a_stalled_store_holds_up_its_own_blocks_only() {
    let setup = setup("lru", 8, 64, OnEviction::None);
    let client = setup.engine.join(setup.volume);
    setup.store.set(|inside| inside.hold = true);
    let stalled = setup.start(client, 0, setup.read(3, 1));
    setup.store.set(|inside| inside.hold = false);
    let same = setup.start(client, 0, setup.read(3, 1));
    let other = setup.start(client, 0, setup.read(9, 1));
    assert!(take(&other).expect("answered").is_ok());
    assert!(take(&stalled).is_none() && take(&same).is_none());
    setup.store.release_all();
    for answer in [stalled, same] {
        let data = take(&answer).expect("answered").expect("read");
        assert_eq!(data[0], initial(3 * BLOCK));
    }
}
