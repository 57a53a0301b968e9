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

/// Bytes from the start of one object with a size of its own to the next, so that no two overlap however they are cut into blocks.
pub(crate) const OBJECT_BYTES: u64 = 1 << 32;

impl Request {
    /// The number of its object, in a trace whose objects [have sizes](crate::TraceReader::has_sizes).
    #[must_use]
    pub fn object(&self) -> u64 {
        self.offset_bytes / OBJECT_BYTES
    }
}

/// What only some traces say of a request; `None` where the trace does not have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// The object's time to live in seconds, 0 if the request gives none.
    pub life_seconds: Option<u32>,
    /// How long the request took when it was recorded, in microseconds, 0 if that is not known.
    pub latency_us: Option<u32>,
}
