//! The common parts of the kernel's requests: how they are answered.

use super::data::Access;
use super::errno::fuse;
use super::names::Making;
use super::node::Node;
use super::stat::attributes;
use super::state::{FRESH, Passthrough};
use crate::ring::Beginning;
use fuser::{FopenFlags, Generation, INodeNo, ReplyEmpty, ReplyEntry, ReplyXattr, Request};
use rustix::fs::Stat;
use rustix::io::Errno;
use std::sync::Arc;

/// The interface to the kernel.
#[derive(Clone)]
pub(crate) struct Front {
    pub(crate) tree: Arc<Passthrough>,
    pub(crate) begins: Beginning,
}

impl Front {
    /// Answers with an entry or an error.
    pub(super) fn entry(&self, what: &'static str, parent: INodeNo, made: Made, reply: ReplyEntry) {
        match made {
            Ok((node, stat)) => {
                reply.entry(&FRESH, &attributes(&stat, node.id), Generation(0));
            }
            Err(errno) => reply.error(self.failed(what, parent, errno)),
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
