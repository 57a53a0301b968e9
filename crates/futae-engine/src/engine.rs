//! The engine's public face.
use crate::{ClientId, Request, SetupError, Store, IoError, Extent, IoBuf};
use futae_policy::{Class, Counters, PolicySpec, VolumeId};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;

/// What happens to a block that is evicted, when the store below is itself a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandDown {
    /// Nothing: the cache below is inclusive, or there is none.
    #[default]
    Nothing,
    /// The block is handed down with its data.
    Data,
    /// The cache below is told, without the data.
    Notice,
}

/// How a cache is set up.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Bytes of a block: a power of two from 4 KiB to 256 MiB.
    pub block_bytes: u64,
    /// Slots.
    pub capacity_blocks: u32,
    /// Who chooses victims.
    pub policy: PolicySpec,
    /// Seed for policies that draw lots.
    pub seed: u64,
    /// What happens to evicted blocks.
    pub hand_down: HandDown,
    /// Where to write every decision, if anywhere.
    pub decision_log: Option<PathBuf>,
}

/// What a cache has done so far, by the names that every output uses.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EngineStatus {
    /// The policy string.
    pub policy: String,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Slots.
    pub capacity_blocks: u64,
    /// Blocks resident now.
    pub resident_blocks: u64,
    /// Blocks that the store does not have yet.
    pub dirty_blocks: u64,
    /// Events at the level.
    #[serde(flatten)]
    pub counters: Counters,
    /// Read operations sent to stores.
    pub store_reads: u64,
    /// Blocks read from stores.
    pub store_read_blocks: u64,
    /// Write operations sent to stores.
    pub store_writes: u64,
    /// Blocks read from stores because of a notice.
    pub notice_reads: u64,
    /// Bytes answered to readers.
    pub bytes_read: u64,
    /// Bytes accepted from writers.
    pub bytes_written: u64,
    /// Bytes read from stores.
    pub bytes_store_read: u64,
    /// Bytes written to stores.
    pub bytes_store_written: u64,
    /// Bytes of demoted data received.
    pub bytes_demoted_in: u64,
    /// Bytes of demoted data handed down.
    pub bytes_demoted_out: u64,
    /// Misses that waited for a read already under way instead of starting their own.
    pub shared_reads: u64,
    /// Demotions that were not believed (older than a write, or from a shared volume).
    pub demotions_refused: u64,
    /// Requests that failed.
    pub errors: u64,
    /// The volumes.
    pub volumes: Vec<VolumeStatus>,
}

/// One volume of a cache.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Its name.
    pub name: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// What the store is and how it is read.
    pub store: String,
    /// Demand accesses, in blocks.
    pub requests: u64,
    /// Those that hit.
    pub hits: u64,
    /// Those that missed.
    pub misses: u64,
    /// Demotions received.
    pub demotions_in: u64,
    /// Notices received.
    pub notices_in: u64,
    /// Requests that failed.
    pub errors: u64,
}

/// One cache over any number of volumes.
pub struct Engine {}

impl Engine {
    /// An empty cache.
    pub fn new(_options: &EngineOptions) -> Result<Arc<Self>, SetupError> { todo!() }
    /// Adds a volume. `class` marks its blocks (e.g. [`Class::REMOTE`]).
    pub fn add_volume(&self, _name: &str, _store: Arc<dyn Store>, _class: Class) -> Result<VolumeId, SetupError> { todo!() }
    /// Bytes of a block.
    pub fn block_bytes(&self) -> u64 { todo!() }
    /// Size of a volume in bytes.
    pub fn volume_bytes(&self, _volume: VolumeId) -> u64 { todo!() }
    /// Whether writes to a volume are refused.
    pub fn is_read_only(&self, _volume: VolumeId) -> bool { todo!() }
    /// A new client's identity; `leave` when it goes.
    pub fn join(&self, _volume: VolumeId) -> ClientId { todo!() }
    /// The client is gone.
    pub fn leave(&self, _volume: VolumeId, _client: ClientId) { todo!() }
    /// Starts a request.
    pub fn submit(self: &Arc<Self>, _request: Request) { todo!() }
    /// Starts several requests, decided in their order, taking the lock once.
    pub fn submit_batch(self: &Arc<Self>, _requests: &mut Vec<Request>) { todo!() }
    /// The extents of a range of the store (allocation).
    pub fn extents(&self, _volume: VolumeId, _offset: u64, _length: u64) -> Result<Vec<Extent>, IoError> { todo!() }
    /// Changes the number of slots; memory of surplus frames goes back to the kernel.
    pub fn resize(&self, _capacity_blocks: u32) -> Result<(), SetupError> { todo!() }
    /// What happened so far.
    pub fn status(&self) -> EngineStatus { todo!() }
    /// Reads and waits. For tests and tools.
    pub fn read_blocking(self: &Arc<Self>, _volume: VolumeId, _client: ClientId, _offset: u64, _length: u64) -> Result<IoBuf, IoError> { todo!() }
    /// Submits any operation and waits for its result. For tests and tools.
    pub fn wait(self: &Arc<Self>, _volume: VolumeId, _client: ClientId, _operation: crate::Operation) -> Result<IoBuf, IoError> { todo!() }
    /// Writes the decision log out to its file.
    pub fn sync_log(&self) { todo!() }
}
