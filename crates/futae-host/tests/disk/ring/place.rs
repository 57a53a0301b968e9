//! Where everything is in the guest's memory.

/// Another descriptor follows.
pub const NEXT: u16 = 1;
/// The device writes to it.
pub const WRITE: u16 = 2;
/// It is a table of descriptors.
pub const INDIRECT: u16 = 4;

/// Requests that a queue can have under way by [`super::Queue::ask`].
pub const SLOTS: u16 = 16;
/// Bytes of data that such a request has room for.
pub const DATA_BYTES: u64 = 64 << 10;
/// Bytes that a queue has.
pub const AREA_BYTES: u64 = 0x10000 + SLOTS as u64 * DATA_BYTES;
/// Queues that there is memory for.
const QUEUES: u64 = 4;
/// Bytes of the guest's memory.
pub const MEMORY_BYTES: u64 = QUEUES * AREA_BYTES;

/// Where the parts of a queue are.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    /// Its descriptors.
    pub table: u64,
    /// Its available ring.
    pub available: u64,
    /// Its used ring.
    pub used: u64,
    /// What requests begin with, 16 bytes each.
    pub headers: u64,
    /// Status bytes.
    pub statuses: u64,
    /// Data, [`DATA_BYTES`] for each slot.
    pub data: u64,
}

impl Area {
    pub(super) fn of(queue: u16) -> Self {
        let base = u64::from(queue) * AREA_BYTES;
        Self {
            table: base,
            available: base + 0x4000,
            used: base + 0x6000,
            headers: base + 0xA000,
            statuses: base + 0xB000,
            data: base + 0x10000,
        }
    }
}

/// One descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// First byte of its memory.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// [`NEXT`], [`WRITE`], [`INDIRECT`].
    pub flags: u16,
    /// Number of the next.
    pub next: u16,
}

impl Descriptor {
    pub(super) fn bytes(self) -> [u8; 16] {
        let raw = u128::from(self.address)
            | u128::from(self.length) << 64
            | u128::from(self.flags) << 96
            | u128::from(self.next) << 112;
        raw.to_le_bytes()
    }
}
