//! A file or block device as a store, which bypasses the kernel's page cache.

mod cut;
mod disk;
mod drop_page_cache;
mod end;
mod holder;
mod identity;
mod image_locks;
mod incoming;
mod io;
mod job;
mod length;
mod lock;
mod ofd;
mod opening;
mod sector;
mod stamp;
mod threads;
mod uring;

use crate::{
    Extent, IoBuf, IoError, IoErrorKind, PAGE_BYTES, SetupError, Store, StoreDone, StoreOperation,
    StoreStamp,
};
use disk::Disk;
pub use disk::FileIo;
use end::End;
pub use holder::{LockHolder, lock_holder};
use incoming::Possession;
use job::{Job, Work};
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;
use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A write that ends in the middle of a page is split if its whole pages have at least this many
/// bytes, so that these bypass the page cache. For a shorter write, two disk writes would take
/// longer than they save.
const HALVES_BYTES: usize = 64 << 10;
/// Zeroes per write if the store has no operation for zeroing.
const ZERO_CHUNK_BYTES: u64 = 1 << 20;

/// A disk image or block device.
///
/// It is opened with `O_DIRECT`, so that the kernel does not cache the same data again, and read
/// with io_uring. If the file system refuses `O_DIRECT` or the kernel refuses io_uring, buffered
/// I/O or a few threads take their place, and [`Store::describe`] says so. Unaligned ranges are
/// buffered; their pages are dropped from the page cache afterwards: at once after a read, and soon
/// after a write has reached the disk.
pub struct FileStore {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    /// The size when it was last checked.
    size_bytes: AtomicU64,
    /// The current end of the file.
    end: End,
    read_only: bool,
    direct: Option<Arc<File>>,
    buffered: Arc<File>,
    /// The descriptor through which pages are dropped from the page cache.
    dropped: OnceLock<Arc<File>>,
    disk: Arc<Disk>,
    buffered_fallbacks: AtomicU64,
    possession: Arc<Possession>,
}

impl FileStore {
    /// Opens a regular file or block device and locks it against other futae processes
    /// (exclusively, or shared for reading).
    pub fn open(path: &Path, read_only: bool) -> Result<Self, SetupError> {
        Self::open_with(path, read_only, false, &FileIo::new())
    }

    /// Opens a regular file or block device for writing which another process may have locked, because the guest that uses it is
    /// migrated from there to here. Takes the lock as soon as it is free ([`Store::is_ours`]). The store has no identity and no
    /// stamp: what was cached of it earlier is out of date.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open), except that it may be in use.
    pub fn open_incoming(path: &Path) -> Result<Self, SetupError> {
        Self::open_with(path, false, true, &FileIo::new())
    }

    /// Whether a path can be opened as a store, as far as reading it shows, and the size that it would have. Nothing is locked.
    ///
    /// # Errors
    ///
    /// Why it cannot.
    pub fn check(path: &Path) -> Result<u64, SetupError> {
        length::of_path(path).map_err(|problem| SetupError::Open {
            path: path.to_owned(),
            problem,
        })
    }

    fn open_with(
        path: &Path,
        read_only: bool,
        incoming: bool,
        io: &FileIo,
    ) -> Result<Self, SetupError> {
        let opened = opening::open(path, read_only, incoming)?;
        let inner = Inner {
            path: path.to_owned(),
            size_bytes: AtomicU64::new(opened.size_bytes),
            end: opened.end,
            read_only,
            direct: opened.direct,
            buffered: opened.buffered,
            dropped: OnceLock::new(),
            disk: Arc::clone(&io.0),
            buffered_fallbacks: AtomicU64::new(0),
            possession: opened.possession,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }
}

impl FileStore {
    /// A store on opened files, one of many that share `io`: `direct` with `O_DIRECT` if that is
    /// available, `buffered` without. `path` is for messages. Nothing is locked, and the size is
    /// that of the file now.
    ///
    /// # Errors
    ///
    /// The error of `fstat`.
    pub fn of_file(
        io: &FileIo,
        path: PathBuf,
        buffered: File,
        direct: Option<File>,
        read_only: bool,
    ) -> std::io::Result<Self> {
        let inner = Inner {
            path,
            size_bytes: AtomicU64::new(buffered.metadata()?.len()),
            end: End::free(),
            read_only,
            direct: direct.map(Arc::new),
            buffered: Arc::new(buffered),
            dropped: OnceLock::new(),
            disk: Arc::clone(&io.0),
            buffered_fallbacks: AtomicU64::new(0),
            possession: Arc::new(Possession::taken()),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// The buffered file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.inner.buffered
    }

    /// Writes the data and all attributes to stable storage. A flush leaves out attributes that are
    /// not needed to find the data.
    pub fn sync(&self, done: StoreDone) {
        self.inner.flush(Work::Sync, done);
    }
}

impl Inner {
    fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    /// Adopts a greater length.
    fn look_again(&self) -> Result<u64, IoError> {
        let after = length::again(&self.buffered, &self.path, self.size_bytes());
        let after = after.map_err(|problem| {
            let message = format!("{}: {problem}", self.path.display());
            IoError::new(IoErrorKind::Unsupported, message)
        })?;
        self.size_bytes.store(after, Ordering::Relaxed);
        self.end.move_to(after);
        Ok(after)
    }

