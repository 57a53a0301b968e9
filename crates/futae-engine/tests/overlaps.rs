//! Writes and what meets them: they keep apart where they overlap, and parts of blocks have their way.

mod common;

use common::{Answer, BLOCK, Setup, initial, kept_up_to, setup, setup_writing, take, write};
use futae_engine::{ClientId, IoBuf, OnEviction, Operation};
use futae_policy::Prng;

fn started(slots: u32) -> (Setup, ClientId) {
    let setup = setup("lru", slots, 64, OnEviction::None);
    let client = setup.engine.join(setup.volume);
    (setup, client)
}

fn held(setup: &Setup) -> usize {
    setup.store.get(|inside| inside.held.len())
}

fn written(answer: &Answer) {
    take(answer).expect("answered").expect("written");
}

fn bytes_of(answer: &Answer) -> Vec<u8> {
    take(answer).expect("answered").expect("read")
}

#[test]
fn a_write_that_goes_through_is_answered_when_the_store_has_it() {
    let (setup, client) = started(8);
    setup.store.set(|inside| inside.hold = true);
    let answer = setup.start(client, 0, write(3 * BLOCK, &[9; BLOCK as usize]));
    assert!(take(&answer).is_none(), "the store has not taken it yet");
    let stored = |setup: &Setup| setup.store.get(|inside| inside.bytes[3 * BLOCK as usize]);
    assert_eq!(stored(&setup), initial(3 * BLOCK));
    setup.store.release_all();
    written(&answer);
    assert_eq!(stored(&setup), 9);
}

#[test]
fn what_overlaps_a_write_under_way_waits_for_it_and_nothing_else_does() {
    let (setup, client) = started(16);
    setup.store.set(|inside| inside.hold = true);
    let first = setup.start(client, 0, write(3 * BLOCK, &[9; 2 * BLOCK as usize]));
    let behind = [
        setup.start(client, 0, setup.read(2, 2)),
        setup.start(client, 0, setup.read(4, 1)),
    ];
    let second = setup.start(client, 0, write(4 * BLOCK + 512, &[8; 512]));
    assert_eq!(held(&setup), 1, "only the write is at the store");
    setup.store.set(|inside| inside.hold = false);
    let apart = setup.start(client, 0, setup.read(5, 1));
    assert_eq!(bytes_of(&apart)[0], initial(5 * BLOCK));
    assert!(take(&second).is_none() && behind.iter().all(|it| take(it).is_none()));
    setup.store.release_all();
    written(&first);
    written(&second);
    let [edge, inside] = behind.map(|answer| bytes_of(&answer));
    assert_eq!((edge[0], edge[BLOCK as usize]), (initial(2 * BLOCK), 9));
    assert_eq!(inside[0], 9);
    setup.engine.audit();
}

/// Pairs of writes that overlap, at any edges, to blocks that are resident or not, by a store that ends
/// them in any order.
#[test]
fn two_overlapping_writes_end_in_one_of_the_two_orders() {
    let mut prng = Prng::new(11);
    let mut won = [0; 2];
    for round in 0..500 {
        let (setup, client) = started(8);
        for block in 0..4 {
            if prng.below(2) == 0 {
                bytes_of(&setup.start(client, 0, setup.read(block, 1)));
            }
        }
        setup.store.set(|inside| inside.hold = true);
        let mut place = || {
            let offset = prng.below(6) * 1024;
            (offset, (prng.below(5) + 3) * 1024)
        };
        let places = [place(), place()];
        let mut image: Vec<u8> = (0..4 * BLOCK).map(initial).collect();
        let ways = [[0, 1], [1, 0]].map(|order| {
            let mut image = image.clone();
            for which in order {
                let (offset, length) = places[which];
                image[offset as usize..(offset + length) as usize].fill(100 + which as u8);
            }
            image
        });
        let answers = [0, 1].map(|which| {
            let (offset, length) = places[which];
            let data = vec![100 + which as u8; length as usize];
            setup.start(client, 0, write(offset, &data))
        });
        while held(&setup) > 0 {
            let which = prng.below(held(&setup) as u64) as usize;
            setup.store.release(which, false);
        }
        setup.store.set(|inside| inside.hold = false);
        answers.iter().for_each(written);
        setup.store.get(|inside| {
            image.copy_from_slice(&inside.bytes[..4 * BLOCK as usize]);
        });
        let order = ways.iter().position(|way| *way == image);
        won[order.unwrap_or_else(|| panic!("round {round}: a mixture"))] += 1;
        let read = bytes_of(&setup.start(client, 0, setup.read(0, 4)));
        assert!(read == image, "round {round}: cache and store differ");
        setup.engine.audit();
    }
    assert!(won[0] > 0, "{won:?}");
}

