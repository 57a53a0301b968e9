//! Reading directories.

use super::descriptors::Charge;
use super::stat::{attributes, kind_of};
use super::state::{OpenDirectory, Passthrough};
use crate::lock::locked;
use fuser::{Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

/// Bytes of entries read at a time.
const ENTRIES_BYTES: usize = 32 << 10;
/// Descriptors per open directory: its own, and its place.
const OPEN_DESCRIPTORS: u64 = 2;

struct Entry {
    inode: u64,
    /// The offset of the next entry.
    next: u64,
    kind: fuser::FileType,
    name: OsString,
}

impl Passthrough {
    /// Charges a user for opening a directory; `None` if the user has too many open.
    pub(crate) fn charge_directory(&self, user: u32) -> Option<Charge<'_>> {
        self.descriptors.charge(user, OPEN_DESCRIPTORS)
    }

    pub(crate) fn open_directory(&self, id: u64, user: u32) -> Result<u64, Errno> {
        let place = self.nodes.place(&self.nodes.get(id)?)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(&*place, ".", flags, Mode::empty());
        let file = Arc::new(std::sync::Mutex::new(self.nodes.with_room(open)?));
        let mut directories = locked(&self.directories);
        let handle = directories.next;
        directories.next += 1;
        directories
            .opened
            .insert(handle, OpenDirectory { user, file });
        Ok(handle)
    }

    pub(crate) fn close_directory(&self, handle: u64) {
        let closed = locked(&self.directories).opened.remove(&handle);
        if let Some(closed) = closed {
            drop(closed.file);
            self.descriptors.give_back(closed.user, OPEN_DESCRIPTORS);
        }
    }

    pub(crate) fn sync_directory(&self, handle: u64, data_only: bool) -> Result<(), Errno> {
        let opened = self.opened_directory(handle)?;
        let opened = locked(&opened);
        if data_only {
            rustix::fs::fdatasync(&*opened)
        } else {
            rustix::fs::fsync(&*opened)
        }
    }

    fn opened_directory(&self, handle: u64) -> Result<Arc<std::sync::Mutex<OwnedFd>>, Errno> {
        let directories = locked(&self.directories);
        let opened = directories.opened.get(&handle);
        opened.map(|it| Arc::clone(&it.file)).ok_or(Errno::BADF)
    }

    pub(crate) fn read_directory(
        &self,
        handle: u64,
        offset: u64,
        reply: &mut ReplyDirectory,
    ) -> Result<(), Errno> {
        let opened = self.opened_directory(handle)?;
        each_entry(&opened, offset, |_, entry| {
            reply.add(INodeNo(entry.inode), entry.next, entry.kind, &entry.name)
        })
    }

    /// Entries with their attributes; each counts as looked up by the kernel.
    pub(crate) fn read_directory_plus(
        &self,
        id: u64,
        handle: u64,
        offset: u64,
        reply: &mut ReplyDirectoryPlus,
    ) -> Result<(), Errno> {
        let opened = self.opened_directory(handle)?;
        each_entry(&opened, offset, |directory, entry| {
            let add = |inode, stat: &rustix::fs::Stat, reply: &mut ReplyDirectoryPlus| {
                let attributes = attributes(stat, inode);
                let generation = Generation(0);
                let (inode, ttl) = (INodeNo(inode), super::state::FRESH);
                reply.add(
                    inode,
                    entry.next,
                    &entry.name,
                    &ttl,
                    &attributes,
                    generation,
                )
            };
            if entry.name == OsStr::new(".") || entry.name == OsStr::from_bytes(b"..") {
                // For these the kernel uses only the number, and knows the node already.
                let stat = rustix::fs::statat(directory, &entry.name, AtFlags::SYMLINK_NOFOLLOW);
                return stat.is_ok_and(|stat| add(entry.inode, &stat, reply));
            }
            // An entry that was removed meanwhile, or cannot be read, is left out.
            let Ok((node, stat)) = self.lookup_node(id, &entry.name) else {
                return false;
            };
            let is_full = add(node.id, &stat, reply);
            if is_full {
                self.forget_node(node.id, 1);
            }
            is_full
        })
    }
}

/// Passes entries from `offset` on to `take`, until it has enough or there are no more.
fn each_entry(
    opened: &std::sync::Mutex<OwnedFd>,
    offset: u64,
    mut take: impl FnMut(&OwnedFd, &Entry) -> bool,
) -> Result<(), Errno> {
    let opened = locked(opened);
    rustix::fs::seek(&*opened, SeekFrom::Start(offset))?;
    let mut bytes = [MaybeUninit::uninit(); ENTRIES_BYTES];
    let mut entries = RawDir::new(&*opened, &mut bytes);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let entry = Entry {
            inode: entry.ino(),
            next: entry.next_entry_cookie(),
            kind: kind_of(entry.file_type()),
            name: OsString::from_vec(entry.file_name().to_bytes().to_vec()),
        };
        if take(&opened, &entry) {
            break;
        }
    }
    Ok(())
}
