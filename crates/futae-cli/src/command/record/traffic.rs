//! What came to a cache.

use futae_agent_protocol::PageCache;
use futae_engine::EngineStatus;
use futae_host::FeedReport;
use futae_sim::WriteMode;

/// What came to a cache, and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    pub policy: String,
    pub block_bytes: u64,
    pub capacity_bytes: u64,
    pub write_mode: WriteMode,
    /// Demand accesses, in blocks.
    pub requests: u64,
    /// Those that hit.
    pub hits: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// How the kernels of its guests cache pages, by the guests' names, where agents say so.
    pub guests: Vec<(String, PageCache)>,
}

impl Traffic {
    /// What a cache has counted.
    pub fn of(cache: &EngineStatus) -> Self {
        Self {
            policy: cache.policy.clone(),
            block_bytes: cache.block_bytes,
            capacity_bytes: cache.capacity_blocks * cache.block_bytes,
            // No block may be dirty under write-through.
            write_mode: match cache.dirty_max_blocks {
                0 => WriteMode::WriteThrough,
                _ => WriteMode::WriteBack,
            },
            requests: cache.counters.requests,
            hits: cache.counters.hits,
            bytes_read: cache.bytes_read,
            bytes_written: cache.bytes_written,
            guests: Vec::new(),
        }
    }

    /// The same with the guests of these exports.
    pub fn with_guests(self, exports: &[String], feeds: &[FeedReport]) -> Self {
        let has_any = |feed: &&FeedReport| {
            let mut volumes = feed.agent.volumes.iter();
            volumes.any(|volume| exports.contains(&volume.name))
        };
        let feeds = feeds.iter().filter(has_any);
        Self {
            guests: page_caches(feeds),
            ..self
        }
    }

    /// What came since `before`, or since the start of a cache that was started anew meanwhile.
    pub fn since(&self, before: &Self) -> Self {
        if self.requests < before.requests {
            return self.clone();
        }
        Self {
            policy: self.policy.clone(),
            block_bytes: self.block_bytes,
            capacity_bytes: self.capacity_bytes,
            write_mode: self.write_mode,
            requests: self.requests - before.requests,
            hits: self.hits.saturating_sub(before.hits),
            bytes_read: self.bytes_read.saturating_sub(before.bytes_read),
            bytes_written: self.bytes_written.saturating_sub(before.bytes_written),
            guests: self.guests.clone(),
        }
    }

    /// Bytes written per byte asked for.
    pub fn write_share(&self) -> f64 {
        let all = self.bytes_read + self.bytes_written;
        if all == 0 {
            return 0.0;
        }
        self.bytes_written as f64 / all as f64
    }
}

/// How the kernels of guests cache pages, by the guests' names: of those whose agents are connected and have said so.
pub fn page_caches<'a>(feeds: impl Iterator<Item = &'a FeedReport>) -> Vec<(String, PageCache)> {
    let agents = feeds.map(|feed| &feed.agent);
    let said = agents
        .filter(|agent| agent.connected)
        .filter_map(|agent| Some((agent.guest.clone(), agent.page_cache?)));
    said.collect()
}
