//! Reads and writes of volumes, for the FUSE library and for rings.

use crate::mapped::{PastPages, Writer};
use crate::negotiated::Transport;
use crate::ring::{Answer, Beginning, Read, Served, Write};
use crate::split_reads::longest_request_bytes;
use crate::volume_directory::VolumeDirectory;
use fuser::{Errno, INodeNo, WriteFlags};
use futae_engine::IoBuf;
use std::sync::Arc;

/// `O_DSYNC` of `open`, as `asm-generic/fcntl.h` has it (rustix knows it only as `O_SYNC`).
const O_DSYNC: i32 = 0o10000;

impl VolumeDirectory {
    pub(crate) fn read_file(
        &self,
        read: Read,
        done: impl FnOnce(Result<&[u8], Errno>) + Send + 'static,
    ) {
        match self.file(INodeNo(read.inode)) {
            Some(file) => {
                if !read.past_pages {
                    file.pages.note_read();
                }
                file.read(read.offset, read.size, done);
            }
            None => done(Err(Errno::EISDIR)),
        }
    }

    pub(crate) fn write_file(
        &self,
        write: Write,
        data: IoBuf,
        done: impl FnOnce(Result<u32, Errno>) + Send + 'static,
    ) {
        let inode = INodeNo(write.inode);
        let Some(file) = self.file(inode) else {
            return done(Err(Errno::EISDIR));
        };
        // O_SYNC contains O_DSYNC, and the kernel sets it for RWF_DSYNC, too.
        let fua = write.opened & O_DSYNC != 0;
        let past = (!self.kernel_cache).then(|| {
            let writer = Writer::of(WriteFlags::from_bits_retain(write.how));
            let past = PastPages {
                pages: Arc::clone(&file.pages),
                teller: Arc::clone(&self.teller),
                inode: inode.0,
            };
            (writer, past)
        });
        file.write(past, write.offset, data, fua, done);
    }
}

impl Served for VolumeDirectory {
    fn begin_as(&mut self, how: Beginning, _threads: usize) {
        self.begins = how;
    }

    fn has_ring(&self) -> bool {
        let negotiated = self.negotiated.get();
        negotiated.is_some_and(|negotiated| negotiated.transport == Transport::Ring)
    }

    fn request_bytes(&self) -> u32 {
        longest_request_bytes()
    }

    fn read_direct(&self, read: Read, answer: Answer) {
        self.read_file(read, |result| answer.data(result));
    }

    fn write_direct(&self, write: Write, data: IoBuf, answer: Answer) {
        self.write_file(write, data, |result| answer.written(result));
    }
}
