//! Traces as dense block numbers, so that any number of runs index plain arrays.

mod builder;
mod pieces;
mod places;

use crate::format::RequestReader;
use crate::{BlockRequest, BlockStream, Digest, InMemory, Request, TraceError, TraceErrorKind};
use builder::{BATCH, Builder, failed};
pub use pieces::{DensePieces, Pieced};
use places::Places;
use std::ops::RangeInclusive;

/// The unit of [`View::Start`].
pub(crate) const SECTOR_BYTES: u64 = 512;

/// How requests become blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum View {
    /// One block per request, named by its volume and the sector (512 bytes) where it starts; the
    /// length is ignored. Cache simulators call this "ignore object size".
    Start,
    /// The blocks of this many bytes that the request touches, wholly or partly, in order.
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

/// A whole trace, its distinct blocks numbered from 0: in the order of their first access, or of their places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DenseTrace {
    ids: Vec<u32>,
    /// One bit an access.
    writes: Vec<u64>,
    distinct: u32,
    numbers: u32,
    /// The number at which each volume begins, if blocks are numbered by their places.
    volumes: Vec<u32>,
    /// Where the blocks lie, if that was kept.
    places: Places,
    requests: u64,
    digest: Digest,
}

impl DenseTrace {
    /// Reads all of a trace. The block size of the view must not be 0.
    pub fn read(reader: &mut impl RequestReader, view: View) -> Result<Self, TraceError> {
        let mut builder = Builder::new(view);
        while builder.read_some(reader)? {}
        builder.end().map_err(|kind| failed(reader, kind))?;
        Ok(builder.trace)
    }

    /// As [`read`](Self::read), but also keeps where blocks lie, for [`by_place`](Self::by_place): 8 bytes a block, and 32 more while
    /// it is read.
    pub fn read_with_places(
        reader: &mut impl RequestReader,
        view: View,
    ) -> Result<Self, TraceError> {
        let mut builder = Builder::new(view);
        while builder.read_some(reader)? {}
        builder.end().map_err(|kind| failed(reader, kind))?;
        Ok(builder.with_places())
    }

    /// The same accesses with their blocks numbered in the order of their volumes and of their places there, so that neighbours have
    /// neighbouring numbers. For blocks that are never accessed, numbers are left out: as many as there are before the first block
    /// of a volume and between two others, at most `gap` in each place, and `gap` after the last block of each volume. The digest
    /// remains that of the first accesses' order. The trace must have been [read with places](Self::read_with_places).
    ///
    /// # Errors
    ///
    /// The numbers would be too many.
    pub fn by_place(&self, gap: u32) -> Result<Self, TraceErrorKind> {
        let numbers = self.places.numbers(gap)?;
        Ok(Self {
            ids: self.ids.iter().map(|&id| numbers.of[id as usize]).collect(),
            writes: self.writes.clone(),
            numbers: numbers.count,
            volumes: numbers.volumes,
            places: Places::default(),
            ..*self
        })
    }

    /// Numbers the blocks of requests in memory.
    pub fn from_requests<'a>(
        requests: impl IntoIterator<Item = &'a Request>,
        view: View,
    ) -> Result<Self, TraceErrorKind> {
        let mut builder = Builder::new(view);
        for request in requests {
            builder.add_all(std::slice::from_ref(request))?;
        }
        builder.end()?;
        Ok(builder.trace)
    }

    /// The blocks of the accesses, in order.
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

    /// The number of distinct blocks.
    #[must_use]
    pub fn distinct(&self) -> u32 {
        self.distinct
    }

    /// How many numbers there are for blocks: every id is below it. As many as distinct blocks, unless blocks are numbered by
    /// their places.
    #[must_use]
    pub fn numbers(&self) -> u32 {
        self.numbers
    }

    /// The number at which each volume begins, in order, if blocks are numbered by their places.
    #[must_use]
    pub fn volumes(&self) -> &[u32] {
        &self.volumes
    }

    /// The number of requests; each is one access or more.
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
        self.trace.fill(&mut self.next, out)
    }

    fn in_memory(&mut self, limit: usize) -> Option<InMemory<'_>> {
        self.trace.in_memory(&mut self.next, limit)
    }
}

impl DenseTrace {
    /// Copies the accesses from `next` on.
    fn fill(&self, next: &mut usize, out: &mut [BlockRequest]) -> usize {
        let count = (self.ids.len() - *next).min(out.len());
        let mut left = &mut out[..count];
        // Word by word of the write marks, many of which are 0.
        while !left.is_empty() {
            let (word, bit) = (self.writes[*next / BATCH], *next % BATCH);
            let (now, later) = left.split_at_mut((BATCH - bit).min(left.len()));
            let ids = &self.ids[*next..*next + now.len()];
            for (request, (&id, bit)) in now.iter_mut().zip(ids.iter().zip(bit..)) {
                *request = access(id, word, bit);
            }
            *next += now.len();
            left = later;
        }
        count
    }

    /// Up to `limit` accesses from `next` on, if their write marks begin at a word.
    fn in_memory(&self, next: &mut usize, limit: usize) -> Option<InMemory<'_>> {
        let begin = *next;
        if begin >= self.ids.len() || !begin.is_multiple_of(BATCH) {
            return None;
        }
        *next = self.ids.len().min(begin + limit);
        Some(InMemory {
            blocks: &self.ids[begin..*next],
            writes: &self.writes[begin / BATCH..next.div_ceil(BATCH)],
        })
    }
}

/// The access to a block whose write mark is the bit `at` of `marks`.
#[inline]
fn access(id: u32, marks: u64, at: usize) -> BlockRequest {
    BlockRequest::new(u64::from(id), marks >> at & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::{BlockRequest, BlockStream, Builder, DenseTrace, Digest, Request, View};
    use crate::RequestKind;
    use crate::{Format, RequestReader, TraceOptions, TraceReader};
    use futae_policy::VolumeId;
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
    fn neighbours_have_neighbouring_numbers_by_place() -> Result<(), Box<dyn std::error::Error>> {
        let places = [(0, 7), (0, 100), (1, 8), (0, 8), (0, 10), (0, 7)];
        let requests = places.map(|(volume, at)| request(volume, at * 512, 512, RequestKind::Read));
        let mut builder = Builder::new(View::Start);
        builder.add_all(&requests)?;
        builder.end()?;
        let placed = builder.with_places();
        let first = DenseTrace::from_requests(&requests, View::Start)?;
        assert_eq!((placed.ids(), placed.volumes()), (first.ids(), &[][..]));
        for (gap, ids, numbers, second) in [
            (0, [0, 3, 4, 1, 2, 0], 5, 4),
            (1, [1, 6, 9, 2, 4, 1], 11, 8),
            (32, [7, 43, 84, 8, 10, 7], 117, 76),
        ] {
            let trace = placed.by_place(gap)?;
            assert_eq!((trace.ids(), trace.numbers()), (&ids[..], numbers));
            assert_eq!(trace.volumes(), [0, second], "where volumes begin");
            assert_eq!((trace.distinct(), trace.digest()), (5, first.digest()));
        }
        assert!(placed.by_place(u32::MAX / 2).is_err(), "too many numbers");
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
