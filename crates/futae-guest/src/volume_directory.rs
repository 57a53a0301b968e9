//! The file system: a root directory that contains a file for each volume.

use crate::file::{VolumeFile, flush_all};
use crate::kept_by_kernel::KernelKeeper;
use crate::mapped::Teller;
use crate::negotiated::Negotiated;
use crate::ring::{Beginning, Read, Write};
use crate::split_reads::longest_request_bytes;
use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use futae_engine::IoBuf;
use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

const ROOT: INodeNo = INodeNo(1);
/// The number of the first file; the others follow.
pub(crate) const FILES: u64 = 2;
/// Only writes through the kernel change anything, so the kernel may cache attributes for ever.
const FOREVER: Duration = Duration::from_secs(24 * 3600);
/// The unit of `stat` and `statfs`, in bytes.
const STAT_BLOCK_BYTES: u32 = 4096;

/// The handle of a file opened for writing, so that closing it flushes.
const WRITABLE: FileHandle = FileHandle(1);
const READABLE: FileHandle = FileHandle(0);

/// Access of users other than root to the files of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileAccess {
    /// The permissions of the files.
    pub mode: u32,
    /// Their owner; `None`: the user who runs futae.
    pub owner: Option<u32>,
    /// Their group; `None`: that of futae.
    pub group: Option<u32>,
}

/// The file system of one mount.
#[derive(Clone)]
pub(crate) struct VolumeDirectory {
    /// The files by name; there is at least one.
    pub(crate) files: Vec<(OsString, Arc<VolumeFile>)>,
    /// The time of the mount.
    pub(crate) epoch: SystemTime,
    /// Whether the kernel's page cache may hold the file.
    pub(crate) kernel_cache: bool,
    /// The keeper of their pages in the kernel's page cache, if the policy decides on these.
    pub(crate) keeper: Option<Arc<KernelKeeper>>,
    /// Tells the kernel of writes past its pages.
    pub(crate) teller: Arc<Teller>,
    /// Access of users other than the mounting one.
    pub(crate) access: Option<FileAccess>,
    pub(crate) negotiated: Arc<OnceLock<Negotiated>>,
    pub(crate) begins: Beginning,
}

impl VolumeDirectory {
    /// The file with this inode number.
    pub(crate) fn file(&self, inode: INodeNo) -> Option<&Arc<VolumeFile>> {
        let at = usize::try_from(inode.0.checked_sub(FILES)?).ok()?;
        self.files.get(at).map(|(_, file)| file)
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, perm, nlink, size, changed) = match self.file(inode) {
            Some(file) => {
                let mode = self.access.map_or(0o600, |access| access.mode) as u16;
                let perm = if file.read_only { mode & 0o444 } else { mode };
                let changed = file.modified();
                (FileType::RegularFile, perm, 1, file.size_bytes, changed)
            }
            None if inode == ROOT => {
                // Only users who may search the directory can open a file.
                let perm = if self.access.is_some() { 0o755 } else { 0o700 };
                (FileType::Directory, perm, 2, 0, self.epoch)
            }
            None => return None,
        };
        let access = self.access;
        let (owner, group) = (access.and_then(|a| a.owner), access.and_then(|a| a.group));
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size.div_ceil(512),
            atime: changed,
            mtime: changed,
            ctime: changed,
            crtime: self.epoch,
            kind,
            perm,
            nlink,
            uid: owner.unwrap_or_else(|| rustix::process::getuid().as_raw()),
            gid: group.unwrap_or_else(|| rustix::process::getgid().as_raw()),
            rdev: 0,
            blksize: STAT_BLOCK_BYTES,
            flags: 0,
        })
    }

    fn answer_attributes(&self, inode: INodeNo, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&FOREVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }
}

