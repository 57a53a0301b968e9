//! Where requests come from: a trace file or a workload, whichever a string names.

use futae_trace::{
    BlockRequest, BlockStream, DenseTrace, TraceError, TraceOptions, TraceReader, View,
    WorkloadError, WorkloadSpec,
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
    /// (where none is given ten times its blocks, or one pass of a `scan`), of a trace so many
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
            let trace = DenseTrace::read(&mut TraceReader::open(path, &options)?, view)?;
            let requests = requests.unwrap_or(u64::MAX).min(trace.ids().len() as u64);
            Self::Trace { trace, requests }
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