#[test]
fn a_part_of_a_block_updates_a_resident_copy_and_goes_around_the_cache_otherwise() {
    let (setup, client) = started(8);
    bytes_of(&setup.start(client, 0, setup.read(3, 1)));
    for block in [3, 9] {
        written(&setup.start(client, 0, write(block * BLOCK + 512, &[7; 512])));
    }
    let status = setup.engine.status();
    assert_eq!((status.resident_blocks, status.write_around_blocks), (1, 1));
    let reads = || setup.store.get(|inside| inside.reads.len());
    assert_eq!(reads(), 1, "nothing is read for the rest of a block");
    for (block, more) in [(3, 0), (9, 1)] {
        let before = reads();
        let data = bytes_of(&setup.start(client, 0, setup.read(block, 1)));
        let wanted = [
            initial(block * BLOCK + 511),
            7,
            7,
            initial(block * BLOCK + 1024),
        ];
        assert_eq!([511, 512, 1023, 1024].map(|at| data[at]), wanted);
        assert_eq!(reads() - before, more, "block {block}");
    }
    setup.engine.audit();
}

/// What waits for one of two blocks after the other, while there is always somebody who uses the other one.
#[test]
fn what_waits_for_several_blocks_is_not_overtaken_for_ever() {
    let both = |operation: &str| match operation {
        "read" => Operation::Read {
            offset: 0,
            length: 2 * BLOCK,
        },
        "write" => write(0, &[5; 2 * BLOCK as usize]),
        _ => Operation::Trim {
            offset: 0,
            length: 2 * BLOCK,
        },
    };
    for (waits, others) in [
        ("read", "writes"),
        ("write", "writes"),
        ("trim", "writes"),
        ("write", "reads"),
        ("trim", "reads"),
    ] {
        let (setup, client) = started(1);
        setup.store.set(|inside| inside.hold = true);
        let other = |block: u64| match others {
            "writes" => write(block * BLOCK, &[9; BLOCK as usize]),
            // The other block has left the only slot.
            _ => setup.read(block, 1),
        };
        let mut started = vec![setup.start(client, 0, other(0))];
        let waiting = setup.start(client, 0, both(waits));
        let mut overtaken = 0;
        let is_answered = (1..200).any(|round| {
            started.push(setup.start(client, 0, other(round % 2)));
            let before = held(&setup);
            setup.store.release(0, false);
            overtaken += u32::from(before == 2);
            take(&waiting).is_some()
        });
        assert!(is_answered, "{waits}: overtaken by {overtaken} {others}");
        setup.store.set(|inside| inside.hold = false);
        setup.store.release_all();
        for answer in &started {
            take(answer).expect("answered").expect("carried out");
        }
        setup.engine.audit();
    }
}

/// Requests of one to four blocks, always as many under way, by a store that takes them in order. If all others under way go
/// before a request, one after the other, each of them has as many operations of the store before it at most.
#[test]
fn no_request_waits_for_many_that_came_after_it() {
    const DEPTH: usize = 12;
    const BLOCKS: u64 = 12;
    let mut prng = Prng::new(3);
    let (setup, client) = started(4);
    setup.store.set(|inside| inside.hold = true);
    let mut under_way: Vec<(usize, Answer)> = Vec::new();
    let mut longest = 0;
    for round in 0..20_000 {
        while under_way.len() < DEPTH {
            let blocks = 1 + prng.below(4);
            let first = prng.below(BLOCKS - blocks + 1);
            let operation = match prng.below(3) {
                0 => setup.read(first, blocks),
                _ => write(first * BLOCK, &vec![7; (blocks * BLOCK) as usize]),
            };
            under_way.push((round, setup.start(client, 0, operation)));
        }
        if held(&setup) > 0 {
            setup.store.release(0, false);
        }
        under_way.retain(|(begun, answer)| {
            let is_ended = take(answer).is_some();
            if is_ended {
                longest = longest.max(round - begun);
            }
            !is_ended
        });
    }
    assert!(longest < DEPTH * DEPTH, "{longest} operations of the store");
    setup.engine.audit();
}

