//! One connection of a frontend, which describes the guest's memory and queues.

use crate::announcer::Announcer;
use crate::call::make_nonblocking;
use crate::control::Control;
use crate::departure::{self, Preparation};
use crate::device::{Device, F_LOG_ALL, F_PROTOCOL_FEATURES, QUEUE_SIZE_MAX, QUEUES_MAX};
use crate::dirty_log::{DirtyLog, UsedRingLog};
use crate::inflight::InflightRegion;
use crate::memory::{GuestMemory, Regions};
use crate::queue::{Start, Worker};
use crate::ring::{Addresses, Ring};
use crate::room::Room;
use crate::traffic::Traffic;
use futae_engine::JoinedClient;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    BackendReqHandler, Error, GpuBackend, Result, VhostUserBackendReqHandlerMut,
};
use virtio_bindings::virtio_blk::VIRTIO_BLK_F_FLUSH;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

/// The largest number of memory regions that a frontend may add.
const MEMORY_REGIONS_MAX: u64 = 509;

/// Why a connection failed. A disconnected peer is no error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct VhostError(String);

/// Makes the limits of a queue.
type Rooms = Box<dyn Fn() -> io::Result<Box<dyn Room>> + Send>;

/// Serves one frontend until it has disconnected and the cache has completed its guest's requests.
/// `rooms` makes the limits of a queue when it starts. `announcer` informs the frontend of changes
/// once the frontend has provided a channel for that. Meanwhile, holders of `memory` see the
/// guest's memory.
pub fn serve(
    stream: UnixStream,
    device: &Device,
    rooms: impl Fn() -> io::Result<Box<dyn Room>> + Send + 'static,
    traffic: &Arc<Traffic>,
    announcer: &Announcer,
    memory: &GuestMemory,
) -> std::result::Result<(), VhostError> {
    let stream_of_session = stream
        .try_clone()
        .map_err(|error| VhostError(error.to_string()))?;
    let session = Session {
        stream: stream_of_session,
        disk: Arc::new(JoinedClient::join(&device.engine, device.volume)),
        device: device.clone(),
        rooms: Box::new(rooms),
        traffic: Arc::clone(traffic),
        regions: Regions::seen_by(memory),
        rings: (0..QUEUES_MAX).map(|_| Ring::default()).collect(),
        features: 0,
        inflight: None,
        dirty_log: Arc::default(),
        preparation: Preparation::default(),
    };
    let looked_at = stream
        .try_clone()
        .map_err(|error| VhostError(error.to_string()))?;
    let mut handler = BackendReqHandler::from_stream(stream, Arc::new(Mutex::new(session)));
    loop {
        announcer.look(&looked_at);
        match handler.handle_request() {
            Ok(()) => {}
            Err(Error::Disconnected | Error::PartialMessage | Error::SocketBroken(_)) => {
                return Ok(());
            }
            Err(error) => return Err(VhostError(error.to_string())),
        }
    }
}

struct Session {
    device: Device,
    disk: Arc<JoinedClient>,
    rooms: Rooms,
    traffic: Arc<Traffic>,
    regions: Regions,
    rings: Vec<Ring>,
    /// The negotiated features.
    features: u64,
    inflight: Option<InflightRegion>,
    dirty_log: Arc<DirtyLog>,
    preparation: Preparation,
    /// Its connection.
    stream: UnixStream,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop_all();
    }
}

impl Session {
    fn stop_all(&mut self) {
        // All at once, so that they stop in parallel.
        for ring in &self.rings {
            ring.begin_stop();
        }
        for ring in &mut self.rings {
            ring.stop();
        }
    }

    fn ring(&mut self, index: u32) -> Result<&mut Ring> {
        self.rings
            .get_mut(index as usize)
            .ok_or(Error::InvalidParam)
    }

