//! Reads and writes of a tree in a common form, for the FUSE library and for rings.

use super::caller::Asker;
use super::errno::fuse;
use super::front::Front;
use super::state::REQUEST_BYTES;
use crate::Transport;
use crate::mapped::Writer;
use crate::ring::{Answer, Beginning, Read, Served, Write};
use crate::spare_threads::SpareThreads;
use fuser::{INodeNo, WriteFlags};
use futae_engine::{IoBuf, Operation};
use rustix::fs::OFlags;

/// `O_DSYNC` of `open`, as `asm-generic/fcntl.h` has it (rustix knows it only as `O_SYNC`).
const O_DSYNC: i32 = 0o10000;

impl Front {
    pub(super) fn write_file(
        &self,
        write: Write,
        data: IoBuf,
        done: impl FnOnce(Result<u32, fuser::Errno>) + Send + 'static,
    ) {
        let how = WriteFlags::from_bits_retain(write.how);
        let inode = INodeNo(write.inode);
        if how.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID)
            && let Err(errno) = self.tree.drop_set_id(inode.0, Asker::new(write.asker))
        {
            return done(Err(self.failed("changing attributes", inode, errno)));
        }
        let length = data.len() as u32;
        let opened = OFlags::from_bits_retain(write.opened as u32);
        // O_SYNC contains O_DSYNC, and the kernel sets it for RWF_DSYNC, too.
        let fua = write.opened & O_DSYNC != 0;
        let offset = write.offset;
        // A mapped write has a fixed position; an append goes to the current end.
        let appends =
            opened.contains(OFlags::APPEND) && !how.contains(WriteFlags::FUSE_WRITE_CACHE);
        let operation = if appends {
            Operation::Append { data, fua }
        } else {
            Operation::Write { offset, data, fua }
        };
        let writer = Writer::of(how);
        self.tree
            .write(inode.0, (writer, offset), operation, move |result| {
                done(result.map(|()| length).map_err(fuse));
            });
    }
}

impl Served for Front {
    fn begin_as(&mut self, how: Beginning, threads: usize) {
        self.begins = how;
        self.spare = SpareThreads::new(threads);
    }

    fn has_ring(&self) -> bool {
        let negotiated = self.tree.negotiated.get();
        negotiated.is_some_and(|negotiated| negotiated.transport == Transport::Ring)
    }

    fn request_bytes(&self) -> u32 {
        REQUEST_BYTES
    }

    fn read_direct(&self, read: Read, answer: Answer) {
        self.tree.read(read, |result| {
            answer.data(result.map_err(fuse));
        });
    }

    fn write_direct(&self, write: Write, data: IoBuf, answer: Answer) {
        self.write_file(write, data, |result| answer.written(result));
    }
}
