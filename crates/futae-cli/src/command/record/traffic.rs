//! What came to a cache.

use futae_agent_protocol::PageCache;
use futae_engine::EngineStatus;
use futae_host::{ExportReport, FeedReport};
use futae_sim::WriteMode;
use std::time::{Duration, Instant};

/// What came to a cache, and what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Blocks that were written in part while the cache did not have them. They are not among the requests.
    pub write_around_blocks: u64,
    /// Blocks that TRIM, WRITE_ZEROES and failed requests dropped.
    pub dropped_blocks: u64,
    /// The blocks of a cache that was never full: since its start it has evicted nothing.
    pub filling_blocks: Option<u64>,
    /// Its exports whose evictions above nobody reports, though the policy lives on them.
    pub blind: Vec<String>,
    /// How the kernels of its guests cache pages, by the guests' names, where agents say so.
    pub guests: Vec<(String, PageCache)>,
    /// When this was asked of a program, if it was.
    pub asked: Option<Asked>,
}

/// When a program was asked, and when it had started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    now: Instant,
    started: Instant,
}

impl Asked {
    /// A program that was asked `now`, and answered that it had run for so long.
    pub fn of(now: Instant, uptime_seconds: f64) -> Option<Self> {
        let uptime = Duration::try_from_secs_f64(uptime_seconds).ok()?;
        let started = now.checked_sub(uptime)?;
        Some(Self { now, started })
    }

    /// Whether the program was started after it, or another one in its place, had been asked `before`.
    pub fn is_anew(&self, before: &Self) -> bool {
        self.started > before.now
    }
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
            write_around_blocks: cache.write_around_blocks,
            // Those of which another export has an equal one are still cached.
            dropped_blocks: cache
                .counters
                .invalidations
                .saturating_sub(cache.demotions.equal_dropped),
            filling_blocks: (cache.counters.evictions == 0
                && cache.resident_blocks < cache.capacity_blocks)
                .then_some(cache.resident_blocks),
            ..Self::default()
        }
    }

    /// The same with what the server says of its exports `names` and of their guests.
    pub fn beside(self, names: &[String], exports: &[ExportReport], feeds: &[FeedReport]) -> Self {
        let is_blind = |export: &&ExportReport| export.is_blind && names.contains(&export.name);
        let has_any = |feed: &&FeedReport| {
            let mut volumes = feed.agent.volumes.iter();
            volumes.any(|volume| names.contains(&volume.name))
        };
        let blind = exports.iter().filter(is_blind);
        Self {
            blind: blind.map(|export| export.name.clone()).collect(),
            guests: page_caches(feeds.iter().filter(has_any)),
            ..self
        }
    }

    /// What came since `before`, or since the start of a cache that was started anew meanwhile.
    pub fn since(&self, before: &Self) -> Self {
        if self.is_anew(before) {
            return self.clone();
        }
        let since = |of: fn(&Self) -> u64| of(self) - of(before);
        Self {
            requests: since(|it| it.requests),
            hits: since(|it| it.hits),
            bytes_read: since(|it| it.bytes_read),
            bytes_written: since(|it| it.bytes_written),
            write_around_blocks: since(|it| it.write_around_blocks),
            dropped_blocks: since(|it| it.dropped_blocks),
            ..self.clone()
        }
    }

    /// Whether the counts began at 0 after `before`: the program was started again, or the cache was made anew.
    fn is_anew(&self, before: &Self) -> bool {
        let counts: [fn(&Self) -> u64; 6] = [
            |it| it.requests,
            |it| it.hits,
            |it| it.bytes_read,
            |it| it.bytes_written,
            |it| it.write_around_blocks,
            |it| it.dropped_blocks,
        ];
        let asked = self.asked.zip(before.asked);
        asked.is_some_and(|(now, then)| now.is_anew(&then))
            || counts.iter().any(|of| of(self) < of(before))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_started_again_has_counted_from_0() {
        let counted = |requests, hits, asked| Traffic {
            requests,
            hits,
            asked,
            ..Traffic::default()
        };
        let begun = Instant::now();
        let after = |seconds, uptime| Asked::of(begun + Duration::from_secs(seconds), uptime);
        let before = counted(1000, 990, after(10_000, 10.0));
        let goes_on = counted(5000, 1000, after(10_060, 70.0)).since(&before);
        assert_eq!((goes_on.requests, goes_on.hits), (4000, 10));
        // It has run for longer than it had before, and has counted more.
        let again = counted(5000, 1000, after(10_060, 50.0)).since(&before);
        assert_eq!((again.requests, again.hits), (5000, 1000));
        // A cache that was made anew by the same program.
        let anew = counted(1500, 20, after(10_060, 70.0)).since(&before);
        assert_eq!((anew.requests, anew.hits), (1500, 20));
    }
}