    /// The descriptor for a range: the direct one if the range consists of whole pages.
    fn file_for(&self, offset: u64, length: u64) -> &Arc<File> {
        let page = PAGE_BYTES as u64;
        match &self.direct {
            Some(direct) if offset.is_multiple_of(page) && length.is_multiple_of(page) => direct,
            _ => &self.buffered,
        }
    }

    fn failure(&self, what: &str, offset: u64, length: u64, error: &std::io::Error) -> IoError {
        let path = self.path.display();
        IoError::os(
            &format!("{path}: {what} of {length} bytes at {offset}"),
            error,
        )
    }

    /// Splits a write that ends in the middle of a page: the whole pages stay, the rest is
    /// returned, so that only the rest goes through the page cache.
    fn halves(&self, work: Work, offset: u64, buffer: &mut IoBuf) -> Option<IoBuf> {
        let page = PAGE_BYTES as u64;
        let whole = buffer.len() / PAGE_BYTES * PAGE_BYTES;
        let is_write = matches!(work, Work::Write { .. });
        let divides = is_write && self.direct.is_some() && offset.is_multiple_of(page);
        if !divides || whole < HALVES_BYTES || whole == buffer.len() {
            return None;
        }
        let rest = IoBuf::copy_of(&buffer.as_slice()[whole..]);
        buffer.show(whole);
        Some(rest)
    }

    fn transfer(self: &Arc<Self>, work: Work, offset: u64, mut buffer: IoBuf, done: StoreDone) {
        if let Some(rest) = self.halves(work, offset, &mut buffer) {
            let (inner, whole) = (Arc::clone(self), buffer.len());
            let next: StoreDone = Box::new(move |result| match result {
                Ok(mut buffer) => {
                    // The caller gets back the whole buffer.
                    buffer.show(whole + rest.len());
                    let all: StoreDone = Box::new(move |result| done(result.map(|_| buffer)));
                    inner.transfer(work, offset + whole as u64, rest, all);
                }
                Err(error) => done(Err(error)),
            });
            return self.transfer(work, offset, buffer, next);
        }
        let (inner, length) = (Arc::clone(self), buffer.len() as u64);
        let what = if matches!(work, Work::Read) {
            "read"
        } else {
            "write"
        };
        let file = Arc::clone(self.file_for(offset, length));
        let is_cached = Arc::ptr_eq(&file, &self.buffered);
        if is_cached {
            self.disk
                .buffered_bytes
                .fetch_add(length, Ordering::Relaxed);
        }
        if is_cached || !self.disk.io.is_uring() {
            self.buffered_fallbacks.fetch_add(1, Ordering::Relaxed);
        }
        let finish = Box::new(move |result: std::io::Result<IoBuf>| {
            if matches!(&result, Err(error) if error.kind() == ErrorKind::UnexpectedEof) {
                inner.end.look(&inner.buffered, &inner.path);
            }
            if is_cached {
                inner.drop_page_cache(offset..offset + length, matches!(work, Work::Write { .. }));
            }
            done(result.map_err(|error| inner.failure(what, offset, length, &error)));
        });
        self.disk.io.start(Job {
            file,
            work,
            offset,
            length,
            buffer,
            done: finish,
        });
    }

    /// Drops a range from the page cache: at once, or when it has reached the disk.
    fn drop_page_cache(&self, range: Range<u64>, is_written: bool) {
        if !is_written {
            return drop_page_cache::drop_pages(&self.buffered, &range);
        }
        let dropped = || drop_page_cache::descriptor(&self.buffered);
        let file = self.dropped.get_or_init(dropped);
        self.disk.page_cache.note(file, range);
    }

