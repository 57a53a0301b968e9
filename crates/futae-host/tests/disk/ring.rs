//! A client of a vhost-user-blk device, with the memory of a guest that nobody runs: several queues, and whatever
//! descriptors a test writes.

mod log;
mod place;
mod queue;

pub use log::{Log, PAGE_BYTES};
pub use place::{Area, DATA_BYTES, Descriptor, INDIRECT, MEMORY_BYTES, NEXT, SLOTS, WRITE};
pub use queue::Queue;

use futae_testkit::wait::obtain;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
    VhostUserVirtioFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Virtio 1.0, which has no older layouts.
const VERSION_1: u64 = 1 << 32;
/// Either side may say at which index it wants to be notified.
pub const EVENT_INDEX: u64 = 1 << 29;
/// The disk takes no writes.
pub const READ_ONLY: u64 = 1 << 5;
/// The disk can be flushed.
const FLUSH: u64 = 1 << 9;
/// The device logs what it writes.
const LOG_ALL: u64 = VhostUserVirtioFeatures::LOG_ALL.bits();
/// Where the memory is for the frontend; the device translates.
const USER_BASE: u64 = 1 << 40;

/// `VHOST_USER_BACKEND_CONFIG_CHANGE_MSG`.
const CONFIG_CHANGE: u32 = 2;

/// What a client asks for.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// Queues.
    pub queues: u16,
    /// Descriptors of each.
    pub queue_size: u16,
    /// Notifications at an index.
    pub event_index: bool,
    /// Requests under way are kept where the next server finds them.
    pub inflight: bool,
    /// FLUSH, without which every change is to be durable once it is answered.
    pub flush: bool,
}

impl Default for Wish {
    fn default() -> Self {
        Self {
            queues: 1,
            queue_size: 64,
            event_index: true,
            inflight: true,
            flush: true,
        }
    }
}

/// A connection, and the memory that outlives it.
pub struct RingClient {
    socket: PathBuf,
    wish: Wish,
    frontend: Frontend,
    /// Features that were agreed on.
    pub features: u64,
    file: File,
    /// Its queues.
    pub queues: Vec<Queue>,
    inflight: Option<(VhostUserInflight, File)>,
    /// The device logs what it writes.
    is_logged: bool,
    /// How often the device has said that its configuration space has changed.
    changes: Arc<AtomicU32>,
}

