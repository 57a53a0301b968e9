//! One record of a trace.

use futae_policy::{AccessKind, VolumeId};
use serde::{Deserialize, Serialize};

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestKind {
    /// The data is read.
    Read,
    /// The data is written.
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

/// One request of an application, in bytes: a record of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Request {
    /// The guest that sends it; 0 if the trace has a single one.
    pub guest: u16,
    /// The volume, numbered in the order in which a trace first names them.
    pub volume: VolumeId,
    /// Where on the volume the data begins.
    pub offset_bytes: u64,
    /// The length of the data; 0 if the trace has no lengths, which counts as one access to one
    /// block.
    pub length_bytes: u64,
    /// Read or write.
    pub kind: RequestKind,
    /// The time in microseconds, from an origin that the trace defines; `None` without times. Not
    /// every trace is sorted by time.
    pub time_us: Option<u64>,
}
