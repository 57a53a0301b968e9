//! A trace whose blocks are numbered while it is used.

use super::builder::{Builder, failed};
use super::{DenseTrace, View};
use crate::{BlockRequest, BlockStream, Digest, InMemory, RequestReader, TraceError};
use std::time::{Duration, Instant};

/// This many accesses are in memory at a time, and some more: with what a simulation needs for them
/// they fit into a processor's second cache.
const PIECE: usize = 1 << 17;

/// A trace that is read once, piece by piece, so that its accesses need not fit into memory.
/// Numbers are those of a [`DenseTrace`].
pub struct DensePieces<R> {
    reader: R,
    builder: Builder,
    /// The next access of the piece.
    next: usize,
    /// Accesses of the pieces before it.
    before: u64,
    ended: bool,
    error: Option<TraceError>,
    reading: Duration,
}

/// Facts about a trace after all of its pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieced {
    /// Requests; each is one access or more.
    pub requests: u64,
    /// Accesses.
    pub accesses: u64,
    /// Distinct blocks.
    pub distinct: u32,
    /// The digest of the accesses.
    pub digest: Digest,
    /// The time that reading and numbering took.
    pub reading: Duration,
}

impl<R: RequestReader> DensePieces<R> {
    /// A trace that is to be read. The block size of the view must not be 0.
    pub fn new(reader: R, view: View) -> Self {
        Self {
            reader,
            builder: Builder::new(view),
            next: 0,
            before: 0,
            ended: false,
            error: None,
            reading: Duration::ZERO,
        }
    }

    /// Loads the next piece if the current one is used up.
    #[inline]
    fn advance(&mut self) {
        if self.next >= self.builder.trace.ids.len() && !self.ended {
            self.read_piece();
        }
    }

    #[inline(never)]
    fn read_piece(&mut self) {
        let begin = Instant::now();
        self.before += self.builder.trace.ids.len() as u64;
        self.builder.forget();
        self.next = 0;
        let mut read = Ok(true);
        while read.as_ref().is_ok_and(|more| *more) && self.builder.trace.ids.len() < PIECE {
            read = self.builder.read_some(&mut self.reader);
        }
        if let Ok(false) = read {
            self.ended = true;
            let end = self.builder.end();
            read = end
                .map(|()| false)
                .map_err(|kind| failed(&self.reader, kind));
        }
        if let Err(error) = read {
            self.ended = true;
            self.error = Some(error);
        }
        self.reading += begin.elapsed();
    }

    /// Reads the rest, and returns the facts about the whole trace. Returns an error if one
    /// occurred anywhere, since the stream then ended early.
    pub fn finish(mut self) -> Result<(R, Pieced), TraceError> {
        while !self.ended {
            self.read_piece();
        }
        if let Some(error) = self.error {
            return Err(error);
        }
        let DenseTrace {
            ids,
            distinct,
            requests,
            digest,
            ..
        } = self.builder.trace;
        let pieced = Pieced {
            requests,
            accesses: self.before + ids.len() as u64,
            distinct,
            digest,
            reading: self.reading,
        };
        Ok((self.reader, pieced))
    }
}

impl<R: RequestReader> BlockStream for DensePieces<R> {
    fn fill(&mut self, out: &mut [BlockRequest]) -> usize {
        let mut filled = 0;
        while filled < out.len() {
            self.advance();
            let got = self.builder.trace.fill(&mut self.next, &mut out[filled..]);
            if got == 0 {
                break;
            }
            filled += got;
        }
        filled
    }

    fn in_memory(&mut self, limit: usize) -> Option<InMemory<'_>> {
        self.advance();
        self.builder.trace.in_memory(&mut self.next, limit)
    }
}
