//! One simulation with all parameters determined.

use super::SimulationError;
use crate::hierarchy::HierarchyShape;
use crate::index::BackedIndex;
use crate::link::Link;
use crate::spec::LevelSpec;
use crate::write_back::WriteMode;

/// A simulation with all parameters determined, for any stream of requests: a workload's, or a
/// trace's whose blocks were numbered densely.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// Top down, at least one.
    pub levels: &'a [LevelSpec],
    /// The links between the levels, top down.
    pub links: &'a [Link],
    /// When written data goes to the store.
    pub write_mode: WriteMode,
    /// Guests, at least 1.
    pub guests: u32,
    /// Blocks of each guest. The stream numbers the blocks of guest *g* from `g * blocks`.
    pub blocks: u64,
    /// For each guest the numbers at which its volumes begin, as [`HierarchyShape::volumes`] says; empty if each has one.
    pub volumes: Vec<Vec<u32>>,
    /// Blocks of the guest with the most, of which a level's share is; fewer than `blocks` if numbers are left out.
    pub distinct: u64,
    /// Blocks of all guests together, of which a shared level's share is; 0 while a trace is read in one pass, and they are not known.
    pub footprint: u64,
    /// Size of a block.
    pub block_bytes: u64,
    /// Seed for randomised policies.
    pub seed: u64,
    /// Requests before counting begins.
    pub warmup_requests: u64,
    /// Requests that are counted; fewer if the stream ends.
    pub requests: u64,
    /// Whether requests may be drawn, and levels below the first simulated, on threads of their own.
    /// The results are the same.
    pub is_spread: bool,
}

impl Plan<'_> {
    /// Whether some policy needs the future: it must be that of the first level, whose requests are
    /// the application's.
    pub(super) fn needs_future(&self) -> Result<bool, SimulationError> {
        let mut needs = self.levels.iter().map(LevelSpec::needs_future);
        let first = needs.next().unwrap_or(false);
        match needs.position(|needs| needs) {
            Some(at) => Err(SimulationError::Future(self.levels[at + 1].to_string())),
            None => Ok(first),
        }
    }

    pub(super) fn shape(&self) -> Result<HierarchyShape, SimulationError> {
        if self.levels.is_empty() || self.guests == 0 {
            return Err(SimulationError::Empty);
        }
        let (levels, links) = (self.levels.len(), self.links.len());
        if links + 1 != levels {
            return Err(SimulationError::Links { levels, links });
        }
        let above_last = self.levels.iter().take(levels - 1);
        let mut directing = above_last.filter(|level| level.policy.directs());
        if let Some(level) = directing.next() {
            let level = level.to_string();
            if self.guests > 1 {
                return Err(SimulationError::DirectedByGuests(level));
            }
            if self.write_mode == WriteMode::WriteBack {
                return Err(SimulationError::DirectedWriteBack(level));
            }
        }
        footprint(self.guests, self.blocks)?;
        let shape = |(at, level): (usize, &LevelSpec)| {
            let own = self.distinct.min(self.footprint);
            let is_shared = at + 1 == levels;
            let reach = if is_shared { self.footprint } else { own };
            let sizes = 1 + level.others.len();
            if sizes > 1 && (is_shared || sizes != self.guests as usize) {
                let (level, guests) = (level.to_string(), self.guests);
                return Err(SimulationError::SizesByGuest {
                    level,
                    sizes,
                    guests,
                });
            }
            Ok(level.shape(self.block_bytes, reach)?)
        };
        Ok(HierarchyShape {
            levels: self
                .levels
                .iter()
                .enumerate()
                .map(shape)
                .collect::<Result<_, _>>()?,
            links: self.links.to_vec(),
            write_mode: self.write_mode,
            guests: self.guests,
            blocks: self.blocks,
            volumes: self.volumes.clone(),
            seed: self.seed,
        })
    }
}

/// The number of blocks of guests with this many each, or an error if it cannot be simulated.
pub(super) fn footprint(guests: u32, blocks: u64) -> Result<u64, SimulationError> {
    let all = blocks
        .checked_mul(u64::from(guests))
        .filter(|&all| all <= BackedIndex::BLOCKS_MAX);
    all.ok_or(SimulationError::TooManyBlocks { guests, blocks })
}
