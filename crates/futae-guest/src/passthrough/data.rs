//! Operations on the data of regular files.

use super::access::Access;
use super::caller::Asker;
use super::contents::Contents;
use super::descriptors::Charge;
use super::errno::errno_of;
use super::names::Making;
use super::node::Node;
use super::place::magic;
use super::state::Passthrough;
use crate::mapped::{PastPages, Writer};
use crate::ring::Read;
use fuser::{FileHandle, FileType};
use futae_engine::{
    Asked, IoBuf, IoError, IoErrorKind, Operation, Store, StoreDone, StoreOperation,
};
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// `lseek` origins, from `linux/fs.h`.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

impl Passthrough {
    /// Charges a user for opening a file; `None` if the user has too many open.
    pub(crate) fn charge_file(&self, user: u32, access: Access) -> Option<Charge<'_>> {
        self.descriptors.charge(user, access.descriptors())
    }

    /// Creates and opens a file, as [`open_file`](Self::open_file).
    pub(crate) fn make_and_open(
        &self,
        parent: u64,
        name: &OsStr,
        what: Making,
        flags: i32,
    ) -> Result<(Arc<Node>, Stat, Option<bool>), Errno> {
        let exclusively = OFlags::from_bits_retain(flags as u32).contains(OFlags::EXCL);
        let (node, _) = self.make_file(parent, name, what, exclusively)?;
        let ready = self.open_file(&node, Access::of(flags));
        self.settle_mode(&node, parent, what);
        let ready = ready.and_then(|kept| Ok((self.stat(&node)?, kept)));
        if ready.is_err() {
            self.forget_node(node.id, 1);
        }
        ready.map(|(stat, kept)| (node, stat, kept))
    }

    /// Opens a file. Returns whether its data goes through the kernel's page cache, and if so,
    /// whether its pages there are valid.
    pub(crate) fn open_file(
        &self,
        node: &Arc<Node>,
        access: Access,
    ) -> Result<Option<bool>, Errno> {
        if node.kind != FileType::RegularFile {
            return Err(Errno::INVAL);
        }
        let class = self.priority.class_of(&self.nodes, node);
        let how = (access.reads, access.writes);
        let open = || self.files.open(&self.nodes, node, how, class);
        let (contents, changed) = self.nodes.with_room(open)?;
        self.weigh();
        if changed {
            self.attributes_are_stale(node.id);
        }
        Ok(contents.pages_are_true())
    }

    /// A program closes a file that it may have written: writes its dirty data to the lower file.
    pub(crate) fn settle(
        self: &Arc<Self>,
        id: u64,
        handle: FileHandle,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let contents = self.contents(id).ok();
        match contents
            .filter(|contents| Access::of_handle(handle).0.writes() && contents.is_dirty())
        {
            None => done(Ok(())),
            Some(contents) => {
                let told = self.told("writing back", id, done);
                let told = contents.measured(Asked::Flush, 0, told);
                contents.submit(Operation::Settle, told);
            }
        }
    }

    /// A completion for an operation without data.
    fn told(
        self: &Arc<Self>,
        what: &'static str,
        id: u64,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) -> StoreDone {
        let tree = Arc::clone(self);
        Box::new(move |result| {
            done(result.map(drop).map_err(|error| {
                let errno = errno_of(&error);
                tree.complain(what, id, errno);
                errno
            }));
        })
    }

    fn contents(&self, id: u64) -> Result<Arc<Contents>, Errno> {
        self.nodes.get(id)?.contents().ok_or(Errno::BADF)
    }

    /// Reads a range, up to the end of the file. If the file turns out to be shorter than known, it
    /// is checked again, once. Of several reads that fail at the same time, only one finds the change.
    pub(crate) fn read(
        self: &Arc<Self>,
        read: Read,
        done: impl FnOnce(Result<&[u8], Errno>) + Send + 'static,
    ) {
        let (id, offset, length) = (read.inode, read.offset, u64::from(read.size));
        let contents = match self.contents(id) {
            Ok(contents) => contents,
            Err(errno) => return done(Err(errno)),
        };
        if !read.past_pages {
            contents.mapped.note_read();
        }
        let (tree, again) = (Arc::clone(self), Arc::clone(&contents));
        let aside = Arc::clone(self);
        let before = contents.changes();
        let first: StoreDone = Box::new(move |result| match result {
            Err(error) if error.kind == IoErrorKind::Store => {
                // Not on this thread, which may be the one that delivers the answers.
                aside.aside.queue(move || {
                    let is_changed = again.revalidate().unwrap_or(false);
                    if !is_changed && again.changes() == before {
                        return done(Err(tree.read_failed(id, &error)));
                    }
                    let last: StoreDone =
                        Box::new(move |result| tree.answer_read(id, result, done));
                    again.submit(Operation::Read { offset, length }, last);
                });
            }
            result => tree.answer_read(id, result, done),
        });
        contents.submit(Operation::Read { offset, length }, first);
    }

    fn answer_read(
        &self,
        id: u64,
        result: Result<IoBuf, IoError>,
        done: impl FnOnce(Result<&[u8], Errno>),
    ) {
        match result {
            Ok(data) => done(Ok(data.as_slice())),
            Err(error) => done(Err(self.read_failed(id, &error))),
        }
    }

    fn read_failed(&self, id: u64, error: &IoError) -> Errno {
        let errno = errno_of(error);
        self.complain("reading", id, errno);
        errno
    }

    /// Writes or appends at an offset as the kernel knows it. What another program has done to the file since is learnt before:
    /// afterwards it would look like this write.
    pub(crate) fn write(
        self: &Arc<Self>,
        id: u64,
        (writer, offset): (Writer, u64),
        operation: Operation,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let contents = match self.contents(id) {
            Ok(contents) => contents,
            Err(errno) => return done(Err(errno)),
        };
        let done = self.told("writing", id, done);
        let tree = Arc::clone(self);
        let begin = move |contents: Arc<Contents>| {
            tree.begin_write(contents, (id, writer, offset), operation, done);
        };
        if !contents.was_changed_elsewhere() {
            return begin(contents);
        }
        let tree = Arc::clone(self);
        // Not on this thread, which may be the one that delivers the answers.
        self.aside.queue(move || {
            if let Err(errno) = contents.revalidate() {
                tree.complain("looking for changes of", id, errno);
            }
            tree.attributes_are_stale(id);
            begin(contents);
        });
    }

    fn begin_write(
        &self,
        contents: Arc<Contents>,
        (id, writer, offset): (u64, Writer, u64),
        operation: Operation,
        done: StoreDone,
    ) {
        let (operation, done) = match operation {
            Operation::Append { data, fua } => {
                let appended = Arc::clone(&contents);
                let done: StoreDone = Box::new(move |result| {
                    appended.appends.end();
                    done(result);
                });
                (place(&contents, offset, data, fua), done)
            }
            other => (other, done),
        };
        if contents.pages.is_some() {
            return contents.submit(operation, done);
        }
        let file = PastPages {
            pages: Arc::clone(&contents.mapped),
            teller: Arc::clone(&self.teller),
            inode: id,
        };
        let submit = move |work, done| contents.submit(work, done);
        file.write(writer, offset, operation, submit, done);
    }

    /// The kernel's attributes of a file are stale, its size above all. The call fails harmlessly if the kernel does not know the
    /// file.
    fn attributes_are_stale(&self, id: u64) {
        if let Some(notifier) = self.notifier.get() {
            let _ = notifier.inval_inode(fuser::INodeNo(id), -1, 0);
        }
    }

    /// A process changes the data of a file that may have set-user-ID or set-group-ID bits.
    pub(crate) fn drop_set_id(&self, id: u64, asker: Asker) -> Result<(), Errno> {
        let node = self.nodes.get(id)?;
        if node.kind != FileType::RegularFile {
            return Ok(());
        }
        let stat = self.stat(&node)?;
        let lost = asker.takes_from(&stat);
        if lost != 0 {
            let mode = Mode::from_raw_mode(stat.st_mode & 0o7777 & !lost);
            self.attributes_will_change(&node);
            rustix::fs::chmod(magic(&*self.nodes.place(&node)?), mode)?;
            self.attributes_changed(&node, false);
            self.mode_changed(&node);
        }
        Ok(())
    }

    pub(crate) fn sync(
        self: &Arc<Self>,
        id: u64,
        data_only: bool,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let contents = self.contents(id);
        let store = contents.and_then(|contents| Ok((contents.lower.any()?, contents)));
        let (store, contents) = match store {
            Ok(both) => both,
            Err(errno) => return done(Err(errno)),
        };
        let finish = self.told("syncing", id, done);
        let finish = contents.measured(Asked::Flush, 0, finish);
        let sync = move |finish: StoreDone| {
            if data_only {
                Store::submit(&*store, 0, StoreOperation::Flush, finish);
            } else {
                store.sync(finish);
            }
        };
        if !contents.is_dirty() {
            return sync(finish);
        }
        let settled: StoreDone = Box::new(move |settled| match settled {
            Ok(_) => sync(finish),
            Err(error) => finish(Err(error)),
        });
        contents.submit(Operation::Settle, settled);
    }

    pub(crate) fn allocate(
        &self,
        id: u64,
        offset: u64,
        length: u64,
        mode: i32,
    ) -> Result<(), Errno> {
        let contents = self.contents(id)?;
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        let end = offset.checked_add(length).ok_or(Errno::FBIG)?;
        let writer = contents.lower.writer()?;
        let work = || {
            rustix::fs::fallocate(writer.file(), mode, offset, length)?;
            if let Ok(file) = writer.file().try_clone() {
                self.files.sweep(file, offset..end);
            }
            Ok(())
        };
        let size = rustix::fs::fstat(writer.file())?.st_size as u64;
        let grows = !mode.contains(FallocateFlags::KEEP_SIZE) && end > size;
        let rewrites = FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE;
        if grows {
            // Everything from `offset` on, or from the old end if that is smaller.
            contents.change(offset.min(size), u64::MAX, work)
        } else if mode.intersects(rewrites) {
            contents.change(offset, length, work)
        } else {
            contents.attributes_will_change();
            let result = work();
            contents.attributes_changed(true);
            result
        }
    }

    pub(crate) fn seek(&self, id: u64, offset: i64, whence: i32) -> Result<i64, Errno> {
        let offset = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
        let to = match whence {
            SEEK_DATA => SeekFrom::Data(offset),
            SEEK_HOLE => SeekFrom::Hole(offset),
            _ => return Err(Errno::INVAL),
        };
        let contents = self.contents(id)?;
        // Dirty data must not appear as a hole.
        contents.settle()?;
        let reader = contents.lower.any()?;
        let found = rustix::fs::seek(reader.file(), to)?;
        i64::try_from(found).map_err(|_| Errno::OVERFLOW)
    }

    /// A descriptor for changing the size of a file: an open one, or one opened for this purpose.
    pub(crate) fn writable(&self, node: &Node, place: &OwnedFd) -> Result<File, Errno> {
        if let Some(contents) = node.contents()
            && contents.lower.is_open()
            && let Ok(writer) = contents.lower.writer()
        {
            let copy = writer.file().try_clone();
            return copy.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
        }
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        Ok(rustix::fs::open(magic(place), flags, Mode::empty())?.into())
    }
}

/// An append to a file that the kernel believes to end at `offset`. If the data goes elsewhere, the pages into which the kernel
/// has put it are stale.
fn place(contents: &Contents, offset: u64, data: IoBuf, fua: bool) -> Operation {
    let length = data.len() as u64;
    match contents.appends.begin(offset, length, contents.size()) {
        Some(offset) => Operation::Write { offset, data, fua },
        None => {
            if contents.pages_are_true().is_some() && !contents.is_gone() {
                contents.pages_are_stale();
            }
            Operation::Append { data, fua }
        }
    }
}
