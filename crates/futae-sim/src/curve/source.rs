//! Where requests come from: a trace file or a workload, whichever a string names.

use crate::run::ViewChoice;
use futae_policy::VolumeId;
use futae_trace::{
    BlockRequest, BlockStream, DenseTrace, Doubt, RequestKind, RequestReader, TraceError,
    TraceOptions, TraceReader, View, WorkloadError, WorkloadSpec,
};
use std::path::Path;

/// Passes over the blocks of a workload that never ends, where nothing else is asked for.
const PASSES: u64 = 10;
const BATCH: usize = 4096;

/// Requests in blocks, that can be read any number of times.
#[derive(Clone, Debug)]
pub enum Source {
    /// Drawn anew each time.
    Workload {
        /// What is drawn.
        spec: WorkloadSpec,
        /// Bytes of a block.
        block_bytes: u64,
        /// All randomness comes from here.
        seed: u64,
        /// How many requests.
        requests: u64,
        /// Blocks that there can be.
        blocks: u64,
    },
    /// A whole trace in memory.
    Trace {
        /// The trace.
        trace: DenseTrace,
        /// How many of its accesses are used.
        requests: u64,
    },
}

/// Why there are no requests.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The workload does not fit the block size.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// Neither a file nor a workload.
    #[error("{text} is neither a file nor a workload: {source}")]
    Neither {
        /// What was written.
        text: String,
        /// Why it is no workload.
        source: Box<WorkloadError>,
    },
    /// Nothing is asked for.
    #[error("{0} has no requests")]
    Empty(String),
}

impl Source {
    /// Opens the trace file or workload that `text` names. Of a workload `requests` are drawn
    /// (where none is given ten times its blocks, or one pass of a `scan`), of a trace this many
    /// accesses are used at most. A file is read as `view` says, and blocks it numbers itself are
    /// of `block_bytes`.
    pub fn open(
        text: &str,
        view: View,
        block_bytes: u64,
        requests: Option<u64>,
        seed: u64,
    ) -> Result<Self, SourceError> {
        let path = Path::new(text);
        let source = if path.exists() {
            let options = TraceOptions {
                unit_bytes: block_bytes,
                ..TraceOptions::default()
            };
            Self::of_reader(&mut TraceReader::open(path, &options)?, view, requests)?
        } else {
            let spec: WorkloadSpec =
                text.parse()
                    .map_err(|source: WorkloadError| SourceError::Neither {
                        text: text.chars().take(200).collect(),
                        source: Box::new(source),
                    })?;
            let blocks = spec.blocks(block_bytes)?;
            let natural = spec.natural_requests(block_bytes)?;
            let usual = || natural.unwrap_or_else(|| blocks.saturating_mul(PASSES));
            Self::Workload {
                requests: requests.unwrap_or_else(usual),
                spec,
                block_bytes,
                seed,
                blocks,
            }
        };
        if source.requests() == 0 {
            return Err(SourceError::Empty(text.chars().take(200).collect()));
        }
        Ok(source)
    }

    /// Reads all of a trace file, of which at most `requests` accesses are used, and returns how
    /// many bad records were left out, and why it may not be read as it was meant.
    pub fn of_trace(
        path: &Path,
        view: ViewChoice,
        options: &TraceOptions,
        requests: Option<u64>,
    ) -> Result<(Self, u64, Vec<Doubt>), SourceError> {
        let mut reader = TraceReader::open(path, options)?;
        let choice = view;
        let view = choice.view(&reader, options.unit_bytes);
        let source = Self::of_reader(&mut reader, view, requests)?;
        if source.requests() == 0 {
            return Err(SourceError::Empty(path.display().to_string()));
        }
        Ok((source, reader.skipped(), choice.doubts(&reader)))
    }

    fn of_reader(
        reader: &mut TraceReader,
        view: View,
        requests: Option<u64>,
    ) -> Result<Self, SourceError> {
        let trace = DenseTrace::read(reader, view)?;
        let requests = requests.unwrap_or(u64::MAX).min(trace.ids().len() as u64);
        Ok(Self::Trace { trace, requests })
    }

