//! The exact curve of any policy: a simulation of each size, which is that of `futae sim`.

use super::{Curve, Point, Source};
use crate::run::{SimulationError, TraceSimulation, Window, in_parallel};
use crate::spec::LevelSpec;
use crate::write_back::WriteMode;
use futae_policy::PolicySpec;
use futae_units::Size;

impl Source {
    /// The curve of a policy at these sizes, in blocks, each simulated separately, on at most `threads` threads (at least one).
    /// `progress` gets the fraction done.
    ///
    /// # Errors
    ///
    /// Those of any simulation.
    pub fn simulate_sizes(
        &self,
        policy: &PolicySpec,
        sizes: &[u64],
        seed: u64,
        threads: usize,
        progress: &(dyn Fn(f64) + Sync),
    ) -> Result<Curve, SimulationError> {
        let points = in_parallel(sizes.len(), threads, progress, |at, progress| {
            self.simulate_size(policy, sizes[at], seed, progress)
        });
        Ok(Curve::samples(
            points.into_iter().collect::<Result<_, _>>()?,
        ))
    }

    fn simulate_size(
        &self,
        policy: &PolicySpec,
        blocks: u64,
        seed: u64,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Point, SimulationError> {
        let level = LevelSpec {
            policy: policy.clone(),
            size: Size::Blocks(blocks),
            others: Vec::new(),
        };
        let spec = TraceSimulation {
            levels: vec![level],
            links: Vec::new(),
            write_mode: WriteMode::WriteThrough,
            seed,
            warmup_requests: 0,
            requests: Some(self.requests()),
        };
        let ends = [self.requests()];
        let requests = self.as_requests();
        let whole = requests.until(&spec, self.block_bytes(), 0, &ends, progress)?;
        let by_store = whole.iter().filter_map(|window| window.served.last());
        let missed: u64 = by_store.map(|at| at.reads + at.writes).sum();
        let requests: u64 = whole.iter().map(Window::requests).sum();
        Ok(Point {
            blocks,
            miss_ratio: missed as f64 / requests.max(1) as f64,
        })
    }
}
