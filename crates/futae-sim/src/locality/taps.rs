//! Streams of requests between the levels of a hierarchy.

use super::Intervals;
use crate::hierarchy::{Hierarchy, HierarchyShape};
use crate::index::BackedIndex;
use crate::link::Link;
use crate::spec::{LevelSpec, LevelSpecError};
use crate::write_back::WriteMode;
use futae_policy::SpecError;
use futae_trace::BlockRequest;

/// The requests at one place of a hierarchy.
#[derive(Clone, Debug)]
pub struct Tap {
    /// Its name: `application`, or `below` and a level.
    pub place: String,
    /// The intervals there.
    pub intervals: Intervals,
}

/// A hierarchy with a tap above each level and one below the last. The guests' own copies of a
/// level count as one place, which sees all their requests.
pub struct Locality {
    hierarchy: Option<Hierarchy>,
    /// Blocks of each guest.
    blocks: u64,
    taps: Vec<Tap>,
}

/// Why a hierarchy cannot be built with taps.
#[derive(Debug, thiserror::Error)]
pub enum LocalityError {
    /// A level cannot be built.
    #[error(transparent)]
    Level(#[from] LevelSpecError),
    /// A policy cannot be built at the size of its level.
    #[error(transparent)]
    Policy(#[from] SpecError),
    /// More blocks than can be simulated.
    #[error("{0} blocks are more than the 2^32 - 1 of a simulation; take larger blocks")]
    Blocks(u64),
}

impl Locality {
    /// A hierarchy with these levels, top down (possibly none), joined by `links`, one less. The
    /// data has `blocks` blocks of `block_bytes`.
    pub fn new(
        levels: &[LevelSpec],
        links: &[Link],
        block_bytes: u64,
        blocks: u64,
        seed: u64,
    ) -> Result<Self, LocalityError> {
        Self::of_guests(levels, links, block_bytes, (1, blocks), seed)
    }

    /// As [`new`](Self::new), for several guests with `blocks` blocks each; those of guest *g* are
    /// numbered from *g* times that.
    pub fn of_guests(
        levels: &[LevelSpec],
        links: &[Link],
        block_bytes: u64,
        (guests, blocks): (u32, u64),
        seed: u64,
    ) -> Result<Self, LocalityError> {
        let all = blocks.saturating_mul(u64::from(guests));
        if all > BackedIndex::BLOCKS_MAX {
            return Err(LocalityError::Blocks(all));
        }
        let shape = |(at, level): (usize, &LevelSpec)| {
            let reach = if at + 1 == levels.len() { all } else { blocks };
            level.shape(block_bytes, reach)
        };
        let shapes = levels.iter().enumerate().map(shape);
        let shape = HierarchyShape {
            levels: shapes.collect::<Result<_, _>>()?,
            links: links.to_vec(),
            write_mode: WriteMode::WriteThrough,
            guests,
            blocks,
            seed,
        };
        let hierarchy = match levels {
            [] => None,
            _ => Some(Hierarchy::new(&shape)?),
        };
        let below = levels.iter().map(|level| format!("below {level}"));
        let places = std::iter::once("application".to_owned()).chain(below);
        let taps = places.map(|place| Tap {
            place,
            intervals: Intervals::new(block_bytes),
        });
        Ok(Self {
            hierarchy,
            blocks,
            taps: taps.collect(),
        })
    }

    /// Sends the application's next request. Every tap down to where it is served sees it; a write
    /// goes all the way down. Messages between levels (demotions, notices and the fetches that they
    /// cause) are not requests.
    #[inline]
    pub fn access(&mut self, request: BlockRequest) {
        let block = request.block();
        let served = match &mut self.hierarchy {
            Some(hierarchy) if block < self.blocks => {
                hierarchy.access(0, block, request.kind()) as usize
            }
            Some(hierarchy) => {
                let (guest, block) = (block / self.blocks, block % self.blocks);
                hierarchy.access(guest as u32, block, request.kind()) as usize
            }
            None => 0,
        };
        let reached = if request.is_write() {
            self.taps.len()
        } else {
            served + 1
        };
        for tap in self.taps.iter_mut().take(reached) {
            tap.intervals.access(block as u32);
        }
    }

    /// Ends a warm-up: resets the intervals, and keeps the caches and the last requests.
    pub fn restart(&mut self) {
        for tap in &mut self.taps {
            tap.intervals.restart();
        }
    }

    /// The taps, top down: at the application, then below each level.
    #[must_use]
    pub fn taps(&self) -> &[Tap] {
        &self.taps
    }
}
