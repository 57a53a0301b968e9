//! Channel disks: small exports to which agents write the pages, with their data, that the page
//! caches of their guests have evicted.
//!
//! A channel belongs to one feed, and its data can affect only the volumes of that feed's exports. It is named after the
//! first of them, and a client that may open that one may write to it. It stores nothing. Each write is one batch
//! ([`EvictedPages`]); the answer to it is the agent's flow control. The data enters the cache only if the cache can
//! verify it ([`futae_engine::Operation::Demote`]).

use crate::demoter::Demoter;
use crate::rate::RateLimits;
use crate::{Export, HostError};
use futae_agent_protocol::evicted_pages::{CHANNEL_BYTES, EvictedPages, HEAD_BYTES, MAGIC};
use futae_engine::{
    Engine, EngineOptions, IoBuf, OnEviction, PAGE_BYTES, Store, StoreDone, StoreOperation,
};
use futae_policy::{Class, Kind, PolicySpec};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Suffix of a channel's name after the name of its feed's first export.
const SUFFIX: &str = ".evictions";
/// Size of the cache in front of a channel, which holds the last head.
const CACHE_BLOCKS: u32 = 1;

/// Counters of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelReport {
    /// Batches.
    pub batches: u64,
    /// Writes that were not valid batches.
    pub malformed_batches: u64,
    /// Pages passed to the cache, with their data.
    pub pages: u64,
    /// Dropped pages: of other disks of the guest, beyond the end of their volume, or sent before the agent said which
    /// disk is which, as after a restart of the server.
    pub foreign_pages: u64,
}

/// A channel.
pub(crate) struct Channel {
    /// Demotes pages into the exports of the feed.
    demoter: Arc<Demoter>,
    batches: AtomicU64,
    malformed_batches: AtomicU64,
    pages: AtomicU64,
    foreign_pages: AtomicU64,
}

impl Channel {
    /// The channel of the feed whose pages `demoter` takes.
    pub(crate) fn new(demoter: &Arc<Demoter>) -> Arc<Self> {
        Arc::new(Self {
            demoter: Arc::clone(demoter),
            batches: AtomicU64::new(0),
            malformed_batches: AtomicU64::new(0),
            pages: AtomicU64::new(0),
            foreign_pages: AtomicU64::new(0),
        })
    }

    /// The export through which agents write to it: a part of the feed's first export, and limited as that one is.
    pub(crate) fn export(self: &Arc<Self>) -> Result<Export, HostError> {
        let first = self.demoter.first();
        let engine = Engine::new(&EngineOptions {
            block_bytes: PAGE_BYTES as u64,
            capacity_blocks: CACHE_BLOCKS,
            policy: PolicySpec::of(Kind::fifo),
            seed: 0,
            on_eviction: OnEviction::None,
            decision_log: None,
            write_back: None,
        })?;
        let name = format!("{}{SUFFIX}", first.name);
        let store = Arc::new(Taker(Arc::clone(self)));
        Ok(Export {
            volume: engine.add_volume(&name, store, Class::NORMAL)?,
            name,
            description: String::new(),
            engine,
            read_only: false,
            connections_max: first.connections_max,
            requests_max: first.requests_max,
            rates: RateLimits::default(),
        })
    }

    /// Its counters.
    pub(crate) fn report(&self) -> ChannelReport {
        ChannelReport {
            batches: self.batches.load(Relaxed),
            malformed_batches: self.malformed_batches.load(Relaxed),
            pages: self.pages.load(Relaxed),
            foreign_pages: self.foreign_pages.load(Relaxed),
        }
    }

    /// Passes the pages of a batch to the cache.
    fn take(&self, bytes: &[u8]) {
        let Ok(batch) = EvictedPages::decode(bytes) else {
            self.malformed_batches.fetch_add(1, Relaxed);
            return;
        };
        let data = bytes[HEAD_BYTES..].chunks_exact(PAGE_BYTES);
        let pages = batch.pages.iter().zip(data).filter_map(|(page, data)| {
            let place = self.demoter.place(*page)?;
            Some((place, IoBuf::copy_of(data)))
        });
        let taken = self.demoter.demote(pages);
        self.batches.fetch_add(1, Relaxed);
        self.pages.fetch_add(taken as u64, Relaxed);
        let foreign = batch.pages.len() - taken;
        self.foreign_pages.fetch_add(foreign as u64, Relaxed);
    }
}

/// A store that keeps nothing.
struct Taker(Arc<Channel>);

impl Store for Taker {
    fn size_bytes(&self) -> u64 {
        CHANNEL_BYTES
    }

    fn describe(&self) -> String {
        format!("the channel for evictions of {}", self.0.demoter.names())
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn submit(&self, _sequence: u64, operation: StoreOperation, done: StoreDone) {
        done(Ok(match operation {
            StoreOperation::Read { offset, mut buffer } => {
                let bytes = buffer.as_mut_slice();
                bytes.fill(0);
                if offset == 0 {
                    let length = bytes.len().min(MAGIC.len());
                    bytes[..length].copy_from_slice(&MAGIC[..length]);
                }
                buffer
            }
            StoreOperation::Write { offset, buffer, .. } => {
                if offset == 0 {
                    self.0.take(buffer.as_slice());
                } else {
                    self.0.malformed_batches.fetch_add(1, Relaxed);
                }
                buffer
            }
            StoreOperation::Flush
            | StoreOperation::Trim { .. }
            | StoreOperation::WriteZeroes { .. } => IoBuf::new(0),
        }));
    }
}
