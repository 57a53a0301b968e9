//! Traces as dense block numbers, so that any number of runs index plain arrays.

use crate::format::RequestReader;
use crate::numbering::{self, Numbering};
use crate::{
    BlockRequest, BlockStream, Digest, InMemory, Request, RequestKind, TraceError, TraceErrorKind,
};
use futae_policy::VolumeId;
use std::ops::RangeInclusive;
use std::path::Path;

/// The unit of [`View::Start`].
pub(crate) const SECTOR_BYTES: u64 = 512;

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
    digest: Digest,
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
        let mut starts = Vec::with_capacity(START_BATCH);
        loop {
            if view == View::Start && reader.read_starts(&mut starts, START_BATCH).is_some() {
                let added = builder.add_reads(&starts);
                added.map_err(|kind| failed(kind, reader.path()))?;
                starts.clear();
                continue;
            }
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

    /// The digest of its accesses.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        &self.digest
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
        let count = (self.trace.ids.len() - self.next).min(out.len());
        let mut left = &mut out[..count];
        let mut at = self.next;
        // By the words in which the marks of writes are, of which many have none.
        while !left.is_empty() {
            let (word, bit) = (self.trace.writes[at / BATCH], at % BATCH);
            let (now, later) = left.split_at_mut((BATCH - bit).min(left.len()));
            let ids = &self.trace.ids[at..at + now.len()];
            if word == 0 {
                for (request, &id) in now.iter_mut().zip(ids) {
                    *request = BlockRequest::read(u64::from(id));
                }
            } else {
                for (request, (&id, bit)) in now.iter_mut().zip(ids.iter().zip(bit..)) {
                    *request = access(id, word, bit);
                }
            }
            at += now.len();
            left = later;
        }
        self.next += count;
        count
    }

    fn in_memory(&mut self, limit: usize) -> Option<InMemory<'_>> {
        // Marks of writes begin with their word.
        let (begin, all) = (self.next, &self.trace.ids);
        if begin >= all.len() || !begin.is_multiple_of(BATCH) {
            return None;
        }
        self.next = all.len().min(begin + limit);
        Some(InMemory {
            blocks: &all[begin..self.next],
            writes: &self.trace.writes[begin / BATCH..self.next.div_ceil(BATCH)],
        })
    }
}

/// The access to a block whose write mark is the bit `at` of `marks`.
#[inline]
fn access(id: u32, marks: u64, at: usize) -> BlockRequest {
    BlockRequest::new(u64::from(id), marks >> at & 1 == 1)
}

