//! A client of a vhost-user-blk device: one queue in shared memory, filled with reads of one size.
//!
//! It polls the used ring and never sleeps, so what it measures is the device.

mod floor;
mod layout;

pub use layout::SECTOR;

use anyhow::{Context, bail, ensure};
use floor::Floor;
use layout::{AVAILABLE, DATA, HEADERS, RING, STATUS, TABLE, USED};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserProtocolFeatures, VhostUserVirtioFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Entries of the ring that a request takes.
const A_REQUEST: u16 = 3;
/// Requests that may be under way.
pub const DEPTH_MAX: usize = (RING / A_REQUEST) as usize;
/// Longest read.
const READ_MAX: u64 = 128 << 10;

const VERSION_1: u64 = 1 << 32;
const NEXT: u16 = 1;
const WRITABLE: u16 = 2;
/// The device does not want to be notified (`VRING_USED_F_NO_NOTIFY`).
const NO_NOTIFY: u16 = 1;
/// The client does not want to be notified (`VRING_AVAIL_F_NO_INTERRUPT`).
const NO_INTERRUPT: u16 = 1;

/// What serves the ring. Dropped first: the device unmaps the memory.
enum Device {
    Frontend(Frontend),
    /// Held until the ring is dropped.
    Floor(#[expect(dead_code, reason = "dropping it ends its thread")] Floor),
}

fn memory_bytes(read_bytes: u64) -> u64 {
    DATA + DEPTH_MAX as u64 * read_bytes
}

/// Memory that a device can share, and its file.
fn memory(bytes: u64) -> anyhow::Result<(File, GuestMemoryMmap)> {
    let file = File::from(memfd_create("futae-bench", MemfdFlags::CLOEXEC)?);
    ftruncate(&file, bytes)?;
    let place = FileOffset::new(file.try_clone()?, 0);
    let ranges = [(GuestAddress(0), bytes as usize, Some(place))];
    Ok((file, GuestMemoryMmap::from_ranges_with_files(ranges)?))
}

/// A connection with one queue.
pub struct Ring {
    device: Device,
    memory: GuestMemoryMmap,
    kick: EventFd,
    read_bytes: u64,
    /// Size of the device in bytes.
    pub size_bytes: u64,
    available: u16,
    used: u16,
}

impl Ring {
    /// Connects, and prepares reads of this many bytes.
    pub fn connect(socket: &Path, read_bytes: u64) -> anyhow::Result<Self> {
        ensure!(
            read_bytes.is_multiple_of(SECTOR) && (SECTOR..=READ_MAX).contains(&read_bytes),
            "a read has whole sectors, and at most {READ_MAX} bytes"
        );
        let bytes = memory_bytes(read_bytes);
        let (file, memory) = memory(bytes)?;
        let mut frontend = Frontend::connect(socket, 1)
            .with_context(|| format!("{}: no vhost-user device", socket.display()))?;
        frontend.set_owner()?;
        let offered = frontend.get_features()?;
        let protocol = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        ensure!(
            offered & VERSION_1 != 0,
            "the device is older than virtio 1.0"
        );
        frontend.set_features(offered & (VERSION_1 | protocol))?;
        let known = frontend.get_protocol_features()?;
        ensure!(
            known.contains(VhostUserProtocolFeatures::CONFIG),
            "the device has no configuration"
        );
        frontend.set_protocol_features(VhostUserProtocolFeatures::CONFIG)?;
        let flags = VhostUserConfigFlags::WRITABLE;
        let (_, config) = frontend.get_config(0, 8, flags, &[0; 8])?;
        let sectors = config.first_chunk().context("the device has no size")?;
        let size_bytes = u64::from_le_bytes(*sectors) * SECTOR;
        if size_bytes < read_bytes {
            bail!("the device has {size_bytes} bytes");
        }
        // The device translates these addresses; any that are not 0 will do.
        let base = 1 << 32;
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: bytes,
            userspace_addr: base,
            mmap_offset: 0,
            mmap_handle: file.as_raw_fd(),
        };
        frontend.set_mem_table(&[region])?;
        let (kick, call) = (EventFd::new(EFD_NONBLOCK)?, EventFd::new(EFD_NONBLOCK)?);
        frontend.set_vring_num(0, RING)?;
        frontend.set_vring_base(0, 0)?;
        let place = VringConfigData {
            queue_max_size: RING,
            queue_size: RING,
            flags: 0,
            desc_table_addr: base + TABLE,
            avail_ring_addr: base + AVAILABLE,
            used_ring_addr: base + USED,
            log_addr: None,
        };
        frontend.set_vring_addr(0, &place)?;
        frontend.set_vring_call(0, &call)?;
        frontend.set_vring_kick(0, &kick)?;
        Self::new(
            Device::Frontend(frontend),
            memory,
            kick,
            read_bytes,
            size_bytes,
        )
    }