/// A write of eight blocks, while as many writes of one to three of them as may be are always under way, by a store that takes
/// them in order.
///
/// What came before it, and what it waited for at first, are as many requests as are under way. If all of them go before it, one
/// after the other, each has as many operations of the store before it at most.
#[test]
fn crowds_do_not_hold_up_what_overlaps_them() {
    const BLOCKS: u64 = 8;
    for (depth, are_halves) in [(24, true), (24, false), (60, true), (60, false)] {
        for seed in 0..10 {
            let mut prng = Prng::new(seed);
            let (setup, client) = started(1);
            setup.store.set(|inside| inside.hold = true);
            let mut crowd: Vec<Answer> = Vec::new();
            let mut round = |crowd: &mut Vec<Answer>| {
                while crowd.len() < depth {
                    let blocks = 1 + prng.below(3);
                    let half = prng.below(2) * BLOCKS / 2;
                    let first = match are_halves {
                        true => half + prng.below(BLOCKS / 2 - blocks + 1),
                        false => prng.below(BLOCKS - blocks + 1),
                    };
                    let data = vec![7; (blocks * BLOCK) as usize];
                    crowd.push(setup.start(client, 0, write(first * BLOCK, &data)));
                }
                setup.store.release(0, false);
                crowd.retain(|answer| take(answer).is_none());
            };
            for _ in 0..200 {
                round(&mut crowd);
            }
            let all = write(0, &[9; (BLOCKS * BLOCK) as usize]);
            let waiting = setup.start(client, 0, all);
            let most = (depth + 1) * (depth + 1);
            let is_answered = (0..most).any(|_| {
                round(&mut crowd);
                take(&waiting).is_some()
            });
            assert!(is_answered, "{depth} others, seed {seed}: after {most}");
            setup.engine.audit();
        }
    }
}

/// A write that had its turn when too many blocks were dirty.
#[test]
fn a_write_that_is_throttled_in_its_turn_keeps_it() {
    let setup = setup_writing(
        BLOCK,
        "lru",
        16,
        64 * BLOCK,
        OnEviction::None,
        Some(kept_up_to(0.125)),
    );
    let client = setup.engine.join(setup.volume);
    setup.store.set(|inside| inside.hold = true);
    let through = |block: u64| Operation::Write {
        offset: block * BLOCK,
        data: IoBuf::copy_of(&[9; BLOCK as usize]),
        fua: true,
    };
    let first = setup.start(client, 0, through(0));
    let kept = setup.start(client, 0, write(0, &[8; 2 * BLOCK as usize]));
    let second = setup.start(client, 0, through(1));
    written(&setup.start(client, 0, write(5 * BLOCK, &[7; 2 * BLOCK as usize])));
    assert_eq!(
        held(&setup),
        3,
        "two writes, and the two blocks that may be dirty"
    );
    setup.store.release(0, false);
    written(&first);
    setup.store.release(0, false);
    written(&second);
    assert_eq!(setup.engine.status().throttled_writes, 1);
    let behind = [through(0), through(1), setup.read(1, 1)];
    let behind = behind.map(|operation| setup.start(client, 0, operation));
    assert_eq!(held(&setup), 1, "what comes later waits for its turn");
    setup.engine.audit();
    setup.store.release(0, false);
    written(&kept);
    setup.store.set(|inside| inside.hold = false);
    setup.store.release_all();
    let [third, fourth, read] = behind;
    written(&third);
    written(&fourth);
    assert_eq!(bytes_of(&read)[0], 9);
    setup.engine.audit();
}
