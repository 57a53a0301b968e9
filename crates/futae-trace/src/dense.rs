//! Traces as dense block numbers, so that any number of runs index plain arrays.

use crate::format::RequestReader;
use crate::numbering::{self, Numbering};
use crate::{BlockRequest, BlockStream, Request, RequestKind, TraceError, TraceErrorKind};
use futae_policy::VolumeId;
use std::ops::RangeInclusive;
use std::path::Path;

const SECTOR_BYTES: u64 = 512;

/// What of a request is a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum View {
    /// One block a request, named by its volume and the sector (512 bytes) where it starts; the
    /// length is ignored. Cache simulators call it "ignore object size".
    Start,
    /// The blocks of so many bytes that the request touches, wholly or partly, in order.
    Blocks(u64),
}

impl View {
    /// The numbers, on the request's volume, of the blocks that it touches. A request without a
    /// length touches one.
    #[must_use]
    pub fn blocks(self, request: &Request) -> RangeInclusive<u64> {
        let first = request.offset_bytes;
        match self {
            Self::Start => first / SECTOR_BYTES..=first / SECTOR_BYTES,
            Self::Blocks(bytes) => {
                let last = first.saturating_add(request.length_bytes.saturating_sub(1));
                first / bytes..=last / bytes
            }
        }
    }
}

/// A whole trace, its distinct blocks numbered from 0 in the order of their first access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DenseTrace {
    ids: Vec<u32>,
    /// One bit an access.
    writes: Vec<u64>,
    distinct: u32,
    requests: u64,
}

impl DenseTrace {
    /// Reads all of a trace. The block size of the view must not be 0.
    pub fn read(reader: &mut impl RequestReader, view: View) -> Result<Self, TraceError> {
        let mut builder = Builder::new(view);
        let failed = |kind, path: &Path| TraceError {
            path: path.to_owned(),
            at: None,
            kind,
        };
        let mut batch = Vec::with_capacity(READ_BATCH);
        loop {
            batch.clear();
            reader.read_batch(&mut batch, READ_BATCH)?;
            if batch.is_empty() {
                return builder.finish().map_err(|kind| failed(kind, reader.path()));
            }
            builder
                .add_all(&batch)
                .map_err(|kind| failed(kind, reader.path()))?;
        }
    }

    /// Numbers the blocks of requests that are at hand.
    pub fn from_requests<'a>(
        requests: impl IntoIterator<Item = &'a Request>,
        view: View,
    ) -> Result<Self, TraceErrorKind> {
        let mut builder = Builder::new(view);
        for request in requests {
            builder.add_all(std::slice::from_ref(request))?;
        }
        builder.finish()
    }

    /// The blocks asked for, in order.
    #[must_use]
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Whether access `index` is a write.
    #[inline]
    #[must_use]
    pub fn is_write(&self, index: usize) -> bool {
        self.writes
            .get(index / 64)
            .is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// How many distinct blocks there are; every id is below it.
    #[must_use]
    pub fn distinct(&self) -> u32 {
        self.distinct
    }

    /// How many requests there were; each is one access or more.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// The accesses as a stream, from the first.
    #[must_use]
    pub fn stream(&self) -> DenseStream<'_> {
        DenseStream {
            trace: self,
            next: 0,
        }
    }
}

/// The accesses of a [`DenseTrace`].
#[derive(Clone, Debug)]
pub struct DenseStream<'a> {
    trace: &'a DenseTrace,
    next: usize,
}

impl BlockStream for DenseStream<'_> {
    fn fill(&mut self, out: &mut [BlockRequest]) -> usize {
        let ids = &self.trace.ids[self.next..];
        let count = ids.len().min(out.len());
        let writes = &self.trace.writes;
        for (request, (&id, index)) in out.iter_mut().zip(ids.iter().zip(self.next..)) {
            let is_write = writes[index / 64] >> (index % 64) & 1 == 1;
            *request = BlockRequest::new(u64::from(id), is_write);
        }
        self.next += count;
        count
    }
}

/// So many requests are read at a time: few enough for the processor's nearest cache.
const READ_BATCH: usize = 256;
/// So many accesses are numbered at a time: those whose write marks are in one word.
const BATCH: usize = numbering::BATCH;
const _: () = assert!(BATCH == u64::BITS as usize);

/// A trace that is being read.
struct Builder {
    /// Bytes of a block, and their power of two if they are one.
    block: (u64, Option<u32>),
    /// Whether a request is one block, whatever its length.
    start: bool,
    numbering: Numbering,
    /// Accesses that wait for their numbers, and their write marks.
    volumes: [VolumeId; BATCH],
    blocks: [u64; BATCH],
    marks: u64,
    waiting: usize,
    trace: DenseTrace,
}

