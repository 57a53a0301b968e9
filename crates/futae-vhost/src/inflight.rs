//! The requests under way, recorded in memory that the frontend keeps: requests that a killed
//! server had begun are restarted by the next server.
//!
//! The layout is that of split queues in the vhost-user specification ("Inflight I/O tracking").
//! The frontend can write to this memory at any time, so nothing in it is trusted.

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64};
use vhost::vhost_user::message::VhostUserInflight;
use vm_memory::{AtomicAccess, Bytes, FileOffset, MmapRegion, VolatileMemory};

const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;
/// Offsets in the header.
const VERSION_AT: usize = 8;
const SIZE_AT: usize = 10;
const LAST_AT: usize = 12;
const USED_AT: usize = 14;
/// Offsets in an entry.
const NEXT_AT: usize = 6;
const COUNTER_AT: usize = 8;
const VERSION: u16 = 1;
const ALIGNMENT: usize = 64;

/// The region of all queues.
#[derive(Clone)]
pub(crate) struct InflightRegion {
    region: Arc<MmapRegion>,
    queues: u16,
    queue_size: u16,
}

fn queue_bytes(queue_size: u16) -> usize {
    (HEADER_BYTES + usize::from(queue_size) * ENTRY_BYTES).next_multiple_of(ALIGNMENT)
}

impl InflightRegion {
    /// A new region, and the file that the frontend keeps.
    pub(crate) fn create(queues: u16, queue_size: u16) -> io::Result<(VhostUserInflight, File)> {
        let bytes = queue_bytes(queue_size) * usize::from(queues);
        let file = memfd_create("futae-inflight", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, bytes as u64)?;
        let inflight = VhostUserInflight::new(bytes as u64, 0, queues, queue_size);
        Ok((inflight, file.into()))
    }

    /// Maps the region in the frontend's file.
    pub(crate) fn open(inflight: &VhostUserInflight, file: File) -> io::Result<Self> {
        let (queues, queue_size) = (inflight.num_queues, inflight.queue_size);
        let needed = (queue_bytes(queue_size) * usize::from(queues)) as u64;
        let end = inflight.mmap_offset.checked_add(needed);
        let file_bytes = file.metadata()?.len();
        if inflight.mmap_size < needed || end.is_none_or(|end| end > file_bytes) {
            return Err(io::Error::other(
                "the inflight region is too short for its queues",
            ));
        }
        let offset = FileOffset::new(file, inflight.mmap_offset);
        let region = MmapRegion::from_file(offset, needed as usize).map_err(io::Error::other)?;
        Ok(Self {
            region: Arc::new(region),
            queues,
            queue_size,
        })
    }

    /// The part of one queue, if it exists.
    pub(crate) fn queue(&self, index: usize) -> Option<QueueInflight> {
        (index < usize::from(self.queues)).then(|| QueueInflight {
            region: Arc::clone(&self.region),
            base: index * queue_bytes(self.queue_size),
            entries: self.queue_size,
            counter: 0,
        })
    }
}

/// The state found when a queue starts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// The first descriptors of the requests to restart, in order.
    pub(crate) heads: Vec<u16>,
    /// The index in the available ring at which to continue; `None` if the region is new and the
    /// frontend's index applies.
    pub(crate) next_available: Option<u16>,
}

/// The part of one queue.
pub(crate) struct QueueInflight {
    region: Arc<MmapRegion>,
    base: usize,
    entries: u16,
    counter: u64,
}

impl QueueInflight {
    // The region covers all its entries, so no access fails; a failed one would leave a request
    // unrecorded.
    fn store<T: AtomicAccess>(&self, value: T, at: usize) {
        let _ = self
            .region
            .as_volatile_slice()
            .store(value, self.base + at, Release);
    }

    fn load<T: AtomicAccess + Default>(&self, at: usize) -> T {
        let slice = self.region.as_volatile_slice();
        slice.load(self.base + at, Acquire).unwrap_or_default()
    }

    fn entry(head: u16) -> usize {
        HEADER_BYTES + usize::from(head) * ENTRY_BYTES
    }

