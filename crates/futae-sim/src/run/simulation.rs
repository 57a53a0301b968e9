//! What is simulated: one hierarchy, under a workload or for traces.

use crate::link::Link;
use crate::spec::LevelSpec;
use crate::write_back::WriteMode;
use futae_trace::WorkloadSpec;

/// One simulation of one hierarchy under a synthetic workload.
#[derive(Clone, Debug)]
pub struct SimulationSpec {
    /// Top down, at least one.
    pub levels: Vec<LevelSpec>,
    /// The links between the levels, top down: see [`links`](crate::spec::links).
    pub links: Vec<Link>,
    /// When written data goes to the store.
    pub write_mode: WriteMode,
    /// Number of guests, at least 1. They take turns, request by request, each with its own copy of
    /// the workload and its own seed.
    pub guests: u32,
    /// The workload of each guest.
    pub workload: WorkloadSpec,
    /// Size of a block.
    pub block_bytes: u64,
    /// The seed of all randomness.
    pub seed: u64,
    /// Requests of all guests together before counting begins. `None`: five times the blocks of the
    /// workload, or none for a workload that is complete after one pass (`scan`).
    pub warmup_requests: Option<u64>,
    /// Counted requests of all guests together. `None`: five times the blocks of the workload, or
    /// one pass for a workload that is then complete.
    pub requests: Option<u64>,
}

/// One hierarchy for traces.
#[derive(Clone, Debug)]
pub struct TraceSimulation {
    /// The levels, top down, at least one. For a guest's own level, a share is a fraction of the
    /// blocks of the guest with the most.
    pub levels: Vec<LevelSpec>,
    /// The links between the levels, top down.
    pub links: Vec<Link>,
    /// When written data goes to the store.
    pub write_mode: WriteMode,
    /// Seed for randomised policies.
    pub seed: u64,
    /// Accesses before counting begins.
    pub warmup_requests: u64,
    /// Accesses that are counted; `None`: all remaining ones.
    pub requests: Option<u64>,
}
