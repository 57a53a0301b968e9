//! Demoted data are served while they are the newest there is, and never after.

mod common;

use common::{BLOCK, Rig, eventually, pattern};
use futae_nbd::constants::CMD_DEMOTE;
use futae_nbd::extension::demote_header;
use futae_nbd::{ClientWish, Command, ErrorNumber, RequestHeader};
use std::collections::HashMap;

const SIZE: usize = 1 << 20;

fn block(fill: u8) -> Vec<u8> {
    vec![fill; BLOCK as usize]
}

fn rig() -> Rig {
    Rig::new("exclusive", 64, pattern(1, SIZE))
}

#[test]
fn a_demoted_block_is_the_next_reads_hit_with_that_data() {
    let rig = rig();
    let mut client = rig.demoting();
    let sequence = client.number();
    // Not what the store holds, so that it shows where the data come from.
    client.demote_as(sequence, 3 * BLOCK, &block(0xD0));
    assert_eq!(client.read(3 * BLOCK, 4096).expect("read"), block(0xD0));
    assert_eq!(rig.store.reads(), 0);
    let status = rig.engine.status();
    assert_eq!((status.counters.demotions_in, status.counters.hits), (1, 1));
    assert_eq!(
        (
            status.demotions_refused,
            rig.server.status().demotion_clients
        ),
        (0, 1)
    );
}

#[test]
fn demotions_keep_no_buffer_memory() {
    let rig = rig();
    let mut client = rig.demoting();
    client.read(0, 512).expect("read");
    let before = rig.server.status().buffer_bytes;
    for number in 0..1000 {
        let sequence = client.number();
        client.demote_as(sequence, number % 32 * BLOCK, &block(number as u8));
    }
    client.read(0, 512).expect("read");
    eventually("all is given back", || {
        rig.server.status().buffer_bytes == before
    });
}

/// Who may not write may not change what others read in any other way.
#[test]
fn a_demotion_to_a_read_only_export_is_dropped() {
    let rig = Rig::with_exports("exclusive", 64, pattern(1, SIZE), |mut export| {
        export.read_only = true;
        vec![export]
    });
    let mut attacker = rig.demoting();
    let written = attacker.number();
    attacker.send_write_as(written, 0, &block(0xBB));
    assert_eq!(attacker.receive().error, Some(ErrorNumber::NotPermitted));
    let evicted = attacker.number();
    attacker.demote_as(evicted, 0, &block(0xAA));
    // Its answer says that the demotion before it has been judged.
    let truth = pattern(1, 4096);
    assert!(attacker.read(0, 4096).expect("read") == truth, "forged");
    assert_eq!(rig.server.status().demotion_clients, 0);
    drop(attacker);
    assert!(rig.plain().read(0, 4096).expect("read") == truth, "forged");
    assert_eq!(rig.engine.status().counters.demotions_in, 0);
    eventually("the demotion is counted", || {
        rig.server.status().traffic.misshapen_demotions == 1
    });
}

#[test]
fn several_blocks_and_the_short_last_one_can_be_demoted() {
    let rig = Rig::new("exclusive", 64, pattern(1, 5 * BLOCK as usize + 100));
    let mut client = rig.demoting();
    let data: Vec<u8> = [block(1), block(2), vec![3; 100]].concat();
    let sequence = client.number();
    client.demote_as(sequence, 3 * BLOCK, &data);
    assert_eq!(
        client.read(3 * BLOCK, data.len() as u32).expect("read"),
        data
    );
    assert_eq!(rig.store.reads(), 0);
}

#[test]
fn a_newer_write_wins_in_both_orders_of_arrival() {
    for demotion_first in [true, false] {
        let rig = rig();
        let mut client = rig.demoting();
        let (evicted, written) = (client.number(), client.number());
        if demotion_first {
            client.demote_as(evicted, 0, &block(0xAA));
        }
        client.send_write_as(written, 0, &block(0xBB));
        assert_eq!(client.receive().error, None);
        if !demotion_first {
            client.demote_as(evicted, 0, &block(0xAA));
        }
        for _ in 0..3 {
            assert_eq!(client.read(0, 4096).expect("read"), block(0xBB));
        }
    }
}

