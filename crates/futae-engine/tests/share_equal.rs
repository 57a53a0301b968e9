//! Equal blocks are held once, across volumes; and whatever their volumes do meanwhile, each reads what it last wrote.

mod common;

use common::{Answer, BLOCK, ManualStore, take, write};
use futae_engine::{
    ClientId, Demotion, Engine, EngineOptions, IoBuf, OnEviction, OnRefusal, Operation, Request,
    Verification, WriteBackOptions,
};
use futae_policy::{Class, Prng, VolumeId};
use std::sync::Arc;
use std::time::Duration;

const BLOCKS: u64 = 16;

/// A cache over two volumes of the same content.
struct Pair {
    engine: Arc<Engine>,
    stores: [Arc<ManualStore>; 2],
    volumes: [VolumeId; 2],
}

impl Pair {
    fn new(policy: &str, slots: u32, write_back: bool) -> Self {
        let options = EngineOptions {
            block_bytes: BLOCK,
            capacity_blocks: slots,
            policy: policy.parse().expect("a policy"),
            seed: 1,
            on_eviction: OnEviction::None,
            decision_log: None,
            write_back: write_back.then_some(WriteBackOptions {
                dirty_max: 0.5,
                dirty_age_max: Duration::from_secs(3600),
            }),
        };
        let engine = Engine::new(&options).expect("an engine");
        let stores = [ManualStore::new(BLOCKS), ManualStore::new(BLOCKS)];
        let volumes = stores.clone().map(|store| {
            let volume = engine.add_volume("one of two", store, Class::NORMAL);
            volume.expect("a volume")
        });
        let verification = Verification {
            memory_bytes: 1 << 16,
            on_refusal: OnRefusal::Notice,
            compare_with_store: false,
        };
        engine.verify_demotions(verification).expect("hashes");
        engine.share_equal().expect("sharing");
        Self {
            engine,
            stores,
            volumes,
        }
    }

    fn start(&self, which: usize, operation: Operation) -> Answer {
        let answer = Answer::default();
        let slot = Arc::clone(&answer);
        self.engine.submit(Request {
            volume: self.volumes[which],
            client: ClientId(1),
            sequence: 0,
            operation,
            done: Box::new(move |result| {
                let result = result.map(|data: IoBuf| data.as_slice().to_vec());
                *slot.lock().expect("the answer") = Some(result);
            }),
        });
        answer
    }

    fn now(&self, which: usize, operation: Operation) -> Vec<u8> {
        let answer = take(&self.start(which, operation));
        answer.expect("answered").expect("well")
    }

    fn read(&self, which: usize, block: u64) -> Vec<u8> {
        self.now(which, read(block))
    }

    fn store_reads(&self) -> usize {
        let reads = |store: &Arc<ManualStore>| store.get(|inside| inside.reads.len());
        self.stores.iter().map(reads).sum()
    }
}

fn read(block: u64) -> Operation {
    Operation::Read {
        offset: block * BLOCK,
        length: BLOCK,
    }
}

#[test]
fn a_block_that_another_volume_holds_is_not_read_again() {
    let pair = Pair::new("lru", 32, false);
    let contents: Vec<_> = (0..BLOCKS).map(|block| pair.read(0, block)).collect();
    for block in 0..BLOCKS {
        assert_eq!(pair.read(1, block), contents[block as usize]);
    }
    let status = pair.engine.status();
    assert_eq!(pair.store_reads(), 2 * BLOCKS as usize, "no hash was known");
    assert_eq!(status.resident_blocks, BLOCKS, "each is held once");
    assert_eq!(status.demotions.equal_dropped, BLOCKS);
    for (block, content) in (0..BLOCKS).zip(&contents) {
        assert_eq!(&pair.read(0, block), content);
    }
    let status = pair.engine.status();
    assert_eq!(pair.store_reads(), 2 * BLOCKS as usize, "answered by twins");
    assert_eq!(status.demotions.equal_reads, BLOCKS);
    assert_eq!(
        status.volumes[0].hits, BLOCKS,
        "hits of the volume that asked"
    );
    pair.engine.audit();
}

#[test]
fn a_write_parts_equal_blocks() {
    for write_back in [false, true] {
        let pair = Pair::new("lru", 32, write_back);
        let old = pair.read(0, 3);
        pair.read(1, 3);
        let new = vec![9; BLOCK as usize];
        pair.now(1, write(3 * BLOCK, &new));
        assert_eq!(pair.read(0, 3), old, "write-back {write_back}");
        assert_eq!(pair.read(1, 3), new);
        // Equal again, by a write.
        pair.now(0, write(3 * BLOCK, &new));
        pair.now(0, Operation::Flush);
        pair.now(1, Operation::Flush);
        assert_eq!(
            (pair.read(0, 3), pair.read(1, 3)),
            (new.clone(), new.clone())
        );
        let zeroes = Operation::WriteZeroes {
            offset: 3 * BLOCK,
            length: BLOCK,
            fua: false,
            no_hole: false,
        };
        pair.now(0, zeroes);
        assert_eq!(pair.read(0, 3), vec![0; BLOCK as usize]);
        assert_eq!(pair.read(1, 3), new);
        pair.engine.audit();
    }
}

#[test]
fn a_block_that_is_being_read_answers_for_no_other() {
    let pair = Pair::new("lru", 2, false);
    let content = pair.read(0, 3);
    pair.read(1, 3);
    // The copy leaves the cache, and its hash and its hint stay.
    pair.read(0, 8);
    pair.read(0, 9);
    let hold = |hold| pair.stores.iter().for_each(|store| store.hold(hold));
    hold(true);
    let answers = [pair.start(1, read(3)), pair.start(0, read(3))];
    for answer in &answers {
        assert!(take(answer).is_none(), "no frame has the content yet");
    }
    pair.stores.iter().for_each(|store| store.release_all());
    for answer in &answers {
        assert_eq!(take(answer).expect("answered").expect("well"), content);
    }
    pair.engine.audit();
}

