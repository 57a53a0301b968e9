//! The running cache that is recorded.

use super::Facts;
use crate::command::export::control_path;
use crate::failure::Failure;
use anyhow::anyhow;
use futae_agent_protocol::PageCache;
use futae_control::{EngineReport, RecordingPart, ask};
use futae_engine::EngineStatus;
use futae_host::FeedReport;
use futae_sim::WriteMode;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::PathBuf;

/// What of a status matters here; servers and mounts have it alike.
#[derive(Deserialize)]
struct Status {
    version: String,
    engines: Vec<EngineReport>,
    /// Of servers only.
    #[serde(default)]
    feeds: Vec<FeedReport>,
    /// Of mounts only: where the blocks are held.
    #[serde(default)]
    residency: String,
}

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

fn page_caches<'a>(feeds: impl Iterator<Item = &'a FeedReport>) -> Vec<(String, PageCache)> {
    let agents = feeds.map(|feed| &feed.agent);
    let said = agents
        .filter(|agent| agent.connected)
        .filter_map(|agent| Some((agent.guest.clone(), agent.page_cache?)));
    said.collect()
}

/// A cache behind a control socket.
pub struct Source {
    path: PathBuf,
    export: Option<String>,
}

impl Source {
    /// The cache of `export`, or the only one, behind a socket.
    pub fn new(control: &str, export: Option<String>) -> Self {
        Self {
            path: control_path(control),
            export,
        }
    }

    /// What the cache is, and what it has counted so far.
    pub fn facts(&self, sample: f64) -> Result<Facts, Failure> {
        let status = self.status()?;
        Ok(Facts::of(
            &status.version,
            &self.cache(&status)?.engine,
            sample,
        ))
    }

    /// What came to the cache since it was started.
    pub fn traffic(&self) -> Result<Traffic, Failure> {
        let status = self.status()?;
        let cache = self.cache(&status)?;
        Ok(Traffic::of(&cache.engine).with_guests(&cache.exports, &status.feeds))
    }

    /// Whether the kernel answers from its page cache what hits, without the cache seeing it.
    pub fn sees_misses_only(&self) -> Result<bool, Failure> {
        Ok(self.status()?.residency == "kernel")
    }

    /// How the kernels of the guests cache pages, by the guests' names: of those whose agents have said so.
    pub fn guests(&self) -> Result<Vec<(String, PageCache)>, Failure> {
        Ok(page_caches(self.status()?.feeds.iter()))
    }

    fn status(&self) -> Result<Status, Failure> {
        Ok(serde_json::from_value(ask(
            &self.path,
            &json!({ "command": "status" }),
        )?)?)
    }

    fn cache<'a>(&self, status: &'a Status) -> Result<&'a EngineReport, Failure> {
        let is_it = |report: &&EngineReport| match &self.export {
            Some(export) => report.exports.contains(export),
            None => true,
        };
        let caches: Vec<_> = status.engines.iter().filter(is_it).collect();
        match (&caches[..], &self.export) {
            ([cache], _) => Ok(cache),
            ([], Some(export)) => {
                let known: Vec<_> = status
                    .engines
                    .iter()
                    .flat_map(|one| one.exports.clone())
                    .collect();
                let known = known.join(", ");
                Err(Failure::usage(format!(
                    "no export is named {export:?}; there are {known}"
                )))
            }
            (caches, _) => {
                let count = caches.len();
                Err(Failure::usage(format!(
                    "there are {count} caches; choose one by --export"
                )))
            }
        }
    }

    /// Begins to record; returns the number of the recording.
    pub fn begin(&self, sample: f64) -> Result<u64, Failure> {
        let answer = self.order(json!({ "command": "record", "sample": sample }))?;
        answer["recording"].as_u64().ok_or_else(|| {
            anyhow!("{}: the server is of another version", self.path.display()).into()
        })
    }

    pub fn take(&self, recording: u64) -> Result<RecordingPart, Failure> {
        self.part("recorded", recording)
    }

    /// Ends the recording, and takes what is left of it.
    pub fn end(&self, recording: u64) -> Result<RecordingPart, Failure> {
        self.part("end-record", recording)
    }

    fn part(&self, command: &str, recording: u64) -> Result<RecordingPart, Failure> {
        let answer = self.order(json!({ "command": command, "recording": recording }))?;
        Ok(serde_json::from_value(answer)?)
    }

    fn order(&self, mut order: Value) -> Result<Value, Failure> {
        if let Some(export) = &self.export {
            order["export"] = json!(export);
        }
        Ok(ask(&self.path, &order)?)
    }
}
