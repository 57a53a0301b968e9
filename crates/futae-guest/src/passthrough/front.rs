//! The common parts of the kernel's requests: how they are answered.

use super::access::Access;
use super::errno::fuse;
use super::names::Making;
use super::node::Node;
use super::stat::attributes;
use super::state::{FRESH, Passthrough};
use crate::ring::Beginning;
use crate::spare_threads::SpareThreads;
use fuser::{
    FopenFlags, Generation, INodeNo, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyXattr, Request,
};
use rustix::fs::Stat;
use rustix::io::Errno;
use std::sync::Arc;

/// The interface to the kernel.
#[derive(Clone)]
pub(crate) struct Front {
    pub(crate) tree: Arc<Passthrough>,
    pub(crate) begins: Beginning,
    /// Those of its session.
    pub(crate) spare: Arc<SpareThreads>,
}

impl Front {
    /// Serves a request that may wait for the lower file system, while another thread takes the
    /// next requests.
    pub(super) fn serve(&self, work: impl FnOnce(&Self) + Send + 'static) {
        if let Some(_held) = self.spare.hold() {
            return work(self);
        }
        let front = self.clone();
        self.spare.pass(Box::new(move || work(&front)));
    }

    /// Answers with an entry or an error.
    pub(super) fn entry(&self, what: &'static str, parent: INodeNo, made: Made, reply: ReplyEntry) {
        match made {
            Ok((node, stat)) => {
                reply.entry(&FRESH, &attributes(&stat, node.id), Generation(0));
            }
            Err(errno) => reply.error(self.failed(what, parent, errno)),
        }
    }

    /// Answers with attributes or an error.
    pub(super) fn attributes(
        &self,
        what: &'static str,
        inode: INodeNo,
        stat: Result<Stat, Errno>,
        reply: ReplyAttr,
    ) {
        match stat {
            Ok(stat) => reply.attr(&FRESH, &attributes(&stat, self.tree.shown_number(&stat))),
            Err(errno) => reply.error(self.failed(what, inode, errno)),
        }
    }

    pub(super) fn empty(
        &self,
        what: &'static str,
        inode: INodeNo,
        done: Result<(), Errno>,
        reply: ReplyEmpty,
    ) {
        match done {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(self.failed(what, inode, errno)),
        }
    }

    /// Answers whether an extended attribute was set.
    pub(super) fn attribute_set(&self, inode: INodeNo, done: Result<(), Errno>, reply: ReplyEmpty) {
        match done {
            // The disk is not full: the value does not fit where a file's attributes are.
            Err(Errno::NOSPC) if self.tree.has_room(inode.0) => reply.error(fuse(Errno::NOSPC)),
            done => self.empty("setting an attribute", inode, done, reply),
        }
    }

    pub(super) fn failed(&self, what: &'static str, inode: INodeNo, errno: Errno) -> fuser::Errno {
        self.tree.complain(what, inode.0, errno);
        fuse(errno)
    }
}

type Made = Result<(Arc<Node>, Stat), Errno>;

pub(super) fn making(request: &Request, mode: u32, umask: u32) -> Making {
    Making {
        user: request.uid(),
        group: request.gid(),
        mode,
        umask,
    }
}

/// The open flags: bypass the kernel's page cache, or use it; `kept` says whether its pages are
/// valid.
pub(super) fn opened(access: Access, kept: Option<bool>) -> FopenFlags {
    let mut how = match kept {
        None => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
        Some(true) => FopenFlags::FOPEN_KEEP_CACHE,
        Some(false) => FopenFlags::empty(),
    };
    how.set(FopenFlags::FOPEN_NOFLUSH, !access.writes());
    how
}

pub(super) fn settle(reply: ReplyEmpty) -> impl FnOnce(Result<(), Errno>) + Send + 'static {
    move |result| match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(fuse(errno)),
    }
}

pub(super) fn answer_xattr(value: Result<Vec<u8>, Errno>, size: u32, reply: ReplyXattr) {
    match value {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(fuse(Errno::RANGE)),
        Ok(value) => reply.data(&value),
        Err(errno) => reply.error(fuse(errno)),
    }
}
