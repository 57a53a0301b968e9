//! A file whose contents are a volume of the engine.

use crate::errno::errno;
use crate::lock::locked;
use crate::mapped::{MappedPages, PastPages, Writer};
use crate::one_read::{OneRead, answer};
use crate::split_reads::SplitReads;
use crate::under_way::UnderWay;
use fuser::Errno;
use futae_engine::{
    Asked, ClientId, Done, Engine, Extent, IoBuf, IoError, Latencies, Operation, ReadRange, Request,
};
use futae_policy::VolumeId;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// `fallocate` modes, from `linux/falloc.h`.
mod mode {
    pub(super) const KEEP_SIZE: i32 = 0x01;
    pub(super) const PUNCH_HOLE: i32 = 0x02;
    pub(super) const ZERO_RANGE: i32 = 0x10;
}

/// `lseek` origins, from `linux/fs.h`.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// A volume as a file.
pub(crate) struct VolumeFile {
    engine: Arc<Engine>,
    volume: VolumeId,
    client: ClientId,
    latencies: Arc<Latencies>,
    pub(crate) size_bytes: u64,
    pub(crate) read_only: bool,
    /// The time of the mount; `modified_nanos` counts from here.
    epoch: SystemTime,
    modified_nanos: AtomicU64,
    /// Number of requests so far, the sequence of the client's decisions.
    sequence: AtomicU64,
    longest: AtomicU32,
    /// Whether anything was written since the mount.
    has_written: AtomicBool,
    /// Changes that were answered, and how many of them a flush has covered.
    answered: AtomicU64,
    flushed: AtomicU64,
    /// How a flush failed of which only a close was told.
    failed_at_close: Mutex<Option<Errno>>,
    split_reads: SplitReads,
    /// Its pages in the kernel's page cache, if that is bypassed.
    pub(crate) pages: Arc<MappedPages>,
}

impl VolumeFile {
    pub(crate) fn new(engine: Arc<Engine>, volume: VolumeId, join_reads_bytes: u64) -> Self {
        Self {
            split_reads: SplitReads::new(engine.block_bytes(), join_reads_bytes),
            client: engine.identify(),
            latencies: engine.latencies(volume),
            size_bytes: engine.volume_bytes(volume),
            read_only: engine.is_read_only(volume),
            engine,
            volume,
            epoch: SystemTime::now(),
            modified_nanos: AtomicU64::new(0),
            sequence: AtomicU64::new(0),
            longest: AtomicU32::new(0),
            has_written: AtomicBool::new(false),
            answered: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            failed_at_close: Mutex::new(None),
            pages: Arc::default(),
        }
    }

    pub(crate) fn modified(&self) -> SystemTime {
        self.epoch + Duration::from_nanos(self.modified_nanos.load(Ordering::Relaxed))
    }

    fn touch(&self) {
        self.has_written.store(true, Ordering::Relaxed);
        let nanos = self.epoch.elapsed().unwrap_or_default().as_nanos();
        self.modified_nanos
            .fetch_max(nanos as u64, Ordering::Relaxed);
    }

    /// The longest read or write that the kernel has sent.
    pub(crate) fn longest_request_bytes(&self) -> u32 {
        self.longest.load(Ordering::Relaxed)
    }

    fn note_length(&self, length: u32) {
        if length > self.longest.load(Ordering::Relaxed) {
            self.longest.fetch_max(length, Ordering::Relaxed);
        }
    }

    fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn submit(&self, operation: Operation, done: Done) {
        let sequence = self.next_sequence();
        let (volume, client) = (self.volume, self.client);
        self.engine.submit(Request {
            volume,
            client,
            sequence,
            operation,
            done,
        });
    }

    /// A request that begins now.
    fn watch(&self, asked: Asked, bytes: u64) -> UnderWay {
        UnderWay::begin(&self.latencies, asked, bytes)
    }

    /// Reads a range, up to the end of the file.
    pub(crate) fn read(
        &self,
        offset: u64,
        length: u32,
        done: impl FnOnce(Result<&[u8], Errno>) + Send + 'static,
    ) {
        self.note_length(length);
        let length = u64::from(length).min(self.size_bytes.saturating_sub(offset));
        if length == 0 {
            return done(Ok(&[]));
        }
        let under_way = self.watch(Asked::Read, length);
        let done = move |result: Result<&[u8], Errno>| {
            under_way.end(result.is_err());
            done(result);
        };
        if self.split_reads.goes_on(offset, length) {
            let operation = Operation::ReadOn { offset, length };
            return self.submit(operation, Box::new(move |result| answer(done, result)));
        }
        let range = ReadRange {
            volume: self.volume,
            offset,
            length,
        };
        let sequence = self.next_sequence();
        let mut read = OneRead::new(range, self.client, sequence, done);
        self.engine.run_batch(1, &mut read);
        read.answer();
    }

    /// Writes the data that fit and returns their length. Like a disk, the file does not grow.
    /// `past`: the pages that the kernel may have of it, and who writes, if the file is opened past the page cache.
    pub(crate) fn write(
        self: &Arc<Self>,
        past: Option<(Writer, PastPages)>,
        offset: u64,
        mut data: IoBuf,
        fua: bool,
        done: impl FnOnce(Result<u32, Errno>) + Send + 'static,
    ) {
        self.note_length(data.len() as u32);
        let length = (data.len() as u64).min(self.size_bytes.saturating_sub(offset));
        if data.is_empty() {
            return done(Ok(0));
        }
        if length == 0 {
            return done(Err(Errno::ENOSPC));
        }
        self.touch();
        data.show(length as usize);
        let under_way = self.watch(Asked::Write, length);
        let file = Arc::clone(self);
        let answer = move |result: Result<IoBuf, IoError>| {
            under_way.end(result.is_err());
            file.answered.fetch_add(1, Ordering::AcqRel);
            done(result.map(|_| length as u32).map_err(|error| errno(&error)));
        };
        let (work, done) = (Operation::Write { offset, data, fua }, Box::new(answer));
        match past {
            None => self.submit(work, done),
            Some((writer, past)) => {
                let file = Arc::clone(self);
                let submit = move |work, done| file.submit(work, done);
                past.write(writer, offset, work, submit, done);
            }
        }
    }