#[test]
fn a_write_under_way_wins() {
    for read_meanwhile in [false, true] {
        let rig = rig();
        let mut client = rig.demoting();
        let (evicted, written) = (client.number(), client.number());
        rig.store.hold_writes();
        client.send_write_as(written, 0, &block(0xBB));
        client.demote_as(evicted, 0, &block(0xAA));
        eventually("the write reaches the store", || rig.store.held() == 1);
        if read_meanwhile {
            let cookie = client.send_read(0, 4096);
            rig.store.release();
            for answer in [client.receive(), client.receive()] {
                let stale = answer.cookie == cookie && answer.data == block(0xAA);
                assert!(!stale, "a read beside the write got the demoted block");
            }
        } else {
            rig.store.release();
            assert_eq!(client.receive().error, None);
        }
        for _ in 0..3 {
            assert_eq!(client.read(0, 4096).expect("read"), block(0xBB));
        }
    }
}

#[test]
fn trims_and_zeroes_count_as_writes() {
    for command in [Command::Trim, Command::WriteZeroes] {
        let rig = rig();
        let mut client = rig.demoting();
        let evicted = client.number();
        assert_eq!(client.simple(command, 0, 4096).error, None);
        client.demote_as(evicted, 0, &block(0xAA));
        assert_ne!(client.read(0, 4096).expect("read"), block(0xAA));
    }
}

#[test]
fn after_a_write_of_another_client_nothing_is_believed() {
    let rig = rig();
    let mut client = rig.demoting();
    let old = client.read(0, 4096).expect("read");
    let mut other = rig.plain();
    assert_eq!(other.write(0, &block(0xCC)), None);
    let sequence = client.number();
    client.demote_as(sequence, 0, &old);
    client.settle();
    assert_eq!(client.read(0, 4096).expect("read"), block(0xCC));
    assert_eq!(other.read(0, 4096).expect("read"), block(0xCC));
    assert!(rig.engine.status().demotions_refused > 0);
    drop(other);
    eventually("the other leaves", || rig.server.status().connections == 1);
    let sequence = client.number();
    client.demote_as(sequence, 0, &old);
    assert_eq!(
        client.read(0, 4096).expect("read"),
        block(0xCC),
        "nor after it has left"
    );
}

#[test]
fn two_demoting_clients_are_not_believed() {
    let rig = rig();
    let (mut one, mut two) = (rig.demoting(), rig.demoting());
    // A client is one from its first request on, whenever the handshake's last answer came.
    two.settle();
    let sequence = one.number();
    one.demote_as(sequence, 0, &block(0xAA));
    one.settle();
    assert_ne!(two.read(0, 4096).expect("read"), block(0xAA));
}

#[test]
fn misshapen_demotions_are_counted_and_the_connection_goes_on() {
    let rig = rig();
    let mut client = rig.demoting();
    for (offset, length) in [(1, 4096), (0, 100), (SIZE as u64, 4096), (0, 0)] {
        let sequence = client.number();
        client.demote_as(sequence, offset, &vec![7; length]);
    }
    client.settle();
    assert_eq!(rig.engine.status().counters.demotions_in, 0);
    assert_eq!(rig.server.status().traffic.misshapen_demotions, 4);
    assert_ne!(client.read(0, 4096).expect("read"), vec![7; 4096]);
}

#[test]
fn a_client_that_did_not_agree_is_cut_off() {
    let rig = rig();
    let mut client = rig.plain();
    let header = RequestHeader::new(Command::Demote, 1, 0, 4096);
    assert_eq!(header.command.code(), CMD_DEMOTE);
    client
        .send_raw(&[&header.encode()[..], &block(1)].concat())
        .expect("send");
    assert!(client.try_receive().is_err(), "the connection is closed");
    eventually("counted", || rig.server.status().protocol_errors == 1);
}

