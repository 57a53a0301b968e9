//! Random operations on a cache that writes back, over a store that ends operations in any order,
//! now and then badly: a read sees the last write, what is demoted is what was written last,
//! and at every moment the store holds all that was flushed.

mod common;

use common::{Answer, BLOCK, Careless, Forger, Setup, setup_writing, take};
use futae_engine::{ClientId, Demotion, IoBuf, OnEviction, Operation, WriteBackOptions};
use futae_policy::Prng;
use std::time::{Duration, Instant};

/// What is written: whole sectors, each full of one number.
const SECTOR: u64 = 512;
const BLOCKS: u64 = 24;
const SECTORS: u64 = BLOCKS * BLOCK / SECTOR;
const STEPS: u64 = 1200;
/// What the cache changes to while it works.
const POLICIES: [&str; 6] = ["lru", "exclusive", "arc", "s3-fifo", "const", "auto"];

/// Everything that was ever written to a sector, in order, as numbers.
struct Sector {
    versions: Vec<u64>,
    /// The last that was answered.
    answered: usize,
    /// The last that a flush covered.
    flushed: usize,
}

enum What {
    /// The last version answered when the read began, of each sector.
    Read(Vec<usize>),
    Write,
    /// The last version answered when the flush began, of every sector.
    Flush(Vec<usize>),
}

struct Running {
    answer: Answer,
    first: u64,
    sectors: u64,
    what: What,
}

struct Model {
    sectors: Vec<Sector>,
    running: Vec<Running>,
    next: u64,
    flushes: u32,
    failed_flushes: u32,
}

fn bytes_of(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat((SECTOR / 8) as usize)
}

/// The number that a sector is full of.
fn version_of(bytes: &[u8]) -> u64 {
    let number = |chunk: &[u8]| u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
    let first = number(&bytes[..8]);
    let is_whole = bytes.chunks(8).all(|chunk| number(chunk) == first);
    assert!(is_whole, "a torn sector");
    first
}

impl Model {
    fn new() -> Self {
        let new = |_| Sector {
            versions: vec![0],
            answered: 0,
            flushed: 0,
        };
        Self {
            sectors: (0..SECTORS).map(new).collect(),
            running: Vec::new(),
            next: 1,
            flushes: 0,
            failed_flushes: 0,
        }
    }

    fn is_written(&self, first: u64, sectors: u64) -> bool {
        self.running.iter().any(|op| {
            let overlaps = op.first < first + sectors && first < op.first + op.sectors;
            matches!(op.what, What::Write) && overlaps
        })
    }

    fn answered(&self, first: u64, sectors: u64) -> Vec<usize> {
        let range = first as usize..(first + sectors) as usize;
        self.sectors[range]
            .iter()
            .map(|sector| sector.answered)
            .collect()
    }

    /// Bytes must hold versions from `oldest` on.
    fn check(
        &self,
        first: u64,
        bytes: &[u8],
        oldest: impl Fn(usize, &Sector) -> usize,
        what: &str,
    ) {
        for (at, bytes) in bytes.chunks(SECTOR as usize).enumerate() {
            let (version, index) = (version_of(bytes), first as usize + at);
            let sector = &self.sectors[index];
            let oldest = oldest(at, sector);
            let is_right = sector.versions[oldest..].contains(&version);
            let versions = &sector.versions[oldest..];
            assert!(
                is_right,
                "{what}: sector {index} is {version}, not one of {versions:?}"
            );
        }
    }

    fn collect(&mut self) {
        let mut at = 0;
        while at < self.running.len() {
            let Some(result) = take(&self.running[at].answer) else {
                at += 1;
                continue;
            };
            let op = self.running.remove(at);
            match (op.what, result) {
                (What::Read(answered), Ok(bytes)) => {
                    self.check(op.first, &bytes, |at, _| answered[at], "a read");
                }
                (What::Write, Ok(_)) => {
                    for sector in &mut self.sectors[op.first as usize..][..op.sectors as usize] {
                        sector.answered = sector.versions.len() - 1;
                    }
                }
                (What::Flush(answered), Ok(_)) => {
                    self.flushes += 1;
                    for (sector, answered) in self.sectors.iter_mut().zip(answered) {
                        sector.flushed = sector.flushed.max(answered);
                    }
                }
                (What::Flush(_), Err(_)) => self.failed_flushes += 1,
                (What::Read(_) | What::Write, Err(_)) => {}
            }
        }
    }
}