    /// Writes everything that was answered to stable storage. A failure that only a close was told of counts again, once: a
    /// close by another process, such as a child, tells nobody who can act on it.
    pub(crate) fn flush(self: &Arc<Self>, done: impl FnOnce(Result<(), Errno>) + Send + 'static) {
        let untold = locked(&self.failed_at_close).take();
        self.flush_now(move |result, _| done(untold.map_or(result, Err)));
    }

    /// As [`flush`](Self::flush), when a descriptor is closed.
    pub(crate) fn flush_at_close(
        self: &Arc<Self>,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let file = Arc::clone(self);
        self.flush_now(move |result, has_changes| {
            // Of no change nothing can be lost, and the store may be gone.
            if has_changes && let Err(errno) = result {
                *locked(&file.failed_at_close) = Some(errno);
            }
            done(result);
        });
    }

    /// Flushes, and says whether there were changes that no flush had covered before.
    fn flush_now(self: &Arc<Self>, done: impl FnOnce(Result<(), Errno>, bool) + Send + 'static) {
        let answered = self.answered.load(Ordering::Acquire);
        let file = Arc::clone(self);
        let done = move |result: Result<(), Errno>| {
            let has_changes = answered > file.flushed.load(Ordering::Acquire);
            if result.is_ok() {
                file.flushed.fetch_max(answered, Ordering::AcqRel);
            }
            done(result, has_changes);
        };
        let under_way = self.watch(Asked::Flush, 0);
        self.submit(Operation::Flush, without_data(under_way, done));
    }

    /// As [`flush`](Self::flush), and waits. If nothing was written, there is nothing to lose, and the store may be gone.
    pub(crate) fn flush_and_wait(&self) -> Result<(), IoError> {
        if !self.has_written.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.engine
            .wait(self.volume, self.client, Operation::Flush)
            .map(drop)
    }

    /// Punches a hole or zeroes a range. Both must read as zeroes afterwards, so a hole is a
    /// zeroing that may deallocate, not a trim.
    pub(crate) fn allocate(
        self: &Arc<Self>,
        offset: u64,
        length: u64,
        what: i32,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let no_hole = match what & !mode::KEEP_SIZE {
            mode::PUNCH_HOLE => false,
            mode::ZERO_RANGE => true,
            _ => return done(Err(Errno::EOPNOTSUPP)),
        };
        let end = offset.saturating_add(length);
        if what & mode::KEEP_SIZE == 0 && end > self.size_bytes {
            return done(Err(Errno::ENOSPC));
        }
        let length = end.min(self.size_bytes).saturating_sub(offset);
        if length == 0 {
            return done(Ok(()));
        }
        self.touch();
        let fua = false;
        let operation = Operation::WriteZeroes {
            offset,
            length,
            fua,
            no_hole,
        };
        let under_way = self.watch(Asked::Zero, length);
        let file = Arc::clone(self);
        let done = move |result| {
            file.answered.fetch_add(1, Ordering::AcqRel);
            done(result);
        };
        self.submit(operation, without_data(under_way, done));
    }

    /// Finds the start of the next data or hole, at or after `offset`. The store may take long to tell, so the answer comes
    /// on another thread.
    pub(crate) fn seek(
        &self,
        offset: u64,
        whence: i32,
        done: impl FnOnce(Result<u64, Errno>) + Send + 'static,
    ) {
        let wants_hole = match whence {
            SEEK_DATA => false,
            SEEK_HOLE => true,
            _ => return done(Err(Errno::EINVAL)),
        };
        let size_bytes = self.size_bytes;
        if offset >= size_bytes {
            return done(Err(Errno::ENXIO));
        }
        let found = move |extents: Vec<Extent>| {
            let mut at = offset;
            for extent in extents {
                if extent.hole == wants_hole {
                    return Ok(at);
                }
                at += extent.length;
            }
            // The end of the file counts as a hole.
            wants_hole.then_some(size_bytes).ok_or(Errno::ENXIO)
        };
        let told = move |extents: Result<_, IoError>| {
            done(extents.map_err(|error| errno(&error)).and_then(found));
        };
        let length = size_bytes - offset;
        let engine = &self.engine;
        engine.extents_later(self.volume, offset, length, Box::new(told));
    }
}

fn without_data(
    under_way: UnderWay,
    done: impl FnOnce(Result<(), Errno>) + Send + 'static,
) -> Done {
    Box::new(move |result| {
        under_way.end(result.is_err());
        done(result.map(drop).map_err(|error| errno(&error)));
    })
}

/// Flushes one file after the other, until one fails.
pub(crate) fn flush_all(
    mut files: impl Iterator<Item = Arc<VolumeFile>> + Send + 'static,
    done: impl FnOnce(Result<(), Errno>) + Send + 'static,
) {
    // Boxed, since the function calls itself.
    let done: Flushed = Box::new(done);
    match files.next() {
        None => done(Ok(())),
        Some(file) => file.flush(move |result| match result {
            Ok(()) => flush_all(files, done),
            Err(errno) => done(Err(errno)),
        }),
    }
}

type Flushed = Box<dyn FnOnce(Result<(), Errno>) + Send>;
