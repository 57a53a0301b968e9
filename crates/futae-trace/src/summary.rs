//! Statistics of a trace.

use crate::numbering::Numbering;
use crate::{Request, RequestKind, TraceErrorKind, View};
use futae_policy::VolumeId;
use serde::{Serialize, Serializer};

/// Statistics of a trace. Serialized, its times are in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Reads and writes.
    pub requests: u64,
    /// Requests that read.
    pub reads: u64,
    /// Requests that write.
    pub writes: u64,
    /// How much data is read.
    pub bytes_read: u64,
    /// How much data is written.
    pub bytes_written: u64,
    /// The longest request.
    pub request_bytes_max: u64,
    /// Distinct pairs of a volume and the sector (512 bytes) where a request starts.
    pub distinct_starts: u64,
    /// Bytes of a block in the figures that follow.
    pub block_bytes: u64,
    /// Accesses, if each request is one access to each of its blocks.
    pub block_accesses: u64,
    /// Distinct blocks.
    pub distinct_blocks: u64,
    /// The data of all distinct blocks.
    pub footprint_bytes: u64,
    /// Volumes that requests name.
    pub volumes: u64,
    /// The earliest time in microseconds; none if the trace has no times.
    #[serde(rename = "time_first", serialize_with = "in_seconds")]
    pub time_first_us: Option<u64>,
    /// The latest time in microseconds.
    #[serde(rename = "time_last", serialize_with = "in_seconds")]
    pub time_last_us: Option<u64>,
    /// Whether no request is earlier than the one before it.
    pub monotonic: Option<bool>,
}

fn in_seconds<S: Serializer>(time_us: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    time_us.map(|us| us as f64 / 1e6).serialize(serializer)
}

impl Summary {
    /// The time from the earliest request to the latest.
    #[must_use]
    pub fn seconds(&self) -> Option<f64> {
        let (first, last) = self.time_first_us.zip(self.time_last_us)?;
        Some((last - first) as f64 / 1e6)
    }
}

/// Counts what is in a trace, in memory that depends only on its distinct blocks.
pub struct Summarizer {
    summary: Summary,
    starts: Numbering,
    blocks: Numbering,
    volumes: Vec<bool>,
    time_us: Option<u64>,
}

impl Summarizer {
    /// With blocks of `block_bytes`, which must not be 0.
    #[must_use]
    pub fn new(block_bytes: u64) -> Self {
        Self {
            summary: Summary {
                block_bytes,
                ..Summary::default()
            },
            starts: Numbering::default(),
            blocks: Numbering::default(),
            volumes: Vec::new(),
            time_us: None,
        }
    }

    /// Counts a request.
    pub fn add(&mut self, request: &Request) -> Result<(), TraceErrorKind> {
        let summary = &mut self.summary;
        let length = request.length_bytes;
        summary.requests += 1;
        match request.kind {
            RequestKind::Read => {
                summary.reads += 1;
                summary.bytes_read = summary.bytes_read.saturating_add(length);
            }
            RequestKind::Write => {
                summary.writes += 1;
                summary.bytes_written = summary.bytes_written.saturating_add(length);
            }
        }
        summary.request_bytes_max = summary.request_bytes_max.max(length);
        self.see_time(request.time_us);
        self.see_volume(request.volume);
        let volume = request.volume;
        for block in View::Start.blocks(request) {
            let number = self.starts.number(volume, block);
            number.ok_or(TraceErrorKind::TooManyBlocks)?;
        }
        for block in View::Blocks(self.summary.block_bytes).blocks(request) {
            self.summary.block_accesses += 1;
            let number = self.blocks.number(volume, block);
            number.ok_or(TraceErrorKind::TooManyBlocks)?;
        }
        Ok(())
    }

    fn see_time(&mut self, time_us: Option<u64>) {
        let Some(time) = time_us else { return };
        let summary = &mut self.summary;
        let forward = self.time_us.is_none_or(|before| before <= time);
        summary.monotonic = Some(summary.monotonic.unwrap_or(true) && forward);
        summary.time_first_us = Some(summary.time_first_us.map_or(time, |t| t.min(time)));
        summary.time_last_us = Some(summary.time_last_us.map_or(time, |t| t.max(time)));
        self.time_us = Some(time);
    }

    fn see_volume(&mut self, volume: VolumeId) {
        let at = usize::from(volume.0);
        if self.volumes.len() <= at {
            self.volumes.resize(at + 1, false);
        }
        self.volumes[at] = true;
    }

    /// What was counted.
    #[must_use]
    pub fn finish(self) -> Summary {
        let distinct_blocks = u64::from(self.blocks.count());
        Summary {
            distinct_starts: u64::from(self.starts.count()),
            distinct_blocks,
            footprint_bytes: distinct_blocks.saturating_mul(self.summary.block_bytes),
            volumes: self.volumes.iter().filter(|&&seen| seen).count() as u64,
            ..self.summary
        }
    }
}