#[test]
fn an_operator_can_forbid_it() {
    let rig = Rig::with("exclusive", 64, pattern(1, SIZE), |options| {
        options.demotion = false;
    });
    let wish = ClientWish {
        demotion_block_bytes: Some(4096),
        ..ClientWish::default()
    };
    let mut client = rig.client(&wish);
    assert_eq!(client.export.demotion, None);
    assert!(client.read(0, 4096).is_ok());
}

#[test]
fn a_demotion_beside_its_own_unfinished_write_is_not_believed() {
    for fails in [false, true] {
        let rig = rig();
        let before = rig.store.content()[..BLOCK as usize].to_vec();
        let mut client = rig.demoting();
        let (written, evicted) = (client.number(), client.number());
        rig.store.hold_writes();
        client.send_write_as(written, 0, &block(0xBB));
        eventually("the write reaches the store", || rig.store.held() == 1);
        client.demote_as(evicted, 0, &block(0xBB));
        eventually("it is refused", || {
            rig.engine.status().demotions_refused == 1
        });
        rig.store.fail_writes(fails);
        rig.store.release();
        assert_eq!(client.receive().error.is_some(), fails);
        let expected = if fails { before } else { block(0xBB) };
        assert_eq!(client.read(0, 4096).expect("read"), expected);
    }
}

#[test]
fn a_demotion_after_its_own_failed_write_is_not_believed() {
    let rig = rig();
    let before = rig.store.content()[..BLOCK as usize].to_vec();
    let mut client = rig.demoting();
    rig.store.fail_writes(true);
    assert!(client.write(0, &block(0xBB)).is_some());
    rig.store.fail_writes(false);
    let sequence = client.number();
    client.demote_as(sequence, 0, &block(0xBB));
    assert_eq!(
        client.read(0, 4096).expect("read"),
        before,
        "the store never had it"
    );
}

/// What a pipelining client has under way for a block.
enum Under {
    Read(u64),
    Write(u64, Vec<u8>),
}

/// Requests at depth, demotions sent long after they were decided, a store that answers in any
/// order: whatever is read is what was written last.
#[test]
fn late_demotions_never_bring_old_data_back() {
    for seed in 1..=6 {
        let mut model = pattern(seed, SIZE);
        let rig = Rig::new("exclusive", 24, model.clone());
        rig.store.shuffle();
        let mut client = rig.demoting();
        let mut prng = futae_policy::Prng::new(seed);
        let mut upper: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut late: Vec<(u64, u64, Vec<u8>)> = Vec::new();
        let mut under: HashMap<u64, Under> = HashMap::new();
        let at = |block: u64| (block * BLOCK) as usize..((block + 1) * BLOCK) as usize;
        for step in 0..3000u64 {
            let block = prng.below(40);
            let busy = under.values().any(|u| match u {
                Under::Read(other) | Under::Write(other, _) => *other == block,
            });
            if !busy && prng.below(3) == 0 {
                let data = pattern(seed << 32 | step, BLOCK as usize);
                upper.retain(|(held, _)| *held != block);
                model[at(block)].copy_from_slice(&data);
                let cookie = client.send_write(block * BLOCK, &data);
                under.insert(cookie, Under::Write(block, data));
            } else if !busy && !upper.iter().any(|(held, _)| *held == block) {
                let cookie = client.send_read(block * BLOCK, BLOCK as u32);
                under.insert(cookie, Under::Read(block));
            }
            if upper.len() > 8 {
                let (evicted, data) = upper.swap_remove(prng.below(8) as usize);
                late.push((client.number(), evicted, data));
            }
            if late.len() > prng.below(6) as usize {
                let (sequence, evicted, data) =
                    late.swap_remove(prng.below(late.len() as u64) as usize);
                client.demote_as(sequence, evicted * BLOCK, &data);
            }
            while under.len() > prng.below(10) as usize {
                let answer = client.receive();
                assert_eq!(answer.error, None);
                match under
                    .remove(&answer.cookie)
                    .expect("a reply to a request of ours")
                {
                    Under::Write(block, data) => upper.push((block, data)),
                    Under::Read(block) => {
                        assert!(
                            answer.data == model[at(block)],
                            "{seed}: stale at step {step}"
                        );
                        upper.push((block, answer.data));
                    }
                }
            }
        }
        let status = rig.engine.status();
        assert!(
            status.counters.demotions_in > 200,
            "{}",
            status.counters.demotions_in
        );
    }
}