    /// Deallocates or zeroes a range in place; `next` gets the file system's result.
    fn allocate(
        self: &Arc<Self>,
        mode: FallocateFlags,
        offset: u64,
        length: u64,
        next: impl FnOnce(std::io::Result<()>) + Send + 'static,
    ) {
        let inner = Arc::clone(self);
        self.disk.io.start(Job {
            file: Arc::clone(&self.buffered),
            work: Work::Allocate(mode),
            offset,
            length,
            buffer: IoBuf::new(0),
            done: Box::new(move |result| {
                // The file system zeroes partial pages at the ends in the page cache.
                inner.drop_page_cache(offset..offset + length, true);
                next(result.map(drop));
            }),
        });
    }

    fn flush(self: &Arc<Self>, work: Work, done: StoreDone) {
        let inner = Arc::clone(self);
        self.disk.io.start(Job {
            file: Arc::clone(&self.buffered),
            work,
            offset: 0,
            length: 0,
            buffer: IoBuf::new(0),
            done: Box::new(move |result| {
                done(result.map_err(|error| inner.failure("flush", 0, inner.size_bytes(), &error)));
            }),
        });
    }

    fn trim(self: &Arc<Self>, offset: u64, length: u64, done: StoreDone) {
        let inner = Arc::clone(self);
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.allocate(mode, offset, length, move |result| {
            done(match result {
                Err(error) if !cannot(&error) => Err(inner.failure("trim", offset, length, &error)),
                // A store that cannot trim keeps the data, which is allowed.
                Ok(()) | Err(_) => Ok(IoBuf::new(0)),
            });
        });
    }

    fn write_zeroes(self: &Arc<Self>, span: (u64, u64), fua: bool, no_hole: bool, done: StoreDone) {
        let inner = Arc::clone(self);
        let how = if no_hole {
            FallocateFlags::ZERO_RANGE
        } else {
            FallocateFlags::PUNCH_HOLE
        };
        let (offset, length) = span;
        let mode = how | FallocateFlags::KEEP_SIZE;
        self.allocate(mode, offset, length, move |result| match result {
            Ok(()) if fua => inner.flush(Work::Flush, done),
            Ok(()) => done(Ok(IoBuf::new(0))),
            Err(error) if cannot(&error) => inner.fill_zeroes(offset, offset + length, fua, done),
            Err(error) => done(Err(inner.failure("zeroing", offset, length, &error))),
        });
    }

    /// Writes zeroes, chunk by chunk.
    fn fill_zeroes(self: &Arc<Self>, offset: u64, end: u64, fua: bool, done: StoreDone) {
        if offset == end {
            return done(Ok(IoBuf::new(0)));
        }
        // Up to a chunk boundary, so that all chunks but the first and the last are whole pages.
        let chunk_end = ((offset / ZERO_CHUNK_BYTES + 1) * ZERO_CHUNK_BYTES).min(end);
        let buffer = IoBuf::zeroed((chunk_end - offset) as usize);
        let inner = Arc::clone(self);
        let next: StoreDone = Box::new(move |result| match result {
            Ok(_) => inner.fill_zeroes(chunk_end, end, fua, done),
            Err(error) => done(Err(error)),
        });
        self.transfer(Work::Write { fua }, offset, buffer, next);
    }
}

/// Whether the file system does not support the operation.
fn cannot(error: &std::io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::NODEV)
    )
}

impl Store for FileStore {
    fn identity(&self) -> Option<[u8; 16]> {
        match self.inner.possession.is_incoming {
            true => None,
            false => identity::identity(&self.inner.buffered),
        }
    }

    fn stamp(&self) -> Option<StoreStamp> {
        match self.inner.possession.is_incoming {
            true => None,
            false => stamp::stamp(&self.inner.buffered),
        }
    }

    fn is_incoming(&self) -> bool {
        self.inner.possession.is_incoming
    }