fn failed(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

impl RingClient {
    /// Connects, sets all queues up and starts them.
    ///
    /// # Errors
    ///
    /// The device refuses, or is none.
    pub fn connect(socket: &Path, wish: Wish) -> io::Result<Self> {
        let (file, memory) = memory()?;
        let queues = (0..wish.queues)
            .map(|index| Queue::new(index, &wish, memory.clone()))
            .collect::<io::Result<_>>()?;
        let mut client = Self {
            socket: socket.to_owned(),
            wish,
            frontend: greeted(socket)?,
            features: 0,
            file,
            queues,
            inflight: None,
            is_logged: false,
            changes: Arc::default(),
        };
        client.set_up()?;
        Ok(client)
    }

    /// Another one on the same disk with empty memory of its own: the hypervisor to which the guest is to be moved. It has asked
    /// the device what it is, and started nothing yet; see [`take_over`](Self::take_over).
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub fn beside(&self) -> io::Result<Self> {
        let (file, memory) = memory()?;
        let queues = self.queues.iter().map(|queue| queue.moved(memory.clone()));
        let mut other = Self {
            socket: self.socket.clone(),
            wish: self.wish,
            frontend: greeted(&self.socket)?,
            features: 0,
            file,
            queues: queues.collect::<io::Result<_>>()?,
            inflight: None,
            is_logged: false,
            changes: Arc::default(),
        };
        other.agree()?;
        other.size_bytes()?;
        Ok(other)
    }

    /// Connects anew, as a hypervisor does when its device's server was killed: memory and queues are as they were.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub fn reconnect(&mut self) -> io::Result<()> {
        self.frontend = greeted(&self.socket)?;
        self.set_up()
    }

    /// Connects anew as soon as there is a server.
    pub fn reconnect_when_there(&mut self) {
        obtain("a server to connect to", || self.reconnect());
    }

    /// Goes on with the queues of another, whose memory this one's is a copy of.
    ///
    /// # Errors
    ///
    /// The device refuses.
    pub fn take_over(&mut self, other: &Self) -> io::Result<()> {
        for (queue, from) in self.queues.iter_mut().zip(&other.queues) {
            queue.go_on_with(from);
        }
        self.set_up()
    }

    /// Gives the device the memory and starts all queues where they are.
    fn set_up(&mut self) -> io::Result<()> {
        self.agree()?;
        if self.wish.inflight {
            self.share_inflight()?;
        }
        self.set_memory(MEMORY_BYTES)?;
        (0..self.queues.len()).try_for_each(|index| self.start(index))
    }

    /// Agrees with the device on what both know.
    fn agree(&mut self) -> io::Result<()> {
        let wish = self.wish;
        let offered = self.frontend.get_features().map_err(failed)?;
        let mut wanted = VERSION_1 | READ_ONLY | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        if wish.event_index {
            wanted |= EVENT_INDEX;
        }
        if wish.flush {
            wanted |= FLUSH;
        }
        self.features = offered & wanted;
        self.frontend.set_features(self.features).map_err(failed)?;
        let known = self.frontend.get_protocol_features().map_err(failed)?;
        let mut protocol = known
            & (VhostUserProtocolFeatures::CONFIG
                | VhostUserProtocolFeatures::MQ
                | VhostUserProtocolFeatures::REPLY_ACK
                | VhostUserProtocolFeatures::LOG_SHMFD
                | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
                | VhostUserProtocolFeatures::BACKEND_REQ);
        if wish.inflight {
            protocol |= VhostUserProtocolFeatures::INFLIGHT_SHMFD;
        }
        self.frontend
            .set_protocol_features(protocol)
            .map_err(failed)?;
        // Each order is answered, so that a refusal is seen where it happens.
        self.frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        if protocol.contains(VhostUserProtocolFeatures::BACKEND_REQ) {
            self.listen()?;
        }
        Ok(())
    }

    /// Has the device log what it writes, here from now on, in the order in which QEMU says so.
    ///
    /// # Errors
    ///
    /// The device refuses.
    pub fn log_to(&mut self, log: &Log) -> io::Result<()> {
        let set = self.frontend.set_log_base(0, Some(log.region()));
        set.map_err(failed)?;
        if std::mem::replace(&mut self.is_logged, true) {
            return Ok(());
        }
        self.follow_log()
    }

    /// Has the device log nothing any more.
    ///
    /// # Errors
    ///
    /// The device refuses.
    pub fn end_log(&mut self) -> io::Result<()> {
        self.is_logged = false;
        self.follow_log()
    }

    fn follow_log(&mut self) -> io::Result<()> {
        let log = if self.is_logged { LOG_ALL } else { 0 };
        let features = self.features | log;
        self.frontend.set_features(features).map_err(failed)?;
        for index in 0..self.queues.len() {
            let place = self.place(index);
            let set = self.frontend.set_vring_addr(index, &place);
            set.map_err(failed)?;
        }
        Ok(())
    }

    /// Where the parts of a queue are.
    fn place(&self, index: usize) -> VringConfigData {
        let area = self.queues[index].area();
        let flags = u32::from(self.is_logged); // VHOST_VRING_F_LOG
        VringConfigData {
            queue_max_size: self.wish.queue_size,
            queue_size: self.wish.queue_size,
            flags,
            desc_table_addr: USER_BASE + area.table,
            avail_ring_addr: USER_BASE + area.available,
            used_ring_addr: USER_BASE + area.used,
            log_addr: self.is_logged.then_some(area.used),
        }
    }

    /// Hears what the device says by itself, until it is gone.
    fn listen(&mut self) -> io::Result<()> {
        let (mut ours, theirs) = UnixStream::pair()?;
        let given = self.frontend.set_backend_request_fd(&theirs);
        given.map_err(failed)?;
        let changes = Arc::clone(&self.changes);
        std::thread::spawn(move || {
            // A message is its kind, flags, and the length of what follows: nothing.
            let mut message = [0; 12];
            while ours.read_exact(&mut message).is_ok() {
                if message[..4] == CONFIG_CHANGE.to_ne_bytes() {
                    changes.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        Ok(())
    }

    fn share_inflight(&mut self) -> io::Result<()> {
        let wished = VhostUserInflight::new(0, 0, self.wish.queues, self.wish.queue_size);
        if self.inflight.is_none() {
            let made = self.frontend.get_inflight_fd(&wished).map_err(failed)?;
            self.inflight = Some(made);
        }
        if let Some((inflight, file)) = &self.inflight {
            let shared = self.frontend.set_inflight_fd(inflight, file.as_raw_fd());
            shared.map_err(failed)?;
        }
        Ok(())
    }

    /// Says that the guest's memory has so many bytes, which may be fewer than it has.
    ///
    /// # Errors
    ///
    /// The device refuses.
    pub fn set_memory(&mut self, bytes: u64) -> io::Result<()> {
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: bytes,
            userspace_addr: USER_BASE,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        };
        self.frontend.set_mem_table(&[region]).map_err(failed)?;
        Ok(())
    }

    /// Starts a queue where its used ring is.
    ///
    /// # Errors
    ///
    /// The device refuses.
    pub fn start(&mut self, index: usize) -> io::Result<()> {
        let (queue, place) = (&self.queues[index], self.place(index));
        let frontend = &mut self.frontend;
        let size = self.wish.queue_size;
        frontend.set_vring_num(index, size).map_err(failed)?;
        let base = queue.used_index();
        frontend.set_vring_base(index, base).map_err(failed)?;
        frontend.set_vring_addr(index, &place).map_err(failed)?;
        let call = frontend.set_vring_call(index, &queue.call);
        call.map_err(failed)?;
        let error = frontend.set_vring_err(index, &queue.error);
        error.map_err(failed)?;
        let kick = frontend.set_vring_kick(index, &queue.kick);
        kick.map_err(failed)?;
        frontend.set_vring_enable(index, true).map_err(failed)
    }

    /// Stops a queue; where it would go on.
    ///
    /// # Errors
    ///
    /// The device refuses.
    pub fn stop(&mut self, index: usize) -> io::Result<u32> {
        self.frontend.get_vring_base(index).map_err(failed)
    }

    /// Says how many descriptors a queue has, after stopping it.
    ///
    /// # Errors
    ///
    /// The device refuses.
    pub fn set_queue_size(&mut self, index: usize, size: u16) -> io::Result<()> {
        self.stop(index)?;
        self.frontend.set_vring_num(index, size).map_err(failed)
    }

    /// The device's configuration space, so much of it.
    ///
    /// # Errors
    ///
    /// The device refuses.
    pub fn config(&mut self, bytes: u32) -> io::Result<Vec<u8>> {
        let empty = vec![0; bytes as usize];
        let flags = VhostUserConfigFlags::WRITABLE;
        let got = self.frontend.get_config(0, bytes, flags, &empty);
        Ok(got.map_err(failed)?.1)
    }

    /// Size of the disk in bytes, as the configuration space has it now.
    ///
    /// # Errors
    ///
    /// The device refuses.
    pub fn size_bytes(&mut self) -> io::Result<u64> {
        let config = self.config(8)?;
        let sectors = config.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        Ok(512 * sectors.ok_or_else(|| failed("the device has no size"))?)
    }

    /// How often the device has said that its configuration space has changed.
    #[must_use]
    pub fn config_changes(&self) -> u32 {
        self.changes.load(Ordering::SeqCst)
    }
}

/// Empty memory of a guest, and the file of it.
fn memory() -> io::Result<(File, GuestMemoryMmap)> {
    let file = File::from(memfd_create("futae-test", MemfdFlags::CLOEXEC)?);
    ftruncate(&file, MEMORY_BYTES)?;
    let place = FileOffset::new(file.try_clone()?, 0);
    let ranges = [(GuestAddress(0), MEMORY_BYTES as usize, Some(place))];
    let memory = GuestMemoryMmap::from_ranges_with_files(ranges).map_err(failed)?;
    Ok((file, memory))
}

fn greeted(socket: &Path) -> io::Result<Frontend> {
    let frontend = Frontend::from_stream(UnixStream::connect(socket)?, 16);
    frontend.set_owner().map_err(failed)?;
    Ok(frontend)
}

fn event() -> io::Result<EventFd> {
    EventFd::new(EFD_NONBLOCK)
}
