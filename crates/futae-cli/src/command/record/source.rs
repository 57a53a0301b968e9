//! The running cache that is recorded.

use super::file::Facts;
use super::traffic::{Asked, Traffic, page_caches};
use crate::command::export::control_path;
use anyhow::{Context, anyhow};
use futae_agent_protocol::PageCache;
use futae_control::{EngineReport, RecordingPart, ask};
use futae_host::{ExportReport, FeedReport};
use futae_terminal::failure::Failure;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Instant;

/// What of a status matters here; servers and mounts have it alike.
#[derive(Deserialize)]
struct Status {
    version: String,
    uptime_seconds: f64,
    engines: Vec<EngineReport>,
    /// Of servers only.
    #[serde(default)]
    exports: Vec<ExportReport>,
    /// Of servers only.
    #[serde(default)]
    feeds: Vec<FeedReport>,
    /// Of mounts only: where the blocks are held.
    #[serde(default)]
    residency: String,
}

/// A cache behind a control socket.
pub struct Source {
    path: PathBuf,
    export: Option<String>,
    /// Without a name: the exports of the cache when it was last seen. By them it is found if the server gets other caches.
    seen: RefCell<Vec<String>>,
    /// One of these, if there were other caches.
    chosen: RefCell<Option<String>>,
}

impl Source {
    /// The cache of `export`, or the only one, behind a socket.
    pub fn new(control: &str, export: Option<String>) -> Self {
        Self {
            path: control_path(control),
            export,
            seen: RefCell::default(),
            chosen: RefCell::default(),
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
        let now = Instant::now();
        let status = self.status()?;
        let cache = self.cache(&status)?;
        let traffic =
            Traffic::of(&cache.engine).beside(&cache.exports, &status.exports, &status.feeds);
        Ok(Traffic {
            asked: Asked::of(now, status.uptime_seconds),
            ..traffic
        })
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
        self.parsed(ask(&self.path, &json!({ "command": "status" }))?)
    }

    fn cache<'a>(&self, status: &'a Status) -> Result<&'a EngineReport, Failure> {
        let all = &status.engines;
        let mut seen = self.seen.borrow_mut();
        let is_it = |report: &&EngineReport| match &self.export {
            Some(export) => report.exports.contains(export),
            None if all.len() == 1 || seen.is_empty() => true,
            None => report.exports.iter().any(|name| seen.contains(name)),
        };
        let caches: Vec<_> = all.iter().filter(is_it).collect();
        match (&caches[..], &self.export) {
            ([cache], _) => {
                seen.clone_from(&cache.exports);
                let several = all.len() > 1;
                *self.chosen.borrow_mut() = cache.exports.first().filter(|_| several).cloned();
                Ok(cache)
            }
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
        self.parsed(answer)
    }

    fn parsed<T: DeserializeOwned>(&self, answer: Value) -> Result<T, Failure> {
        let other = || {
            format!(
                "{}: the program that answers here is of another version",
                self.path.display()
            )
        };
        Ok(serde_json::from_value(answer).with_context(other)?)
    }

    fn order(&self, mut order: Value) -> Result<Value, Failure> {
        let named = || self.export.clone().or_else(|| self.chosen.borrow().clone());
        let before = named();
        if let Some(export) = &before {
            order["export"] = json!(export);
        }
        let problem = match ask(&self.path, &order) {
            Ok(answer) => return Ok(answer),
            Err(problem) => problem,
        };
        // The server may have got another cache, or the export by which this one was named may be gone.
        let is_known = self.status().is_ok_and(|now| self.cache(&now).is_ok());
        let now = named();
        if !is_known || now == before {
            return Err(problem.into());
        }
        // The only cache has no name, and the server takes null for none.
        order["export"] = json!(now);
        Ok(ask(&self.path, &order)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_of_another_version_is_said_to_be_that_with_its_socket() {
        let source = Source::new("unix:/run/c.sock", None);
        let parsed = source.parsed::<Status>(json!({})).map(drop);
        let said = parsed.expect_err("it has no version").to_string();
        assert!(
            said.contains("/run/c.sock: ") && said.contains("another version"),
            "{said}"
        );
    }
}
