//! Passes a guest's evicted pages to the cache, by whichever way they came.

use crate::Export;
use futae_agent_protocol::evicted_pages::EvictedPage;
use futae_agent_protocol::{DeviceId, SECTOR_BYTES};
use futae_engine::{ClientId, Demotion, IoBuf, Operation, PAGE_BYTES, Request};
use std::sync::{Mutex, PoisonError};

/// Demotes the pages of one guest, each into the volume of its disk: into those of one feed only.
pub(crate) struct Demoter {
    first: Export,
    /// The exports of the feed, in its order.
    volumes: Vec<Volume>,
}

/// An export, and which of the guest's disks it is.
struct Volume {
    export: Export,
    /// The guest's number of the disk, from the agent's hello on the feed.
    disk: Mutex<Option<DeviceId>>,
}

impl Volume {
    fn disk(&self) -> Option<DeviceId> {
        *self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a page belongs.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// The number of the export in the feed.
    pub(crate) volume: usize,
    offset: u64,
}

impl Demoter {
    /// One for these exports; `None` if there are none.
    pub(crate) fn new(exports: Vec<Export>) -> Option<Self> {
        let volume = |export| Volume {
            export,
            disk: Mutex::default(),
        };
        Some(Self {
            first: exports.first()?.clone(),
            volumes: exports.into_iter().map(volume).collect(),
        })
    }

    /// The first of the exports.
    pub(crate) fn first(&self) -> &Export {
        &self.first
    }

    /// The exports of the feed, in its order.
    pub(crate) fn exports(&self) -> impl Iterator<Item = &Export> {
        self.volumes.iter().map(|volume| &volume.export)
    }

    /// The names of the exports, for messages.
    pub(crate) fn names(&self) -> String {
        let names: Vec<_> = self.exports().map(|export| export.name.as_str()).collect();
        names.join(", ")
    }

    /// Sets which of the guest's disks an export is, as the agent reports.
    pub(crate) fn is_disk(&self, volume: usize, disk: Option<DeviceId>) {
        if let Some(volume) = self.volumes.get(volume) {
            *volume.disk.lock().unwrap_or_else(PoisonError::into_inner) = disk;
        }
    }

    /// The place of a page; `None` if its disk is none of the exports, or it lies outside the volume.
    pub(crate) fn place(&self, page: EvictedPage) -> Option<Place> {
        let is_its = |volume: &Volume| volume.disk() == Some(page.device);
        let volume = self.volumes.iter().position(is_its)?;
        let offset = page.sector.checked_mul(SECTOR_BYTES)?;
        let end = offset.checked_add(PAGE_BYTES as u64)?;
        let export = &self.volumes.get(volume)?.export;
        let size = export.engine.volume_bytes(export.volume);
        (end <= size).then_some(Place { volume, offset })
    }

    /// Number of exports that are disks of the guest.
    pub(crate) fn known_disks(&self) -> usize {
        self.volumes.iter().filter_map(Volume::disk).count()
    }

    /// The numbers of those exports whose pages keep differing from what the cache served.
    pub(crate) fn differing(&self) -> Vec<usize> {
        let known = self.volumes.iter().enumerate();
        let known = known.filter(|(_, volume)| volume.disk().is_some());
        let differing =
            known.filter(|(_, Volume { export, .. })| export.engine.keeps_differing(export.volume));
        differing.map(|(at, _)| at).collect()
    }

    /// Passes pages with their places to the cache. Returns their number.
    pub(crate) fn demote(&self, pages: impl Iterator<Item = (Place, IoBuf)>) -> usize {
        let mut batches: Vec<Vec<Request>> = self.volumes.iter().map(|_| Vec::new()).collect();
        let mut count = 0;
        for (place, data) in pages {
            batches[place.volume].push(Request {
                volume: self.volumes[place.volume].export.volume,
                client: ClientId::NOBODY,
                sequence: 0,
                operation: Operation::Demote(Demotion::by_agent(place.offset, data)),
                done: Box::new(drop),
            });
            count += 1;
        }
        // Exports may have caches of their own.
        for (export, mut batch) in self.exports().zip(batches) {
            if !batch.is_empty() {
                export.engine.submit_batch(&mut batch);
            }
        }
        count
    }

    /// Tells the cache of an evicted page without its data.
    pub(crate) fn tell(&self, place: Place) {
        let Export { engine, volume, .. } = &self.volumes[place.volume].export;
        engine.notice(*volume, place.offset, PAGE_BYTES as u64);
    }
}
