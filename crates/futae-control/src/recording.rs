//! Recording what is asked of a running cache: the orders `record`, `recorded` and `end-record`. Each takes the name
//! of an export where there are several caches.

use crate::Orders;
use futae_engine::{Engine, Recorded, RecordedPart};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// The arguments of `record`: begin to record.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    export: Option<String>,
    /// The part of all blocks whose requests are recorded, above 0 and at most 1.
    sample: f64,
}

/// The arguments of `recorded` and `end-record`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfRecording {
    export: Option<String>,
    /// The number that `record` answered.
    recording: u64,
}

/// The answer to `recorded`: what was recorded since the last time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingPart {
    /// Names of the volumes in `requests`, by their numbers.
    pub volumes: BTreeMap<u16, String>,
    /// Requests in the order in which the cache decided on them: microseconds since the recording began, number of the
    /// volume, first byte, bytes, and 1 for a write.
    pub requests: Vec<(u64, u16, u64, u64, u8)>,
    /// Requests that came while there was no room.
    pub lost: u64,
}

impl Orders {
    /// Adds `record`, `recorded` and `end-record`. `cache_of` has the cache of an export, or the only one there is.
    #[must_use]
    pub fn with_recording(
        self,
        cache_of: impl Fn(Option<&str>) -> Result<Arc<Engine>, String> + Clone + Send + Sync + 'static,
    ) -> Self {
        let (begun, ended) = (cache_of.clone(), cache_of.clone());
        // A recorder that was held up while the server was started again has a number of the earlier server, and takes nothing from a
        // recording that has begun since.
        let first = RandomState::new().hash_one(()) >> 16;
        let of_engine = move |recording: u64| recording.checked_sub(first).ok_or(ENDED);
        self.with("record", move |Record { export, sample }| {
            if !(sample > 0.0 && sample <= 1.0) {
                return Err(format!("a sample is above 0 and at most 1, not {sample}"));
            }
            let number = begun(export.as_deref())?.begin_recording(sample);
            Ok(json!({ "recording": first + number }))
        })
        .with("recorded", move |OfRecording { export, recording }| {
            let engine = cache_of(export.as_deref())?;
            let part = engine.take_recorded(of_engine(recording)?).ok_or(ENDED)?;
            answer(part)
        })
        .with("end-record", move |OfRecording { export, recording }| {
            let engine = ended(export.as_deref())?;
            let rest = engine.end_recording(of_engine(recording)?).ok_or(ENDED)?;
            answer(rest)
        })
    }
}

const ENDED: &str = "it is recorded no more: another futae record has begun since, the server was started again, or the cache is gone";

fn answer(part: RecordedPart) -> Result<Value, String> {
    let line = |recorded: &Recorded| {
        let Recorded {
            micros,
            volume,
            offset,
            length,
            is_write,
        } = *recorded;
        (micros, volume.0, offset, length, u8::from(is_write))
    };
    let part = RecordingPart {
        requests: part.requests.iter().map(line).collect(),
        lost: part.lost,
        volumes: part
            .names
            .into_iter()
            .map(|(id, name)| (id.0, name))
            .collect(),
    };
    serde_json::to_value(part).map_err(|error| error.to_string())
}
