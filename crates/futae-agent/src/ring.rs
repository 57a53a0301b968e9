//! The ring of evicted pages that the kernel's programs copy, read without giving it back at once.
//!
//! The kernel lays a ring buffer out so: a page with the reader's position, a page with the writer's, and the data,
//! mapped twice so that records do not break at the end. A record is a head of eight bytes and what the program wrote,
//! up to a multiple of eight.

use crate::proc;
use crate::system::SharedMemory;
use futae_agent_protocol::PAGE_BYTES;
use rustix::fd::BorrowedFd;
use std::io;

const PAGE: usize = PAGE_BYTES as usize;
/// Bits of a record's length: it is being written; it is to be skipped.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const HEAD_BYTES: u64 = 8;

/// A record that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where its content begins, in bytes since the ring was made.
    pub begin: u64,
    /// Bytes of it.
    pub length: u64,
    /// Where the next record begins.
    pub end: u64,
}

/// The ring.
pub struct Ring {
    reader: SharedMemory,
    /// The writer's position, then the data twice.
    rest: SharedMemory,
    bytes: u64,
    /// What is looked at next.
    at: u64,
}

impl Ring {
    /// Maps the ring buffer of an eBPF map that has `bytes` bytes, of which nobody else reads.
    ///
    /// # Errors
    ///
    /// If the kernel does not map it.
    pub fn of(map: BorrowedFd<'_>, bytes: u64) -> io::Result<Self> {
        let reader = SharedMemory::of(map, 0, PAGE, true)?;
        let rest = SharedMemory::of(map, PAGE_BYTES, PAGE + 2 * bytes as usize, false)?;
        let at = reader.load(0);
        Ok(Self {
            reader,
            rest,
            bytes,
            at,
        })
    }

    /// The next record that is whole, if there is one. Its place stays taken.
    pub fn next_record(&mut self) -> Option<Record> {
        while self.at < self.rest.load(0) {
            let length = self.rest.load_short(PAGE + (self.at % self.bytes) as usize);
            if length & BUSY != 0 {
                return None;
            }
            let begin = self.at + HEAD_BYTES;
            let bytes = u64::from(length & !DISCARDED);
            let end = begin + bytes.next_multiple_of(8);
            self.at = end;
            if length & DISCARDED == 0 {
                return Some(Record {
                    begin,
                    length: bytes,
                    end,
                });
            }
        }
        None
    }

    /// Copies what is at a position, where a record is whose place is taken; false if it is longer than the ring.
    pub fn read(&self, position: u64, into: &mut [u8]) -> bool {
        into.len() as u64 <= self.bytes
            && self
                .rest
                .read(PAGE + (position % self.bytes) as usize, into)
    }

    /// Gives the place of all records before `end` back to the kernel.
    pub fn release(&self, end: u64) {
        self.reader.store(0, end);
    }

    /// Gives back all that was looked at.
    pub fn release_all(&self) {
        self.release(self.at);
    }

    /// The numbers of the data's pages in this machine's memory. They stay: the kernel does not move its own memory.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell.
    pub fn pages(&self) -> io::Result<Vec<u64>> {
        proc::page_numbers(self.rest.address() + PAGE, self.bytes as usize / PAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    #[test]
    fn records_are_read_in_their_order_and_those_that_are_being_written_awaited() {
        let memory = memfd_create("ring", MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&memory, 4 * PAGE_BYTES).expect("room");
        let kernel = SharedMemory::of(memory.as_fd(), 0, 4 * PAGE, true).expect("mapped");
        let head = |at: usize, length: u32| kernel.store(2 * PAGE + at, length.into());
        let written = |position: u64| kernel.store(PAGE, position);
        let mut ring = Ring::of(memory.as_fd(), PAGE_BYTES).expect("a ring");
        let record = |begin, length, end| Some(Record { begin, length, end });
        assert_eq!(ring.next_record(), None);
        head(0, 13);
        head(24, 8 | DISCARDED);
        head(40, 16 | BUSY);
        assert!(kernel.write(2 * PAGE + 8, b"thirteen byte"));
        written(64);
        assert_eq!(ring.next_record(), record(8, 13, 24));
        let mut content = [0; 13];
        assert!(ring.read(8, &mut content));
        assert_eq!(&content, b"thirteen byte");
        assert_eq!(ring.next_record(), None, "it is being written");
        head(40, 16);
        assert_eq!(ring.next_record(), record(48, 16, 64));
        assert_eq!(kernel.load(0), 0, "nothing was given back");
        ring.release(24);
        assert_eq!(kernel.load(0), 24);
        ring.release_all();
        assert_eq!(kernel.load(0), 64);
        // Around the end.
        head(64, 4000);
        written(64 + 4008);
        assert_eq!(ring.next_record(), record(72, 4000, 4072));
        head(4072, 40);
        written(4072 + 48);
        assert_eq!(ring.next_record(), record(4080, 40, 4120));
        head(24, 1);
        written(4136);
        assert_eq!(ring.next_record(), record(4128, 1, 4136));
        assert!(!ring.read(0, &mut [0; PAGE + 1]), "longer than the ring");
    }
}
