//! One record of a trace.

use futae_policy::{AccessKind, VolumeId};
use serde::{Deserialize, Serialize};

/// What a request does with the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestKind {
    /// The data is wanted.
    Read,
    /// The data is replaced.
    Write,
}

impl From<RequestKind> for AccessKind {
    fn from(kind: RequestKind) -> Self {
        match kind {
            RequestKind::Read => Self::Read,
            RequestKind::Write => Self::Write,
        }
    }
}

/// One request of an application, in bytes: what a trace records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Request {
    /// Which guest asks; 0 where the trace knows only one.
    pub guest: u16,
    /// The volume, numbered in the order in which a trace first names them.
    pub volume: VolumeId,
    /// Where on the volume the data begins.
    pub offset_bytes: u64,
    /// How much data; 0 where the trace records none, which counts as one access to one block.
    pub length_bytes: u64,
    /// Read or write.
    pub kind: RequestKind,
    /// When, in microseconds from whatever zero the trace has; none where it has no times. Not
    /// every trace is sorted by time.
    pub time_us: Option<u64>,
}
