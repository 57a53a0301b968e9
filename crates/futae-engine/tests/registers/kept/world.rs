//! One run: caches that take over each other's memory, over the same disks.

use crate::asked::{self, Answer};
use crate::disk::{Clock, Disk, End, SECTOR};
use crate::model::Model;
use futae_engine::{ClientId, Engine, IoError, Operation, Request, Store, WriteBackOptions};
use futae_policy::{Class, Prng, VolumeId};
use std::sync::Arc;

pub const POLICIES: [&str; 9] = [
    "lru",
    "exclusive",
    "arc",
    "s3-fifo",
    "const(pin=3-9)",
    "auto",
    "fix",
    "2q",
    "sieve",
];

pub enum What {
    Read,
    /// Whether it is stable once it is answered.
    Write(bool),
    Flush,
    Hint,
}

/// A request under way.
pub struct Pending {
    pub answer: Answer,
    pub disk: usize,
    pub first: u64,
    pub sectors: u64,
    pub begun: u64,
    pub what: What,
}

/// A disk, what it may hold, and which volume it is now.
pub struct Known {
    pub disk: Arc<Disk>,
    pub model: Model,
    pub volume: Option<VolumeId>,
}

/// What a run has seen.
#[derive(Debug, Default)]
pub struct Seen {
    pub found: u64,
    pub verified: u64,
    pub refused: u64,
    pub removed: u64,
    pub lengthened: u64,
    pub equal_reads: u64,
    pub write_backs: u64,
    pub failed: u64,
}

impl Seen {
    pub fn add(&mut self, other: &Self) {
        self.found += other.found;
        self.verified += other.verified;
        self.refused += other.refused;
        self.removed += other.removed;
        self.lengthened += other.lengthened;
        self.equal_reads += other.equal_reads;
        self.write_backs += other.write_backs;
        self.failed += other.failed;
    }
}

pub struct Run {
    pub prng: Prng,
    pub clock: Arc<Clock>,
    pub block_bytes: u64,
    pub disks: Vec<Known>,
    pub engine: Arc<Engine>,
    pub pending: Vec<Pending>,
    /// Requests that go to the cache together.
    pub batch: Vec<Request>,
    pub event: u64,
    pub client: ClientId,
    pub seen: Seen,
    pub slots: u32,
    pub how: Option<WriteBackOptions>,
    pub fails: u64,
    pub shares: bool,
    pub has_stamps: bool,
    pub folder: tempfile::TempDir,
    pub life: u32,
    pub dirty_before: u64,
}

impl Run {
    pub fn new(seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let clock = Arc::new(Clock::default());
        clock.pass(1_000_000);
        let block_bytes = 4096 << prng.below(2);
        let has_stamps = prng.below(2) == 0;
        let disks = (0..3).map(|number: u8| {
            let sectors = (3 + prng.below(8)) * block_bytes / SECTOR + prng.below(3) * 3;
            let mut model = Model::new(u64::from(number), block_bytes);
            let bytes = vec![0; (sectors * SECTOR) as usize];
            model.settle(&bytes);
            Known {
                disk: Disk::new(number, bytes, has_stamps, &clock),
                model,
                volume: None,
            }
        });
        let disks: Vec<_> = disks.collect();
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let options = Self::options(&mut prng, block_bytes);
        let engine = Self::engine(&options, &clock, &disks, &mut prng);
        let fails = [0, 12, 40][prng.below(3) as usize];
        let mut run = Self {
            prng,
            clock,
            block_bytes,
            disks,
            engine,
            pending: Vec::new(),
            batch: Vec::new(),
            event: 1,
            client: ClientId(1),
            seen: Seen::default(),
            slots: options.capacity_blocks,
            how: options.write_back,
            fails,
            shares: false,
            has_stamps,
            folder,
            life: 0,
            dirty_before: 0,
        };
        run.fill();
        run
    }

    pub fn add(&mut self, at: usize) {
        let known = &mut self.disks[at];
        known.disk.open();
        let bytes = known.disk.with(|inside| inside.bytes.clone());
        known.model.settle(&bytes);
        let store: Arc<dyn Store> = Arc::clone(&known.disk) as _;
        let volume = self.engine.add_volume("disk", store, Class::NORMAL);
        known.volume = Some(volume.expect("a volume"));
    }

    pub fn now(&mut self) -> u64 {
        self.event += 1;
        self.event
    }

    /// The request, and where its answer will be.
    pub fn request(
        &mut self,
        at: usize,
        client: ClientId,
        operation: Operation,
    ) -> (Request, Answer) {
        let event = self.now();
        let volume = self.disks[at].volume.expect("a volume");
        asked::request(volume, client, event, operation)
    }