    /// A ring that a thread of this program serves with the least work: the bound for every device over rings like it.
    pub fn with_floor(read_bytes: u64, size_bytes: u64) -> anyhow::Result<Self> {
        ensure!(
            size_bytes >= read_bytes,
            "an image of at least {read_bytes} bytes"
        );
        let (_, memory) = memory(memory_bytes(read_bytes))?;
        let device = Device::Floor(Floor::start(memory.clone(), size_bytes)?);
        let kick = EventFd::new(EFD_NONBLOCK)?;
        Self::new(device, memory, kick, read_bytes, size_bytes)
    }

    /// A ring with every request prepared.
    fn new(
        device: Device,
        memory: GuestMemoryMmap,
        kick: EventFd,
        read_bytes: u64,
        size_bytes: u64,
    ) -> anyhow::Result<Self> {
        memory.write_obj(NO_INTERRUPT, GuestAddress(AVAILABLE))?;
        let ring = Self {
            device,
            memory,
            kick,
            read_bytes,
            size_bytes,
            available: 0,
            used: 0,
        };
        (0..DEPTH_MAX as u16).try_for_each(|at| ring.prepare(at))?;
        Ok(ring)
    }

    /// Begins to be served, once the queue is prepared.
    pub fn enable(&mut self) -> anyhow::Result<()> {
        match &mut self.device {
            Device::Frontend(frontend) => Ok(frontend.set_vring_enable(0, true)?),
            Device::Floor(_) => Ok(()),
        }
    }

    /// Writes the descriptors of request `at`.
    fn prepare(&self, at: u16) -> anyhow::Result<()> {
        let number = u64::from(at);
        let parts = [
            (HEADERS + 16 * number, 16, NEXT),
            (
                DATA + self.read_bytes * number,
                self.read_bytes,
                NEXT | WRITABLE,
            ),
            (STATUS + number, 1, WRITABLE),
        ];
        for (part, (address, length, flags)) in (0u16..).zip(parts) {
            let index = at * A_REQUEST + part;
            let raw = u128::from(address)
                | u128::from(length) << 64
                | u128::from(flags) << 96
                | u128::from(index + 1) << 112;
            let to = GuestAddress(TABLE + 16 * u64::from(index));
            self.memory.write_slice(&raw.to_le_bytes(), to)?;
        }
        Ok(())
    }

    /// Puts request `at`, a read from byte `offset` on, into the ring. [`Self::publish`] shows it.
    pub fn ask(&mut self, at: u16, offset: u64) -> anyhow::Result<()> {
        let number = u64::from(at);
        let header = u128::from(offset / SECTOR) << 64;
        let to = GuestAddress(HEADERS + 16 * number);
        self.memory.write_slice(&header.to_le_bytes(), to)?;
        self.memory
            .write_obj(0xFFu8, GuestAddress(STATUS + number))?;
        let entry = AVAILABLE + 4 + 2 * u64::from(self.available % RING);
        self.memory.write_obj(at * A_REQUEST, GuestAddress(entry))?;
        self.available = self.available.wrapping_add(1);
        Ok(())
    }

    /// Shows the device what was asked, and notifies it if it sleeps.
    pub fn publish(&mut self) -> anyhow::Result<()> {
        let index = GuestAddress(AVAILABLE + 2);
        self.memory.store(self.available, index, Release)?;
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        let flags: u16 = self.memory.load(GuestAddress(USED), Relaxed)?;
        if flags & NO_NOTIFY == 0 {
            self.kick.write(1)?;
        }
        Ok(())
    }

    /// A request that has been answered since the last call.
    pub fn answered(&mut self) -> anyhow::Result<Option<u16>> {
        let index: u16 = self.memory.load(GuestAddress(USED + 2), Acquire)?;
        if index == self.used {
            return Ok(None);
        }
        let entry = USED + 4 + 8 * u64::from(self.used % RING);
        let head: u32 = self.memory.read_obj(GuestAddress(entry))?;
        self.used = self.used.wrapping_add(1);
        let at = u16::try_from(head)? / A_REQUEST;
        let status: u8 = self.memory.read_obj(GuestAddress(STATUS + u64::from(at)))?;
        ensure!(status == 0, "the device answers with status {status}");
        Ok(Some(at))
    }

    /// The data of request `at`.
    pub fn data(&self, at: u16, into: &mut [u8]) -> anyhow::Result<()> {
        let from = GuestAddress(DATA + self.read_bytes * u64::from(at));
        Ok(self.memory.read_slice(into, from)?)
    }
}
