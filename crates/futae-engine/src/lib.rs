//! The live block cache.
//!
//! An [`Engine`] is one cache over any number of volumes: a [`futae_policy::Level`] decides which
//! blocks are resident, an arena holds one frame per slot, and each volume has a [`Store`], which
//! serves misses and receives writes. The upper cache in a guest and the lower cache on a host both
//! use this engine. It does not know its front end (NBD, FUSE, a test).

mod arena;
mod bell;
mod buffer;
mod engine;
mod error;
mod file;
mod latency;
mod mailbox;
mod mark;
mod memory_file;
mod request;
mod store;
mod sync;
mod warm_state;
mod watcher;

pub use buffer::{IoBuf, PAGE_BYTES, POISON};
pub use engine::{
    Batch, ClassStatus, DemotionStatus, Engine, EngineOptions, EngineStatus, ExtentsDone,
    JoinedClient, Keeper, KeeperStatus, MemoryStatus, MemoryTrust, News, OnEviction, OnRefusal,
    ReadRange, Recorded, RecordedPart, SampledPart, Verification, VolumeStatus, WeightStatus,
    World, WriteBackOptions,
};
pub use error::{IoError, IoErrorKind, SetupError};
pub use file::{FileIo, FileStore, LockHolder, lock_holder};
pub use latency::{Asked, LATENCY_STEPS_MICROS, Latencies, LatencyNotes, LatencyStatus};
pub use mailbox::Mailbox;
pub use mark::{MarkFile, UncleanMark};
pub use memory_file::MemoryFile;
pub use request::{Change, ClientId, Demotion, Done, Operation, Request, STATE_BYTES};
pub use store::{Extent, Store, StoreDone, StoreOperation, StoreResult, StoreStamp};
pub use warm_state::{
    Identity, LeftOut, Loaded, NamedVolume, SavedState, WarmState, WarmStateError,
};
pub use watcher::{Ended, Watcher};
