//! `hashing`: what verifying costs the cache itself, over a store in memory: reads that hit, reads of the store, writes
//! and demotions, with and without hashes, in turns.

use anyhow::{Context, ensure};
use clap::Parser;
use futae_bench::report::Spread;
use futae_engine::{
    ClientId, Demotion, Engine, EngineOptions, IoBuf, OnEviction, OnRefusal, Operation, Store,
    StoreDone, StoreOperation, Verification,
};
use futae_policy::{Class, VolumeId};
use std::sync::Arc;
use std::time::Instant;

const BLOCK: u64 = 4096;

/// Measure what verifying demotions costs the cache, in nanoseconds a block of 4 KiB
#[derive(Parser)]
struct Args {
    /// Blocks of the volume
    #[arg(long, default_value_t = 16_384)]
    blocks: u64,
    /// How often each is measured
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// Every block is the same page, so that the store costs a copy.
struct Memory {
    bytes: u64,
    page: Vec<u8>,
}

impl Store for Memory {
    fn size_bytes(&self) -> u64 {
        self.bytes
    }
    fn describe(&self) -> String {
        "a page in memory".to_owned()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn submit(&self, _sequence: u64, operation: StoreOperation, done: StoreDone) {
        done(Ok(match operation {
            StoreOperation::Read { mut buffer, .. } => {
                for to in buffer.as_mut_slice().chunks_mut(self.page.len()) {
                    to.copy_from_slice(&self.page[..to.len()]);
                }
                buffer
            }
            StoreOperation::Write { buffer, .. } => buffer,
            _ => IoBuf::new(0),
        }));
    }
}

struct Rig {
    engine: Arc<Engine>,
    volume: VolumeId,
    blocks: u64,
}

impl Rig {
    /// A cache of as many slots as the volume has blocks, or of few.
    fn new(policy: &str, blocks: u64, slots: u64, verifies: bool) -> anyhow::Result<Self> {
        let engine = Engine::new(&EngineOptions {
            block_bytes: BLOCK,
            capacity_blocks: u32::try_from(slots)?,
            policy: policy.parse()?,
            seed: 1,
            on_eviction: OnEviction::None,
            decision_log: None,
            write_back: None,
        })?;
        if verifies {
            engine.verify_demotions(Verification {
                memory_bytes: 2 * 20 * blocks,
                on_refusal: OnRefusal::Drop,
                compare_with_store: false,
            })?;
        }
        let page = (0..BLOCK).map(|at| (at % 251) as u8).collect();
        let bytes = blocks * BLOCK;
        let volume = engine.add_volume("v", Arc::new(Memory { bytes, page }), Class::NORMAL)?;
        Ok(Self {
            engine,
            volume,
            blocks,
        })
    }

    /// Does something with every block, in an order that is not that of memory; nanoseconds each.
    fn each(&self, operation: impl Fn(u64) -> Operation) -> anyhow::Result<f64> {
        let begin = Instant::now();
        for at in 0..self.blocks {
            let block = at * 40_503 % self.blocks;
            let nobody = ClientId::NOBODY;
            self.engine
                .wait(self.volume, nobody, operation(block * BLOCK))?;
        }
        Ok(begin.elapsed().as_nanos() as f64 / self.blocks as f64)
    }

    fn read(offset: u64) -> Operation {
        Operation::Read {
            offset,
            length: BLOCK,
        }
    }
}

/// Nanoseconds a block: read that hits, read of the store, write, demotion.
fn measure(blocks: u64, verifies: bool) -> anyhow::Result<[f64; 4]> {
    let page: Vec<u8> = (0..BLOCK).map(|at| (at % 251) as u8).collect();
    let data = || IoBuf::copy_of(&page);
    let all = Rig::new("lru", blocks, blocks, verifies)?;
    all.each(Rig::read)?;
    let hit = all.each(Rig::read)?;
    ensure!(
        all.engine.status().store_reads == blocks,
        "not all reads hit"
    );
    let few = Rig::new("exclusive", blocks, blocks, verifies)?;
    few.each(Rig::read)?;
    let miss = few.each(Rig::read)?;
    let write = few.each(|offset| Operation::Write {
        offset,
        data: data(),
        fua: false,
    })?;
    let handed = few.each(|offset| Operation::Demote(Demotion::by_agent(offset, data())))?;
    let verified = few.engine.status().demotions.demotions_verified;
    ensure!(
        !verifies || verified > blocks * 9 / 10,
        "only {verified} blocks were verified"
    );
    Ok([hit, miss, write, handed])
}

fn shown(numbers: &[f64]) -> String {
    let Spread {
        median,
        lowest,
        highest,
    } = Spread::of(numbers.iter().copied());
    format!("{median:.0} ({lowest:.0} to {highest:.0})")
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut found: [[Vec<f64>; 4]; 2] = std::array::from_fn(|_| Default::default());
    for _ in 0..args.rounds {
        for verifies in [false, true] {
            let round = measure(args.blocks, verifies).context("a round")?;
            for (all, one) in found[usize::from(verifies)].iter_mut().zip(round) {
                all.push(one);
            }
        }
    }
    println!("nanoseconds a block of 4 KiB, median (least to most)");
    for (at, what) in [
        "hit",
        "store read",
        "write",
        "demotion (a notice without hashes)",
    ]
    .iter()
    .enumerate()
    {
        let [without, with] = [0, 1].map(|verifies: usize| shown(&found[verifies][at]));
        println!("{what}: without hashes {without}, with {with}");
    }
    Ok(())
}