fn span(prng: &mut Prng) -> (u64, u64) {
    let of_block = BLOCK / SECTOR;
    if prng.below(3) > 0 {
        let first = prng.below(BLOCKS);
        let blocks = 1 + prng.below((BLOCKS - first).min(4));
        return (first * of_block, blocks * of_block);
    }
    let first = prng.below(SECTORS);
    (first, 1 + prng.below((SECTORS - first).min(20)))
}

fn start(setup: &Setup, model: &mut Model, client: ClientId, sequence: u64, prng: &mut Prng) {
    let (first, sectors) = span(prng);
    let (offset, length) = (first * SECTOR, sectors * SECTOR);
    let whole = |what| (0, SECTORS, what);
    let (operation, (first, sectors, what)) = match prng.below(20) {
        0 => {
            let answered = model.answered(0, SECTORS);
            (Operation::Flush, whole(What::Flush(answered)))
        }
        1 => {
            let (fua, no_hole) = (prng.below(2) == 0, false);
            let zeroes = Operation::WriteZeroes {
                offset,
                length,
                fua,
                no_hole,
            };
            (zeroes, (first, sectors, What::Write))
        }
        kind @ 2..=9 => {
            let data = bytes_of(model.next).repeat(sectors as usize);
            let fua = kind == 2;
            let data = IoBuf::copy_of(&data);
            (
                Operation::Write { offset, data, fua },
                (first, sectors, What::Write),
            )
        }
        10 => {
            setup.start(client, sequence, Operation::Notice { offset, length });
            return;
        }
        _ => {
            let answered = model.answered(first, sectors);
            (
                Operation::Read { offset, length },
                (first, sectors, What::Read(answered)),
            )
        }
    };
    if matches!(what, What::Write) {
        // Two writes to the same sector at once may end either way: not what is tested here.
        if model.is_written(first, sectors) {
            return;
        }
        let version = if matches!(operation, Operation::Write { .. }) {
            model.next
        } else {
            0
        };
        model.next += 1;
        for sector in &mut model.sectors[first as usize..][..sectors as usize] {
            sector.versions.push(version);
        }
    }
    let answer = setup.start(client, sequence, operation);
    model.running.push(Running {
        answer,
        first,
        sectors,
        what,
    });
}

/// Demoted data is what was written last, or is being written.
fn check_demoted(setup: &Setup, model: &Model, before: &[usize]) {
    let demotions = setup.store.get(|inside| inside.demotions.clone());
    setup.store.set(|inside| inside.demotions.clear());
    for (_, offset, data) in demotions {
        let first = offset / SECTOR;
        model.check(first, &data, |at, _| before[first as usize + at], "demoted");
    }
}

/// Now and then the client demotes what it knows to be true.
fn demote_back(setup: &Setup, model: &Model, client: ClientId, sequence: u64, prng: &mut Prng) {
    let of_block = BLOCK / SECTOR;
    let first = prng.below(BLOCKS) * of_block;
    let is_known = |sector: &Sector| sector.answered == sector.versions.len() - 1;
    let sectors = &model.sectors[first as usize..][..of_block as usize];
    if prng.below(6) > 0 || !sectors.iter().all(is_known) {
        return;
    }
    let data: Vec<u8> = sectors
        .iter()
        .flat_map(|sector| bytes_of(sector.versions[sector.answered]))
        .collect();
    let (offset, data) = (first * SECTOR, IoBuf::copy_of(&data));
    setup.start(
        client,
        sequence,
        Operation::Demote(Demotion::new(offset, data)),
    );
}

/// Who has the data of resident blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    InFrames,
    Elsewhere,
}

