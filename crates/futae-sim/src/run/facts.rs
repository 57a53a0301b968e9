//! Facts about traces that were read.

use super::order::Ordered;
use futae_trace::Doubt;
use serde::{Serialize, Serializer};
use std::path::PathBuf;

/// Facts about the traces.
#[derive(Clone, Debug, Serialize)]
pub struct TraceFacts {
    /// The files, one for each guest.
    pub files: Vec<String>,
    /// Their formats.
    pub formats: Vec<&'static str>,
    /// The order of several guests' requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<Ordered>,
    /// The view: `start` (a request is one block, whatever its length) or `blocks`.
    pub view: &'static str,
    /// Requests in the files.
    pub trace_requests: u64,
    /// Accesses to blocks in these requests.
    pub accesses: u64,
    /// Distinct blocks.
    pub distinct_blocks: u64,
    /// Bad records left out.
    pub records_skipped: u64,
    /// Doubts about the interpretation of the traces.
    #[serde(serialize_with = "as_texts", skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<Doubt>,
    /// Wall-clock time of reading.
    pub read_seconds: f64,
}

impl TraceFacts {
    /// Whether some trace has differing sizes that are not used, so that results by bytes are
    /// unavailable.
    #[must_use]
    pub fn sizes_ignored(&self) -> bool {
        self.doubts.contains(&Doubt::SizesIgnored) || self.doubts.contains(&Doubt::SizesNotKept)
    }

    /// Facts about files that have not been read yet.
    pub(crate) fn of(paths: &[PathBuf]) -> Self {
        let files = paths.iter().map(|path| path.display().to_string());
        Self {
            files: files.collect(),
            formats: Vec::new(),
            order: None,
            view: "start",
            trace_requests: 0,
            accesses: 0,
            distinct_blocks: 0,
            records_skipped: 0,
            doubts: Vec::new(),
            read_seconds: 0.0,
        }
    }
}

fn as_texts<S: Serializer>(doubts: &[Doubt], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(doubts.iter().map(Doubt::to_string))
}
