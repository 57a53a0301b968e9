//! A store for tests: bytes in memory, operations that end when the test says so.
#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each test file uses its own part"
)]

use futae_engine::{
    Engine, EngineOptions, Extent, HandedDown, IoBuf, IoError, IoErrorKind, OnEviction, OnRefusal,
    Operation, Request, Store, StoreDone, StoreOperation, Verification, WriteBackOptions,
};
use futae_policy::{Class, Prng, VolumeId};
use std::sync::{Arc, Mutex};

/// Bytes of a block in these tests.
pub const BLOCK: u64 = 4096;

/// What a test store was given by the cache above.
#[derive(Default)]
pub struct Inside {
    pub bytes: Vec<u8>,
    pub held: Vec<(StoreOperation, StoreDone)>,
    pub hold: bool,
    pub fail_reads: bool,
    pub fail_writes: bool,
    pub reads: Vec<(u64, usize)>,
    /// Writes by offset, length, and whether they were to be stable.
    pub writes: Vec<(u64, usize, bool)>,
    /// Whether nothing is stored anywhere, if asked for extents.
    pub is_hole: bool,
    pub flushes: u32,
    /// As a store with connections has it; demotions of another are dropped.
    pub generation: u64,
    pub demotions: Vec<(u64, u64, Vec<u8>)>,
    pub notices: Vec<(u64, u64)>,
}

pub struct TestStore {
    pub inside: Mutex<Inside>,
}

impl TestStore {
    pub fn new(blocks: u64) -> Arc<Self> {
        let bytes = (0..blocks * BLOCK).map(initial).collect();
        Arc::new(Self {
            inside: Mutex::new(Inside {
                bytes,
                ..Inside::default()
            }),
        })
    }

    pub fn set(&self, change: impl FnOnce(&mut Inside)) {
        change(&mut self.inside.lock().expect("store"));
    }

    pub fn get<T>(&self, look: impl FnOnce(&Inside) -> T) -> T {
        look(&self.inside.lock().expect("store"))
    }

    /// Ends the held operation number `which`, well or badly.
    pub fn release(&self, which: usize, fail: bool) {
        let (operation, done) = self.inside.lock().expect("store").held.remove(which);
        let result = if fail {
            Err(broken())
        } else {
            self.perform(operation)
        };
        done(result);
    }

    pub fn release_all(&self) {
        while self.get(|inside| !inside.held.is_empty()) {
            self.release(0, false);
        }
    }

    fn perform(&self, operation: StoreOperation) -> Result<IoBuf, IoError> {
        let mut inside = self.inside.lock().expect("store");
        let at = |offset: u64, length: u64| offset as usize..(offset + length) as usize;
        match operation {
            StoreOperation::Read { offset, mut buffer } => {
                inside.reads.push((offset, buffer.len()));
                if inside.fail_reads {
                    return Err(broken());
                }
                let range = at(offset, buffer.len() as u64);
                buffer.as_mut_slice().copy_from_slice(&inside.bytes[range]);
                Ok(buffer)
            }
            StoreOperation::Write {
                offset,
                buffer,
                fua,
            } => {
                inside.writes.push((offset, buffer.len(), fua));
                if inside.fail_writes {
                    return Err(broken());
                }
                let range = at(offset, buffer.len() as u64);
                inside.bytes[range].copy_from_slice(buffer.as_slice());
                Ok(buffer)
            }
            StoreOperation::Flush => {
                inside.flushes += 1;
                Ok(IoBuf::new(0))
            }
            StoreOperation::Trim { offset, length }
            | StoreOperation::WriteZeroes { offset, length, .. } => {
                inside.bytes[at(offset, length)].fill(0);
                Ok(IoBuf::new(0))
            }
        }
    }
}

