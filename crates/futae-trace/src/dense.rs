//! Traces as dense block numbers, so that any number of runs index plain arrays.

mod builder;
mod pieces;
mod places;
mod trace;
mod view;

use crate::format::RequestReader;
use crate::{Request, TraceError, TraceErrorKind};
use builder::{Builder, failed};
pub use pieces::{DensePieces, Pieced};
use places::Places;
pub use trace::{DenseStream, DenseTrace};
pub(crate) use view::SECTOR_BYTES;
pub use view::View;

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
}

#[cfg(test)]
mod tests {
    use super::{Builder, DenseTrace, Request, View};
    use crate::{BlockRequest, BlockStream, Digest, RequestKind};
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
