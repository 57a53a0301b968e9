//! How much of a cache its clients hold, too.

mod common;

use common::{BLOCK, Setup, setup, take, write};
use futae_engine::{Demotion, IoBuf, OnEviction, Operation};

fn now(setup: &Setup, operation: Operation) {
    let client = setup.engine.join(setup.volume);
    let answer = take(&setup.start(client, 1, operation));
    answer.expect("answered").expect("well");
    setup.engine.leave(setup.volume, client);
    setup.engine.audit();
}

fn doubled(setup: &Setup) -> u64 {
    let status = setup.engine.status();
    let of_volume = status.volumes[0].double_cached_bytes;
    assert_eq!(status.double_cached_bytes, of_volume);
    of_volume / BLOCK
}

fn notice(block: u64, blocks: u64) -> Operation {
    Operation::Notice {
        offset: block * BLOCK,
        length: blocks * BLOCK,
    }
}

#[test]
fn what_clients_were_given_is_held_twice_until_they_give_it_up() {
    let setup = setup("lru", 8, 64, OnEviction::None);
    assert_eq!(doubled(&setup), 0);
    now(&setup, setup.read(0, 4));
    now(&setup, setup.read(0, 4));
    assert_eq!(doubled(&setup), 4);
    now(&setup, write(5 * BLOCK, &[7; BLOCK as usize]));
    assert_eq!(doubled(&setup), 5, "who writes a block has it");
    now(&setup, notice(0, 2));
    now(&setup, notice(0, 2));
    assert_eq!(doubled(&setup), 3);
    now(&setup, setup.read(1, 1));
    assert_eq!(doubled(&setup), 4, "it was fetched again");
    now(&setup, notice(20, 2));
    assert_eq!(doubled(&setup), 4, "those are here alone");
    // Ten blocks push everything out.
    now(&setup, setup.read(30, 10));
    assert_eq!(doubled(&setup), 8, "the cache holds no more");
    let trim = Operation::Trim {
        offset: 32 * BLOCK,
        length: 8 * BLOCK,
    };
    now(&setup, trim);
    assert_eq!(doubled(&setup), 0);
}

#[test]
fn an_exclusive_cache_holds_what_was_demoted_alone() {
    let setup = setup("exclusive(keep_served=true)", 4, 64, OnEviction::None);
    now(&setup, setup.read(0, 4));
    assert_eq!(doubled(&setup), 4);
    let stored = setup.store.get(|inside| inside.bytes.clone());
    let range = (2 * BLOCK) as usize..(3 * BLOCK) as usize;
    let demotion = Operation::Demote(Demotion::new(2 * BLOCK, IoBuf::copy_of(&stored[range])));
    now(&setup, demotion);
    assert_eq!(doubled(&setup), 3);
    for slots in [2, 1, 4] {
        setup.engine.resize(slots).expect("resized");
        setup.engine.audit();
    }
    assert!(doubled(&setup) <= 1);
}
