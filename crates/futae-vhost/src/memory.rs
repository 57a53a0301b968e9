//! The guest's memory: the mappings that the frontend provided, and the frontend's own addresses in
//! them.

use crate::claim::RingPlace;
use std::fs::File;
use std::io;
use std::sync::Arc;
use vhost::vhost_user::message::{VhostUserMemoryRegion, VhostUserSingleMemoryRegion};
use vhost::vhost_user::{Error, Result};
use vm_memory::{
    Bytes, GuestAddress, GuestAddressSpace, GuestMemoryAtomic, GuestMemoryBackend, GuestMemoryMmap,
    GuestRegionMmap,
};

/// The memory that queues see, which the frontend may replace at any time.
pub(crate) type Memory = GuestMemoryAtomic<GuestMemoryMmap>;

/// Read-only access to a guest's memory for code outside its queues. It is empty before a frontend
/// has provided memory, and again after the frontend has disconnected.
#[derive(Clone)]
pub struct GuestMemory(Memory);

impl Default for GuestMemory {
    fn default() -> Self {
        Self(Memory::new(GuestMemoryMmap::new()))
    }
}

impl std::fmt::Debug for GuestMemory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("GuestMemory")
    }
}

impl GuestMemory {
    /// Whether a frontend has provided memory.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.0.memory().num_regions() > 0
    }

    /// Copies from a guest-physical address; returns false if part of the range is not memory. The
    /// guest may write to it concurrently.
    #[must_use]
    pub fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let memory = self.0.memory();
        memory.read_slice(into, GuestAddress(address)).is_ok()
    }
}

/// The frontend's addresses of one region.
struct Mapping {
    user_address: u64,
    length: u64,
    guest_address: u64,
    /// Where the region begins in its file.
    place: RingPlace,
}

/// All regions.
pub(crate) struct Regions {
    mappings: Vec<Mapping>,
    pub(crate) memory: Memory,
}

fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::ReqHandlerError(io::Error::other(error))
}

fn mapped(region: &VhostUserMemoryRegion, file: File) -> Result<(GuestRegionMmap, Mapping)> {
    let metadata = file.metadata().map_err(Error::ReqHandlerError)?;
    let end = region.mmap_offset.checked_add(region.memory_size);
    if end.is_none_or(|end| end > metadata.len()) {
        return Err(other("a memory region is longer than its file"));
    }
    let guest = GuestRegionMmap::new(
        region.mmap_region(file)?,
        GuestAddress(region.guest_phys_addr),
    );
    let guest = guest.ok_or_else(|| other("a memory region ends beyond the address space"))?;
    let mapping = Mapping {
        user_address: region.user_addr,
        length: region.memory_size,
        guest_address: region.guest_phys_addr,
        place: RingPlace::new(&metadata, region.mmap_offset),
    };
    Ok((guest, mapping))
}

impl Drop for Regions {
    fn drop(&mut self) {
        // Other readers lose the memory when the frontend disconnects.
        self.replace(GuestMemoryMmap::new());
    }
}

impl Regions {
    /// No regions yet; holders of `memory` see those that are set later.
    pub(crate) fn seen_by(memory: &GuestMemory) -> Self {
        Self {
            mappings: Vec::new(),
            memory: memory.0.clone(),
        }
    }

    /// Replaces all regions.
    pub(crate) fn set(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
    ) -> Result<()> {
        let mut guests = Vec::new();
        let mut mappings = Vec::new();
        for (region, file) in regions.iter().zip(files) {
            let (guest, mapping) = mapped(region, file)?;
            guests.push(guest);
            mappings.push(mapping);
        }
        let memory = GuestMemoryMmap::from_regions(guests).map_err(other)?;
        self.replace(memory);
        self.mappings = mappings;
        Ok(())
    }

    /// Adds a region.
    pub(crate) fn add(&mut self, region: &VhostUserSingleMemoryRegion, file: File) -> Result<()> {
        let (guest, mapping) = mapped(region, file)?;
        let memory = self.memory.memory().insert_region(Arc::new(guest));
        self.replace(memory.map_err(other)?);
        self.mappings.push(mapping);
        Ok(())
    }

    /// Removes a region.
    pub(crate) fn remove(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let at = GuestAddress(region.guest_phys_addr);
        let removed = self.memory.memory().remove_region(at, region.memory_size);
        self.replace(removed.map_err(other)?.0);
        self.mappings
            .retain(|mapping| mapping.guest_address != region.guest_phys_addr);
        Ok(())
    }

    fn replace(&self, memory: GuestMemoryMmap) {
        match self.memory.lock() {
            Ok(guard) => guard.replace(memory),
            Err(poisoned) => poisoned.into_inner().replace(memory),
        }
    }

    /// The guest address of a frontend address.
    pub(crate) fn guest_address(&self, user_address: u64) -> Result<GuestAddress> {
        let (mapping, within) = self.find(user_address)?;
        let address = mapping.guest_address.saturating_add(within);
        Ok(GuestAddress(address))
    }

    /// Where the memory at a frontend address is, whatever its address.
    pub(crate) fn place(&self, user_address: u64) -> Result<RingPlace> {
        let (mapping, within) = self.find(user_address)?;
        Ok(mapping.place.behind(within))
    }

    /// The region of a frontend address, and the offset in it.
    fn find(&self, user_address: u64) -> Result<(&Mapping, u64)> {
        let found = self.mappings.iter().find_map(|mapping| {
            let within = user_address.checked_sub(mapping.user_address)?;
            (within < mapping.length).then_some((mapping, within))
        });
        found.ok_or_else(|| other("an address of a queue is in no memory region"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use vhost::vhost_user::message::VhostUserSingleMemoryRegion as One;

    const BYTES: u64 = 8192;

    fn region(address: u64) -> (One, File) {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&[address as u8 + 1; BYTES as usize])
            .expect("room");
        (One::new(address << 20, BYTES, 0, 0), file)
    }

    #[test]
    fn others_see_the_memory_while_it_is_there() {
        let memory = GuestMemory::default();
        let at = |address: u64| {
            let mut bytes = [0; 4];
            memory.read(address, &mut bytes).then_some(bytes[0])
        };
        assert_eq!(at(0), None, "nobody has given any");
        let mut regions = Regions::seen_by(&memory);
        for address in [0, 1] {
            let (one, file) = region(address);
            regions.add(&one, file).expect("a region");
        }
        assert_eq!((at(0), at(1 << 20)), (Some(1), Some(2)));
        assert_eq!(at(BYTES - 2), None, "the end is in no region");
        assert_eq!(at(u64::MAX - 1), None);
        regions.remove(&region(1).0).expect("it is there");
        assert_eq!((at(0), at(1 << 20)), (Some(1), None));
        drop(regions);
        assert_eq!(at(0), None, "the frontend is gone");
    }
}
