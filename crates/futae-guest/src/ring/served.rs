//! The interface of a file system to its rings.

use super::answer::Answer;
use super::wire::{Read, Write};
use fuser::Filesystem;
use futae_engine::IoBuf;

/// How the session of a file system begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// Connected to the kernel, without rings.
    Device,
    /// Connected to the kernel, with rings.
    Ring,
    /// Behind a ring: nothing is negotiated.
    Behind,
}

/// A file system whose reads and writes can be called without the FUSE library. Clones refer to the
/// same file system.
pub(crate) trait Served: Filesystem + Clone {
    /// Sets how its session begins, and how many threads that has.
    fn begin_as(&mut self, how: Beginning, threads: usize);

    /// Whether the kernel has agreed to use rings.
    fn has_ring(&self) -> bool;

    /// The longest read or write that it negotiates with the kernel, in bytes.
    fn request_bytes(&self) -> u32;

    /// Reads from a file, and answers later, on any thread.
    fn read_direct(&self, read: Read, answer: Answer);

    /// Writes to a file, and answers later, on any thread.
    fn write_direct(&self, write: Write, data: IoBuf, answer: Answer);
}
