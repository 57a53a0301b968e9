//! Passes a guest's evicted pages to the cache, by whichever way they came.

use crate::Export;
use futae_agent_protocol::evicted_pages::EvictedPage;
use futae_agent_protocol::{DeviceId, SECTOR_BYTES};
use futae_engine::{ClientId, Demotion, IoBuf, Operation, PAGE_BYTES, Request};
use std::sync::{Mutex, PoisonError};

/// Demotes the pages of one guest, into one volume only.
pub(crate) struct Demoter {
    /// The guest's disk.
    pub(crate) export: Export,
    /// The guest's number of that disk, from the agent's hello on the feed.
    disk: Mutex<Option<DeviceId>>,
}

impl Demoter {
    pub(crate) fn new(export: &Export) -> Self {
        Self {
            export: export.clone(),
            disk: Mutex::default(),
        }
    }

    /// Sets which of the guest's disks is the export, as the agent reports.
    pub(crate) fn is_disk(&self, disk: Option<DeviceId>) {
        *self.disk.lock().unwrap_or_else(PoisonError::into_inner) = disk;
    }

    /// The offset of a page in the volume; `None` if it belongs to another disk, or lies outside
    /// the volume.
    pub(crate) fn place(&self, page: EvictedPage) -> Option<u64> {
        let disk = *self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = page.sector.checked_mul(SECTOR_BYTES)?;
        let end = offset.checked_add(PAGE_BYTES as u64)?;
        let size = self.export.engine.volume_bytes(self.export.volume);
        (Some(page.device) == disk && end <= size).then_some(offset)
    }

    /// Passes pages with their offsets to the cache. Returns their number.
    pub(crate) fn demote(&self, pages: impl Iterator<Item = (u64, IoBuf)>) -> usize {
        let request = |(offset, data)| Request {
            volume: self.export.volume,
            client: ClientId::NOBODY,
            sequence: 0,
            operation: Operation::Demote(Demotion::by_agent(offset, data)),
            done: Box::new(drop),
        };
        let mut requests: Vec<_> = pages.map(request).collect();
        let count = requests.len();
        self.export.engine.submit_batch(&mut requests);
        count
    }
}
