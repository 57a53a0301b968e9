//! The tree as the kernel asks for it: requests in, answers out.

use super::access::Access;
use super::attributes::Wanted;
use super::caller::Asker;
use super::errno::fuse;
use super::front::{Front, answer_xattr, making, opened, settle};
use super::stat::attributes;
use super::state::FRESH;
use crate::ring::{Beginning, Read, Write};
use fuser::{
    AccessFlags, BsdFileFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use futae_engine::IoBuf;
use rustix::fs::AtFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::SystemTime;

impl Filesystem for Front {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        if self.begins != Beginning::Behind {
            self.tree.agree(config, self.begins == Beginning::Ring);
        }
        Ok(())
    }

    fn destroy(&mut self) {
        self.spare.end();
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_owned();
        self.serve(move |front| {
            let found = front.tree.lookup_node(parent.0, &name);
            front.entry("looking up", parent, found, reply);
        });
    }

    fn forget(&self, _request: &Request, inode: INodeNo, times: u64) {
        self.serve(move |front| front.tree.forget_node(inode.0, times));
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.serve(move |front| {
            let found = front.tree.attributes_of(inode.0);
            front.attributes("attributes", inode, found, reply);
        });
    }

    fn setattr(
        &self,
        request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _attributes_changed: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let wanted = Wanted {
            mode,
            user,
            group,
            size,
            accessed,
            modified,
            asker: Some(Asker::of(request)),
        };
        self.serve(move |front| {
            let changed = front.tree.set_attributes(inode.0, &wanted);
            front.attributes("changing attributes", inode, changed, reply);
        });
    }

    fn readlink(&self, _request: &Request, inode: INodeNo, reply: ReplyData) {
        self.serve(move |front| match front.tree.target_of(inode.0) {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(front.failed("reading a link", inode, errno)),
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let name = name.to_owned();
        let what = making(request, mode, umask);
        self.serve(move |front| {
            let made = front.tree.make_node(parent.0, &name, what, device);
            front.entry("making a file", parent, made, reply);
        });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let name = name.to_owned();
        let what = making(request, mode, umask);
        self.serve(move |front| {
            let made = front.tree.make_directory(parent.0, &name, what);
            front.entry("making a directory", parent, made, reply);
        });
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.serve(move |front| {
            let done = front.tree.remove(parent.0, &name, AtFlags::empty());
            front.empty("removing a file", parent, done, reply);
        });
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.serve(move |front| {
            let done = front.tree.remove(parent.0, &name, AtFlags::REMOVEDIR);
            front.empty("removing a directory", parent, done, reply);
        });
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let name = name.to_owned();
        let target = target.to_owned();
        let owner = (request.uid(), request.gid());
        self.serve(move |front| {
            let made = front.tree.make_symlink(parent.0, &name, &target, owner);
            front.entry("making a link", parent, made, reply);
        });
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let name = name.to_owned();
        let new_name = new_name.to_owned();
        self.serve(move |front| {
            let (from, to) = ((parent.0, &*name), (new_parent.0, &*new_name));
            let done = front.tree.move_name(from, to, flags.bits());
            front.empty("renaming", parent, done, reply);
        });
    }

    fn link(
        &self,
        _request: &Request,
        inode: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let name = name.to_owned();
        self.serve(move |front| {
            let made = front.tree.link_node(inode.0, parent.0, &name);
            front.entry("making a link", parent, made, reply);
        });
    }

    fn open(&self, request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (access, user) = (Access::of(flags.0), request.uid());
        self.serve(move |front| {
            let Some(charge) = front.tree.charge_file(user, access) else {
                return reply.error(fuse(Errno::MFILE));
            };
            let node = front.tree.nodes.get(inode.0);
            match node.and_then(|node| front.tree.open_file(&node, access)) {
                Ok(kept) => {
                    charge.keep();
                    reply.opened(access.handle(user), opened(access, kept));
                }
                Err(errno) => reply.error(front.failed("opening", inode, errno)),
            }
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let name = name.to_owned();
        let what = making(request, mode, umask);
        let (access, user) = (Access::of(flags), request.uid());
        self.serve(move |front| {
            let Some(charge) = front.tree.charge_file(user, access) else {
                return reply.error(fuse(Errno::MFILE));
            };
            match front.tree.make_and_open(parent.0, &name, what, flags) {
                Ok((node, stat, kept)) => {
                    charge.keep();
                    let (attributes, handle) = (attributes(&stat, node.id), access.handle(user));
                    let how = opened(access, kept);
                    reply.created(&FRESH, &attributes, Generation(0), handle, how);
                }
                Err(errno) => reply.error(front.failed("making a file", parent, errno)),
            }
        });
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
        self.tree.read(read, move |result| match result {
            Ok(data) => reply.data(data),
            Err(errno) => reply.error(fuse(errno)),
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
        let write = Write::of(request, (inode, offset), how, flags);
        self.write_file(write, IoBuf::copy_of(data), move |result| match result {
            Ok(written) => reply.written(written),
            Err(errno) => reply.error(errno),
        });
    }

    fn flush(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.tree.settle(inode.0, handle, settle(reply));
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
        self.serve(move |front| {
            front.tree.close_file(inode.0, handle);
            reply.ok();
        });
    }

    fn fsync(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.tree.sync(inode.0, data_only, settle(reply));
    }

    fn opendir(&self, request: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let user = request.uid();
        self.serve(move |front| {
            let Some(charge) = front.tree.charge_directory(user) else {
                return reply.error(fuse(Errno::MFILE));
            };
            match front.tree.open_directory(inode.0, user) {
                Ok(handle) => {
                    charge.keep();
                    reply.opened(FileHandle(handle), FopenFlags::empty());
                }
                Err(errno) => reply.error(front.failed("opening a directory", inode, errno)),
            }
        });
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.serve(
            move |front| match front.tree.read_directory(handle.0, offset, &mut reply) {
                Ok(()) => reply.ok(),
                Err(errno) => reply.error(front.failed("reading a directory", inode, errno)),
            },
        );
    }

    fn readdirplus(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        self.serve(move |front| {
            let done = front
                .tree
                .read_directory_plus(inode.0, handle.0, offset, &mut reply);
            match done {
                Ok(()) => reply.ok(),
                Err(errno) => reply.error(front.failed("reading a directory", inode, errno)),
            }
        });
    }

    fn releasedir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.serve(move |front| {
            front.tree.close_directory(handle.0);
            reply.ok();
        });
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.serve(move |front| {
            let done = front.tree.sync_directory(handle.0, data_only);
            front.empty("syncing a directory", inode, done, reply);
        });
    }

    fn statfs(&self, _request: &Request, inode: INodeNo, reply: ReplyStatfs) {
        self.serve(move |front| match front.tree.statfs(inode.0) {
            Ok(s) => reply.statfs(
                s.f_blocks,
                s.f_bfree,
                s.f_bavail,
                s.f_files,
                s.f_ffree,
                s.f_bsize as u32,
                s.f_namemax as u32,
                s.f_frsize as u32,
            ),
            Err(errno) => reply.error(front.failed("statfs", inode, errno)),
        });
    }

    fn setxattr(
        &self,
        request: &Request,
        inode: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let name = name.to_owned();
        let value = value.to_owned();
        let asker = Asker::of(request);
        self.serve(move |front| {
            let done = front.tree.set_xattr(inode.0, &name, &value, flags, asker);
            front.attribute_set(inode, done, reply);
        });
    }

    fn getxattr(&self, _: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let name = name.to_owned();
        self.serve(move |front| {
            answer_xattr(front.tree.xattr(inode.0, &name), size, reply);
        });
    }

    fn listxattr(&self, request: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        let user = request.uid();
        self.serve(move |front| {
            answer_xattr(front.tree.xattr_names(inode.0, user), size, reply);
        });
    }

    fn removexattr(&self, _request: &Request, inode: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.serve(move |front| {
            let done = front.tree.remove_xattr(inode.0, &name);
            front.empty("removing an attribute", inode, done, reply);
        });
    }

    fn access(&self, _request: &Request, _inode: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        // The kernel has checked the mode (default_permissions).
        reply.ok();
    }

    fn fallocate(
        &self,
        request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let asker = Asker::of(request);
        self.serve(move |front| {
            let done = front.tree.drop_set_id(inode.0, asker);
            let done = done.and_then(|()| front.tree.allocate(inode.0, offset, length, mode));
            front.empty("allocating", inode, done, reply);
        });
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
        self.serve(
            move |front| match front.tree.seek(inode.0, offset, whence) {
                Ok(offset) => reply.offset(offset),
                Err(errno) => reply.error(fuse(errno)),
            },
        );
    }
}
