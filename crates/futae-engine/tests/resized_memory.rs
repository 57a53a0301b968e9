//! The memory of a cache follows its size: what a smaller cache does not use goes back to the kernel, and what a larger one
//! uses is there before a block is. In a file whose file system is full, a write to a page that is not there would end the
//! process.

mod common;

use common::write;
use futae_engine::{
    ClientId, Engine, EngineOptions, MemoryFile, MemoryTrust, OnEviction, Operation, Store,
};
use futae_policy::{Class, Prng, VolumeId};
use futae_testkit::manual_store::{BLOCK, ManualStore};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;

const CLIENT: ClientId = ClientId(0);
const BLOCKS: u64 = 96;
const SLOTS: u32 = 64;

struct Cache {
    engine: Arc<Engine>,
    memory: File,
    volume: VolumeId,
    /// Bytes of the file beside the frames.
    other_bytes: u64,
}

impl Cache {
    fn new(policy: &str) -> Self {
        let options = EngineOptions {
            block_bytes: BLOCK,
            capacity_blocks: SLOTS,
            policy: policy.parse().expect("a policy"),
            seed: 1,
            on_eviction: OnEviction::None,
            decision_log: None,
            write_back: None,
        };
        let engine = Engine::new(&options).expect("an engine");
        let memory = MemoryFile::unnamed().expect("memory");
        let file = memory.try_clone().expect("a descriptor");
        let file = MemoryFile::of_file(file, Path::new("memory"), BLOCK, SLOTS, None);
        let trust = MemoryTrust::Devices;
        engine
            .keep_memory(file.expect("a file"), trust)
            .expect("kept");
        let store: Arc<dyn Store> = ManualStore::new(BLOCKS);
        let volume = engine.add_volume("disk", store, Class::NORMAL);
        engine.recall_memory();
        let mut cache = Self {
            engine,
            memory,
            volume: volume.expect("a volume"),
            other_bytes: 0,
        };
        cache.other_bytes = cache.bytes() - u64::from(SLOTS) * BLOCK;
        cache
    }

    /// Bytes of memory that the file takes.
    fn bytes(&self) -> u64 {
        self.memory.metadata().expect("known").blocks() * 512
    }

    fn frames(&self) -> u64 {
        (self.bytes() - self.other_bytes) / BLOCK
    }

    fn read(&self, block: u64) {
        let read = self
            .engine
            .read_blocking(self.volume, CLIENT, block * BLOCK, BLOCK);
        read.expect("a read");
    }

    fn resize(&self, slots: u32) {
        self.engine.resize(slots).expect("another size");
        assert_eq!(self.frames(), u64::from(slots), "frames with memory");
    }
}

#[test]
fn what_was_never_used_is_given_back() {
    let cache = Cache::new("lru");
    (0..5).for_each(|block| cache.read(block));
    cache.resize(8);
    cache.resize(SLOTS);
    cache.resize(1);
}

#[test]
fn what_dropped_blocks_had_is_given_back() {
    let cache = Cache::new("lru");
    (0..BLOCKS).for_each(|block| cache.read(block));
    let trim = Operation::Trim {
        offset: 0,
        length: BLOCKS * BLOCK,
    };
    let trimmed = cache.engine.wait(cache.volume, CLIENT, trim);
    trimmed.expect("trimmed");
    assert_eq!(cache.engine.resident_blocks(), 0);
    cache.resize(8);
}

#[test]
fn requests_are_answered_while_a_cache_grows() {
    const MANY: u32 = 1 << 15;
    let cache = Cache::new("lru");
    cache.read(0);
    let is_answered = (0..20).any(|_| {
        let before = cache.frames();
        let grows = || (before + 1..u64::from(MANY)).contains(&cache.frames());
        let is_answered = thread::scope(|scope| {
            let growing = scope.spawn(|| cache.engine.resize(MANY).expect("room"));
            let mut is_answered = false;
            while !growing.is_finished() {
                if grows() {
                    cache.read(0);
                    is_answered |= grows();
                }
            }
            is_answered
        });
        cache.engine.resize(SLOTS).expect("smaller");
        is_answered
    });
    assert!(is_answered);
}

#[test]
fn no_block_is_placed_where_no_memory_is() {
    for policy in ["lru", "exclusive", "s3-fifo", "auto"] {
        let (cache, mut prng) = (Cache::new(policy), Prng::new(5));
        let mut slots = SLOTS;
        for _ in 0..4000 {
            let block = prng.below(BLOCKS);
            match prng.below(40) {
                0 => {
                    slots = 1 + prng.below(100) as u32;
                    cache.resize(slots);
                }
                1..=6 => {
                    let trim = Operation::Trim {
                        offset: block * BLOCK,
                        length: BLOCK,
                    };
                    let trimmed = cache.engine.wait(cache.volume, CLIENT, trim);
                    trimmed.expect("trimmed");
                }
                7..=12 => {
                    let data = write(block * BLOCK, &[7; BLOCK as usize]);
                    let written = cache.engine.wait(cache.volume, CLIENT, data);
                    written.expect("written");
                }
                _ => cache.read(block),
            }
            assert_eq!(
                cache.frames(),
                u64::from(slots),
                "a frame came with its block"
            );
        }
        cache.engine.audit();
    }
}
