//! The cache over a store that ends operations in any order, now and then badly, is always equal
//! to a plain array of bytes; and what it demotes is always what the store holds.

mod common;

use common::{Answer, BLOCK, Forger, Setup, initial, setup_of, take, write};
use futae_engine::{ClientId, Demotion, IoBuf, OnEviction, Operation};
use futae_policy::Prng;

/// What is cached.
#[derive(Clone, Copy)]
struct Disk {
    block: u64,
    blocks: u64,
}

impl Disk {
    fn bytes(self) -> u64 {
        self.block * self.blocks
    }

    /// Small blocks, fetched whole.
    const SMALL: Self = Self {
        block: BLOCK,
        blocks: 24,
    };

    /// Blocks that are loaded in pieces: two of them, each.
    const LARGE: Self = Self {
        block: 2 << 20,
        blocks: 5,
    };
}

struct Running {
    answer: Answer,
    offset: u64,
    length: u64,
    what: What,
}

enum What {
    /// The bytes as they were when the read began; none where a write was under way at any time
    /// during the read.
    Read(Vec<Option<u8>>),
    Write(Vec<u8>),
    Zeroes,
    Flush,
}

/// One run: the array of bytes that were acknowledged, and for each byte whether a write that was
/// under way or failed makes it unknown for now.
struct Model {
    bytes: Vec<u8>,
    running: Vec<Running>,
    /// Bytes of which a failed write leaves the content open, until they are written again.
    torn: Vec<bool>,
}

impl Model {
    fn overlaps_write(&self, offset: u64, length: u64) -> bool {
        self.running.iter().any(|op| {
            !matches!(op.what, What::Read(_) | What::Flush)
                && op.offset < offset + length
                && offset < op.offset + op.length
        })
    }

    /// What a read of these bytes must see.
    fn known(&self, offset: u64, length: u64) -> Vec<Option<u8>> {
        let known = |at: u64| {
            let settled = !self.torn[at as usize] && !self.overlaps_write(at, 1);
            settled.then(|| self.bytes[at as usize])
        };
        (offset..offset + length).map(known).collect()
    }

    /// A write begins: reads under way may see these bytes before or after it.
    fn forget(&mut self, offset: u64, length: u64) {
        for op in &mut self.running {
            let What::Read(before) = &mut op.what else {
                continue;
            };
            for (at, byte) in (op.offset..).zip(before) {
                if (offset..offset + length).contains(&at) {
                    *byte = None;
                }
            }
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
            let range = op.offset as usize..(op.offset + op.length) as usize;
            match (op.what, result) {
                (What::Read(before), Ok(data)) => {
                    assert_eq!(data.len(), before.len());
                    for (i, byte) in range.enumerate() {
                        let right = before[i].is_none_or(|before| before == data[i]);
                        assert!(right, "byte {byte} is wrong");
                    }
                }
                (What::Write(data), Ok(_)) => {
                    self.torn[range.clone()].fill(false);
                    self.bytes[range].copy_from_slice(&data);
                }
                (What::Zeroes, Ok(_)) => {
                    self.torn[range.clone()].fill(false);
                    self.bytes[range].fill(0);
                }
                (What::Write(_) | What::Zeroes, Err(_)) => self.torn[range].fill(true),
                (What::Flush, _) | (What::Read(_), Err(_)) => {}
            }
        }
    }
}

fn random_span(disk: Disk, prng: &mut Prng) -> (u64, u64) {
    let bytes = disk.bytes();
    match prng.below(3) {
        // Near the edges of large blocks and of their pieces, so that requests meet.
        0 | 1 if disk.block > BLOCK => {
            let edge = prng.below(bytes / (1 << 20)) << 20;
            let offset = (edge + prng.below(3 * BLOCK)).saturating_sub(BLOCK);
            let length = 1 + prng.below(4 * BLOCK);
            (offset, length.min(bytes - offset))
        }
        0 => {
            let first = prng.below(disk.blocks);
            let blocks = 1 + prng.below((disk.blocks - first).min(4));
            (first * disk.block, blocks * disk.block)
        }
        1 => (prng.below(disk.blocks) * disk.block, disk.block),
        _ if disk.block > BLOCK && prng.below(20) == 0 => {
            (prng.below(disk.blocks) * disk.block, disk.block)
        }
        _ => {
            let offset = prng.below(bytes);
            (offset, 1 + prng.below((bytes - offset).min(3 * BLOCK)))
        }
    }
}

fn start(
    setup: &Setup,
    model: &mut Model,
    client: ClientId,
    (disk, sequence): (Disk, u64),
    prng: &mut Prng,
) {
    let (offset, length) = random_span(disk, prng);
    let (operation, what) = match prng.below(20) {
        0 => (Operation::Flush, What::Flush),
        1 => (
            Operation::WriteZeroes {
                offset,
                length,
                fua: false,
                no_hole: false,
            },
            What::Zeroes,
        ),
        2..=7 => {
            let data: Vec<u8> = (0..length).map(|_| prng.bits() as u8).collect();
            (write(offset, &data), What::Write(data))
        }
        8 => {
            setup.start(client, sequence, Operation::Notice { offset, length });
            return;
        }
        9 => (
            Operation::ReadOn { offset, length },
            What::Read(model.known(offset, length)),
        ),
        _ => (
            Operation::Read { offset, length },
            What::Read(model.known(offset, length)),
        ),
    };
    // Two writes to the same bytes at once may end either way: not what is tested here.
    if !matches!(what, What::Read(_) | What::Flush) && model.overlaps_write(offset, length) {
        return;
    }
    if !matches!(what, What::Read(_) | What::Flush) {
        model.forget(offset, length);
    }
    let answer = setup.start(client, sequence, operation);
    model.running.push(Running {
        answer,
        offset,
        length,
        what,
    });
}

