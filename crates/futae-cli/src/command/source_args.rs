//! Where the requests of a curve come from: the same for `futae mrc` and `futae locality`.

use super::trace_args::{TraceArgs, ViewArgs, say_doubts, say_skipped};
use futae_sim::curve::{Source, SourceError, TraceStream};
use futae_sim::run::Neighbours;
use futae_terminal::failure::Failure;
use futae_trace::{Doubt, TraceErrorKind, View, is_trace};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// What is asked for: the path or the URL of a trace, or a workload. A path need not be UTF-8, and `-` is standard input.
#[derive(Clone, Debug)]
pub(super) struct SourceName {
    path: PathBuf,
    shown: String,
}

impl From<OsString> for SourceName {
    fn from(name: OsString) -> Self {
        let path = match name.as_encoded_bytes() {
            b"-" => PathBuf::from("/dev/stdin"),
            _ => PathBuf::from(name),
        };
        let shown = path.display().to_string();
        Self { path, shown }
    }
}

impl SourceName {
    /// The text of a workload, and what a user is shown.
    pub fn text(&self) -> &str {
        &self.shown
    }

    /// Where a trace is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a trace, and no workload.
    pub fn is_trace(&self) -> bool {
        is_trace(&self.path)
    }
}

impl fmt::Display for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// Where requests come from.
#[derive(clap::Args)]
pub(super) struct SourceArgs {
    /// A trace file or its URL, compressed or not, or a workload such as zipf(1.0):1GiB
    #[arg(value_name = "TRACE|WORKLOAD")]
    pub source: SourceName,
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    view: ViewArgs,
    /// Number of requests; percentages are still of all blocks [default: all of a trace, 10 times
    /// the blocks of a workload]
    #[arg(long)]
    pub requests: Option<u64>,
    /// Seed of all randomness
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
    /// Opens it; also the bytes of a block. A trace is read into memory only if `whole` says how runs use neighbours there.
    pub fn open(&self, whole: Option<Neighbours>) -> Result<(Input, u64), Failure> {
        let path = self.source.path();
        if self.source.is_trace() && whole.is_none() {
            let options = self.trace.options()?;
            let stream = TraceStream::open(path, self.view.choice()?, &options);
            let stream = stream.map_err(failure)?;
            return Ok((Input::Stream(Box::new(stream)), options.unit_bytes));
        }
        let source = self.open_whole(whole.unwrap_or_default())?;
        let block_bytes = source.block_bytes();
        Ok((Input::Whole(source), block_bytes))
    }

    /// Opens it, a trace in memory, for runs that use neighbours as said.
    pub fn open_whole(&self, neighbours: Neighbours) -> Result<Source, Failure> {
        let options = self.trace.options()?;
        let block_bytes = options.unit_bytes;
        let path = self.source.path();
        if self.source.is_trace() {
            let view = self.view.choice()?;
            let read = Source::of_trace(path, view, &options, self.requests, neighbours);
            let (source, skipped, doubts) = read.map_err(failure)?;
            say_skipped(skipped);
            say_curve_doubts(doubts);
            return Ok(source);
        }
        let view = View::Blocks(block_bytes);
        let source = Source::open(
            self.source.text(),
            view,
            block_bytes,
            self.requests,
            self.seed,
        );
        let source = source.map_err(failure)?;
        self.trace.refuse()?;
        self.view.refuse()?;
        Ok(source)
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
