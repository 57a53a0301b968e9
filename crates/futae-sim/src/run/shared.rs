//! Caches below the same LRU cache, which is simulated once for all of them.
//!
//! A cache that sends no messages about its evictions decides the same, whatever is below it. If it
//! is only read, the requests to the lower cache are its misses. These are kept, and the lower
//! caches are simulated one by one, each as a single level. The results equal those of
//! [`simulate`](super::simulate).

use super::drive::{Drive, Known, check};
use super::found::Found;
use super::plan::{Plan, footprint};
use super::{Report, SimulationError, SimulationSpec};
use crate::index::BackedIndex;
use crate::link::Link;
use crate::machine::{self, Served};
use crate::write_back::WriteMode;
use futae_policy::replace::lru::Lru;
use futae_policy::{Access, BlockId, Counters, Kind, Level, Outcome, PolicySpec, Slot};
use futae_trace::{BlockRequest, BlockStream, Digest, InMemory};
use std::time::{Duration, Instant};

/// The largest number of requests kept: 256 MiB, if all of them miss.
const REQUESTS_MAX: u64 = 1 << 26;
/// Requests with a common look-ahead.
const BATCH: usize = 128;
/// Batches between two calls of the progress callback.
const BATCHES_PER_PROGRESS: u64 = 1 << 13;

/// Groups of simulations of lower caches below the same upper one, by their numbers; each has at
/// least two.
pub(super) fn groups(specs: &[SimulationSpec]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, spec) in specs.iter().enumerate().filter(|(_, spec)| is_fit(spec)) {
        let known = groups
            .iter_mut()
            .find(|group| is_below_the_same(spec, &specs[group[0]]));
        match known {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    groups.retain(|group| group.len() > 1);
    groups
}

fn is_fit(spec: &SimulationSpec) -> bool {
    let [upper, lower] = &spec.levels[..] else {
        return false;
    };
    upper.policy == PolicySpec::of(Kind::lru)
        && !lower.needs_future()
        && spec.links == [Link::None]
        && spec.guests == 1
        && spec.write_mode == WriteMode::WriteThrough
}

/// Whether both have the same requests and the same upper cache.
fn is_below_the_same(one: &SimulationSpec, other: &SimulationSpec) -> bool {
    one.levels[0] == other.levels[0]
        && one.workload == other.workload
        && (one.block_bytes, one.seed) == (other.block_bytes, other.seed)
        && (one.warmup_requests, one.requests) == (other.warmup_requests, other.requests)
}

/// The requests and the misses of an upper cache.
pub(super) struct Upper {
    misses: Vec<u32>,
    /// The number of misses in the warm-up.
    warmup_misses: u64,
    /// The counters after the warm-up.
    counters: Counters,
    warmup_requests: u64,
    requests: u64,
    digest: String,
    time: Duration,
}

impl Upper {
    /// Simulates the upper cache of a plan in one of the [groups]; `None` if its requests are too
    /// many to keep, or include writes.
    pub(super) fn simulate(
        plan: &Plan<'_>,
        stream: &mut dyn BlockStream,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Option<Self>, SimulationError> {
        let begin = Instant::now();
        let blocks = footprint(plan.guests, plan.blocks)?;
        let slots = plan.shape()?.levels[0].slots;
        let total = plan.warmup_requests.saturating_add(plan.requests);
        if total > REQUESTS_MAX {
            return Ok(None);
        }
        let mut level = Level::new(Lru::new(slots), BackedIndex::new(0), slots);
        let mut kept = Self {
            misses: Vec::new(),
            warmup_misses: 0,
            counters: Counters::default(),
            warmup_requests: 0,
            requests: 0,
            digest: String::new(),
            time: Duration::ZERO,
        };
        let (mut digest, mut sent) = (Digest::default(), 0);
        let mut requests = [BlockRequest::default(); BATCH];
        let mut likely = [Slot(0); BATCH];
        for end in [plan.warmup_requests, total] {
            kept.warmup_misses = kept.misses.len() as u64;
            kept.warmup_requests = sent;
            kept.counters = level.counters();
            while sent < end {
                let wanted = (end - sent).min(BATCH as u64) as usize;
                let got = stream.fill(&mut requests[..wanted]);
                let asked = &requests[..got];
                check(asked, sent, blocks)?;
                if asked.iter().any(|request| request.is_write()) {
                    return Ok(None);
                }
                digest.add(asked);
                let all = asked
                    .iter()
                    .map(|request| BlockId::on_first(request.block()));
                level.look_ahead(all.clone(), &mut likely, |_| {});
                for (block, &likely) in all.zip(&likely) {
                    let access = Access::read(block);
                    if !level.access_in(likely, &access)
                        && !matches!(level.access(&access), Outcome::Hit(_))
                    {
                        kept.misses.push(block.index() as u32);
                    }
                }
                sent += got as u64;
                if (sent / BATCH as u64).is_multiple_of(BATCHES_PER_PROGRESS) {
                    progress(sent as f64 / total as f64);
                }
                if got < wanted {
                    break;
                }
            }
        }
        progress(1.0);
        kept.counters = level.counters().since(&kept.counters);
        kept.requests = sent - kept.warmup_requests;
        kept.digest = digest.hex();
        kept.time = begin.elapsed();
        Ok(Some(kept))
    }

    /// Simulates the lower cache of a plan below it.
    pub(super) fn below(
        &self,
        plan: &Plan<'_>,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Report, SimulationError> {
        let begin = Instant::now();
        let blocks = footprint(plan.guests, plan.blocks)?;
        let shape = plan.shape()?;
        let mut lower = machine::build_last(&shape)?;
        let missed = self.misses.len() as u64;
        let mut drive = Drive {
            stream: &mut Misses(&self.misses),
            known: Known::default(),
            machine: lower.as_mut(),
            is_spread: false,
            blocks,
            digest: None,
            sent: 0,
            total: missed,
            progress,
        };
        let counted = missed - self.warmup_misses;
        let mut found = Found::by(&mut drive, (1, 1), self.warmup_misses, counted)?;
        let hits = Served {
            reads: self.counters.hits,
            ..Served::default()
        };
        found.served.insert(0, hits);
        found.counters.insert(0, self.counters);
        found.remarks.insert(0, Vec::new());
        (found.warmup_requests, found.requests) = (self.warmup_requests, self.requests);
        let run = plan.results(&shape, found, false, self.time + begin.elapsed());
        Ok(Report::of(vec![run], plan.seed, self.digest.clone()))
    }
}

/// Reads of these blocks.
struct Misses<'a>(&'a [u32]);

impl Misses<'_> {
    fn next(&mut self, limit: usize) -> &[u32] {
        let (now, later) = self.0.split_at(limit.min(self.0.len()));
        self.0 = later;
        now
    }
}

impl BlockStream for Misses<'_> {
    fn fill(&mut self, out: &mut [BlockRequest]) -> usize {
        let blocks = self.next(out.len());
        for (request, &block) in out.iter_mut().zip(blocks) {
            *request = BlockRequest::read(u64::from(block));
        }
        blocks.len()
    }

    fn in_memory(&mut self, limit: usize) -> Option<InMemory<'_>> {
        let blocks = self.next(limit);
        (!blocks.is_empty()).then_some(InMemory {
            blocks,
            writes: &[],
        })
    }
}