    /// Starts or stops the thread of a queue, according to its configuration.
    fn follow(&mut self, index: u32) -> Result<()> {
        let at = index as usize;
        let ring = self.rings.get_mut(at).ok_or(Error::InvalidParam)?;
        if !ring.may_run() {
            ring.stop();
            return Ok(());
        }
        if ring.is_running() {
            return Ok(());
        }
        let has_event_index = self.features & (1 << VIRTIO_RING_F_EVENT_IDX) != 0;
        // A driver that cannot flush takes every answered change for durable (virtio 1.2, 5.2.6.2).
        let can_flush = self.features & (1 << VIRTIO_BLK_F_FLUSH) != 0;
        let queue = ring.queue(has_event_index).ok_or(Error::InvalidParam)?;
        let addresses = ring.addresses.ok_or(Error::InvalidParam)?;
        let kick = ring.kick.clone().ok_or(Error::InvalidParam)?;
        let control = Control::new().map_err(Error::ReqHandlerError)?;
        let inflight = self.inflight.as_ref();
        let worker = Worker::new(Start {
            index: at,
            place: addresses.place,
            device: self.device.clone(),
            disk: Arc::clone(&self.disk),
            memory: self.regions.memory.clone(),
            queue,
            used_log: UsedRingLog {
                log: Arc::clone(&self.dirty_log),
                address: addresses.log,
                size: ring.size,
            },
            inflight: inflight.and_then(|inflight| inflight.queue(at)),
            kick,
            call: Arc::clone(&ring.call),
            error: Arc::clone(&ring.error),
            control: Arc::clone(&control),
            room: (self.rooms)().map_err(Error::ReqHandlerError)?,
            writes_through: !can_flush,
            traffic: Arc::clone(&self.traffic),
        });
        let worker = worker.ok_or(Error::InvalidParam)?;
        ring.start(control, worker).map_err(Error::ReqHandlerError)
    }

    fn follow_all(&mut self) -> Result<()> {
        (0..self.rings.len() as u32).try_for_each(|index| self.follow(index))
    }
}

/// Whether the frontend, or a server that ends, has closed the connection.
fn has_hung_up(stream: &UnixStream) -> bool {
    let mut looked_at = [PollFd::new(stream, PollFlags::RDHUP)];
    let is_found = poll(&mut looked_at, Some(&Timespec::default()));
    // A poll that fails says nothing.
    is_found.is_ok_and(|count| count > 0)
}

fn unsupported<T>(what: &str) -> Result<T> {
    let error = io::Error::new(io::ErrorKind::Unsupported, what.to_owned());
    Err(Error::ReqHandlerError(error))
}

