//! What a file system offers to its rings.

use super::answer::Answer;
use super::wire::Write;
use fuser::Filesystem;
use futae_engine::IoBuf;

/// How the session of a file system begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// With the kernel, of which no rings are wanted.
    Device,
    /// With the kernel, of which rings are wanted.
    Ring,
    /// Behind a ring: there is nothing to agree on.
    Behind,
}

/// A file system whose reads and writes can be asked for without the FUSE library. Clones are the same
/// file system.
pub(crate) trait Served: Filesystem + Clone {
    /// How its session is to begin.
    fn begin_as(&mut self, how: Beginning);

    /// Whether the kernel has agreed.
    fn has_ring(&self) -> bool;

    /// The longest read or write that it asks the kernel for, in bytes.
    fn request_bytes(&self) -> u32;

    /// Reads of a file, and answers when it has, on any thread.
    fn read_direct(&self, inode: u64, offset: u64, size: u32, answer: Answer);

    /// Writes to a file, and answers when it has, on any thread.
    fn write_direct(&self, write: Write, data: IoBuf, answer: Answer);
}
