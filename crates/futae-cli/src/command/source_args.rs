//! Where the requests of a curve come from: the same for `futae mrc` and `futae locality`.

use super::trace_args::{TraceArgs, ViewArgs, say_doubts, say_skipped};
use crate::failure::Failure;
use futae_sim::curve::{Source, SourceError, TraceStream};
use futae_trace::{Doubt, TraceErrorKind, View, is_trace};
use std::path::Path;

/// Where requests come from.
#[derive(clap::Args)]
pub(super) struct SourceArgs {
    /// A trace file or its URL, compressed or not, or a workload such as zipf(1.0):1GiB
    #[arg(value_name = "TRACE|WORKLOAD")]
    pub source: String,
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    view: ViewArgs,
    /// Use this many requests [default: all of a trace, 10 times the blocks of a workload]
    #[arg(long)]
    pub requests: Option<u64>,
    /// All randomness comes from this number
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Requests.
pub(super) enum Input {
    /// Of known number, for known blocks, that can be gone through again.
    Whole(Source),
    /// A trace that is read once.
    Stream(Box<TraceStream>),
}

impl SourceArgs {
    /// Opens it; also the bytes of a block. A trace is read into memory only if `whole` says so.
    pub fn open(&self, whole: bool) -> Result<(Input, u64), Failure> {
        let path = Path::new(&self.source);
        if is_trace(path) && !whole {
            let options = self.trace.options()?;
            let stream = TraceStream::open(path, self.view.choice()?, &options);
            let stream = stream.map_err(failure)?;
            return Ok((Input::Stream(Box::new(stream)), options.unit_bytes));
        }
        let (source, block_bytes) = self.open_whole()?;
        Ok((Input::Whole(source), block_bytes))
    }

    /// Opens it, a trace in memory; also the bytes of a block.
    pub fn open_whole(&self) -> Result<(Source, u64), Failure> {
        let options = self.trace.options()?;
        let block_bytes = options.unit_bytes;
        let path = Path::new(&self.source);
        if is_trace(path) {
            let view = self.view.choice()?;
            let read = Source::of_trace(path, view, &options, self.requests);
            let (source, skipped, doubts) = read.map_err(failure)?;
            say_skipped(skipped);
            say_curve_doubts(doubts);
            return Ok((source, block_bytes));
        }
        let view = View::Blocks(block_bytes);
        let source = Source::open(&self.source, view, block_bytes, self.requests, self.seed);
        let source = source.map_err(failure)?;
        self.trace.refuse()?;
        self.view.refuse()?;
        Ok((source, block_bytes))
    }
}

/// As [`say_doubts`], but for those about bytes: a curve counts blocks.
pub(super) fn say_curve_doubts(mut doubts: Vec<Doubt>) {
    doubts.retain(|doubt| *doubt != Doubt::SizesIgnored);
    say_doubts(&doubts);
}

/// A trace that cannot be read is no mistake in the arguments, unless its format is.
fn failure(error: SourceError) -> Failure {
    match error {
        SourceError::Trace(error)
            if error.at.is_some() || matches!(error.kind, TraceErrorKind::Io(_)) =>
        {
            Failure::from(error)
        }
        error => Failure::usage(error),
    }
}
