//! One queue without a frontend and without a thread of its own, for fuzzing: the caller acts as
//! the guest, and decides when the device runs.

use crate::control::Control;
use crate::device::Device;
use crate::dirty_log::UsedRingLog;
use crate::inflight::InflightRegion;
use crate::memory::Memory;
use crate::queue::{Start, Worker};
use crate::ring::{Addresses, Ring};
use crate::room::Room;
use crate::traffic::Traffic;
use futae_engine::JoinedClient;
use std::fs::File;
use std::io;
use std::sync::Arc;
use vm_memory::{GuestAddress, GuestMemoryMmap};

/// A frontend's description of a queue, not validated yet.
#[derive(Clone, Copy, Debug)]
pub struct QueueShape {
    /// Descriptors.
    pub size: u16,
    /// Guest address of the descriptor table.
    pub descriptors: u64,
    /// Guest address of the available ring.
    pub available: u64,
    /// Guest address of the used ring.
    pub used: u64,
    /// The index in the available ring at which to begin.
    pub next_available: u16,
    /// Whether `VIRTIO_RING_F_EVENT_IDX` was negotiated.
    pub has_event_index: bool,
}

/// The queue.
pub struct LoneQueue {
    worker: Worker,
    control: Arc<Control>,
    traffic: Arc<Traffic>,
}

impl LoneQueue {
    /// Starts a queue of `device` over a guest's memory; `None` if its shape is invalid. With
    /// `inflight`, its requests are recorded in memory that a frontend keeps, which may be the file
    /// of an earlier queue.
    ///
    /// # Errors
    ///
    /// The operating system refuses descriptors.
    pub fn start(
        device: Device,
        memory: GuestMemoryMmap,
        shape: &QueueShape,
        room: Box<dyn Room>,
        inflight: Option<&File>,
    ) -> io::Result<Option<Self>> {
        let mut ring = Ring::default();
        ring.size = shape.size;
        ring.next_available = shape.next_available;
        ring.addresses = Some(Addresses {
            descriptors: GuestAddress(shape.descriptors),
            available: GuestAddress(shape.available),
            used: GuestAddress(shape.used),
            place: None,
            log: None,
        });
        let Some(queue) = ring.queue(shape.has_event_index) else {
            return Ok(None);
        };
        let region = match inflight {
            Some(file) => {
                let (told, _) = InflightRegion::create(1, shape.size)?;
                Some(InflightRegion::open(&told, file.try_clone()?)?)
            }
            None => None,
        };
        let control = Control::new()?;
        let traffic = Arc::<Traffic>::default();
        let kick = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK)?;
        let worker = Worker::new(Start {
            index: 0,
            place: None,
            disk: Arc::new(JoinedClient::join(&device.engine, device.volume)),
            device,
            memory: Memory::new(memory),
            queue,
            inflight: region.and_then(|region| region.queue(0)),
            used_log: UsedRingLog {
                log: Arc::default(),
                address: None,
                size: shape.size,
            },
            kick: Arc::new(File::from(kick)),
            call: Arc::clone(&ring.call),
            error: Arc::clone(&ring.error),
            control: Arc::clone(&control),
            room,
            writes_through: false,
            traffic: Arc::clone(&traffic),
        });
        Ok(worker.map(|mut worker| {
            worker.recover();
            Self {
                worker,
                control,
                traffic,
            }
        }))
    }

    /// Size of the file that [`start`](Self::start) takes for `inflight`, for a queue of this many
    /// descriptors.
    ///
    /// # Errors
    ///
    /// The operating system refuses memory.
    pub fn inflight_bytes(size: u16) -> io::Result<u64> {
        Ok(InflightRegion::create(1, size)?.0.mmap_size)
    }

    /// Runs one round of the device. Returns whether it did anything.
    pub fn round(&mut self) -> bool {
        self.worker.round()
    }

    /// Number of requests in the cache.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.worker.under_way().0
    }

    /// Whether the guest violated the protocol, after which the device takes nothing more from the
    /// queue.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.worker.under_way().1
    }

    /// Makes the device take nothing more from the guest.
    pub fn stop(&self) {
        self.control.stop();
    }

    /// Counters of its traffic.
    #[must_use]
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }
}
