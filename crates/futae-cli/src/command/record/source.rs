//! The running cache that is recorded.

use super::Facts;
use crate::failure::Failure;
use futae_control::{EngineReport, RecordingPart, ask};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::PathBuf;

/// What of a status matters here; servers and mounts have it alike.
#[derive(Deserialize)]
struct Status {
    version: String,
    engines: Vec<EngineReport>,
}

/// A cache behind a control socket.
pub struct Source {
    path: PathBuf,
    export: Option<String>,
}

impl Source {
    /// The cache of `export`, or the only one, behind a socket.
    pub fn new(control: &str, export: Option<String>) -> Self {
        let path = control.strip_prefix("unix:").unwrap_or(control);
        Self {
            path: path.into(),
            export,
        }
    }

    /// What the cache is, and what it has counted so far.
    pub fn facts(&self, sample: f64) -> Result<Facts, Failure> {
        let status: Status =
            serde_json::from_value(ask(&self.path, &json!({ "command": "status" }))?)?;
        let is_it = |report: &&EngineReport| match &self.export {
            Some(export) => report.exports.contains(export),
            None => true,
        };
        let caches: Vec<_> = status.engines.iter().filter(is_it).collect();
        let cache = match (&caches[..], &self.export) {
            ([cache], _) => &cache.engine,
            ([], Some(export)) => {
                let known: Vec<_> = status
                    .engines
                    .iter()
                    .flat_map(|one| one.exports.clone())
                    .collect();
                let message = format!(
                    "no export is named {export:?}; there are {}",
                    known.join(", ")
                );
                return Err(Failure::usage(message));
            }
            (caches, _) => {
                let message = format!("there are {} caches; choose one by --export", caches.len());
                return Err(Failure::usage(message));
            }
        };
        Ok(Facts::of(&status.version, cache, sample))
    }

    pub fn begin(&self, sample: f64) -> Result<(), Failure> {
        self.order("record", Some(sample)).map(drop)
    }

    pub fn take(&self) -> Result<RecordingPart, Failure> {
        Ok(serde_json::from_value(self.order("recorded", None)?)?)
    }

    pub fn end(&self) -> Result<(), Failure> {
        self.order("end-record", None).map(drop)
    }

    fn order(&self, command: &str, sample: Option<f64>) -> Result<Value, Failure> {
        let mut order = json!({ "command": command });
        if let Some(export) = &self.export {
            order["export"] = json!(export);
        }
        if let Some(sample) = sample {
            order["sample"] = json!(sample);
        }
        Ok(ask(&self.path, &order)?)
    }
}
