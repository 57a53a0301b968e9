//! Has the programs copy evicted pages.

use super::copies::Copies;
use crate::ring::Ring;
use crate::system::SharedMemory;
use anyhow::{Context, bail};
use aya::maps::{Array, Map, MapData, PerCpuArray};
use aya::{Ebpf, EbpfLoader};
use futae_agent_protocol::PAGE_BYTES;
use futae_agent_protocol::in_place::ENTRIES_A_PAGE;
use futae_page_cache::bases::Bases;
use rustix::fd::AsFd;

/// Entries of the map of what was lost: pages without data, and the time of copies.
const WITHOUT_DATA: u32 = 2;
const COPY_NS: u32 = 3;
/// The ring in guests with less memory than this is a quarter as long.
const SMALL_MEMORY_BYTES: u64 = 512 << 20;
const SMALL_RING_BYTES: u32 = 4 << 20;
const RING_BYTES: u32 = 16 << 20;

/// Has the programs copy pages to a ring, or not; what is not used takes no memory.
pub(super) fn apply<'a>(bases: Option<&'a Bases>, memory_bytes: u64, loader: &mut EbpfLoader<'a>) {
    let Some(bases) = bases else {
        loader.map_max_entries("pages", PAGE_BYTES as u32);
        return;
    };
    loader.override_global("send_pages", &1u8, true);
    bases.apply(loader);
    let bytes = ring_bytes(memory_bytes);
    loader.map_max_entries("pages", bytes);
    loader.map_max_entries("places", table_pages(bytes));
}

/// Whether a machine has so little memory that rings are shorter.
pub(super) fn is_small(memory_bytes: u64) -> bool {
    memory_bytes < SMALL_MEMORY_BYTES
}

/// How long the ring is.
fn ring_bytes(memory_bytes: u64) -> u32 {
    if is_small(memory_bytes) {
        SMALL_RING_BYTES
    } else {
        RING_BYTES
    }
}

/// Pages of the table beside a ring: an entry for each page of the ring, which are more than it can hold, and the head.
fn table_pages(ring_bytes: u32) -> u32 {
    let entries = ring_bytes / PAGE_BYTES as u32;
    1 + entries.div_ceil(ENTRIES_A_PAGE as u32)
}

/// What the programs have copied, and what that cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyCounts {
    /// Pages that were not copied and sent as notices, since there was no room or the budget was spent.
    pub without_data: u64,
    /// Time that the copies took, in nanoseconds.
    pub copy_ns: u64,
}

/// What tells the programs whether to copy.
pub(super) struct Switch {
    held_back: Array<MapData, u32>,
}

/// The ring of copied pages and the table beside it, for a machine with so much memory.
pub(super) fn take(programs: &mut Ebpf, memory_bytes: u64) -> anyhow::Result<Copies> {
    let bytes = ring_bytes(memory_bytes);
    let Some(Map::RingBuf(ring)) = programs.take_map("pages") else {
        bail!("no map pages");
    };
    let Some(Map::Array(table)) = programs.take_map("places") else {
        bail!("no map places");
    };
    let length = table_pages(bytes) as usize * PAGE_BYTES as usize;
    Ok(Copies {
        ring: Ring::of(ring.fd().as_fd(), bytes.into())?,
        table: SharedMemory::of(table.fd().as_fd(), 0, length, true).ok(),
    })
}

impl Switch {
    pub(super) fn take(programs: &mut Ebpf) -> anyhow::Result<Self> {
        let map = programs.take_map("held_back").context("no map held_back")?;
        Ok(Self {
            held_back: map.try_into()?,
        })
    }

    /// Has pages copied or not from now on.
    pub(super) fn hold_back(&mut self, holds: bool) {
        // Otherwise things stay as they are, which is no loss.
        let _ = self.held_back.set(0, u32::from(holds), 0);
    }

    /// What was counted, in the map of what was lost.
    pub(super) fn counts(lost: &PerCpuArray<MapData, u64>) -> CopyCounts {
        let sum = |index: u32| lost.get(&index, 0).map_or(0, |values| values.iter().sum());
        CopyCounts {
            without_data: sum(WITHOUT_DATA),
            copy_ns: sum(COPY_NS),
        }
    }
}