fn run(
    policy: &str,
    (slots, on_eviction): (u32, OnEviction),
    dirty_max: f64,
    seed: u64,
    held: Held,
) -> u64 {
    let how = WriteBackOptions {
        dirty_max,
        dirty_age_max: Duration::ZERO,
    };
    let setup = setup_writing(BLOCK, policy, slots, BLOCKS * BLOCK, on_eviction, Some(how));
    setup.store.set(|inside| inside.bytes.fill(0));
    if held == Held::Elsewhere {
        let careless = Careless::new(&[setup.volume], BLOCKS, seed);
        setup.engine.keep_elsewhere(careless);
    }
    if let few @ 1.. = seed % 4 {
        // Long requests take several steps, and other work comes between them.
        setup.engine.set_step_blocks(few);
    }
    let mut forger = (seed / 1000 % 2 == 1).then(|| Forger::new(&setup));
    let client = setup.engine.join(setup.volume);
    let mut prng = Prng::new(seed);
    let mut model = Model::new();
    setup.store.set(|inside| inside.hold = true);
    for sequence in 1..STEPS {
        let before = model.answered(0, SECTORS);
        let held = setup.store.get(|inside| inside.held.len()) as u64;
        if held > 0 && (held > 12 || prng.below(2) == 0) {
            let which = prng.below(held) as usize;
            setup.store.release(which, prng.below(40) == 0);
        } else if prng.below(200) == 0 {
            let blocks = 1 + prng.below(u64::from(slots) * 2) as u32;
            setup.engine.resize(blocks).expect("resize");
        } else if prng.below(200) == 0 {
            let other = POLICIES[prng.below(POLICIES.len() as u64) as usize];
            let other = other.parse().expect("a policy");
            setup.engine.change_policy(&other).expect("a change");
        } else {
            start(&setup, &mut model, client, sequence, &mut prng);
        }
        model.collect();
        setup.engine.audit();
        check_demoted(&setup, &model, &before);
        match &mut forger {
            Some(forger) => forger.demote(&setup, BLOCKS, &mut prng),
            None => demote_back(&setup, &model, client, sequence, &mut prng),
        }
        // As if everything but the store were gone now.
        let stored = setup.store.get(|inside| inside.bytes.clone());
        model.check(0, &stored, |_, sector| sector.flushed, "after a crash");
    }
    // The clock's thread may be about to start another write-back.
    let patience = Instant::now() + Duration::from_secs(20);
    while !model.running.is_empty() {
        let is_late = Instant::now() > patience;
        assert!(!is_late, "{policy}: requests were never answered");
        setup.store.release_all();
        model.collect();
        std::thread::yield_now();
    }
    setup.store.set(|inside| inside.hold = false);
    let settled = |operation| {
        let answer = setup.start(client, STEPS, operation);
        loop {
            if let Some(result) = take(&answer) {
                return result;
            }
            assert!(Instant::now() < patience, "{policy}: no answer at the end");
            setup.store.release_all();
        }
    };
    let flush = || settled(Operation::Flush);
    flush().or_else(|_| flush()).expect("a flush");
    let (offset, length) = (0, BLOCKS * BLOCK);
    let all = settled(Operation::Read { offset, length }).expect("a read");
    model.check(0, &all, |_, sector| sector.answered, "at the end");
    let stored = setup.store.get(|inside| inside.bytes.clone());
    assert!(all == stored, "{policy}: the cache differs from its store");
    let status = setup.engine.status();
    assert_eq!((status.dirty_blocks, status.dirty_evicted_blocks), (0, 0));
    assert!(model.flushes > 0, "no flush was good");
    if let Some(forger) = forger {
        forger.check(&setup);
    }
    status.write_back_blocks
}

#[test]
fn reads_see_the_last_write_and_a_crash_loses_nothing_flushed() {
    let mut written = 0;
    for policy in [
        "lru",
        "random",
        "fix",
        "exclusive",
        "cost",
        "arc",
        "const(pin=3-9)",
    ] {
        for (slots, on_eviction, dirty_max) in [
            (1, OnEviction::Demote, 1.0),
            (3, OnEviction::None, 0.4),
            (7, OnEviction::Demote, 1.0),
            (12, OnEviction::Notice, 0.2),
            (30, OnEviction::Demote, 0.6),
        ] {
            for seed in 0..4 {
                let seed = seed * 1000 + u64::from(slots);
                let sizes = (slots, on_eviction);
                written += run(policy, sizes, dirty_max, seed, Held::InFrames);
            }
        }
    }
    assert!(written > 1000, "only {written} blocks were written back");
}

#[test]
fn the_same_is_true_where_somebody_else_holds_the_blocks() {
    let mut written = 0;
    for policy in ["sieve", "fix", "cost", "s3-fifo", "lru"] {
        for (slots, dirty_max) in [(1, 1.0), (3, 0.4), (12, 0.2), (30, 0.6)] {
            for seed in 0..4 {
                let seed = seed * 1000 + u64::from(slots);
                let sizes = (slots, OnEviction::None);
                written += run(policy, sizes, dirty_max, seed, Held::Elsewhere);
            }
        }
    }
    assert!(written > 500, "only {written} blocks were written back");
}