    /// Takes the answers that have come.
    pub fn collect(&mut self) {
        let mut at = 0;
        while at < self.pending.len() {
            let Some(result) = self.pending[at].answer.take() else {
                at += 1;
                continue;
            };
            let Pending {
                disk,
                first,
                sectors,
                begun,
                what,
                ..
            } = self.pending.swap_remove(at);
            let now = self.now();
            let model = &mut self.disks[disk].model;
            match (what, result) {
                (What::Read, Ok(bytes)) => {
                    assert_eq!(bytes.len() as u64, sectors * SECTOR);
                    model.check(first, &bytes, Some(begun), "a read");
                }
                (What::Write(is_stable), result) => {
                    let is_safe = is_stable || self.how.is_none();
                    model.end((first, sectors), begun, now, (result.is_ok(), is_safe));
                }
                (What::Flush, Ok(_)) => model.flushed(begun),
                (What::Read | What::Flush, Err(_)) => assert!(self.fails > 0, "a good disk"),
                (What::Hint, _) => {}
            }
        }
    }

    /// Checks everything that may be looked at any time.
    pub fn check(&mut self, begun: u64) {
        self.engine.audit();
        for known in &self.disks {
            let demoted = known
                .disk
                .with(|inside| std::mem::take(&mut inside.demoted));
            for (offset, data) in demoted {
                known
                    .model
                    .check(offset / SECTOR, &data, Some(begun), "demoted");
            }
            if known.volume.is_none() {
                continue;
            }
            let length = (known.model.sectors() * SECTOR) as usize;
            known.disk.with(|inside| {
                known
                    .model
                    .check(0, &inside.bytes[..length], None, "a crash");
            });
        }
        let oldest = self.pending.iter().map(|it| it.begun).min();
        let oldest = oldest.unwrap_or(self.event);
        for known in &mut self.disks {
            known.model.forget(oldest);
        }
        let (Some(how), dirty) = (self.how, self.engine.dirty_blocks()) else {
            return;
        };
        let most = ((f64::from(self.slots) * how.dirty_max) as u64).max(1);
        assert!(
            dirty <= most.max(self.dirty_before),
            "{dirty} blocks are dirty, of {most}"
        );
        self.dirty_before = dirty;
    }

    /// Ends one operation of any disk, if there is one.
    pub fn release_one(&mut self, may_fail: bool) -> bool {
        let counts: Vec<_> = self.disks.iter().map(|it| it.disk.held()).collect();
        let all = counts.iter().sum::<usize>() as u64;
        if all == 0 {
            return false;
        }
        let mut which = self.prng.below(all) as usize;
        for (known, count) in self.disks.iter().zip(counts) {
            if which < count {
                let fails = may_fail && self.fails > 0 && self.prng.below(self.fails) == 0;
                let end = if fails { End::Bad } else { End::Good };
                self.seen.failed += u64::from(fails);
                known.disk.release(which, end, &mut self.prng);
                break;
            }
            which -= count;
        }
        true
    }

    /// Everything under way ends.
    pub fn drain(&mut self) {
        for _ in 0..4000 {
            if !self.release_one(false) {
                if self.pending.is_empty() {
                    return;
                }
                self.clock.pass(700);
                self.engine.tick();
            }
            self.collect();
        }
        let left = self
            .pending
            .iter()
            .map(|it| (it.disk, it.first, it.sectors));
        panic!("never answered: {:?}", left.collect::<Vec<_>>());
    }

    /// Asks on behalf of nobody, and waits.
    pub fn ask(&mut self, at: usize, operation: Operation) -> Result<Vec<u8>, IoError> {
        let (request, answer) = self.request(at, ClientId::NOBODY, operation);
        self.engine.submit(request);
        self.drain_for(&answer)
    }

    fn drain_for(&mut self, answer: &Answer) -> Result<Vec<u8>, IoError> {
        for _ in 0..4000 {
            if let Some(result) = answer.take() {
                return result;
            }
            if !self.release_one(false) {
                self.clock.pass(700);
                self.engine.tick();
            }
        }
        panic!("never answered");
    }

    /// All that a volume got is on its disk.
    pub fn settle(&mut self, at: usize) {
        self.drain();
        let flushed = self.ask(at, Operation::Flush);
        let flushed = flushed.or_else(|_| self.ask(at, Operation::Flush));
        flushed.expect("a flush of a good disk");
        let now = self.now();
        let known = &self.disks[at];
        let bytes = known.disk.with(|inside| inside.bytes.clone());
        let length = (known.model.sectors() * SECTOR) as usize;
        known
            .model
            .check(0, &bytes[..length], Some(now), "the disk after a flush");
        let length = length as u64;
        let read = self.ask(at, Operation::Read { offset: 0, length });
        let read = read.expect("a read of a good disk");
        assert!(
            read == bytes[..length as usize],
            "the cache differs from its disk"
        );
    }
}
