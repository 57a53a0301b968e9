//! What is read, and how large everything is.

use crate::defaults::MOUNT_POLICY;
use crate::demo::ratios::Ratios;
use futae_sim::run::Plan;
use futae_sim::{LevelSpec, WriteMode, links};
use futae_terminal::failure::Failure;
use futae_trace::{BlockRequest, BlockStream, WorkloadSpec};
use std::time::Duration;

/// Sizes in blocks, and every request there will be.
pub struct DemoPlan {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks of the disk image.
    pub image_blocks: u64,
    /// Slots of the upper cache.
    pub upper_blocks: u32,
    /// Slots of the lower cache.
    pub lower_blocks: u32,
    /// All randomness comes from here.
    pub seed: u64,
    /// Requests before counting begins.
    pub warmup_requests: usize,
    /// Threads that read.
    pub threads: usize,
    /// How much later than asked for the disk image is read.
    pub store_latency: Duration,
    /// All requests, warm-up first.
    pub requests: Vec<BlockRequest>,
}

impl DemoPlan {
    /// Draws `requests` uniformly random reads.
    pub fn draw(&mut self, requests: usize) -> Result<(), Failure> {
        let bytes = self.image_blocks * self.block_bytes;
        let workload: WorkloadSpec = format!("uniform:{bytes}").parse()?;
        let mut generator = workload.generator(self.block_bytes, self.seed)?;
        self.requests = vec![BlockRequest::default(); requests];
        generator.fill(&mut self.requests);
        Ok(())
    }

    /// What the simulator makes of the same requests.
    pub fn predict(&self, lower: &str) -> Result<Ratios, Failure> {
        let level = |policy: &str, blocks: u32| -> Result<LevelSpec, Failure> {
            Ok(format!("{policy}:{blocks}blocks").parse::<LevelSpec>()?)
        };
        let levels = [
            level(MOUNT_POLICY, self.upper_blocks)?,
            level(lower, self.lower_blocks)?,
        ];
        let links = links(&levels, None);
        let plan = Plan {
            levels: &levels,
            links: &links,
            write_mode: WriteMode::WriteThrough,
            guests: 1,
            blocks: self.image_blocks,
            volumes: Vec::new(),
            distinct: self.image_blocks,
            footprint: self.image_blocks,
            block_bytes: self.block_bytes,
            seed: self.seed,
            warmup_requests: self.warmup_requests as u64,
            requests: (self.requests.len() - self.warmup_requests) as u64,
            is_spread: false,
        };
        let mut stream = Drawn {
            requests: &self.requests,
        };
        let (run, _) = plan.run(&mut stream, &mut |_| {})?;
        Ok(Ratios {
            upper_hit: run.levels[0].hit_ratio,
            lower_hit: run.levels[1].hit_ratio,
            combined_hit: run.combined_hit_ratio,
        })
    }
}

/// Requests that were drawn before.
struct Drawn<'a> {
    requests: &'a [BlockRequest],
}

impl BlockStream for Drawn<'_> {
    fn fill(&mut self, out: &mut [BlockRequest]) -> usize {
        let (now, later) = self.requests.split_at(out.len().min(self.requests.len()));
        out[..now.len()].copy_from_slice(now);
        self.requests = later;
        now.len()
    }
}