    /// Finds the requests under way, given the index of the used ring.
    pub(crate) fn recover(&mut self, used: u16) -> Recovered {
        if self.load::<u16>(VERSION_AT) != VERSION {
            self.store(self.entries, SIZE_AT);
            self.store(used, USED_AT);
            self.store(VERSION, VERSION_AT);
            return Recovered::default();
        }
        if self.load::<u16>(USED_AT) != used {
            // The last request was put into the used ring, but its record was not removed.
            let last: u16 = self.load(LAST_AT);
            if last < self.entries {
                self.store(0u8, Self::entry(last));
            }
            self.store(used, USED_AT);
        }
        let marked = (0..self.entries).filter(|&head| self.load::<u8>(Self::entry(head)) == 1);
        let count = |head| self.load::<u64>(Self::entry(head) + COUNTER_AT);
        let mut under_way: Vec<(u64, u16)> = marked.map(|head| (count(head), head)).collect();
        under_way.sort_unstable();
        self.counter = under_way
            .last()
            .map_or(0, |(counter, _)| counter.wrapping_add(1));
        let heads: Vec<u16> = under_way.into_iter().map(|(_, head)| head).collect();
        let next_available = Some(used.wrapping_add(heads.len() as u16));
        Recovered {
            heads,
            next_available,
        }
    }

    /// Records a request that begins at this descriptor.
    pub(crate) fn begin(&mut self, head: u16) {
        if head < self.entries {
            self.store(self.counter, Self::entry(head) + COUNTER_AT);
            self.counter = self.counter.wrapping_add(1);
            self.store(1u8, Self::entry(head));
        }
    }

    /// Records which request is put into the used ring next.
    pub(crate) fn end(&self, head: u16) {
        if head < self.entries {
            self.store(self.load::<u16>(LAST_AT), Self::entry(head) + NEXT_AT);
            self.store(head, LAST_AT);
        }
    }

    /// Removes the record of a request: the used ring has it, and its index is `used` now.
    pub(crate) fn ended(&self, head: u16, used: u16) {
        if head < self.entries {
            self.store(0u8, Self::entry(head));
            self.store(used, USED_AT);
        }
    }
}

// The specification gives these sizes.
const _: () = {
    assert!(size_of::<AtomicU8>() == 1 && size_of::<AtomicU16>() == 2);
    assert!(size_of::<AtomicU64>() == 8);
};

#[cfg(test)]
mod tests {
    use super::*;

    fn reopened(inflight: &VhostUserInflight, file: &File) -> QueueInflight {
        let file = file.try_clone().expect("a descriptor");
        let region = InflightRegion::open(inflight, file).expect("a region");
        region.queue(1).expect("a queue")
    }

    #[test]
    fn what_was_begun_and_not_ended_is_found_in_its_order() {
        let (inflight, file) = InflightRegion::create(2, 8).expect("a file");
        let mut queue = reopened(&inflight, &file);
        assert_eq!(queue.recover(65_534), Recovered::default(), "it is new");
        for head in [5, 2, 7, 3] {
            queue.begin(head);
        }
        queue.end(2);
        queue.ended(2, 65_535);
        queue.end(7); // and then the used ring, and then the end
        let mut queue = reopened(&inflight, &file);
        let expected = Recovered {
            heads: vec![5, 3],
            next_available: Some(2),
        };
        assert_eq!(queue.recover(0), expected);
        queue.begin(1);
        let mut queue = reopened(&inflight, &file);
        assert_eq!(queue.recover(0).heads, [5, 3, 1]);
    }

    #[test]
    fn a_region_that_is_too_short_is_refused() {
        let (inflight, file) = InflightRegion::create(1, 8).expect("a file");
        let more = VhostUserInflight::new(inflight.mmap_size, 0, 4, 8);
        assert!(InflightRegion::open(&more, file.try_clone().expect("a descriptor")).is_err());
        let beyond = VhostUserInflight::new(inflight.mmap_size, u64::MAX - 4095, 1, 8);
        assert!(InflightRegion::open(&beyond, file).is_err());
    }
}
