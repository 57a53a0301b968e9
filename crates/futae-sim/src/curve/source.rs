//! Sources of requests: a trace file or a workload, by a string.

use crate::run::{Neighbours, Requests, SimulationError, Traces, ViewChoice};
use futae_trace::{
    BlockRequest, Doubt, RequestReader, TraceError, TraceOptions, TraceReader, View, WorkloadError,
    WorkloadSpec, is_trace,
};
use std::path::Path;

/// Default number of passes over the blocks of an endless workload.
const PASSES: u64 = 10;
/// Requests between two calls of the progress callback.
const REQUESTS_PER_PROGRESS: u64 = 4096;

/// Requests in blocks, which can be read any number of times.
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
        /// The trace of the only guest.
        traces: Box<Traces>,
        /// Bytes of a block.
        block_bytes: u64,
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
    /// The requests cannot be what simulations are to have.
    #[error(transparent)]
    Simulation(SimulationError),
    /// There are no requests.
    #[error("{0} has no requests")]
    Empty(String),
}

impl From<SimulationError> for SourceError {
    fn from(error: SimulationError) -> Self {
        match error {
            SimulationError::Trace(error) => Self::Trace(error),
            SimulationError::Workload(error) => Self::Workload(error),
            other => Self::Simulation(other),
        }
    }
}

impl Source {
    /// Opens the trace file or workload that `text` names. A workload generates `requests` requests
    /// (by default ten times its blocks, or one pass of a `scan`); of a trace at most this many
    /// accesses are used. A file is read as `view` says; blocks that it numbers itself have
    /// `block_bytes`. Where they lie is not kept.
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
            let mut reader = TraceReader::open(path, &options)?;
            let view = (view, block_bytes);
            Self::of_reader(&mut reader, view, requests, Neighbours::Unused)?
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

    /// Reads a whole trace file, of which at most `requests` accesses are used, for simulations that use neighbours as said. Returns
    /// also the number of bad records left out, and doubts about the interpretation of the file.
    pub fn of_trace(
        path: &Path,
        view: ViewChoice,
        options: &TraceOptions,
        requests: Option<u64>,
        neighbours: Neighbours,
    ) -> Result<(Self, u64, Vec<Doubt>), SourceError> {
        let reader = TraceReader::open(path, options)?;
        Self::of_opened(reader, (view, options.unit_bytes), requests, neighbours)
    }

    /// The same of a trace that is open already, with blocks of this many bytes.
    pub fn of_opened(
        mut reader: TraceReader,
        (view, block_bytes): (ViewChoice, u64),
        requests: Option<u64>,
        neighbours: Neighbours,
    ) -> Result<(Self, u64, Vec<Doubt>), SourceError> {
        let choice = neighbours.view_of(view)?;
        let view = (choice.view(&reader, block_bytes), block_bytes);
        let source = Self::of_reader(&mut reader, view, requests, neighbours)?;
        if source.requests() == 0 {
            return Err(SourceError::Empty(reader.path().display().to_string()));
        }
        Ok((source, reader.skipped(), choice.doubts(&reader)))
    }

    /// Reads all of a trace, of which at most `requests` accesses are used. It may be empty.
    pub fn of_reader(
        reader: &mut impl RequestReader,
        (view, block_bytes): (View, u64),
        requests: Option<u64>,
        neighbours: Neighbours,
    ) -> Result<Self, SourceError> {
        let readers = std::slice::from_mut(reader);
        let traces = Traces::of_readers(readers, "trace", (view, block_bytes), neighbours)?;
        Ok(Self::Trace {
            requests: requests.unwrap_or(u64::MAX).min(traces.facts().accesses),
            block_bytes,
            traces: Box::new(traces),
        })
    }

    /// The requests, as simulations have them.
    #[must_use]
    pub fn as_requests(&self) -> Requests<'_> {
        match self {
            Self::Workload {
                spec,
                block_bytes,
                seed,
                ..
            } => Requests::Workloads {
                workloads: std::slice::from_ref(spec),
                block_bytes: *block_bytes,
                seed: *seed,
            },
            Self::Trace { traces, .. } => Requests::Traces(traces),
        }
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        match self {
            Self::Workload { block_bytes, .. } | Self::Trace { block_bytes, .. } => *block_bytes,
        }
    }

    /// The number of requests that [`each`](Self::each) passes.
    #[must_use]
    pub fn requests(&self) -> u64 {
        match self {
            Self::Workload { requests, .. } | Self::Trace { requests, .. } => *requests,
        }
    }

    /// The number of possible blocks: those of a workload, or all of a trace. Every block number that [`each`](Self::each) passes is
    /// below it.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        match self {
            Self::Workload { blocks, .. } => *blocks,
            Self::Trace { traces, .. } => traces.facts().distinct_blocks,
        }
    }

    /// Passes all requests, from the first; `progress` gets the fraction done.
    pub fn each(
        &self,
        mut act: impl FnMut(BlockRequest),
        progress: &dyn Fn(f64),
    ) -> Result<(), SourceError> {
        let (whole, mut passed) = (self.requests(), 0_u64);
        let passing = |request| {
            act(request);
            passed += 1;
            if passed.is_multiple_of(REQUESTS_PER_PROGRESS) || passed == whole {
                progress(passed as f64 / whole as f64);
            }
        };
        Ok(self.as_requests().each(whole, passing)?)
    }
}
