//! The guest's memory: the mappings that the frontend gave, and where its own addresses are in them.

use std::fs::File;
use std::io;
use std::sync::Arc;
use vhost::vhost_user::message::{VhostUserMemoryRegion, VhostUserSingleMemoryRegion};
use vhost::vhost_user::{Error, Result};
use vm_memory::{
    GuestAddress, GuestAddressSpace, GuestMemoryAtomic, GuestMemoryMmap, GuestRegionMmap,
};

/// The memory that queues see, which may be exchanged under them.
pub(crate) type Memory = GuestMemoryAtomic<GuestMemoryMmap>;

/// The frontend's addresses of one region.
struct Mapping {
    user_address: u64,
    length: u64,
    guest_address: u64,
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
    let file_bytes = file.metadata().map_err(Error::ReqHandlerError)?.len();
    let end = region.mmap_offset.checked_add(region.memory_size);
    if end.is_none_or(|end| end > file_bytes) {
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
    };
    Ok((guest, mapping))
}

impl Default for Regions {
    fn default() -> Self {
        Self {
            mappings: Vec::new(),
            memory: Memory::new(GuestMemoryMmap::new()),
        }
    }
}

impl Regions {
    /// Exchanges all regions.
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

    /// Adds one.
    pub(crate) fn add(&mut self, region: &VhostUserSingleMemoryRegion, file: File) -> Result<()> {
        let (guest, mapping) = mapped(region, file)?;
        let memory = self.memory.memory().insert_region(Arc::new(guest));
        self.replace(memory.map_err(other)?);
        self.mappings.push(mapping);
        Ok(())
    }

    /// Removes one.
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

    /// The guest's address of an address of the frontend's.
    pub(crate) fn guest_address(&self, user_address: u64) -> Result<GuestAddress> {
        let found = self.mappings.iter().find_map(|mapping| {
            let within = user_address.checked_sub(mapping.user_address)?;
            (within < mapping.length).then(|| mapping.guest_address.saturating_add(within))
        });
        found
            .map(GuestAddress)
            .ok_or_else(|| other("an address of a queue is in no memory region"))
    }
}
