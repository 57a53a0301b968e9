//! Streams of requests between the levels of a hierarchy.

use super::Intervals;
use crate::batch::Batch;
use crate::link::Store;
use crate::machine::{Machine, OneByOne, Served};
use crate::run::{Drive, Requests, SimulationError, TraceSimulation};
use crate::spec::LevelSpec;
use crate::write_back::Written;
use futae_policy::{Counters, SpecError};

/// The requests at one place of a hierarchy.
#[derive(Clone, Debug)]
pub struct Tap {
    /// Its name: `application`, or `below` and a level.
    pub place: String,
    /// The intervals there.
    pub intervals: Intervals,
}

/// A tap above each level and one below the last. The guests' own copies of a level count as one place, which sees all their requests.
pub(super) struct Taps {
    pub(super) taps: Vec<Tap>,
    /// Requests before counting begins, and requests so far.
    warmup: u64,
    passed: u64,
}

impl Taps {
    pub(super) fn new(levels: &[LevelSpec], block_bytes: u64, warmup: u64) -> Self {
        let below = levels.iter().map(|level| format!("below {level}"));
        let places = std::iter::once("application".to_owned()).chain(below);
        let taps = places.map(|place| Tap {
            place,
            intervals: Intervals::new(block_bytes),
        });
        Self {
            taps: taps.collect(),
            warmup,
            passed: 0,
        }
    }

    /// The application's next request is served at level `served`. Every tap down to there sees it; a write goes all the way down.
    /// Messages between levels (demotions, notices and the fetches that they cause) are not requests.
    pub(super) fn pass(&mut self, block: u32, is_write: bool, served: usize) {
        if self.passed == self.warmup {
            self.taps.iter_mut().for_each(|tap| tap.intervals.restart());
        }
        self.passed += 1;
        let reached = match is_write {
            true => self.taps.len(),
            false => served + 1,
        };
        for tap in self.taps.iter_mut().take(reached) {
            tap.intervals.access(block);
        }
    }
}

/// A machine with taps.
struct Tapped<'a> {
    inner: OneByOne<'a>,
    taps: Taps,
}

impl Machine for Tapped<'_> {
    fn feed(&mut self, batch: &Batch<'_>, served: &mut [Served]) {
        let places = self.taps.taps.len();
        batch.each_one(|one| {
            let place = self.inner.feed(one, served) % places;
            self.taps.pass(one.blocks[0], one.is_write(0), place);
        });
    }
    fn counters(&self) -> Vec<Counters> {
        self.inner.machine.counters()
    }
    fn remarks(&self) -> Vec<Vec<String>> {
        self.inner.machine.remarks()
    }
    fn fault(&self) -> Option<&SpecError> {
        self.inner.machine.fault()
    }
    fn store(&self) -> Store {
        self.inner.machine.store()
    }
    fn written(&self) -> Option<Written> {
        self.inner.machine.written()
    }
}

impl Requests<'_> {
    /// Runs one hierarchy, possibly without levels, as [`until`](Self::until) does, with a number of requests after a warm-up, and
    /// returns the taps, top down: at the application, then below each level.
    ///
    /// # Errors
    ///
    /// Those of any simulation.
    pub fn tapped(
        &self,
        spec: &TraceSimulation,
        block_bytes: u64,
        (warmup, requests): (u64, u64),
        progress: &mut dyn FnMut(f64),
    ) -> Result<Vec<Tap>, SimulationError> {
        let mut taps = Taps::new(&spec.levels, block_bytes, warmup);
        let end = warmup.saturating_add(requests);
        if spec.levels.is_empty() {
            self.check_blocks()?;
            self.each(end, |request| {
                taps.pass(request.block() as u32, request.is_write(), 0);
                if taps.passed.is_multiple_of(REQUESTS_PER_PROGRESS) {
                    progress(taps.passed as f64 / end as f64);
                }
            })?;
            return Ok(taps.taps);
        }
        let act = |mut drive: Drive<'_>, (levels, guests): (usize, u32)| {
            let mut served = vec![Served::default(); (levels + 1) * guests as usize];
            let tapped = |machine| Tapped {
                inner: OneByOne::new(machine),
                taps,
            };
            Ok(drive.through(tapped, &mut served)?.taps.taps)
        };
        self.driven(spec, block_bytes, (warmup, end), progress, act)?
    }
}

/// Requests between two calls of the progress callback.
const REQUESTS_PER_PROGRESS: u64 = 1 << 16;