/// A completion for operations without a result.
fn settle(reply: ReplyEmpty) -> impl FnOnce(Result<(), Errno>) + Send + 'static {
    move |result| match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for VolumeDirectory {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        if self.begins == Beginning::Behind {
            return Ok(());
        }
        let negotiated = Negotiated::agree(
            config,
            longest_request_bytes(),
            &[
                InitFlags::FUSE_ASYNC_DIO,
                InitFlags::FUSE_PARALLEL_DIROPS,
                InitFlags::FUSE_HANDLE_KILLPRIV,
            ],
            self.begins == Beginning::Ring,
        );
        let _ = self.negotiated.set(negotiated);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let named = self.files.iter().position(|(known, _)| known == name);
        let inode = named.filter(|_| parent == ROOT);
        let inode = inode.map(|at| INodeNo(FILES + at as u64));
        match inode.and_then(|inode| self.attributes(inode)) {
            Some(attributes) => reply.entry(&FOREVER, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        self.answer_attributes(inode, reply);
    }

    fn setattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _accessed: Option<TimeOrNow>,
        _modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _attributes_changed: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // The size belongs to the volume, owner and mode to the mount. Times belong to the mount,
        // too, but programs that copy files set them harmlessly.
        let own_size = self.file(inode).map(|file| file.size_bytes);
        let other_size = size.is_some() && size != own_size;
        if other_size || mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        self.answer_attributes(inode, reply);
    }

    fn mknod(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _device: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EPERM);
    }

    fn mkdir(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _request: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rmdir(&self, _request: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _new_parent: INodeNo,
        _new_name: &OsStr,
        _flags: fuser::RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }

    fn access(&self, _request: &Request, _inode: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        // The kernel has checked the mode (default_permissions).
        reply.ok();
    }

    fn open(&self, _request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let Some(file) = self.file(inode) else {
            return reply.error(Errno::EISDIR);
        };
        let writes = flags.acc_mode() != OpenAccMode::O_RDONLY;
        if writes && file.read_only {
            return reply.error(Errno::EROFS);
        }
        let mut how = if self.kernel_cache {
            FopenFlags::FOPEN_KEEP_CACHE
        } else {
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        };
        how.set(FopenFlags::FOPEN_NOFLUSH, !writes);
        match &self.keeper {
            Some(keeper) if writes => {
                keeper.begin_writing(inode.0, move || reply.opened(WRITABLE, how));
            }
            _ => reply.opened(if writes { WRITABLE } else { READABLE }, how),
        }
    }

    fn release(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        if let Some(keeper) = self.keeper.as_ref().filter(|_| handle == WRITABLE) {
            keeper.end_writing(inode.0);
        }
        reply.ok();
    }

    fn read(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = Read {
            inode: inode.0,
            offset,
            size,
            past_pages: lock_owner.is_some(),
        };
        self.read_file(read, move |result| match result {
            Ok(data) => reply.data(data),
            Err(errno) => reply.error(errno),
        });
    }

    fn write(
        &self,
        request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        how: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let data = IoBuf::copy_of(data);
        let done = move |result| match result {
            Ok(written) => reply.written(written),
            Err(errno) => reply.error(errno),
        };
        let write = Write::of(request, (inode, offset), how, flags);
        self.write_file(write, data, done);
    }

    fn flush(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        match self.file(inode) {
            Some(file) if handle == WRITABLE => file.flush_at_close(settle(reply)),
            _ => reply.ok(),
        }
    }

    fn fsync(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        match self.file(inode) {
            Some(file) => file.flush(settle(reply)),
            None => reply.error(Errno::EBADF),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if inode != ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let dots = [".", ".."].map(|name| (ROOT, FileType::Directory, OsStr::new(name)));
        let files = (FILES..).zip(&self.files).map(|(inode, (name, _))| {
            let inode = INodeNo(inode);
            (inode, FileType::RegularFile, name.as_os_str())
        });
        let entries = dots.into_iter().chain(files);
        let seen = usize::try_from(offset).unwrap_or(usize::MAX);
        for (next, (inode, kind, name)) in (1u64..).zip(entries).skip(seen) {
            if reply.add(inode, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        // The directory contains nothing but its files.
        let files: Vec<_> = self
            .files
            .iter()
            .map(|(_, file)| Arc::clone(file))
            .collect();
        flush_all(files.into_iter(), settle(reply));
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        let blocks = |file: &VolumeFile| file.size_bytes.div_ceil(STAT_BLOCK_BYTES.into());
        let blocks = self.files.iter().map(|(_, file)| blocks(file)).sum();
        let inodes = 1 + self.files.len() as u64;
        reply.statfs(
            blocks,
            0,
            0,
            inodes,
            0,
            STAT_BLOCK_BYTES,
            255,
            STAT_BLOCK_BYTES,
        );
    }

    fn fallocate(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        match self.file(inode) {
            Some(file) => file.allocate(offset, length, mode, settle(reply)),
            None => reply.error(Errno::EISDIR),
        }
    }

    fn lseek(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let done = move |found| match found {
            Ok(offset) => reply.offset(offset as i64),
            Err(errno) => reply.error(errno),
        };
        match (u64::try_from(offset), self.file(inode)) {
            (Err(_), _) => done(Err(Errno::ENXIO)),
            (_, None) => done(Err(Errno::EISDIR)),
            (Ok(offset), Some(file)) => file.seek(offset, whence, done),
        }
    }
}
