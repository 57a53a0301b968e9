//! Numbers the blocks of a trace while it is read.

use super::places::Places;
use super::trace::{DenseTrace, access};
use super::view::{SECTOR_BYTES, View};
use crate::format::KEYED_BYTES;
use crate::numbering::{BATCH, Numbering, OnFirst, Volumes};
use crate::{Request, RequestKind, RequestReader, TraceError, TraceErrorKind};
use futae_policy::VolumeId;

/// This many requests are read at a time: few enough for the processor's nearest cache.
const READ_BATCH: usize = 256;
/// This many where only their blocks are read.
const START_BATCH: usize = 1024;

/// A trace that is being read.
pub(super) struct Builder {
    /// Bytes of a block, and their power of two if they are one.
    block: (u64, Option<u32>),
    /// Whether a request is one block, whatever its length.
    start: bool,
    numbering: Numbering,
    /// Accesses that are not numbered yet, and their write marks.
    volumes: [VolumeId; BATCH],
    blocks: [u64; BATCH],
    marks: u64,
    waiting: usize,
    /// The requests read last: only their starts if these suffice, otherwise whole requests.
    starts: Vec<u64>,
    requests: Vec<Request>,
    pub(super) trace: DenseTrace,
}

impl Builder {
    pub(super) fn new(view: View) -> Self {
        let (start, bytes) = match view {
            View::Start => (true, SECTOR_BYTES),
            View::Blocks(bytes) => (false, bytes),
        };
        let shift = bytes.is_power_of_two().then_some(bytes.trailing_zeros());
        Self {
            block: (bytes, shift),
            start,
            numbering: Numbering::keyed_from(KEYED_BYTES / bytes),
            volumes: [VolumeId(0); BATCH],
            blocks: [0; BATCH],
            marks: 0,
            waiting: 0,
            starts: Vec::with_capacity(START_BATCH),
            requests: Vec::with_capacity(READ_BATCH),
            trace: DenseTrace::default(),
        }
    }

    /// Reads another part of a trace. Returns whether there was more. The last accesses may wait
    /// for [`end`](Self::end).
    pub(super) fn read_some(
        &mut self,
        reader: &mut impl RequestReader,
    ) -> Result<bool, TraceError> {
        let mut starts = std::mem::take(&mut self.starts);
        let mut requests = std::mem::take(&mut self.requests);
        starts.clear();
        requests.clear();
        let added = if self.start && reader.read_starts(&mut starts, START_BATCH).is_some() {
            self.add_reads(&starts).map(|()| true)
        } else {
            reader.read_batch(&mut requests, READ_BATCH)?;
            self.add_all(&requests).map(|()| !requests.is_empty())
        };
        (self.starts, self.requests) = (starts, requests);
        added.map_err(|kind| failed(reader, kind))
    }

    /// As [`View::blocks`], but without division where the view allows it.
    pub(super) fn add_all(&mut self, requests: &[Request]) -> Result<(), TraceErrorKind> {
        let start = self.start;
        match self.block {
            (_, Some(shift)) => self.add_by(requests, start, |byte| byte >> shift),
            (bytes, None) => self.add_by(requests, start, |byte| byte / bytes),
        }
    }

    #[inline(always)]
    fn add_by(
        &mut self,
        requests: &[Request],
        start: bool,
        block: impl Fn(u64) -> u64,
    ) -> Result<(), TraceErrorKind> {
        self.trace.requests += requests.len() as u64;
        for request in requests {
            let is_write = request.kind == RequestKind::Write;
            let length = if start { 0 } else { request.length_bytes };
            let first = request.offset_bytes;
            let last = block(first.saturating_add(length.saturating_sub(1)));
            let mut next = block(first);
            loop {
                self.access(request.volume, next, is_write)?;
                if next >= last {
                    break;
                }
                next += 1;
            }
        }
        Ok(())
    }

