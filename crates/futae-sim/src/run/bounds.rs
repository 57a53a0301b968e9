//! Bounds for the best caches with knowledge of the future: OPT-UB and OPT-LB of Gill ("On
//! multi-level exclusive caching", FAST 2008).
//!
//! OPT-UB: no caches of these sizes have more hits, counted from the first level down to any other,
//! than one optimal cache as large as all of them together. OPT-LB: levels that are each optimal
//! for the misses of the level above can be built. For several guests the levels above the last
//! count as one cache per guest, and all of them together as one. Optimal means Belady's choice,
//! where a missed block may be served without being kept.

use super::{Bounds, Plan, SimulationError, TraceSimulation, Traces};
use crate::batch::{Batch, next_uses};
use crate::hierarchy::{HierarchyShape, LevelShape};
use crate::link::Link;
use crate::machine::{self, Served};
use crate::spec::LevelSpec;
use crate::write_back::WriteMode;
use futae_policy::{Kind, PolicySpec};
use futae_trace::BlockRequest;

/// Belady's choice, where a missed block may be served without being kept.
fn optimal() -> String {
    format!("{}(bypass=true)", Kind::opt.name())
}

impl Traces {
    /// The bounds for caches of these sizes, for any policies and links. They hold for a whole
    /// trace and empty caches, so there must be no warm-up. All accesses are in memory, 16 bytes
    /// each.
    ///
    /// # Errors
    ///
    /// Those of any simulation; also if there is a warm-up or a limited number of requests.
    pub fn bounds(
        &self,
        spec: &TraceSimulation,
        block_bytes: u64,
    ) -> Result<Bounds, SimulationError> {
        if spec.warmup_requests > 0 || spec.requests.is_some() {
            return Err(SimulationError::PartialBounds);
        }
        let facts = self.facts();
        let plan = Plan {
            levels: &spec.levels,
            links: &spec.links,
            write_mode: WriteMode::WriteThrough,
            guests: facts.files.len() as u32,
            blocks: self.in_order().blocks(),
            volumes: Vec::new(),
            distinct: self.distinct(),
            footprint: facts.distinct_blocks,
            block_bytes,
            seed: 1,
            warmup_requests: 0,
            requests: facts.accesses,
            is_spread: false,
        };
        let shape = plan.shape()?;
        let per_request = |hits: Vec<u64>| {
            let mut all = 0;
            let cumulated = hits.into_iter().map(|hits| {
                all += hits;
                (facts.accesses > 0).then(|| all as f64 / facts.accesses as f64)
            });
            cumulated.collect::<Vec<_>>()
        };
        Ok(Bounds {
            lower: per_request(self.cascaded(&shape)?),
            upper: self.together(&shape, block_bytes)?,
        })
    }

    /// The hits of levels that are each optimal for the misses of the level above.
    fn cascaded(&self, shape: &HierarchyShape) -> Result<Vec<u64>, SimulationError> {
        let mut asked = vec![BlockRequest::default(); self.facts().accesses as usize];
        let got = self
            .in_order()
            .with_stream(|stream| stream.fill(&mut asked));
        let mut asked: Vec<u32> = asked[..got]
            .iter()
            .map(|request| request.block() as u32)
            .collect();
        let blocks = u64::from(shape.guests) * shape.blocks;
        let mut all = Vec::new();
        for (at, level) in shape.levels.iter().enumerate() {
            let is_shared = at + 1 == shape.levels.len();
            let optimal = LevelShape {
                policy: optimal().parse()?,
                ..level.clone()
            };
            // A level per guest is simulated above a dummy level.
            let nothing = LevelShape {
                policy: PolicySpec::of(Kind::fifo),
                slots: 1,
                others: Vec::new(),
            };
            let (levels, links) = match is_shared {
                true => (vec![optimal], vec![]),
                false => (vec![optimal, nothing], vec![Link::None]),
            };
            let shape = HierarchyShape {
                levels,
                links,
                write_mode: WriteMode::WriteThrough,
                ..shape.clone()
            };
            let next_uses = next_uses(&asked, blocks, |&block| u64::from(block));
            let mut machine = machine::build(&shape)?;
            let places = shape.levels.len() + 1;
            let mut served = vec![Served::default(); places * shape.guests as usize];
            let mut missed = Vec::new();
            let mut hits = 0;
            for (block, next_use) in asked.iter().zip(&next_uses) {
                let batch = Batch {
                    blocks: std::slice::from_ref(block),
                    next_uses: std::slice::from_ref(next_use),
                    ..Batch::default()
                };
                let place = (u64::from(*block) / shape.blocks.max(1)) as usize * places;
                let before = served[place].reads;
                machine.feed(&batch, &mut served);
                match served[place].reads > before {
                    true => hits += 1,
                    false => missed.push(*block),
                }
            }
            all.push(hits);
            asked = missed;
        }
        Ok(all)
    }

    /// The hits of one optimal cache as large as the levels down to each one together.
    fn together(
        &self,
        shape: &HierarchyShape,
        block_bytes: u64,
    ) -> Result<Vec<Option<f64>>, SimulationError> {
        let guests = 0..shape.guests;
        let own_levels = &shape.levels[..shape.levels.len() - 1];
        let sum = |guest: u32, levels: &[LevelShape]| -> u64 {
            levels
                .iter()
                .map(|level| u64::from(level.slots_of(guest)))
                .sum()
        };
        let simulation = |levels: Vec<String>| -> Result<TraceSimulation, SimulationError> {
            let levels = levels.iter().map(|level| level.parse::<LevelSpec>());
            let levels = levels.collect::<Result<Vec<_>, _>>()?;
            Ok(TraceSimulation {
                links: vec![Link::None; levels.len() - 1],
                levels,
                write_mode: WriteMode::WriteThrough,
                seed: 1,
                warmup_requests: 0,
                requests: None,
            })
        };
        let capped = |slots: u64| slots.min(self.facts().distinct_blocks.max(1));
        let mut all = Vec::new();
        for depth in 1..=own_levels.len() {
            let sizes = guests
                .clone()
                .map(|guest| format!("{}blocks", capped(sum(guest, &own_levels[..depth]))));
            let sizes = sizes.collect::<Vec<_>>().join("/");
            all.push(simulation(vec![
                format!("{}:{sizes}", optimal()),
                format!("{}:1blocks", Kind::fifo.name()),
            ])?);
        }
        let shared = &shape.levels[own_levels.len()..];
        let total = guests.map(|guest| sum(guest, own_levels)).sum::<u64>() + sum(0, shared);
        all.push(simulation(vec![format!(
            "{}:{}blocks",
            optimal(),
            capped(total)
        )])?);
        let report = self.simulate(&all, block_bytes, 1, &|_| {})?;
        let hits = report.runs.iter().map(|run| {
            let hits = run.served[0].reads + run.served[0].writes;
            (run.requests > 0).then(|| hits as f64 / run.requests as f64)
        });
        Ok(hits.collect())
    }
}