impl Store for TestStore {
    fn size_bytes(&self) -> u64 {
        self.get(|inside| inside.bytes.len() as u64)
    }
    fn describe(&self) -> String {
        "a test store".to_owned()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn submit(&self, _sequence: u64, operation: StoreOperation, done: StoreDone) {
        let mut inside = self.inside.lock().expect("store");
        if inside.hold {
            inside.held.push((operation, done));
            return;
        }
        drop(inside);
        done(self.perform(operation));
    }
    fn takes_demotions(&self) -> bool {
        true
    }
    fn extents(&self, _offset: u64, length: u64) -> Result<Vec<Extent>, IoError> {
        let hole = self.get(|inside| inside.is_hole);
        Ok(vec![Extent { length, hole }])
    }
    fn generation(&self) -> u64 {
        self.get(|inside| inside.generation)
    }
    fn demote(&self, sequence: u64, generation: u64, offset: u64, data: IoBuf) {
        self.set(|inside| {
            if generation == inside.generation {
                inside
                    .demotions
                    .push((sequence, offset, data.as_slice().to_vec()));
            }
        });
    }
    fn notice(&self, _sequence: u64, offset: u64, length: u64) {
        self.set(|inside| inside.notices.push((offset, length)));
    }
}

/// What byte `at` of a fresh store is.
pub fn initial(at: u64) -> u8 {
    (at / BLOCK * 31 + at % 251) as u8
}

pub fn broken() -> IoError {
    IoError::new(IoErrorKind::Store, "the test store was told to fail")
}

pub struct Setup {
    pub engine: Arc<Engine>,
    pub store: Arc<TestStore>,
    pub volume: VolumeId,
}

pub fn setup(policy: &str, slots: u32, blocks: u64, on_eviction: OnEviction) -> Setup {
    setup_of(BLOCK, policy, slots, blocks * BLOCK, on_eviction)
}

/// Blocks of another size, over a store of so many bytes.
pub fn setup_of(
    block_bytes: u64,
    policy: &str,
    slots: u32,
    bytes: u64,
    on_eviction: OnEviction,
) -> Setup {
    setup_writing(block_bytes, policy, slots, bytes, on_eviction, None)
}

/// The same, keeping written blocks.
pub fn setup_writing(
    block_bytes: u64,
    policy: &str,
    slots: u32,
    bytes: u64,
    on_eviction: OnEviction,
    write_back: Option<WriteBackOptions>,
) -> Setup {
    let options = EngineOptions {
        block_bytes,
        capacity_blocks: slots,
        policy: policy.parse().expect("a policy"),
        seed: 1,
        on_eviction,
        decision_log: None,
        write_back,
    };
    let engine = Engine::new(&options).expect("an engine");
    let store = TestStore::new(bytes / BLOCK);
    let below: Arc<dyn Store> = Arc::clone(&store) as _;
    let volume = engine
        .add_volume("test", below, Class::NORMAL)
        .expect("a volume");
    Setup {
        engine,
        store,
        volume,
    }
}

/// The result of a request, once it is there.
pub type Answer = Arc<Mutex<Option<Result<Vec<u8>, IoError>>>>;

impl Setup {
    /// Starts a request; its answer may come later.
    pub fn start(&self, client: futae_engine::ClientId, sequence: u64, op: Operation) -> Answer {
        let answer = Answer::default();
        let slot = Arc::clone(&answer);
        let done = Box::new(move |result: Result<IoBuf, IoError>| {
            let result = result.map(|data| data.as_slice().to_vec());
            assert!(
                slot.lock().expect("answer").replace(result).is_none(),
                "answered twice"
            );
        });
        let volume = self.volume;
        self.engine.submit(Request {
            volume,
            client,
            sequence,
            operation: op,
            done,
        });
        answer
    }

    pub fn read(&self, block: u64, blocks: u64) -> Operation {
        Operation::Read {
            offset: block * BLOCK,
            length: blocks * BLOCK,
        }
    }
}

pub fn write(offset: u64, data: &[u8]) -> Operation {
    Operation::Write {
        offset,
        data: IoBuf::copy_of(data),
        fua: false,
    }
}

pub fn take(answer: &Answer) -> Option<Result<Vec<u8>, IoError>> {
    answer.lock().expect("answer").take()
}

/// Somebody who hands down pages of a volume that verifies, most of which are not what they should be.
pub struct Forger {
    /// Contents that blocks once had.
    old: Vec<(u64, Vec<u8>)>,
}

impl Forger {
    /// What the engine verifies is compared with the store, too.
    pub fn new(setup: &Setup) -> Self {
        let how = Verification {
            memory_bytes: 20 * 16,
            on_refusal: OnRefusal::Notice,
            compare_with_store: true,
        };
        setup.engine.verify_hand_downs(how).expect("verification");
        Self { old: Vec::new() }
    }

    /// Hands down a page of one of `blocks` blocks: true, forged, torn, of another time or another block.
    pub fn hand_down(&mut self, setup: &Setup, blocks: u64, prng: &mut Prng) {
        let block = prng.below(blocks);
        let stored = |block: u64| {
            let range = (block * BLOCK) as usize..((block + 1) * BLOCK) as usize;
            setup.store.get(|inside| inside.bytes[range].to_vec())
        };
        let mut data = stored(block);
        if prng.below(4) == 0 {
            self.old.push((block, data.clone()));
        }
        let mut at = block;
        match prng.below(6) {
            0 => data[prng.below(BLOCK) as usize] ^= 1 + prng.below(255) as u8,
            1 => at = prng.below(blocks),
            2 if !self.old.is_empty() => {
                let which = prng.below(self.old.len() as u64) as usize;
                (at, data) = self.old[which].clone();
            }
            3 if !self.old.is_empty() => {
                let which = prng.below(self.old.len() as u64) as usize;
                let half = prng.below(BLOCK) as usize;
                at = self.old[which].0;
                data = stored(at);
                data[half..].copy_from_slice(&self.old[which].1[half..]);
            }
            _ => {}
        }
        let data = IoBuf::copy_of(&data);
        let offset = at * BLOCK;
        let operation = match prng.below(2) {
            0 => Operation::Demote { offset, data },
            _ => Operation::HandDown(HandedDown::new(offset, data)),
        };
        setup.start(futae_engine::ClientId(9 + prng.below(3)), 0, operation);
    }

    /// Nothing that is not what the store has has entered.
    pub fn check(&self, setup: &Setup) -> futae_engine::HandedDownStatus {
        let status = setup.engine.status().handed_down;
        assert_eq!(status.handed_down_wrong, 0, "{status:?}");
        status
    }
}