    /// Adds reads of one block each of volume 0.
    fn add_reads(&mut self, blocks: &[u64]) -> Result<(), TraceErrorKind> {
        self.trace.requests += blocks.len() as u64;
        let first = (BATCH - self.waiting) % BATCH;
        let (first, others) = blocks.split_at(first.min(blocks.len()));
        let (whole, rest) = others.as_chunks::<BATCH>();
        for &block in first {
            self.access(VolumeId(0), block, false)?;
        }
        let mut next = others.chunks(BATCH).skip(1);
        for blocks in whole {
            self.numbering.prefetch(next.next().unwrap_or_default());
            self.number(OnFirst, blocks, 0)?;
        }
        for &block in rest {
            self.access(VolumeId(0), block, false)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn access(
        &mut self,
        volume: VolumeId,
        block: u64,
        is_write: bool,
    ) -> Result<(), TraceErrorKind> {
        let at = self.waiting % BATCH;
        self.volumes[at] = volume;
        self.blocks[at] = block;
        self.marks |= u64::from(is_write) << at;
        self.waiting += 1;
        if self.waiting == BATCH {
            self.number_waiting()?;
        }
        Ok(())
    }

    #[inline(never)]
    fn number_waiting(&mut self) -> Result<(), TraceErrorKind> {
        self.waiting = 0;
        let (volumes, blocks) = (self.volumes, self.blocks);
        let marks = std::mem::take(&mut self.marks);
        self.number(&volumes[..], &blocks, marks)
    }

    /// Numbers what is left at the end.
    fn number_rest(&mut self) -> Result<(), TraceErrorKind> {
        let marks = std::mem::take(&mut self.marks);
        for at in 0..std::mem::take(&mut self.waiting) {
            let id = self.numbering.number(self.volumes[at], self.blocks[at]);
            let id = id.ok_or(TraceErrorKind::TooManyBlocks)?;
            self.trace.digest.add_one(access(id, marks, at));
            self.trace.ids.push(id);
        }
        self.trace.writes.push(marks);
        Ok(())
    }

    /// Numbers a batch of accesses. Meanwhile it adds the one before to the digest, which the processor can do while it waits for
    /// memory.
    #[inline]
    fn number(
        &mut self,
        volumes: impl Volumes,
        blocks: &[u64; BATCH],
        marks: u64,
    ) -> Result<(), TraceErrorKind> {
        let DenseTrace {
            ids,
            digest,
            writes,
            ..
        } = &mut self.trace;
        ids.resize(ids.len() + BATCH, 0);
        let Some((before, numbers)) = ids.split_last_chunk_mut::<BATCH>() else {
            return Err(TraceErrorKind::TooManyBlocks);
        };
        let last = before.last_chunk::<BATCH>();
        let numbering = &mut self.numbering;
        let numbered = match (last, writes.last()) {
            (Some(last), Some(0)) => {
                numbering.number_all(volumes, blocks, numbers, digest, |digest, at| {
                    digest.with(access(last[at], 0, at))
                })
            }
            (Some(last), Some(&marks)) => {
                numbering.number_all(volumes, blocks, numbers, digest, |digest, at| {
                    digest.with(access(last[at], marks, at))
                })
            }
            _ => numbering.number_all(volumes, blocks, numbers, digest, |digest, _| digest),
        };
        writes.push(marks);
        numbered.ok_or(TraceErrorKind::TooManyBlocks)
    }

    /// Adds the last whole batch to the digest, and forgets all accesses.
    pub(super) fn forget(&mut self) {
        self.digest_last();
        self.trace.ids.clear();
        self.trace.writes.clear();
    }

    fn digest_last(&mut self) {
        let trace = &mut self.trace;
        if let (Some(last), Some(&marks)) = (trace.ids.last_chunk::<BATCH>(), trace.writes.last()) {
            for (&id, at) in last.iter().zip(0..) {
                trace.digest.add_one(access(id, marks, at));
            }
        }
    }

    /// Numbers the last accesses of a trace that has ended.
    pub(super) fn end(&mut self) -> Result<(), TraceErrorKind> {
        self.digest_last();
        if self.waiting > 0 {
            self.number_rest()?;
        }
        self.trace.distinct = self.numbering.count();
        self.trace.numbers = self.trace.distinct;
        Ok(())
    }

    /// A trace that has ended, with the places of its blocks.
    pub(super) fn with_places(self) -> DenseTrace {
        DenseTrace {
            places: Places::of(self.numbering.blocks()),
            ..self.trace
        }
    }
}

/// What is wrong with the whole of a trace.
pub(super) fn failed(reader: &impl RequestReader, kind: TraceErrorKind) -> TraceError {
    TraceError {
        path: reader.path().to_owned(),
        at: None,
        kind,
    }
}