impl VhostUserBackendReqHandlerMut for Session {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset_device()
    }

    fn reset_device(&mut self) -> Result<()> {
        self.stop_all();
        for ring in &mut self.rings {
            *ring = Ring::default();
        }
        self.features = 0;
        self.dirty_log.turn(false);
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.device.features())
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !self.device.features() != 0 {
            return Err(Error::InvalidParam);
        }
        self.features = features;
        let is_logged = features & F_LOG_ALL != 0;
        if !self.dirty_log.turn(is_logged) && is_logged {
            self.preparation.begin(&self.device);
        }
        if features & F_PROTOCOL_FEATURES == 0 {
            for ring in &mut self.rings {
                ring.is_enabled = true;
            }
        }
        self.follow_all()
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        postcopy_listening: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        if postcopy_listening.is_some() {
            return unsupported("migration by postcopy");
        }
        self.regions.set(regions, files)?;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let size = u16::try_from(num).map_err(|_| Error::InvalidParam)?;
        if size > QUEUE_SIZE_MAX || !size.is_power_of_two() {
            return Err(Error::InvalidParam);
        }
        let ring = self.ring(index)?;
        if ring.is_running() {
            return Err(Error::InvalidParam);
        }
        ring.size = size;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        log: u64,
    ) -> Result<()> {
        let is_logged = flags.contains(VhostUserVringAddrFlags::VHOST_VRING_F_LOG);
        let addresses = Addresses {
            descriptors: self.regions.guest_address(descriptor)?,
            available: self.regions.guest_address(available)?,
            used: self.regions.guest_address(used)?,
            place: Some(self.regions.place(used)?),
            log: is_logged.then_some(log),
        };
        // Logging is turned on and off while a queue runs, so the queue restarts with the new
        // address.
        self.ring(index)?.stop();
        self.ring(index)?.addresses = Some(addresses);
        self.follow(index)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let ring = self.ring(index)?;
        if ring.is_running() {
            return Err(Error::InvalidParam);
        }
        ring.next_available = base as u16;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let ring = self.ring(index)?;
        ring.stop();
        ring.kick = None;
        ring.call.set(None);
        let base = u32::from(ring.next_available);
        if self.dirty_log.is_on() && !departure::settle(&self.device, || !has_hung_up(&self.stream))
        {
            // An answer would let the guest go, if it is the server that ends.
            return Err(Error::Disconnected);
        }
        Ok(VhostUserVringState::new(index, base))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let ring = self.ring(index.into())?;
        // A running queue uses the descriptor with which it was started.
        ring.stop();
        // Without a descriptor the device would have to poll permanently.
        ring.kick = file.map(|file| {
            make_nonblocking(&file);
            Arc::new(file)
        });
        self.follow(index.into())
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        self.ring(index.into())?.call.set(file);
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, file: Option<File>) -> Result<()> {
        self.ring(index.into())?.error.set(file);
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::LOG_SHMFD
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
            | VhostUserProtocolFeatures::RESET_DEVICE)
    }

    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(QUEUES_MAX as u64)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.ring(index)?.is_enabled = enable;
        self.follow(index)
    }

    fn get_config(
        &mut self,
        offset: u32,
        size: u32,
        _flags: VhostUserConfigFlags,
    ) -> Result<Vec<u8>> {
        Ok(self.device.config(offset as usize, size as usize))
    }

    fn set_config(
        &mut self,
        _offset: u32,
        _buf: &[u8],
        _flags: VhostUserConfigFlags,
    ) -> Result<()> {
        // The only field that a guest could change is the write cache setting, which is not
        // offered.
        unsupported("changing the configuration")
    }

    fn set_gpu_socket(&mut self, _gpu_backend: GpuBackend) -> Result<()> {
        unsupported("a GPU's socket")
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        unsupported("shared objects")
    }

    fn get_inflight_fd(
        &mut self,
        inflight: &VhostUserInflight,
    ) -> Result<(VhostUserInflight, File)> {
        let (queues, queue_size) = (inflight.num_queues, inflight.queue_size);
        if usize::from(queues) > QUEUES_MAX || queue_size > QUEUE_SIZE_MAX {
            return Err(Error::InvalidParam);
        }
        InflightRegion::create(queues, queue_size).map_err(Error::ReqHandlerError)
    }

    fn set_inflight_fd(&mut self, inflight: &VhostUserInflight, file: File) -> Result<()> {
        let (queues, queue_size) = (inflight.num_queues, inflight.queue_size);
        if usize::from(queues) > QUEUES_MAX || queue_size > QUEUE_SIZE_MAX {
            return Err(Error::InvalidParam);
        }
        let region = InflightRegion::open(inflight, file).map_err(Error::ReqHandlerError)?;
        self.inflight = Some(region);
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(MEMORY_REGIONS_MAX)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        postcopy_listening: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        if postcopy_listening.is_some() {
            return unsupported("migration by postcopy");
        }
        self.regions.add(region, file)?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        self.regions.remove(region)
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _file: File,
    ) -> Result<Option<File>> {
        unsupported("a device's state")
    }

    fn check_device_state(&mut self) -> Result<()> {
        unsupported("a device's state")
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        unsupported("shared memory of the device")
    }

    fn set_log_base(&mut self, log: &VhostUserLog, file: File) -> Result<()> {
        self.dirty_log.set(log, file)
    }
}
