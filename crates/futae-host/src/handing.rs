//! Evicted pages of a guest on their way into the cache, whichever way they came.

use crate::Export;
use futae_agent_protocol::evicted_pages::EvictedPage;
use futae_agent_protocol::{DeviceId, SECTOR_BYTES};
use futae_engine::{ClientId, HandedDown, IoBuf, Operation, PAGE_BYTES, Request};
use std::sync::{Mutex, PoisonError};

/// What hands pages of one guest down: into one volume, and no other.
pub(crate) struct Hands {
    /// The guest's disk.
    pub(crate) export: Export,
    /// Which disk of the guest that is, as the agent's hello on the feed says.
    disk: Mutex<Option<DeviceId>>,
}

impl Hands {
    pub(crate) fn new(export: &Export) -> Self {
        Self {
            export: export.clone(),
            disk: Mutex::default(),
        }
    }

    /// The agent says which of the guest's disks the export is.
    pub(crate) fn is_disk(&self, disk: Option<DeviceId>) {
        *self.disk.lock().unwrap_or_else(PoisonError::into_inner) = disk;
    }

    /// Where in the volume a page begins; none if it is of another disk, or not within the volume.
    pub(crate) fn place(&self, page: EvictedPage) -> Option<u64> {
        let disk = *self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = page.sector.checked_mul(SECTOR_BYTES)?;
        let end = offset.checked_add(PAGE_BYTES as u64)?;
        let size = self.export.engine.volume_bytes(self.export.volume);
        (Some(page.device) == disk && end <= size).then_some(offset)
    }

    /// Hands pages to the cache, each with its place; how many.
    pub(crate) fn hand_down(&self, pages: impl Iterator<Item = (u64, IoBuf)>) -> usize {
        let request = |(offset, data)| Request {
            volume: self.export.volume,
            client: ClientId::NOBODY,
            sequence: 0,
            operation: Operation::HandDown(HandedDown::new(offset, data)),
            done: Box::new(drop),
        };
        let mut requests: Vec<_> = pages.map(request).collect();
        let count = requests.len();
        self.export.engine.submit_batch(&mut requests);
        count
    }
}
