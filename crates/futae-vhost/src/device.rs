//! The properties of the disk: its features, its configuration space, its serial number.

use futae_engine::Engine;
use futae_policy::VolumeId;
use std::sync::Arc;
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ,
    VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_TOPOLOGY, VIRTIO_BLK_F_WRITE_ZEROES,
    VIRTIO_BLK_ID_BYTES,
};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

/// Bytes of a sector, the unit of all positions in virtio-blk.
pub(crate) const SECTOR_BYTES: u64 = 512;
/// The largest number of queues per device.
pub const QUEUES_MAX: usize = 16;
/// The largest number of descriptors per queue.
pub const QUEUE_SIZE_MAX: u16 = 1024;
/// The largest number of data bytes per read or write.
pub const REQUEST_BYTES_MAX: u64 = 32 << 20;
/// The recommended maximum of memory segments per read or write: a queue of 128 has room for them,
/// the header and the status.
const SEGMENTS_MAX: u32 = 126;
/// The largest number of ranges per discard or write of zeroes.
pub(crate) const RANGES_MAX: u32 = 32;
/// The largest number of sectors per such range.
const RANGE_SECTORS_MAX: u32 = (1 << 30) / SECTOR_BYTES as u32;
/// Feature bits that the vhost-user protocol adds.
pub(crate) const F_LOG_ALL: u64 = 1 << 26;
pub(crate) const F_PROTOCOL_FEATURES: u64 = 1 << 30;

/// The disk that frontends see.
#[derive(Clone)]
pub struct Device {
    /// The cache.
    pub engine: Arc<Engine>,
    /// The volume in it.
    pub volume: VolumeId,
    /// Refuse writes.
    pub read_only: bool,
    /// The serial number; guests see its first 20 bytes.
    pub serial: String,
}

impl Device {
    /// The features that the device offers, including those of the transport.
    #[must_use]
    pub fn features(&self) -> u64 {
        let mut bits = vec![
            VIRTIO_F_VERSION_1,
            VIRTIO_RING_F_EVENT_IDX,
            VIRTIO_RING_F_INDIRECT_DESC,
            VIRTIO_BLK_F_SEG_MAX,
            VIRTIO_BLK_F_BLK_SIZE,
            VIRTIO_BLK_F_FLUSH,
            VIRTIO_BLK_F_TOPOLOGY,
            VIRTIO_BLK_F_MQ,
        ];
        if self.read_only {
            bits.push(VIRTIO_BLK_F_RO);
        } else {
            bits.push(VIRTIO_BLK_F_WRITE_ZEROES);
            if self.engine.takes_trims(self.volume) {
                bits.push(VIRTIO_BLK_F_DISCARD);
            }
        }
        let blk = bits.iter().fold(0, |all, bit| all | 1 << bit);
        blk | F_LOG_ALL | F_PROTOCOL_FEATURES
    }

    /// Number of whole sectors of the volume.
    pub(crate) fn sectors(&self) -> u64 {
        self.engine.volume_bytes(self.volume) / SECTOR_BYTES
    }

    /// `size` bytes of the configuration space; bytes behind its end are zero.
    pub(crate) fn config(&self, offset: usize, size: usize) -> Vec<u8> {
        let space = self.config_space();
        let mut out = vec![0; size];
        if let Some(from) = space.get(offset..) {
            let length = from.len().min(size);
            out[..length].copy_from_slice(&from[..length]);
        }
        out
    }

    /// `struct virtio_blk_config`, up to the fields for discards and writes of zeroes.
    fn config_space(&self) -> [u8; 60] {
        let mut space = [0; 60];
        let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.sectors().to_le_bytes());
        put(12, &SEGMENTS_MAX.to_le_bytes());
        put(20, &(SECTOR_BYTES as u32).to_le_bytes());
        // The store is read in blocks of the cache, so that is the best request size, up to 1 MiB.
        let block_bytes = self.engine.block_bytes().clamp(4096, 1 << 20);
        put(24, &[3]); // physical blocks of 2^3 sectors, a page
        put(26, &8u16.to_le_bytes());
        put(28, &((block_bytes / SECTOR_BYTES) as u32).to_le_bytes());
        put(32, &[1]); // writes may be behind a volatile cache, so guests flush
        put(34, &(QUEUES_MAX as u16).to_le_bytes());
        put(36, &RANGE_SECTORS_MAX.to_le_bytes());
        put(40, &RANGES_MAX.to_le_bytes());
        put(44, &8u32.to_le_bytes());
        put(48, &RANGE_SECTORS_MAX.to_le_bytes());
        put(52, &RANGES_MAX.to_le_bytes());
        put(56, &[1]);
        space
    }

    /// The answer to GET_ID: the serial number, padded with zeroes.
    pub(crate) fn id(&self) -> [u8; VIRTIO_BLK_ID_BYTES as usize] {
        let mut id = [0; VIRTIO_BLK_ID_BYTES as usize];
        let length = self.serial.len().min(id.len());
        id[..length].copy_from_slice(&self.serial.as_bytes()[..length]);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futae_engine::{EngineOptions, OnEviction, Store, StoreDone, StoreOperation};
    use futae_policy::Class;

    /// A store that nobody asks.
    struct Silent {
        has_trim: bool,
    }

    impl Store for Silent {
        fn size_bytes(&self) -> u64 {
            8 * 4096
        }

        fn describe(&self) -> String {
            "silent".to_owned()
        }

        fn is_read_only(&self) -> bool {
            false
        }

        fn takes_trims(&self) -> bool {
            self.has_trim
        }

        fn submit(&self, _: u64, _: StoreOperation, _: StoreDone) {}
    }

    #[test]
    fn discards_are_offered_only_over_a_store_that_has_trim() {
        let options = EngineOptions {
            block_bytes: 4096,
            capacity_blocks: 8,
            policy: "lru".parse().expect("a policy"),
            seed: 1,
            on_eviction: OnEviction::None,
            decision_log: None,
            write_back: None,
        };
        let engine = Engine::new(&options).expect("a cache");
        for has_trim in [true, false] {
            let store = Arc::new(Silent { has_trim });
            let added = engine.add_volume("disk", store, Class::NORMAL);
            let mut device = Device {
                engine: Arc::clone(&engine),
                volume: added.expect("a volume"),
                read_only: false,
                serial: "disk".to_owned(),
            };
            let offers = |device: &Device, bit: u32| device.features() & 1 << bit != 0;
            assert_eq!(offers(&device, VIRTIO_BLK_F_DISCARD), has_trim);
            assert!(offers(&device, VIRTIO_BLK_F_WRITE_ZEROES));
            device.read_only = true;
            for bit in [VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_WRITE_ZEROES] {
                assert!(!offers(&device, bit));
            }
        }
    }
}
