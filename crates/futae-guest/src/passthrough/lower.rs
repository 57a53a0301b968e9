//! A lower file as a store. It is open while the upper file is open, separately for reading and
//! writing.

use super::errno::is_full;
use super::kept_handle::KeptOpen;
use super::place::magic;
use super::place::stat_of;
use super::seen::Seen;
use crate::lock::locked;
use futae_engine::{
    FileIo, FileStore, IoBuf, IoError, IoErrorKind, Store, StoreDone, StoreOperation,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct Opened {
    reader: Option<Arc<FileStore>>,
    readers: u32,
    writer: Option<Arc<FileStore>>,
    writers: u32,
}

/// The lower file.
pub(crate) struct LowerFile {
    io: FileIo,
    pub(crate) seen: Arc<Seen>,
    /// `None` while the kernel has forgotten the file.
    place: Mutex<Option<Arc<OwnedFd>>>,
    /// Its path when it was last opened, for messages.
    path: Mutex<PathBuf>,
    opened: Mutex<Opened>,
    pub(super) kept_open: Arc<KeptOpen>,
}

impl LowerFile {
    pub(crate) fn new(io: FileIo, seen: Seen) -> Self {
        Self {
            io,
            seen: Arc::new(seen),
            place: Mutex::new(None),
            path: Mutex::default(),
            opened: Mutex::default(),
            kept_open: Arc::default(),
        }
    }

    /// Sets the file's current place and path.
    pub(crate) fn found(&self, place: Arc<OwnedFd>, path: PathBuf) {
        *locked(&self.place) = Some(place);
        *locked(&self.path) = path;
    }

    /// Sets the place of a file that is not open.
    pub(crate) fn found_again(&self, place: &Arc<OwnedFd>) {
        *locked(&self.place) = Some(Arc::clone(place));
    }

    /// Gives up its place unless it is used. A new user first registers, then sets the place.
    pub(crate) fn give_up(&self, is_used: impl FnOnce() -> bool) {
        let mut place = locked(&self.place);
        if !is_used() {
            *place = None;
        }
    }

    /// Its path when it was last opened, for messages.
    pub(crate) fn path(&self) -> PathBuf {
        locked(&self.path).clone()
    }

    /// The kernel has forgotten this place of the file.
    pub(crate) fn lost(&self, place: &Arc<OwnedFd>) {
        let mut known = locked(&self.place);
        if known
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, place))
        {
            *known = None;
        }
    }

    pub(crate) fn place(&self) -> Result<Arc<OwnedFd>, Errno> {
        locked(&self.place).clone().ok_or(Errno::STALE)
    }

    pub(crate) fn is_open(&self) -> bool {
        let opened = locked(&self.opened);
        opened.readers + opened.writers > 0
    }

    /// Opens it for one more user.
    pub(crate) fn open(&self, reads: bool, writes: bool) -> Result<(), Errno> {
        let mut opened = locked(&self.opened);
        if reads && opened.reader.is_none() {
            opened.reader = Some(self.store(OFlags::RDONLY)?);
        }
        if writes && opened.writer.is_none() {
            match self.store(OFlags::WRONLY) {
                Ok(writer) => opened.writer = Some(writer),
                Err(errno) => {
                    if opened.readers == 0 {
                        opened.reader = None;
                    }
                    return Err(errno);
                }
            }
        }
        opened.readers += u32::from(reads);
        opened.writers += u32::from(writes);
        Ok(())
    }

    /// Closes it for one user.
    pub(crate) fn close(&self, reads: bool, writes: bool) {
        let mut opened = locked(&self.opened);
        opened.readers = opened.readers.saturating_sub(reads.into());
        opened.writers = opened.writers.saturating_sub(writes.into());
        let (mut reader, mut writer) = (None, None);
        if opened.readers == 0 {
            reader = opened.reader.take();
        }
        if opened.writers == 0 {
            writer = opened.writer.take();
        }
        drop(opened);
        // Closing may be slow.
        drop((reader, writer));
    }

    /// A store on the file for reading: the open one, or one opened for this purpose.
    pub(crate) fn reader(&self) -> Result<Arc<FileStore>, Errno> {
        match &locked(&self.opened).reader {
            Some(reader) => Ok(Arc::clone(reader)),
            None => self.store(OFlags::RDONLY),
        }
    }

    /// The same for writing.
    pub(crate) fn writer(&self) -> Result<Arc<FileStore>, Errno> {
        match &locked(&self.opened).writer {
            Some(writer) => Ok(Arc::clone(writer)),
            None => self.store(OFlags::WRONLY),
        }
    }

    /// Either one that is open.
    pub(crate) fn any(&self) -> Result<Arc<FileStore>, Errno> {
        let opened = locked(&self.opened);
        match opened.writer.as_ref().or(opened.reader.as_ref()) {
            Some(store) => Ok(Arc::clone(store)),
            None => {
                drop(opened);
                self.reader()
            }
        }
    }

    fn store(&self, access: OFlags) -> Result<Arc<FileStore>, Errno> {
        let path = magic(&*self.place()?);
        let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let buffered = rustix::fs::open(&path, flags, Mode::empty())?;
        let direct = match rustix::fs::open(&path, flags | OFlags::DIRECT, Mode::empty()) {
            // Descriptors are short now; that says nothing about the file.
            Err(errno) if is_full(errno) => return Err(errno),
            direct => direct,
        };
        let name = self.path();
        let store = FileStore::of_file(
            &self.io,
            name,
            buffered.into(),
            direct.ok().map(File::from),
            access == OFlags::RDONLY,
        );
        let store = store.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok(Arc::new(store))
    }

    fn failure(&self, errno: Errno) -> IoError {
        let path = locked(&self.path).display().to_string();
        IoError::os(&path, &errno.into())
    }
}

impl Store for LowerFile {
    fn size_bytes(&self) -> u64 {
        let stat = self.place().and_then(|place| stat_of(&place));
        stat.map_or(0, |stat| stat.st_size as u64)
    }

    fn describe(&self) -> String {
        format!("{} ({})", locked(&self.path).display(), self.io.name())
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn submit(&self, sequence: u64, operation: StoreOperation, done: StoreDone) {
        let store = match &operation {
            StoreOperation::Read { .. } => self.reader(),
            StoreOperation::Write { .. } => self.writer(),
            StoreOperation::Flush => self.any(),
            StoreOperation::Trim { .. } | StoreOperation::WriteZeroes { .. } => {
                let message = "a file of a tree is punched past the cache";
                return done(Err(IoError::new(IoErrorKind::Unsupported, message)));
            }
        };
        let store = match store {
            Ok(store) => store,
            Err(errno) => return done(Err(self.failure(errno))),
        };
        let done = match (&operation, self.place()) {
            (StoreOperation::Write { .. }, Ok(place)) => {
                let seen = Arc::clone(&self.seen);
                let kept_open = Arc::clone(&self.kept_open);
                seen.begin_below(&place);
                Box::new(move |result: Result<IoBuf, IoError>| {
                    seen.end_below(&place);
                    let is_written = result.is_ok();
                    done(result);
                    if is_written && seen.writes_back() {
                        kept_open.note_written();
                    }
                })
            }
            _ => done,
        };
        store.submit(sequence, operation, done);
    }
}
