//! The live block cache.
//!
//! An [`Engine`] is one cache over any number of volumes: a [`futae_policy::Level`] decides what
//! is resident, an arena holds one frame a slot, and each volume has a [`Store`] from which
//! misses are read and to which writes go through. The upper cache in a guest and the lower cache
//! on a host are both this engine; who asks (NBD, FUSE, a test) it does not know.

mod arena;
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
mod warm_state;

pub use buffer::{IoBuf, PAGE_BYTES, POISON};
pub use engine::{
    Batch, ClassStatus, Engine, EngineOptions, EngineStatus, ExtentsDone, HandedDownStatus, Keeper,
    KeeperStatus, MemoryStatus, MemoryTrust, News, OnEviction, OnRefusal, ReadRange, Recorded,
    RecordedPart, SampledPart, Verification, VolumeStatus, WeightStatus, World, WriteBackOptions,
};
pub use error::{IoError, IoErrorKind, SetupError};
pub use file::{FileIo, FileStore};
pub use latency::{Asked, LATENCY_STEPS_MICROS, Latencies, LatencyNotes, LatencyStatus};
pub use mailbox::Mailbox;
pub use mark::{MarkFile, UncleanMark};
pub use memory_file::MemoryFile;
pub use request::{Change, ClientId, Done, HandedDown, Operation, Request};
pub use store::{Extent, Store, StoreDone, StoreOperation, StoreResult, StoreStamp};
pub use warm_state::{Identity, WarmState, WarmStateError};