    fn is_ours(&self) -> bool {
        self.inner.possession.is_locked()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn look_again(&self) -> Result<u64, IoError> {
        self.inner.look_again()
    }

    fn describe(&self) -> String {
        let cached = if self.inner.direct.is_some() {
            "O_DIRECT"
        } else {
            "no O_DIRECT here"
        };
        format!(
            "{} ({cached}, {})",
            self.inner.path.display(),
            self.inner.disk.io.name()
        )
    }

    fn is_read_only(&self) -> bool {
        self.inner.read_only
    }

    fn buffered_fallbacks(&self) -> u64 {
        self.inner.buffered_fallbacks.load(Ordering::Relaxed)
    }

    fn submit(&self, _sequence: u64, operation: StoreOperation, done: StoreDone) {
        let inner = &self.inner;
        if let Err(error) = inner.refuse_cut(&operation) {
            return done(Err(error));
        }
        match operation {
            StoreOperation::Read { offset, buffer } => {
                inner.transfer(Work::Read, offset, buffer, done);
            }
            StoreOperation::Write {
                offset,
                buffer,
                fua,
            } => {
                inner.transfer(Work::Write { fua }, offset, buffer, done);
            }
            StoreOperation::Flush => inner.flush(Work::Flush, done),
            StoreOperation::Trim { offset, length } => inner.trim(offset, length, done),
            StoreOperation::WriteZeroes {
                offset,
                length,
                fua,
                no_hole,
            } => {
                inner.write_zeroes((offset, length), fua, no_hole, done);
            }
        }
    }

    fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>, IoError> {
        let end = offset + length;
        // Otherwise everything behind a truncated end would appear as a hole.
        self.inner.look_and_check("extents", offset, length)?;
        let (mut at, mut extents) = (offset, Vec::new());
        while at < end {
            let data = self.seek(SeekFrom::Data(at), end)?;
            if data > at {
                extents.push(Extent {
                    length: data - at,
                    hole: true,
                });
            }
            if data == end {
                break;
            }
            at = self.seek(SeekFrom::Hole(data), end)?;
            extents.push(Extent {
                length: at - data,
                hole: false,
            });
        }
        Ok(extents)
    }
}

impl FileStore {
    /// The start of the next data or hole; `end` if there is none before it.
    fn seek(&self, to: SeekFrom, end: u64) -> Result<u64, IoError> {
        match rustix::fs::seek(&*self.inner.buffered, to) {
            Ok(at) => Ok(at.min(end)),
            Err(Errno::NXIO) => Ok(end),
            // The store does not report holes: everything is data.
            Err(Errno::INVAL) => Ok(if let SeekFrom::Data(at) = to { at } else { end }),
            Err(errno) => {
                let message = format!("{}: {errno}", self.inner.path.display());
                Err(IoError::new(IoErrorKind::Store, message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::io::Io;
    use super::threads::Threads;
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn an_image_stays_locked_while_a_direct_write_is_under_way() {
        let image = tempfile::NamedTempFile::new().expect("an image");
        image.as_file().set_len(1 << 20).expect("its size");
        let store = FileStore::open(image.path(), false).expect("a store");
        let Some(under_way) = store.inner.direct.clone() else {
            return; // The file system has no O_DIRECT.
        };
        drop(store);
        let refused = FileStore::open(image.path(), false).err();
        let problem = refused.expect("refused").to_string();
        assert!(problem.contains("is in use"), "{problem}");
        drop(under_way);
        assert!(FileStore::open(image.path(), false).is_ok());
    }

    #[test]
    fn threads_do_the_same_where_there_is_no_io_uring() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("disk.img");
        File::create(&path)
            .expect("an image")
            .set_len(1 << 20)
            .expect("its size");
        let io = FileIo::by(Io::Threads(Threads::new()));
        let store = FileStore::open_with(&path, false, false, &io).expect("a store");
        let wait = |operation| {
            let (sender, receiver) = mpsc::sync_channel(1);
            store.submit(
                0,
                operation,
                Box::new(move |result| drop(sender.send(result))),
            );
            receiver.recv().expect("answered")
        };
        let buffer = IoBuf::copy_of(&[7; 8192]);
        wait(StoreOperation::Write {
            offset: 4096,
            buffer,
            fua: true,
        })
        .expect("written");
        let zero = StoreOperation::WriteZeroes {
            offset: 0,
            length: 8192,
            fua: true,
            no_hole: false,
        };
        wait(zero).expect("zeroed");
        wait(StoreOperation::Flush).expect("flushed");
        let read = StoreOperation::Read {
            offset: 0,
            buffer: IoBuf::new(16384),
        };
        let bytes = wait(read).expect("read");
        let written: Vec<usize> = (0..16384).filter(|&at| bytes.as_slice()[at] == 7).collect();
        assert_eq!(written, (8192..12288).collect::<Vec<_>>());
        assert!(store.describe().contains("threads") && store.buffered_fallbacks() >= 2);
        File::options()
            .write(true)
            .open(&path)
            .expect("the image")
            .set_len(4096)
            .expect("cut");
        let read = StoreOperation::Read {
            offset: 65536,
            buffer: IoBuf::new(4096),
        };
        assert_eq!(
            wait(read).expect_err("beyond the end").kind,
            IoErrorKind::Store
        );
    }
}
