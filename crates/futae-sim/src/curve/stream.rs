//! Traces that are gone through once.

use super::{Source, SourceError};
use crate::run::{Neighbours, ViewChoice};
use futae_policy::VolumeId;
use futae_trace::{
    BlockRequest, Doubt, Request, RequestKind, RequestReader, TraceError, TraceOptions,
    TraceReader, View,
};
use std::path::Path;

/// Requests that are read at a time.
const READ_BATCH: usize = 256;
/// Batches between two calls of the progress callback.
const BATCHES_PER_PROGRESS: u64 = 256;

/// The accesses of a trace file, processed once, in memory that does not depend on the trace unless they are to be kept.
///
/// Blocks are not renumbered, as that would need a table of all of them. Blocks of the first volume
/// keep their numbers. Those of others get a hash of number and volume, so that two blocks hardly
/// ever share one: good enough for hash sampling.
pub struct TraceStream {
    reader: TraceReader,
    view: View,
    choice: ViewChoice,
    block_bytes: u64,
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
            block_bytes,
            reader,
        }
    }

    /// Passes all accesses.
    pub fn each(
        &mut self,
        act: impl FnMut(BlockRequest),
        progress: &dyn Fn(f64),
    ) -> Result<(), SourceError> {
        let mut batch = Vec::with_capacity(READ_BATCH);
        let mut passing = self.passing(act, progress);
        loop {
            batch.clear();
            passing.read_batch(&mut batch, READ_BATCH)?;
            if batch.is_empty() {
                return Ok(());
            }
        }
    }

    /// Passes all accesses, and keeps them in memory as a source that uses the first `requests` of them.
    pub fn each_kept(
        &mut self,
        requests: Option<u64>,
        act: impl FnMut(BlockRequest),
        progress: &dyn Fn(f64),
    ) -> Result<Source, SourceError> {
        let view = (self.view, self.block_bytes);
        let mut passing = self.passing(act, progress);
        Source::of_reader(&mut passing, view, requests, Neighbours::Unused)
    }

    fn passing<'a, A>(&'a mut self, act: A, progress: &'a dyn Fn(f64)) -> Passing<'a, A> {
        Passing {
            file_bytes: self.reader.file_bytes().unwrap_or(0),
            reader: &mut self.reader,
            view: self.view,
            act,
            batches: 0,
            progress,
        }
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

/// A reader that passes on the accesses of what it reads.
struct Passing<'a, A> {
    reader: &'a mut TraceReader,
    view: View,
    act: A,
    batches: u64,
    file_bytes: u64,
    progress: &'a dyn Fn(f64),
}

impl<A: FnMut(BlockRequest)> Passing<'_, A> {
    fn pass(&mut self, request: &Request) {
        for block in self.view.blocks(request) {
            let block = key(request.volume, block);
            (self.act)(match request.kind {
                RequestKind::Read => BlockRequest::read(block),
                RequestKind::Write => BlockRequest::write(block),
            });
        }
    }
}

impl<A: FnMut(BlockRequest)> Iterator for Passing<'_, A> {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.reader.next();
        if let Some(Ok(request)) = &next {
            self.pass(request);
        }
        next
    }
}

impl<A: FnMut(BlockRequest)> RequestReader for Passing<'_, A> {
    fn path(&self) -> &Path {
        self.reader.path()
    }

    fn read_batch(&mut self, batch: &mut Vec<Request>, limit: usize) -> Result<(), TraceError> {
        let before = batch.len();
        let outcome = self.reader.read_batch(batch, limit);
        for request in &batch[before..] {
            self.pass(request);
        }
        if self.batches.is_multiple_of(BATCHES_PER_PROGRESS) && self.file_bytes > 0 {
            (self.progress)(self.reader.file_bytes_read() as f64 / self.file_bytes as f64);
        }
        self.batches += 1;
        outcome
    }
}

/// A number below 2^63 for a block of any volume.
fn key(volume: VolumeId, block: u64) -> u64 {
    (block ^ u64::from(volume.0).wrapping_mul(0x9E37_79B9_7F4A_7C15)) & (u64::MAX >> 1)
}
