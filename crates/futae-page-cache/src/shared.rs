//! Memory that programs in the kernel and this process share.

use anyhow::Context;
use aya::maps::{Map, MapData};
use memmap2::{MmapOptions, MmapRaw};
use rustix::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU8, AtomicU64};

/// The values of an array of 64-bit numbers in the kernel, mapped.
pub struct Shared {
    mapped: MmapRaw,
    values: usize,
    /// Keeps the map.
    _map: MapData,
}

impl Shared {
    /// Maps an array of this many values.
    pub fn new(map: Map, values: usize) -> anyhow::Result<Self> {
        let Map::Array(map) = map else {
            anyhow::bail!("it is no array");
        };
        let fd = map.fd().as_fd().as_raw_fd();
        let mapped = MmapOptions::new()
            .len(values * size_of::<u64>())
            .map_raw(fd)
            .context("mapping an array of the kernel")?;
        Ok(Self {
            mapped,
            values,
            _map: map,
        })
    }

    /// The values.
    pub fn numbers(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is `values` numbers long, aligned to a page, lives as long as `self`, and is accessed by atomic
        // operations only, here and in `bytes`; the kernel's programs change it as another thread would.
        #[expect(unsafe_code, reason = "the named place for shared memory")]
        unsafe {
            std::slice::from_raw_parts(self.mapped.as_ptr().cast(), self.values)
        }
    }

    /// The same as bytes.
    pub fn bytes(&self) -> &[AtomicU8] {
        // SAFETY: as of `numbers`; bytes have no alignment.
        #[expect(unsafe_code, reason = "the named place for shared memory")]
        unsafe {
            std::slice::from_raw_parts(self.mapped.as_ptr().cast(), self.values * size_of::<u64>())
        }
    }
}
