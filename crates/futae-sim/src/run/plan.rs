//! One simulation with all parameters determined.

use super::drive::check;
use super::found::{Found, set_bytes};
use super::{Drive, Known, Run, SimulationError, footprint};
use crate::batch::NEVER;
use crate::hierarchy::HierarchyShape;
use crate::link::Link;
use crate::machine;
use crate::spec::LevelSpec;
use crate::write_back::WriteMode;
use futae_trace::{BlockRequest, BlockStream, Digest};
use std::time::Instant;

/// Further parameters of a run.
pub struct Extras<'a> {
    pub known: Known<'a>,
    /// Whether the digest of the requests is needed.
    pub digest: bool,
}

impl Default for Extras<'_> {
    fn default() -> Self {
        Self {
            known: Known::default(),
            digest: true,
        }
    }
}

/// For each request, the number of the next one for the same block of `0..blocks`.
pub fn next_uses<T>(requests: &[T], blocks: u64, block: impl Fn(&T) -> u64) -> Vec<u32> {
    let mut seen = vec![NEVER; blocks as usize];
    let mut next_uses = vec![NEVER; requests.len()];
    for (at, request) in requests.iter().enumerate().rev() {
        next_uses[at] = std::mem::replace(&mut seen[block(request) as usize], at as u32);
    }
    next_uses
}

/// Requests that are generated in advance before the listener is asked again.
const DRAWN_AT_ONCE: usize = 1 << 20;

/// Requests that were generated before.
struct Drawn<'a>(&'a [BlockRequest]);

impl BlockStream for Drawn<'_> {
    fn fill(&mut self, out: &mut [BlockRequest]) -> usize {
        let (now, later) = self.0.split_at(out.len().min(self.0.len()));
        out[..now.len()].copy_from_slice(now);
        self.0 = later;
        now.len()
    }
}

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
    /// Runs it. Returns the results and the digest of the requests.
    pub fn run(
        &self,
        stream: &mut (dyn BlockStream + Send),
        progress: &mut dyn FnMut(f64),
    ) -> Result<(Run, String), SimulationError> {
        if !self.needs_future()? {
            return self.run_with(&Extras::default(), stream, progress);
        }
        // Requests must be generated in advance to know the future.
        let total = self.warmup_requests.saturating_add(self.requests);
        if total >= u64::from(u32::MAX) {
            return Err(SimulationError::TooLong);
        }
        let mut all = vec![BlockRequest::default(); total as usize];
        let mut got = 0;
        for part in all.chunks_mut(DRAWN_AT_ONCE) {
            // The listener may end the run by unwinding.
            progress(0.0);
            got += stream.fill(part);
        }
        all.truncate(got);
        let blocks = footprint(self.guests, self.blocks)?;
        check(&all, 0, blocks)?;
        let extras = Extras {
            known: Known {
                next_uses: &next_uses(&all, blocks, |request| request.block()),
                bytes: &[],
            },
            ..Extras::default()
        };
        self.run_with(&extras, &mut Drawn(&all), progress)
    }

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

    /// Runs it with further parameters. The digest is empty unless it is requested.
    pub(super) fn run_with(
        &self,
        extras: &Extras<'_>,
        stream: &mut (dyn BlockStream + Send),
        progress: &mut dyn FnMut(f64),
    ) -> Result<(Run, String), SimulationError> {
        let begin = Instant::now();
        let shape = self.shape()?;
        let mut machine = machine::build(&shape)?;
        let total = self.warmup_requests.saturating_add(self.requests);
        let mut drive = Drive {
            stream,
            known: extras.known,
            machine: machine.as_mut(),
            is_spread: self.is_spread,
            blocks: footprint(self.guests, self.blocks)?,
            digest: extras.digest.then(Digest::default),
            sent: 0,
            total,
            progress,
        };
        let mut found = Found::by(
            &mut drive,
            (shape.levels.len(), self.guests),
            self.warmup_requests,
            self.requests,
        )?;
        let digest = drive.digest.map(|digest| digest.hex());
        if let Some(each) = extras.known.equal_bytes(self.block_bytes) {
            set_bytes(found.served.iter_mut().chain(&mut found.by_guest), each);
        }
        let run = self.results(&shape, found, true, begin.elapsed());
        Ok((run, digest.unwrap_or_default()))
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