    /// Requests that [`each`](Self::each) goes through.
    #[must_use]
    pub fn requests(&self) -> u64 {
        match self {
            Self::Workload { requests, .. } | Self::Trace { requests, .. } => *requests,
        }
    }

    /// Blocks that there can be: every number is below it.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        match self {
            Self::Workload { blocks, .. } => *blocks,
            Self::Trace { trace, .. } => u64::from(trace.distinct()),
        }
    }

    /// Goes through the requests, from the first; `progress` is given the fraction done.
    pub fn each(
        &self,
        mut act: impl FnMut(BlockRequest),
        progress: &dyn Fn(f64),
    ) -> Result<(), SourceError> {
        let (mut drawn, mut stored);
        let stream: &mut dyn BlockStream = match self {
            Self::Workload {
                spec,
                block_bytes,
                seed,
                ..
            } => {
                drawn = spec.generator(*block_bytes, *seed)?;
                &mut drawn
            }
            Self::Trace { trace, .. } => {
                stored = trace.stream();
                &mut stored
            }
        };
        let mut batch = [BlockRequest::default(); BATCH];
        let (whole, mut left) = (self.requests(), self.requests());
        while left > 0 {
            let wanted = left.min(BATCH as u64) as usize;
            let count = stream.fill(&mut batch[..wanted]);
            if count == 0 {
                break;
            }
            batch[..count].iter().for_each(|&request| act(request));
            left -= count as u64;
            progress((whole - left) as f64 / whole as f64);
        }
        Ok(())
    }
}

/// Requests that are read at a time.
const READ_BATCH: usize = 256;
/// Batches between two calls of the progress callback.
const BATCHES_PER_PROGRESS: u64 = 256;

/// The accesses of a trace file, which are gone through once and not kept: in memory that does not
/// depend on the trace.
///
/// Blocks are not numbered anew, as that would need a table of all of them. Those of the first
/// volume keep their numbers, and those of others get theirs from number and volume, such that two
/// blocks hardly ever share one: good enough for a sample by hash.
pub struct TraceStream {
    reader: TraceReader,
    view: View,
    choice: ViewChoice,
    file_bytes: u64,
}

impl TraceStream {
    /// Opens a trace file.
    pub fn open(
        path: &Path,
        view: ViewChoice,
        options: &TraceOptions,
    ) -> Result<Self, SourceError> {
        let reader = TraceReader::open(path, options)?;
        Ok(Self {
            view: view.view(&reader, options.unit_bytes),
            choice: view,
            reader,
            file_bytes: path.metadata().map_or(0, |metadata| metadata.len()),
        })
    }

    /// Goes through at most `limit` accesses, and returns how many there were.
    pub fn each(
        &mut self,
        limit: u64,
        mut act: impl FnMut(BlockRequest),
        progress: &dyn Fn(f64),
    ) -> Result<u64, SourceError> {
        let mut batch = Vec::with_capacity(READ_BATCH);
        let mut taken = 0;
        for number in 0u64.. {
            batch.clear();
            self.reader.read_batch(&mut batch, READ_BATCH)?;
            if batch.is_empty() {
                break;
            }
            for request in &batch {
                for block in self.view.blocks(request) {
                    if taken == limit {
                        return Ok(taken);
                    }
                    taken += 1;
                    let block = key(request.volume, block);
                    act(match request.kind {
                        RequestKind::Read => BlockRequest::read(block),
                        RequestKind::Write => BlockRequest::write(block),
                    });
                }
            }
            if number % BATCHES_PER_PROGRESS == 0 && self.file_bytes > 0 {
                progress(self.reader.file_bytes_read() as f64 / self.file_bytes as f64);
            }
        }
        Ok(taken)
    }

    /// Why it may not be read as it was meant.
    #[must_use]
    pub fn doubts(&self) -> Vec<Doubt> {
        self.choice.doubts(&self.reader)
    }

    /// Bad records that were left out so far.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.reader.skipped()
    }
}

/// A number below 2^63 for a block of any volume.
fn key(volume: VolumeId, block: u64) -> u64 {
    (block ^ u64::from(volume.0).wrapping_mul(0x9E37_79B9_7F4A_7C15)) & (u64::MAX >> 1)
}
