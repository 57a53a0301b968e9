//! An engine over a test's store.
#![allow(
    dead_code,
    unused_imports,
    clippy::allow_attributes,
    reason = "each test file uses its own part"
)]

use futae_engine::{
    Demotion, Engine, EngineOptions, IoBuf, IoError, Keeper, KeeperStatus, News, OnEviction,
    OnRefusal, Operation, Request, Store, Verification, WriteBackOptions,
};
use futae_policy::{BlockId, Class, Prng, VolumeId};
pub use futae_testkit::manual_store::{BLOCK, ManualStore, broken, initial};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub struct Setup {
    pub engine: Arc<Engine>,
    pub store: Arc<ManualStore>,
    pub volume: VolumeId,
}

pub fn setup(policy: &str, slots: u32, blocks: u64, on_eviction: OnEviction) -> Setup {
    setup_of(BLOCK, policy, slots, blocks * BLOCK, on_eviction)
}

/// Blocks of another size, over a store of this many bytes.
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
    let store = ManualStore::new(bytes / BLOCK);
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

/// Longer than any test: what waits for so long waits until somebody asks for it.
pub const NEVER: Duration = Duration::from_secs(3600);

/// Written blocks are kept, up to this part of the cache, until somebody asks for them.
pub const fn kept_up_to(dirty_max: f64) -> WriteBackOptions {
    WriteBackOptions {
        dirty_max,
        dirty_age_max: NEVER,
    }
}

/// What a block of a fresh store is.
pub fn fresh(block: u64) -> Vec<u8> {
    (block * BLOCK..(block + 1) * BLOCK).map(initial).collect()
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

/// Somebody who demotes pages of a volume that verifies, most of which are not what they should be.
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
        setup.engine.verify_demotions(how).expect("verification");
        Self { old: Vec::new() }
    }

    /// Demotes a page of one of `blocks` blocks: true, forged, torn, of another time or another block.
    pub fn demote(&mut self, setup: &Setup, blocks: u64, prng: &mut Prng) {
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
            0 => Operation::Demote(Demotion::new(offset, data)),
            _ => Operation::Demote(Demotion::by_agent(offset, data)),
        };
        setup.start(futae_engine::ClientId(9 + prng.below(3)), 0, operation);
    }

    /// Nothing that is not what the store has has entered.
    pub fn check(&self, setup: &Setup) -> futae_engine::DemotionStatus {
        let status = setup.engine.status().demotions;
        assert_eq!(status.demotions_wrong, 0, "{status:?}");
        status
    }
}

/// Somebody who holds the blocks in the cache's place, and uses and loses them at random.
pub struct Careless {
    prng: Mutex<Prng>,
    volumes: Vec<VolumeId>,
    blocks: u64,
}

impl Careless {
    /// Who holds blocks of these volumes below this number.
    pub fn new(volumes: &[VolumeId], blocks: u64, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            prng: Mutex::new(Prng::new(seed)),
            volumes: volumes.to_vec(),
            blocks,
        })
    }
}

impl Keeper for Careless {
    fn is_watching(&self) -> bool {
        true
    }
    fn news(&self, news: &mut News) {
        let mut prng = self.prng.lock().expect("whole");
        let mut some = |most: u64| -> Vec<BlockId> {
            let one = |prng: &mut Prng| {
                let volume = self.volumes[prng.below(self.volumes.len() as u64) as usize];
                BlockId::new(volume, prng.below(self.blocks))
            };
            (0..prng.below(most)).map(|_| one(&mut prng)).collect()
        };
        news.left.extend(some(2));
        news.used
            .extend(some(4).into_iter().map(|block| (block, 2)));
    }
    fn holds(&self, _block: BlockId) -> bool {
        false
    }
    fn let_go(&self, _block: BlockId) {}
    fn takes(&self, _block: BlockId) -> bool {
        self.prng.lock().expect("whole").below(2) == 0
    }
    fn status(&self) -> KeeperStatus {
        KeeperStatus::default()
    }
}
