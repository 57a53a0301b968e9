//! Sources of requests: a trace file or a workload, by a string.

use crate::run::ViewChoice;
use futae_policy::VolumeId;
use futae_trace::{
    BlockRequest, BlockStream, DenseTrace, Doubt, RequestKind, RequestReader, TraceError,
    TraceOptions, TraceReader, View, WorkloadError, WorkloadSpec, is_trace,
};
use std::path::Path;

/// Default number of passes over the blocks of an endless workload.
const PASSES: u64 = 10;
const BATCH: usize = 4096;

/// Requests in blocks, which can be read any number of times.
#[derive(Clone, Debug)]
pub enum Source {
    /// Generated anew each time.
    Workload {
        /// The workload.
        spec: WorkloadSpec,
        /// Bytes of a block.
        block_bytes: u64,
        /// The seed of all randomness.
        seed: u64,
        /// How many requests.
        requests: u64,
        /// The number of possible blocks.
        blocks: u64,
    },
    /// A whole trace, in memory.
    Trace {
        /// The trace.
        trace: DenseTrace,
        /// The number of its accesses that are used.
        requests: u64,
    },
}

/// Why requests cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The workload does not fit the block size.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The string is neither a file nor a workload.
    #[error("{text} is neither a file nor a workload: {source}")]
    Neither {
        /// The given text.
        text: String,
        /// Why it is no workload.
        source: Box<WorkloadError>,
    },
    /// There are no requests.
    #[error("{0} has no requests")]
    Empty(String),
}

impl Source {
    /// Opens the trace file or workload that `text` names. A workload generates `requests` requests
    /// (by default ten times its blocks, or one pass of a `scan`); of a trace at most this many
    /// accesses are used. A file is read as `view` says; blocks that it numbers itself have
    /// `block_bytes`.
    pub fn open(
        text: &str,
        view: View,
        block_bytes: u64,
        requests: Option<u64>,
        seed: u64,
    ) -> Result<Self, SourceError> {
        let path = Path::new(text);
        let source = if is_trace(path) {
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

    /// Reads a whole trace file, of which at most `requests` accesses are used. Returns also the
    /// number of bad records left out, and doubts about the interpretation of the file.
    pub fn of_trace(
        path: &Path,
        view: ViewChoice,
        options: &TraceOptions,
        requests: Option<u64>,
    ) -> Result<(Self, u64, Vec<Doubt>), SourceError> {
        let reader = TraceReader::open(path, options)?;
        Self::of_opened(reader, view, options.unit_bytes, requests)
    }

    /// The same of a trace that is open already.
    pub fn of_opened(
        mut reader: TraceReader,
        view: ViewChoice,
        block_bytes: u64,
        requests: Option<u64>,
    ) -> Result<(Self, u64, Vec<Doubt>), SourceError> {
        let choice = view;
        let view = choice.view(&reader, block_bytes);
        let source = Self::of_reader(&mut reader, view, requests)?;
        if source.requests() == 0 {
            return Err(SourceError::Empty(reader.path().display().to_string()));
        }
        Ok((source, reader.skipped(), choice.doubts(&reader)))
    }

    /// Reads all of a trace, of which at most `requests` accesses are used. It may be empty.
    pub fn of_reader(
        reader: &mut impl RequestReader,
        view: View,
        requests: Option<u64>,
    ) -> Result<Self, SourceError> {
        let trace = DenseTrace::read(reader, view)?;
        let requests = requests.unwrap_or(u64::MAX).min(trace.ids().len() as u64);
        Ok(Self::Trace { trace, requests })
    }

    /// The number of requests that [`each`](Self::each) passes.
    #[must_use]
    pub fn requests(&self) -> u64 {
        match self {
            Self::Workload { requests, .. } | Self::Trace { requests, .. } => *requests,
        }
    }

    /// The number of possible blocks: every block number is below it.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        match self {
            Self::Workload { blocks, .. } => *blocks,
            Self::Trace { trace, .. } => u64::from(trace.distinct()),
        }
    }

    /// Passes all requests, from the first; `progress` gets the fraction done.
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

/// The accesses of a trace file, processed once and not kept, in memory that does not depend on the
/// trace.
///
/// Blocks are not renumbered, as that would need a table of all of them. Blocks of the first volume
/// keep their numbers. Those of others get a hash of number and volume, so that two blocks hardly
/// ever share one: good enough for hash sampling.
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
        Ok(Self::of_opened(reader, view, options.unit_bytes))
    }

    /// A trace that is open already.
    #[must_use]
    pub fn of_opened(reader: TraceReader, view: ViewChoice, block_bytes: u64) -> Self {
        Self {
            view: view.view(&reader, block_bytes),
            choice: view,
            file_bytes: reader.file_bytes().unwrap_or(0),
            reader,
        }
    }

    /// Passes at most `limit` accesses, and returns their number.
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

    /// Doubts about the interpretation of the file.
    #[must_use]
    pub fn doubts(&self) -> Vec<Doubt> {
        self.choice.doubts(&self.reader)
    }

    /// The number of bad records left out so far.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.reader.skipped()
    }
}

/// A number below 2^63 for a block of any volume.
fn key(volume: VolumeId, block: u64) -> u64 {
    (block ^ u64::from(volume.0).wrapping_mul(0x9E37_79B9_7F4A_7C15)) & (u64::MAX >> 1)
}