/// So many requests are read at a time: few enough for the processor's nearest cache.
const READ_BATCH: usize = 256;
/// So many where only their blocks are read.
const START_BATCH: usize = 1024;
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
    /// The accesses that were numbered last, and their write marks: not yet in the digest.
    last: Vec<u32>,
    last_marks: u64,
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
            last: Vec::with_capacity(BATCH),
            last_marks: 0,
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

    /// Adds reads of one block each of volume 0.
    fn add_reads(&mut self, blocks: &[u64]) -> Result<(), TraceErrorKind> {
        self.trace.requests += blocks.len() as u64;
        let first = (BATCH - self.waiting) % BATCH;
        let (first, others) = blocks.split_at(first.min(blocks.len()));
        let mut whole = others.chunks_exact(BATCH);
        for &block in first {
            self.access(VolumeId(0), block, false)?;
        }
        for blocks in &mut whole {
            self.number(&[VolumeId(0); BATCH], blocks, 0)?;
        }
        for &block in whole.remainder() {
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
        let waiting = std::mem::take(&mut self.waiting);
        let (volumes, blocks) = (self.volumes, self.blocks);
        let marks = std::mem::take(&mut self.marks);
        self.number(&volumes[..waiting], &blocks[..waiting], marks)
    }

    /// Numbers the next accesses, at most a batch. Those before them are taken into the digest
    /// meanwhile, for which the processor has time while it waits for memory.
    #[inline]
    fn number(
        &mut self,
        volumes: &[VolumeId],
        blocks: &[u64],
        marks: u64,
    ) -> Result<(), TraceErrorKind> {
        let numbers = &mut self.trace.ids;
        let begin = numbers.len();
        let mut digest = self.trace.digest;
        let numbered = if let (Ok(last), BATCH) = (self.last[..].try_into(), blocks.len()) {
            let (last, marks): (&[u32; BATCH], _) = (last, self.last_marks);
            let numbering = &mut self.numbering;
            if marks == 0 {
                let read = |at: usize| digest.add_one(access(last[at % BATCH], 0, at));
                numbering.number_all(volumes, blocks, numbers, read)
            } else {
                let any = |at: usize| digest.add_one(access(last[at % BATCH], marks, at));
                numbering.number_all(volumes, blocks, numbers, any)
            }
        } else {
            for (&id, at) in self.last.iter().zip(0..) {
                digest.add_one(access(id, self.last_marks, at));
            }
            self.numbering.number_all(volumes, blocks, numbers, |_| {})
        };
        self.trace.digest = digest;
        self.last.clear();
        self.last.extend_from_slice(&self.trace.ids[begin..]);
        self.last_marks = marks;
        self.trace.writes.push(marks);
        numbered.ok_or(TraceErrorKind::TooManyBlocks)
    }

    fn finish(mut self) -> Result<DenseTrace, TraceErrorKind> {
        if self.waiting > 0 {
            self.number_waiting()?;
        }
        for (&id, at) in self.last.iter().zip(0..) {
            let access = access(id, self.last_marks, at);
            self.trace.digest.add_one(access);
        }
        self.trace.distinct = self.numbering.count();
        Ok(self.trace)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        BlockRequest, BlockStream, DenseTrace, Digest, Request, RequestKind, View, VolumeId,
    };
    use crate::{Format, RequestReader, TraceOptions, TraceReader};
    use std::io::Cursor;
    use std::path::Path;

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

    /// Longer than what is read at a time, so that records lie across the ends of reads; a number that
    /// is no block is among them.
    #[test]
    fn block_numbers_are_read_as_requests_are() -> Result<(), Box<dyn std::error::Error>> {
        let object = |i: u64| if i == 9000 { u64::MAX } else { i * i % 5000 };
        let mut bytes = Vec::new();
        for i in 0..30_000 {
            bytes.extend_from_slice(&(i as u32 / 1000).to_le_bytes());
            bytes.extend_from_slice(&object(i).to_le_bytes());
            bytes.extend_from_slice(&[0; 4]);
            bytes.extend_from_slice(&(-1i64).to_le_bytes());
        }
        let options = TraceOptions {
            format: Some(Format::OracleGeneral),
            ..TraceOptions::default()
        };
        let name = Path::new("numbers");
        let open = || TraceReader::new(name, Cursor::new(bytes.clone()), &options);
        let requests = open()?.collect::<Result<Vec<Request>, _>>()?;
        assert_eq!(requests.len(), 30_000);
        let (mut starts, mut reader) = (Vec::new(), open()?);
        assert_eq!(
            reader.read_starts(&mut starts, 10),
            None,
            "nothing is in memory"
        );
        reader.next();
        assert_eq!(reader.read_starts(&mut starts, 10), Some(4096));
        assert_eq!(
            starts,
            [1, 4, 9, 16, 25, 36, 49, 64, 81, 100].map(|at| at * 8)
        );
        let trace = DenseTrace::read(&mut open()?, View::Start)?;
        assert_eq!(trace, DenseTrace::from_requests(&requests, View::Start)?);
        Ok(())
    }

    #[test]
    fn the_digest_is_that_of_the_stream() -> Result<(), Box<dyn std::error::Error>> {
        for length in [0, 1, 63, 64, 65, 128, 1000] {
            let kind = |i| match i {
                200..300 => RequestKind::Write,
                _ => RequestKind::Read,
            };
            let requests: Vec<Request> = (0..length)
                .map(|i| request(0, i * i % 97 * 512, 512, kind(i)))
                .collect();
            let trace = DenseTrace::from_requests(&requests, View::Start)?;
            let mut all = vec![BlockRequest::default(); requests.len()];
            trace.stream().fill(&mut all);
            let mut digest = Digest::default();
            digest.add(&all);
            assert_eq!(trace.digest(), &digest, "{length} requests");
        }
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
