//! Puts futae's cache inside another program: one engine over a file, read and written through the
//! cache.
//!
//! `cargo run -p futae-examples --bin embed_the_engine`

use anyhow::ensure;
use futae_engine::{ClientId, Engine, EngineOptions, FileStore, IoBuf, OnEviction, Operation};
use futae_policy::{Class, Kind, PolicySpec};
use std::sync::Arc;

const BLOCK_BYTES: u64 = 4096;

fn main() -> anyhow::Result<()> {
    // The volume to cache: here a temporary file of 1 MiB.
    let image = tempfile::NamedTempFile::new()?;
    std::fs::write(image.path(), vec![b'.'; 1 << 20])?;
    let store = Arc::new(FileStore::open(image.path(), false)?);

    // A cache of 64 blocks of 4 KiB.
    let engine = Engine::new(&EngineOptions {
        block_bytes: BLOCK_BYTES,
        capacity_blocks: 64,
        policy: PolicySpec::of(Kind::lru),
        seed: 1,
        on_eviction: OnEviction::None,
        decision_log: None,
        write_back: None,
    })?;
    let volume = engine.add_volume("example", store, Class::NORMAL)?;

    // `wait` submits an operation and waits. A program with many requests under way uses `submit`.
    let nobody = ClientId::NOBODY;
    let write = Operation::Write {
        offset: 10_000,
        data: IoBuf::copy_of(b"hello"),
        fua: true,
    };
    engine.wait(volume, nobody, write)?;
    for _ in 0..2 {
        let data = engine.read_blocking(volume, nobody, 10_000, 5)?;
        ensure!(data.as_slice() == b"hello");
    }

    let counters = engine.status().counters;
    println!(
        "{} requests for blocks, {} hits",
        counters.requests, counters.hits
    );
    ensure!(counters.hits >= 1, "the second read hits");
    Ok(())
}
