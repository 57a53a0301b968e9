//! One queue as the frontend configures it, and the thread that serves it while it is started.

use crate::claim::{self, RingPlace};
use crate::device::QUEUE_SIZE_MAX;
use crate::mailbox::Mailbox;
use crate::queue::Worker;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::fs::File;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use virtio_queue::{Queue, QueueT};
use vm_memory::GuestAddress;

/// Stack size of a queue's thread, which calls into the cache and no deeper.
const STACK_BYTES: usize = 512 * 1024;

/// The descriptor that notifies a guest, which the frontend may replace at any time.
#[derive(Default)]
pub(crate) struct Call(Mutex<Option<File>>);

impl Call {
    /// Notifies the guest by the new descriptor: it may have missed what the last one told it. A frontend that connects again
    /// gives one first that the guest does not hear, and with its event index the guest asks for one notification only.
    pub(crate) fn set(&self, file: Option<File>) {
        if let Some(file) = &file {
            make_nonblocking(file);
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = file;
        self.ring();
    }

    /// Notifies the guest. If the counter is full, the guest is notified as well.
    pub(crate) fn ring(&self) {
        if let Some(file) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = rustix::io::write(file, &1u64.to_ne_bytes());
        }
    }
}

/// Prevents a descriptor of the frontend from blocking a queue's thread.
pub(crate) fn make_nonblocking(file: &File) {
    if let Ok(flags) = fcntl_getfl(file) {
        let _ = fcntl_setfl(file, flags | OFlags::NONBLOCK);
    }
}

/// Asks the thread of a queue to stop.
pub(crate) struct Control {
    stop: AtomicBool,
    pub(crate) mailbox: Arc<Mailbox>,
}

impl Control {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            stop: AtomicBool::new(false),
            mailbox: Arc::new(Mailbox::new()?),
        }))
    }

    pub(crate) fn must_stop(&self) -> bool {
        self.stop.load(SeqCst)
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, SeqCst);
        self.mailbox.ring();
        claim::wake();
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    fn count(descriptor: &File) -> u64 {
        let mut count = [0; 8];
        match rustix::io::read(descriptor, &mut count) {
            Ok(_) => u64::from_ne_bytes(count),
            Err(_) => 0,
        }
    }

    #[test]
    fn a_guest_is_notified_by_each_new_descriptor() {
        let new = || File::from(eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd"));
        let call = Call::default();
        call.ring();
        let descriptors = [new(), new()];
        for descriptor in &descriptors {
            call.set(Some(descriptor.try_clone().expect("a copy")));
        }
        assert_eq!(descriptors.each_ref().map(count), [1, 1]);
        call.ring();
        call.set(None);
        call.ring();
        assert_eq!(descriptors.each_ref().map(count), [0, 1]);
    }
}
