//! A device that does no more than a device must: it takes reads from a ring, copies each answer once out of memory, and
//! puts it into the used ring. It has no socket, no cache, no policy and no counters, and it never sleeps.

use super::layout::{AVAILABLE, RING, SECTOR, TABLE, USED};
use anyhow::{Context, bail};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use virtio_queue::{Queue, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

/// The device's thread.
pub(super) struct Floor {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Floor {
    /// Serves the ring in `memory` from an image of `size_bytes`.
    pub(super) fn start(memory: GuestMemoryMmap, size_bytes: u64) -> anyhow::Result<Self> {
        let mut queue = Queue::new(RING)?;
        queue.try_set_size(RING)?;
        queue.try_set_desc_table_address(GuestAddress(TABLE))?;
        queue.try_set_avail_ring_address(GuestAddress(AVAILABLE))?;
        queue.try_set_used_ring_address(GuestAddress(USED))?;
        queue.set_ready(true);
        queue.disable_notification(&memory)?;
        // Not zeroes, which would be one page of the kernel's.
        let image = vec![1u8; usize::try_from(size_bytes)?];
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name("floor".into()).spawn({
            let stop = Arc::clone(&stop);
            move || {
                while !stop.load(Relaxed) {
                    match round(&memory, &mut queue, &image) {
                        Ok(true) => {}
                        Ok(false) => std::hint::spin_loop(),
                        Err(error) => return eprintln!("the floor ends: {error:#}"),
                    }
                }
            }
        })?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to say; if it panicked, that was printed.
            let _ = thread.join();
        }
    }
}

/// Answers what is available; whether there was anything.
fn round(memory: &GuestMemoryMmap, queue: &mut Queue, image: &[u8]) -> anyhow::Result<bool> {
    let mut any = false;
    while let Some(mut chain) = queue.pop_descriptor_chain(memory) {
        let head = chain.head_index();
        let (Some(header), Some(data), Some(status)) = (chain.next(), chain.next(), chain.next())
        else {
            bail!("a request has three parts");
        };
        let sector: u64 = memory.read_obj(GuestAddress(header.addr().0 + 8))?;
        let from = usize::try_from(sector * SECTOR)?;
        let bytes = image.get(from..from + data.len() as usize);
        memory.write_slice(bytes.context("a read within the image")?, data.addr())?;
        memory.write_obj(0u8, status.addr())?;
        queue.add_used(memory, head, data.len() + 1)?;
        any = true;
    }
    Ok(any)
}
