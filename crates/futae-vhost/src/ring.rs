//! One queue as the frontend configures it, and the thread that serves it while it is started.

use crate::call::Call;
use crate::claim::RingPlace;
use crate::control::Control;
use crate::device::QUEUE_SIZE_MAX;
use crate::queue::Worker;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use virtio_queue::{Queue, QueueT};
use vm_memory::GuestAddress;

/// Stack size of a queue's thread, which calls into the cache and no deeper.
const STACK_BYTES: usize = 512 * 1024;

/// The guest addresses of the parts of a queue.
#[derive(Clone, Copy)]
pub(crate) struct Addresses {
    pub(crate) descriptors: GuestAddress,
    pub(crate) available: GuestAddress,
    pub(crate) used: GuestAddress,
    /// Where the used ring is in the frontend's memory; `None` without a frontend.
    pub(crate) place: Option<RingPlace>,
    /// The address under which the used ring is logged, if it is.
    pub(crate) log: Option<u64>,
}

/// One queue.
pub(crate) struct Ring {
    pub(crate) size: u16,
    pub(crate) addresses: Option<Addresses>,
    pub(crate) next_available: u16,
    pub(crate) is_enabled: bool,
    pub(crate) kick: Option<Arc<File>>,
    pub(crate) call: Arc<Call>,
    pub(crate) error: Arc<Call>,
    running: Option<(Arc<Control>, JoinHandle<u16>)>,
}

impl Default for Ring {
    fn default() -> Self {
        Self {
            size: QUEUE_SIZE_MAX,
            addresses: None,
            next_available: 0,
            is_enabled: false,
            kick: None,
            call: Arc::default(),
            error: Arc::default(),
            running: None,
        }
    }
}

impl Ring {
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether the frontend wants it served.
    pub(crate) fn may_run(&self) -> bool {
        self.is_enabled && self.kick.is_some() && self.addresses.is_some()
    }

    /// The queue as the frontend describes it; `None` if the description is incomplete or invalid.
    pub(crate) fn queue(&self, has_event_index: bool) -> Option<Queue> {
        let addresses = self.addresses?;
        let mut queue = Queue::new(QUEUE_SIZE_MAX).ok()?;
        queue.try_set_size(self.size).ok()?;
        queue
            .try_set_desc_table_address(addresses.descriptors)
            .ok()?;
        queue.try_set_avail_ring_address(addresses.available).ok()?;
        queue.try_set_used_ring_address(addresses.used).ok()?;
        queue.set_event_idx(has_event_index);
        queue.set_next_avail(self.next_available);
        queue.set_ready(true);
        Some(queue)
    }

    /// Starts its thread.
    pub(crate) fn start(&mut self, control: Arc<Control>, worker: Worker) -> io::Result<()> {
        let thread = Builder::new().name("vhost queue".into());
        let thread = thread.stack_size(STACK_BYTES);
        self.running = Some((control, thread.spawn(move || worker.run())?));
        Ok(())
    }

    /// Asks its thread to stop.
    pub(crate) fn begin_stop(&self) {
        if let Some((control, _)) = &self.running {
            control.stop();
        }
    }

    /// Stops its thread, which first completes its requests.
    pub(crate) fn stop(&mut self) {
        self.begin_stop();
        if let Some((_, thread)) = self.running.take()
            && let Ok(next_available) = thread.join()
        {
            self.next_available = next_available;
        }
    }
}
