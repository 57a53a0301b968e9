//! The bytes are right: at depth, over several connections, in any order, at any alignment.

mod common;

use common::{BLOCK, Client, MemoryStore, Rig, engine, eventually, export, pattern};
use futae_host::{Listen, Server, ServerOptions};
use futae_nbd::{ClientWish, Command, CommandFlags, RequestHeader};
use futae_policy::Prng;
use std::collections::HashMap;
use std::ops::Range;

const BLOCKS: u64 = 256;
const SIZE: usize = (BLOCKS * BLOCK) as usize + 700; // the last block is short

enum Pending {
    Read(Range<u64>, Vec<u8>),
    Change(Range<u64>),
}

impl Pending {
    fn range(&self) -> &Range<u64> {
        match self {
            Self::Read(range, _) | Self::Change(range) => range,
        }
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Random requests at a depth against a plain model; `area` is this client's own.
fn drive(client: &mut Client, model: &mut [u8], area: Range<u64>, seed: u64, steps: usize) {
    let mut prng = Prng::new(seed);
    let depth = 1 + prng.below(40) as usize;
    let mut pending: HashMap<u64, Pending> = HashMap::new();
    for step in 0..steps {
        while pending.len() >= depth {
            settle_one(client, &mut pending);
        }
        let mut length = 1 + prng.below(3 * BLOCK) as u32;
        let mut offset = area.start + prng.below(area.end - area.start - u64::from(length));
        if prng.below(2) == 0 {
            offset -= (offset - area.start) % BLOCK;
            length = length
                .next_multiple_of(BLOCK as u32)
                .min((area.end - offset) as u32);
        }
        let range = offset..offset + u64::from(length);
        let slice = range.start as usize..range.end as usize;
        if prng.below(3) > 0 {
            let writes = |p: &&Pending| matches!(p, Pending::Change(r) if overlap(r, &range));
            if pending.values().any(|p| writes(&p)) {
                continue;
            }
            let cookie = client.send_read(offset, length);
            pending.insert(cookie, Pending::Read(range, model[slice].to_vec()));
            continue;
        }
        if pending.values().any(|p| overlap(p.range(), &range)) {
            continue;
        }
        let cookie = change(
            client,
            &mut model[slice],
            &range,
            seed + step as u64,
            &mut prng,
        );
        pending.insert(cookie, Pending::Change(range));
    }
    while !pending.is_empty() {
        settle_one(client, &mut pending);
    }
}

fn change(
    client: &mut Client,
    model: &mut [u8],
    range: &Range<u64>,
    seed: u64,
    prng: &mut Prng,
) -> u64 {
    let length = model.len() as u32;
    if prng.below(5) == 0 {
        model.fill(0);
        let cookie = client.number();
        let no_hole = if prng.below(2) == 0 {
            CommandFlags::NO_HOLE
        } else {
            CommandFlags::NONE
        };
        let mut header = RequestHeader::new(Command::WriteZeroes, cookie, range.start, length);
        header.flags = no_hole;
        client.send(&header, &[]);
        return cookie;
    }
    model.copy_from_slice(&pattern(seed, model.len()));
    client.send_write(range.start, model)
}

fn settle_one(client: &mut Client, pending: &mut HashMap<u64, Pending>) {
    let answer = client.receive();
    let request = pending
        .remove(&answer.cookie)
        .expect("a reply to a request of ours");
    assert_eq!(answer.error, None, "{}", answer.message);
    if let Pending::Read(range, expected) = request {
        assert!(answer.data == expected, "wrong data at {range:?}");
    }
}

#[test]
fn random_requests_at_depth_agree_with_a_plain_model() {
    for (seed, policy) in [(1, "lru"), (2, "exclusive"), (3, "random"), (4, "fix")] {
        let mut model = pattern(seed, SIZE);
        let rig = Rig::new(policy, 64, model.clone());
        if seed > 1 {
            rig.store.shuffle();
        }
        let mut client = if seed % 2 == 0 {
            rig.plain()
        } else {
            rig.structured()
        };
        for round in 0..4 {
            drive(
                &mut client,
                &mut model,
                0..SIZE as u64,
                seed * 100 + round,
                600,
            );
        }
        client.settle();
        assert!(rig.store.content() == model, "{policy}: the store differs");
    }
}

#[test]
fn connections_share_the_volume_and_keep_their_replies_apart() {
    let model = pattern(9, SIZE);
    let rig = Rig::new("lru", 100, model.clone());
    rig.store.shuffle();
    let part = SIZE as u64 / 4;
    let models: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4u64)
            .map(|i| {
                let (rig, mut model) = (&rig, model.clone());
                scope.spawn(move || {
                    let mut client = if i < 2 { rig.plain() } else { rig.structured() };
                    drive(
                        &mut client,
                        &mut model,
                        i * part..(i + 1) * part,
                        50 + i,
                        1500,
                    );
                    model
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("a worker"))
            .collect()
    });
    let mut reader = rig.plain();
    for (i, model) in models.iter().enumerate() {
        let range = i * part as usize..(i + 1) * part as usize;
        let got = reader
            .read(range.start as u64, range.len() as u32)
            .expect("read");
        assert!(got == model[range], "area {i} differs");
    }
}

#[test]
fn a_hit_overtakes_a_miss() {
    let content = pattern(3, SIZE);
    let rig = Rig::new("lru", 64, content.clone());
    let mut client = rig.plain();
    client.read(0, 4096).expect("warm");
    rig.store.hold_reads(BLOCK * 10..BLOCK * 11);
    let slow = client.send_read(BLOCK * 10, 4096);
    let fast = client.send_read(0, 4096);
    let first = client.receive();
    assert_eq!(first.cookie, fast);
    assert_eq!(first.data, content[..4096]);
    eventually("the miss reaches the store", || rig.store.held() == 1);
    rig.store.release();
    let second = client.receive();
    assert_eq!(second.cookie, slow);
    assert_eq!(
        second.data,
        content[BLOCK as usize * 10..BLOCK as usize * 11]
    );
}

#[test]
fn long_requests_and_unaligned_ends_are_whole() {
    let mut content = pattern(4, 40 << 20);
    let rig = Rig::new("lru", 512, content.clone());
    let mut client = rig.structured();
    let long = client.read(1234, 32 << 20).expect("32 MiB");
    assert!(long == content[1234..1234 + (32 << 20)]);
    let payload = pattern(77, (9 << 20) + 13);
    assert_eq!(client.write(5_000_001, &payload), None);
    content[5_000_001..5_000_001 + payload.len()].copy_from_slice(&payload);
    let around = client
        .read(4_999_000, payload.len() as u32 + 9000)
        .expect("read");
    assert!(around == content[4_999_000..4_999_000 + around.len()]);
    assert!(rig.store.content() == content);
}

#[test]
fn several_volumes_share_a_cache_over_tcp() {
    let shared = engine("lru", 64);
    let stores = [
        MemoryStore::new(pattern(1, 1 << 20)),
        MemoryStore::new(pattern(2, 2 << 20)),
    ];
    let exports = vec![
        export(&shared, "a", &stores[0]),
        export(&shared, "b", &stores[1]),
    ];
    let listen = vec![Listen::Tcp {
        host: "127.0.0.1".into(),
        port: 0,
    }];
    let options = ServerOptions {
        listen,
        ..ServerOptions::default()
    };
    let server = Server::start(options, exports).expect("a server");
    let Listen::Tcp { host, port } = server.addresses()[0].clone() else {
        panic!("tcp")
    };
    for (name, store) in ["a", "b"].iter().zip(&stores) {
        let mut client = Client::tcp((&host, port), name, &ClientWish::default());
        assert_eq!(client.export.size_bytes, store.content().len() as u64);
        for offset in [0, 4096, 777_777] {
            let expected = &store.content()[offset as usize..offset as usize + 5000];
            assert_eq!(client.read(offset, 5000).expect("read"), expected);
        }
    }
    assert_eq!(server.status().engines.len(), 1);
}

#[test]
fn block_status_tells_holes_from_data() {
    let mut content = vec![0; SIZE];
    content[8192..20_480].fill(7);
    let rig = Rig::new("lru", 64, content);
    let mut client = rig.structured();
    let all = client.simple(Command::BlockStatus, 0, SIZE as u32);
    let lengths: Vec<_> = all
        .extents
        .iter()
        .map(|e| (e.length_bytes, e.state))
        .collect();
    assert_eq!(lengths, [(8192, 3), (12_288, 0), (SIZE as u32 - 20_480, 3)]);
    let one = client.ask(
        Command::BlockStatus,
        CommandFlags::REQ_ONE,
        4096,
        65_536,
        &[],
    );
    assert_eq!(one.extents.len(), 1);
    assert_eq!(
        (one.extents[0].length_bytes, one.extents[0].state),
        (4096, 3)
    );
    assert!(client.simple(Command::BlockStatus, 0, 0).error.is_some());
}

#[test]
fn a_store_that_ponders_extents_holds_up_no_other_request() {
    let rig = Rig::new("lru", 64, pattern(1, SIZE));
    rig.store.hold_questions(true);
    let mut client = rig.structured();
    let ask = |cookie| RequestHeader::new(Command::BlockStatus, cookie, 0, 8192);
    for cookie in 101..104 {
        client.send(&ask(cookie), &[]);
    }
    let read = client.send_read(0, 4096);
    assert_eq!(client.receive().cookie, read, "it overtakes the questions");
    // However many more there are, few are under way, and the connection goes on afterwards.
    for cookie in 104..150 {
        client.send(&ask(cookie), &[]);
    }
    let after = client.send_read(4096, 4096);
    eventually("the first is asked", || rig.store.questions() == 1);
    rig.store.hold_questions(false);
    let mut answered = 0;
    loop {
        let answer = client.receive();
        if answer.cookie == after {
            break;
        }
        assert_eq!(answer.error, None);
        answered += 1;
    }
    assert!(answered >= 49 - 4, "{answered}");
}