#[test]
fn what_is_demoted_is_not_held_a_second_time() {
    let pair = Pair::new("exclusive", 32, false);
    let content = pair.read(0, 5);
    pair.read(1, 5);
    for which in [0, 1] {
        let handed = Demotion::by_agent(5 * BLOCK, IoBuf::copy_of(&content));
        pair.now(which, Operation::Demote(handed));
    }
    let status = pair.engine.status();
    assert_eq!(status.demotions.demotions_verified, 2);
    assert_eq!(status.resident_blocks, 1);
    let reads = pair.store_reads();
    for which in [0, 1] {
        assert_eq!(pair.read(which, 5), content);
    }
    assert_eq!(pair.store_reads(), reads);
}

#[test]
fn only_a_block_that_is_held_takes_the_place_of_another() {
    let pair = Pair::new("exclusive", 32, false);
    let content = pair.read(0, 5);
    let handed = Demotion::by_agent(5 * BLOCK, IoBuf::copy_of(&content));
    pair.now(0, Operation::Demote(handed));
    // Such a cache does not keep what is written.
    pair.now(1, write(6 * BLOCK, &content));
    let status = pair.engine.status();
    assert_eq!(status.resident_blocks, 1);
    assert_eq!(status.demotions.equal_dropped, 0);
    let reads = pair.store_reads();
    assert_eq!(pair.read(1, 6), content, "answered by the twin");
    assert_eq!(pair.read(0, 5), content);
    assert_eq!(pair.store_reads(), reads);
}

/// One of few contents, so that many blocks are equal.
fn content(prng: &mut Prng) -> Vec<u8> {
    let mut data = vec![0; BLOCK as usize];
    data[17] = prng.below(4) as u8;
    data
}

/// What a volume has under way, and what is to come of it.
enum Running {
    Nothing,
    Reading(Answer, Vec<u8>),
    Changing(Answer),
}

/// Operations of both volumes overlap, and their stores end them in any order.
fn anything_goes(policy: &str, write_back: bool, seed: u64) -> u64 {
    let pair = Pair::new(policy, 7, write_back);
    let mut prng = Prng::new(seed);
    let mut models: [Vec<Vec<u8>>; 2] = [Vec::new(), Vec::new()];
    for (store, model) in pair.stores.iter().zip(&mut models) {
        *model = (0..BLOCKS).map(|_| content(&mut prng)).collect();
        store.set(|inside| inside.bytes = model.concat());
        store.hold(true);
    }
    let mut running = [Running::Nothing, Running::Nothing];
    for _ in 0..4000 {
        let which = prng.below(2) as usize;
        let block = prng.below(BLOCKS);
        let model = &mut models[which];
        if let Running::Nothing = running[which] {
            let offset = block * BLOCK;
            let data = content(&mut prng);
            let operation = match prng.below(8) {
                0 => {
                    model[block as usize].clone_from(&data);
                    write(offset, &data)
                }
                1 => {
                    model[block as usize].fill(0);
                    Operation::Trim {
                        offset,
                        length: BLOCK,
                    }
                }
                2 => Operation::Flush,
                3 | 4 => {
                    let handed = Demotion::by_agent(offset, IoBuf::copy_of(&data));
                    Operation::Demote(handed)
                }
                _ => read(block),
            };
            let is_read = matches!(operation, Operation::Read { .. });
            let answer = pair.start(which, operation);
            running[which] = if is_read {
                Running::Reading(answer, model[block as usize].clone())
            } else {
                Running::Changing(answer)
            };
        }
        if prng.below(2) == 0 {
            let which = prng.below(2) as usize;
            pair.stores[which].release_any(&mut prng);
        }
        for running in &mut running {
            let over = match &*running {
                Running::Nothing => false,
                Running::Reading(answer, expected) => take(answer).is_some_and(|result| {
                    assert_eq!(&result.expect("well"), expected, "{policy} seed {seed}");
                    true
                }),
                Running::Changing(answer) => take(answer).is_some_and(|result| {
                    result.expect("well");
                    true
                }),
            };
            if over {
                *running = Running::Nothing;
            }
        }
        pair.engine.audit();
    }
    pair.engine.status().demotions.equal_reads
}

#[test]
fn each_volume_reads_what_it_wrote_whatever_the_other_does() {
    let mut equal = 0;
    for policy in ["lru", "exclusive", "arc", "s3-fifo", "lfu"] {
        for write_back in [false, true] {
            for seed in 0..8 {
                equal += anything_goes(policy, write_back, seed);
            }
        }
    }
    assert!(equal > 1000, "{equal} reads were answered by twins");
}

#[test]
fn hints_count_as_memory_of_hashes() {
    let pair = Pair::new("lru", 32, false);
    let status = pair.engine.status().demotions;
    let (hashes, hints) = (20 * status.hash_entries_max, 12 * 2 * 32);
    assert_eq!(status.hash_bytes, hashes + hints);
}

#[test]
fn sharing_needs_hashes() {
    let options = EngineOptions {
        block_bytes: BLOCK,
        capacity_blocks: 4,
        policy: "lru".parse().expect("a policy"),
        seed: 1,
        on_eviction: OnEviction::None,
        decision_log: None,
        write_back: None,
    };
    let engine = Engine::new(&options).expect("an engine");
    let error = engine.share_equal().expect_err("no hashes");
    assert!(error.to_string().contains("hashes"), "{error}");
}