/// Blocks that a forger demoted and that entered, and those that were refused.
type Forged = (u64, u64);

fn run(disk: Disk, policy: &str, slots: u32, on_eviction: OnEviction, seed: u64) -> Forged {
    let setup = setup_of(disk.block, policy, slots, disk.bytes(), on_eviction);
    let verifies = disk.block == BLOCK && seed / 1000 % 2 == 1;
    let mut forger = verifies.then(|| Forger::new(&setup));
    if let few @ 1.. = seed / 1000 % 4 {
        // Long requests take several steps, and other work comes between them.
        setup.engine.set_step_blocks(few);
    }
    let client = setup.engine.join(setup.volume);
    let mut prng = Prng::new(seed);
    let bytes: Vec<u8> = (0..disk.bytes()).map(initial).collect();
    let mut model = Model {
        torn: vec![false; bytes.len()],
        bytes,
        running: Vec::new(),
    };
    setup.store.set(|inside| inside.hold = true);
    for sequence in 1..1500u64 {
        let held = setup.store.get(|inside| inside.held.len()) as u64;
        if held > 0 && (held > 12 || prng.below(2) == 0) {
            let which = prng.below(held) as usize;
            setup.store.release(which, prng.below(40) == 0);
        } else if prng.below(300) == 0 {
            setup
                .engine
                .resize(1 + prng.below(u64::from(slots) * 2) as u32)
                .expect("resize");
        } else {
            start(&setup, &mut model, client, (disk, sequence), &mut prng);
        }
        model.collect();
        setup.engine.audit();
        check_demoted(&setup, &model);
        match &mut forger {
            Some(forger) => (0..2).for_each(|_| forger.demote(&setup, disk.blocks, &mut prng)),
            None => demote_back(&setup, client, (disk, sequence), &mut prng),
        }
    }
    setup.store.release_all();
    model.collect();
    assert!(
        model.running.is_empty(),
        "{policy}: requests were never answered"
    );
    setup.store.set(|inside| inside.hold = false);
    let all = setup
        .engine
        .read_blocking(setup.volume, client, 0, disk.bytes())
        .expect("a read");
    for at in 0..disk.bytes() as usize {
        assert!(
            model.torn[at] || all.as_slice()[at] == model.bytes[at],
            "byte {at} is wrong"
        );
    }
    let stored = setup.store.get(|inside| inside.bytes.clone());
    assert_eq!(
        all.as_slice(),
        stored,
        "{policy}: the cache differs from its store"
    );
    forger.map_or((0, 0), |forger| {
        let status = forger.check(&setup);
        let different = status.demotions_different;
        (
            status.demotions_compared,
            different + status.demotions_unknown,
        )
    })
}

/// Data that is demoted is what the store holds, unless a write to it is under way or failed.
fn check_demoted(setup: &Setup, model: &Model) {
    let demotions = setup.store.get(|inside| inside.demotions.clone());
    setup.store.set(|inside| inside.demotions.clear());
    for (_, offset, data) in demotions {
        if model.overlaps_write(offset, data.len() as u64) {
            continue;
        }
        for (i, byte) in data.iter().enumerate() {
            let at = offset as usize + i;
            assert!(
                model.torn[at] || *byte == model.bytes[at],
                "stale byte {at} demoted"
            );
        }
    }
}

/// Now and then the client demotes what it has just read to be true.
fn demote_back(setup: &Setup, client: ClientId, (disk, sequence): (Disk, u64), prng: &mut Prng) {
    let seldom = if disk.block > BLOCK { 100 } else { 6 };
    if prng.below(seldom) != 0 {
        return;
    }
    let offset = prng.below(disk.blocks) * disk.block;
    let range = offset as usize..(offset + disk.block) as usize;
    let truth = setup.store.get(|inside| inside.bytes[range].to_vec());
    let data = IoBuf::copy_of(&truth);
    setup.start(
        client,
        sequence,
        Operation::Demote(Demotion::new(offset, data)),
    );
}

#[test]
fn equal_to_a_plain_array_under_every_policy() {
    let mut forged = (0, 0);
    for policy in [
        "lru",
        "random",
        "fix",
        "exclusive",
        "exclusive(lfu)",
        "2q",
        "arc",
        "lfu-history(history=20,review=3,min_gain=0)",
        "const(pin=3-9)",
    ] {
        for (slots, on_eviction) in [
            (1, OnEviction::Demote),
            (3, OnEviction::None),
            (7, OnEviction::Demote),
            (12, OnEviction::Notice),
            (30, OnEviction::Demote),
        ] {
            for seed in 0..6 {
                let seed = seed * 1000 + u64::from(slots);
                let (entered, refused) = run(Disk::SMALL, policy, slots, on_eviction, seed);
                forged = (forged.0 + entered, forged.1 + refused);
            }
        }
    }
    assert!(forged.0 > 5_000 && forged.1 > 100_000, "{forged:?}");
}

#[test]
fn equal_to_a_plain_array_in_pieces() {
    for policy in [
        "lru",
        "exclusive",
        "lfu-history(history=20,review=3,min_gain=0)",
        "const(pin=1-3)",
    ] {
        for (slots, on_eviction) in [
            (1, OnEviction::None),
            (2, OnEviction::Demote),
            (3, OnEviction::Notice),
            (6, OnEviction::None),
        ] {
            let seed = 77 + u64::from(slots);
            run(Disk::LARGE, policy, slots, on_eviction, seed);
        }
    }
}
