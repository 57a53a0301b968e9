//! Caches something that futae knows nothing of: a store of one's own below the engine. This one keeps
//! its bytes in memory; another could ask a database or an object store.
//!
//! `cargo run -p futae-examples --bin write_a_store`

use anyhow::ensure;
use futae_engine::{
    ClientId, Engine, EngineOptions, IoBuf, OnEviction, Operation, Store, StoreDone, StoreOperation,
};
use futae_policy::{Class, Kind, PolicySpec};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A volume in memory that counts what is read from it.
struct MemoryStore {
    bytes: Mutex<Vec<u8>>,
    reads: AtomicU64,
}

impl MemoryStore {
    fn new(size_bytes: usize) -> Self {
        Self {
            bytes: Mutex::new(vec![0; size_bytes]),
            reads: AtomicU64::new(0),
        }
    }

    /// Carries out one operation. The engine asks for no range outside of the volume.
    fn carry_out(&self, operation: StoreOperation) -> IoBuf {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        match operation {
            StoreOperation::Read { offset, mut buffer } => {
                self.reads.fetch_add(1, Ordering::Relaxed);
                let (start, length) = (offset as usize, buffer.len());
                buffer
                    .as_mut_slice()
                    .copy_from_slice(&bytes[start..start + length]);
                buffer
            }
            StoreOperation::Write { offset, buffer, .. } => {
                let start = offset as usize;
                bytes[start..start + buffer.len()].copy_from_slice(buffer.as_slice());
                buffer
            }
            StoreOperation::Trim { offset, length }
            | StoreOperation::WriteZeroes { offset, length, .. } => {
                bytes[offset as usize..(offset + length) as usize].fill(0);
                IoBuf::new(0)
            }
            // Nothing here outlives the process.
            StoreOperation::Flush => IoBuf::new(0),
        }
    }
}

impl Store for MemoryStore {
    fn size_bytes(&self) -> u64 {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        bytes.len() as u64
    }

    fn describe(&self) -> String {
        "memory of this program".to_owned()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    /// Memory answers at once. A store that has to wait hands `done` to a thread of its own, since
    /// `submit` must not block.
    fn submit(&self, _sequence: u64, operation: StoreOperation, done: StoreDone) {
        done(Ok(self.carry_out(operation)));
    }
}

fn main() -> anyhow::Result<()> {
    let store = Arc::new(MemoryStore::new(1 << 20));
    let engine = Engine::new(&EngineOptions {
        block_bytes: 4096,
        capacity_blocks: 16,
        policy: PolicySpec::of(Kind::sieve),
        seed: 1,
        on_eviction: OnEviction::None,
        decision_log: None,
        write_back: None,
    })?;
    let volume = engine.add_volume(
        "memory",
        Arc::clone(&store) as Arc<dyn Store>,
        Class::NORMAL,
    )?;

    let nobody = ClientId::NOBODY;
    let zeroes = engine.read_blocking(volume, nobody, 0, 4096)?;
    ensure!(zeroes.as_slice().iter().all(|&byte| byte == 0));
    let write = Operation::Write {
        offset: 100,
        data: IoBuf::copy_of(b"kept"),
        fua: false,
    };
    engine.wait(volume, nobody, write)?;
    let kept = engine.read_blocking(volume, nobody, 100, 4)?;
    ensure!(kept.as_slice() == b"kept");

    let reads = store.reads.load(Ordering::Relaxed);
    println!("two reads through the cache, {reads} from the store");
    ensure!(reads == 1, "the second read is a hit");
    Ok(())
}