/// A client that keeps the promises of `docs/reference/wire.md`, with a cache of its own, over a lower
/// cache that is far too small: whatever it reads must be what it wrote.
#[test]
fn a_caching_client_never_reads_what_it_has_overwritten() {
    let mut model = pattern(1, SIZE);
    let rig = Rig::new("exclusive", 16, model.clone());
    let mut client = rig.demoting();
    let mut prng = futae_policy::Prng::new(5);
    let mut upper: Vec<(u64, Vec<u8>)> = Vec::new();
    for step in 0..4000u64 {
        let at = prng.below(48);
        let range = (at * BLOCK) as usize..((at + 1) * BLOCK) as usize;
        if prng.below(4) == 0 {
            let data = pattern(step, BLOCK as usize);
            upper.retain(|(held, _)| *held != at);
            model[range].copy_from_slice(&data);
            assert_eq!(client.write(at * BLOCK, &data), None);
            upper.push((at, data));
        } else if let Some(found) = upper.iter().position(|(held, _)| *held == at) {
            assert!(upper[found].1 == model[range]);
        } else {
            let data = client.read(at * BLOCK, BLOCK as u32).expect("read");
            assert!(
                data == model[range],
                "stale data of block {at} at step {step}"
            );
            upper.push((at, data));
        }
        if upper.len() > 12 {
            let (evicted, data) = upper.remove(prng.below(12) as usize);
            let sequence = client.number();
            client.demote_as(sequence, evicted * BLOCK, &data);
        }
    }
    let status = rig.engine.status();
    assert_eq!(status.demotions_refused, 0);
    assert!(
        status.counters.hits > 300,
        "the demotions were of use: {}",
        status.counters.hits
    );
}

#[test]
fn demotions_are_decided_in_their_order_whatever_they_come_with() {
    pipelines(None);
}

/// One request of an export at a time: a demotion that kept its turn would keep everything behind it waiting.
#[test]
fn demotions_give_back_what_they_took() {
    pipelines(Some(1));
}

fn pipelines(requests_max: Option<usize>) {
    let rig = Rig::with_exports("exclusive", 64, pattern(1, SIZE), |mut export| {
        export.requests_max = requests_max;
        vec![export]
    });
    let mut client = rig.demoting();
    for turn in 0..50u8 {
        let (first, second) = (
            u64::from(turn) * 4 * BLOCK,
            (u64::from(turn) * 4 + 1) * BLOCK,
        );
        // All in one piece: a read behind a demotion is a hit, whatever is before it and behind it.
        let (mut message, reads) = (Vec::new(), client.reads());
        let read = |cookie, offset| {
            let header = RequestHeader::new(Command::Read, cookie, offset, 4096);
            reads.note(&header);
            header.encode()
        };
        let ahead = client.number();
        message.extend(read(ahead, first));
        for (offset, fill) in [(first, turn), (second, turn + 100)] {
            let evicted = client.number();
            message.extend(demote_header(evicted, offset, 4096));
            message.extend(block(fill));
        }
        let behind = client.number();
        message.extend(read(behind, second));
        let last = client.number();
        message.extend(demote_header(last, second + BLOCK, 4096));
        message.extend(block(turn));
        client.send_raw(&message).expect("send");
        // The hit may be answered before the read that goes to the store.
        let answers = [client.receive(), client.receive()];
        for (cookie, data) in [
            (ahead, &pattern(1, SIZE)[first as usize..][..4096]),
            (behind, &block(turn + 100)[..]),
        ] {
            let answer = answers.iter().find(|answer| answer.cookie == cookie);
            let answer = answer.expect("an answer");
            assert_eq!(answer.error, None);
            assert!(answer.data == data, "read {cookie} of turn {turn}");
        }
    }
    eventually("the last demotion is decided", || {
        rig.engine.status().counters.demotions_in == 150
    });
    assert_eq!(rig.engine.status().demotions_refused, 0);
    assert_eq!(rig.store.reads(), 50, "one for each first read");
}