impl Builder {
    fn new(view: View) -> Self {
        let (start, bytes) = match view {
            View::Start => (true, SECTOR_BYTES),
            View::Blocks(bytes) => (false, bytes),
        };
        let shift = bytes.is_power_of_two().then_some(bytes.trailing_zeros());
        Self {
            block: (bytes, shift),
            start,
            numbering: Numbering::default(),
            volumes: [VolumeId(0); BATCH],
            blocks: [0; BATCH],
            marks: 0,
            waiting: 0,
            trace: DenseTrace::default(),
        }
    }

    /// As [`View::blocks`], but without division where the view allows it.
    fn add_all(&mut self, requests: &[Request]) -> Result<(), TraceErrorKind> {
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
            self.number()?;
        }
        Ok(())
    }

    #[inline(never)]
    fn number(&mut self) -> Result<(), TraceErrorKind> {
        let waiting = std::mem::take(&mut self.waiting);
        let (volumes, blocks) = (&self.volumes[..waiting], &self.blocks[..waiting]);
        let numbered = self
            .numbering
            .number_all(volumes, blocks, &mut self.trace.ids);
        self.trace.writes.push(std::mem::take(&mut self.marks));
        numbered.ok_or(TraceErrorKind::TooManyBlocks)
    }

    fn finish(mut self) -> Result<DenseTrace, TraceErrorKind> {
        if self.waiting > 0 {
            self.number()?;
        }
        self.trace.distinct = self.numbering.count();
        Ok(self.trace)
    }
}

#[cfg(test)]
mod tests {
    use super::{BlockRequest, BlockStream, DenseTrace, Request, RequestKind, View, VolumeId};

    fn request(volume: u16, offset_bytes: u64, length_bytes: u64, kind: RequestKind) -> Request {
        let volume = VolumeId(volume);
        Request {
            guest: 0,
            volume,
            offset_bytes,
            length_bytes,
            kind,
            time_us: None,
        }
    }

    #[test]
    fn a_view_cuts_requests_into_blocks() {
        let blocks = |view: View, offset, length| {
            view.blocks(&request(0, offset, length, RequestKind::Read))
                .collect::<Vec<_>>()
        };
        assert_eq!(blocks(View::Start, 5 * 512 + 3, 1 << 20), [5]);
        assert_eq!(blocks(View::Blocks(4096), 0, 4096), [0]);
        assert_eq!(blocks(View::Blocks(4096), 0, 4097), [0, 1]);
        assert_eq!(blocks(View::Blocks(4096), 4095, 2), [0, 1]);
        assert_eq!(blocks(View::Blocks(4096), 8192, 0), [2]);
        assert_eq!(blocks(View::Blocks(4096), 512, 512), [0]);
    }

    #[test]
    fn blocks_are_numbered_as_they_come() -> Result<(), Box<dyn std::error::Error>> {
        let requests = [
            request(0, 8192, 8192, RequestKind::Read),
            request(1, 8192, 4096, RequestKind::Write),
            request(0, 12288, 4096, RequestKind::Write),
        ];
        let trace = DenseTrace::from_requests(&requests, View::Blocks(4096))?;
        assert_eq!(
            (trace.ids(), trace.distinct(), trace.requests()),
            (&[0, 1, 2, 1][..], 3, 3)
        );
        let mut out = [BlockRequest::default(); 3];
        let mut stream = trace.stream();
        assert_eq!(stream.fill(&mut out), 3);
        assert_eq!(
            out,
            [
                BlockRequest::read(0),
                BlockRequest::read(1),
                BlockRequest::write(2)
            ]
        );
        assert_eq!((stream.fill(&mut out), out[0]), (1, BlockRequest::write(1)));
        assert_eq!(stream.fill(&mut out), 0);
        Ok(())
    }

    #[test]
    fn volumes_and_far_blocks_are_kept_apart() -> Result<(), Box<dyn std::error::Error>> {
        let far = 1u64 << 60;
        let places = [(0, far), (1, far), (0, 0), (1, 0), (0, far), (1, 0)];
        let requests = places.map(|(volume, at)| request(volume, at, 512, RequestKind::Read));
        let trace = DenseTrace::from_requests(&requests, View::Start)?;
        assert_eq!(trace.ids(), [0, 1, 2, 3, 0, 3]);
        Ok(())
    }

    #[test]
    fn every_write_has_its_bit() -> Result<(), Box<dyn std::error::Error>> {
        let is_write = |i: u64| i.is_multiple_of(3) || i > 190;
        let kind = |i| {
            if is_write(i) {
                RequestKind::Write
            } else {
                RequestKind::Read
            }
        };
        let requests: Vec<Request> = (0..200)
            .map(|i| request(0, i * 512, 512, kind(i)))
            .collect();
        let trace = DenseTrace::from_requests(&requests, View::Start)?;
        assert!((0..200).all(|i| trace.is_write(i as usize) == is_write(i)));
        assert!(!trace.is_write(200));
        Ok(())
    }
}
