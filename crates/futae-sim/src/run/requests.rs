//! The requests of a simulation, repeated for other measurements.

use super::plan::footprint;
use super::{Interleave, SimulationError, Traces};
use crate::hierarchy::derived_seed;
use futae_trace::{BlockRequest, BlockStream, Generator, WorkloadError, WorkloadSpec};

/// The requests of a simulation, which can be repeated.
#[derive(Clone, Copy)]
pub enum Requests<'a> {
    /// Those of traces, one per guest.
    Traces(&'a Traces),
    /// Those of workloads, one per guest, all with the block size and the seed of the simulation.
    Workloads {
        /// The workloads.
        workloads: &'a [WorkloadSpec],
        /// Size of a block.
        block_bytes: u64,
        /// The seed of all randomness.
        seed: u64,
    },
}

const BATCH: usize = 4096;

impl Requests<'_> {
    /// Blocks per guest: those of guest *g* are numbered from *g* times this.
    pub fn blocks(&self) -> Result<u64, SimulationError> {
        match self {
            Self::Traces(traces) => Ok(traces.in_order().blocks()),
            Self::Workloads {
                workloads,
                block_bytes,
                ..
            } => {
                let blocks = workloads.iter().map(|one| one.blocks(*block_bytes));
                let all = blocks.collect::<Result<Vec<_>, _>>()?;
                Ok(all.into_iter().max().unwrap_or(0))
            }
        }
    }

    /// An error if the guests have more blocks together than can be numbered.
    pub(crate) fn check_blocks(&self) -> Result<(), SimulationError> {
        footprint(self.guests(), self.blocks()?).map(drop)
    }

    /// Distinct blocks of the guest with the most.
    pub fn distinct(&self) -> Result<u64, SimulationError> {
        match self {
            Self::Traces(traces) => Ok(traces.distinct()),
            Self::Workloads { .. } => self.blocks(),
        }
    }

    /// Distinct blocks of all guests, or the number that the workloads can request.
    pub fn footprint_blocks(&self) -> Result<u64, SimulationError> {
        match self {
            Self::Traces(traces) => Ok(traces.facts().distinct_blocks),
            Self::Workloads {
                workloads,
                block_bytes,
                ..
            } => {
                let blocks = workloads.iter().map(|one| one.blocks(*block_bytes));
                Ok(blocks.sum::<Result<u64, _>>()?)
            }
        }
    }

    /// The lengths of requests, as [`Known`](super::drive::Known) has them.
    pub(super) fn lengths(&self) -> &[u32] {
        match self {
            Self::Traces(traces) => traces.lengths(),
            Self::Workloads { .. } => &[],
        }
    }

    /// The number of guests.
    pub(super) fn guests(&self) -> u32 {
        match self {
            Self::Traces(traces) => traces.facts().files.len() as u32,
            Self::Workloads { workloads, .. } => workloads.len() as u32,
        }
    }

    /// Passes all of them, in order.
    pub(super) fn with_stream<T>(
        &self,
        block_bytes: u64,
        act: impl FnOnce(&mut (dyn BlockStream + Send)) -> T,
    ) -> Result<T, SimulationError> {
        match self {
            Self::Traces(traces) => Ok(traces.in_order().with_stream(act)),
            Self::Workloads {
                workloads, seed, ..
            } => {
                let workloads: Vec<_> = workloads.iter().collect();
                let mut stream = interleaved(&workloads, self.blocks()?, block_bytes, *seed)?;
                Ok(act(&mut stream))
            }
        }
    }

    /// Passes the first `limit` requests, or all of them.
    pub fn each(&self, limit: u64, act: impl FnMut(BlockRequest)) -> Result<(), SimulationError> {
        match self {
            Self::Traces(traces) => {
                traces
                    .in_order()
                    .with_stream(|stream| each(stream, limit, act));
            }
            Self::Workloads {
                workloads,
                block_bytes,
                seed,
            } => {
                let blocks = self.blocks()?;
                let each_workload: Vec<_> = workloads.iter().collect();
                let mut stream = interleaved(&each_workload, blocks, *block_bytes, *seed)?;
                each(&mut stream, limit, act);
            }
        }
        Ok(())
    }
}

fn each(stream: &mut dyn BlockStream, limit: u64, mut act: impl FnMut(BlockRequest)) {
    let mut batch = vec![BlockRequest::default(); BATCH];
    let mut left = limit;
    while left > 0 {
        let wanted = left.min(BATCH as u64) as usize;
        let got = stream.fill(&mut batch[..wanted]);
        batch[..got].iter().for_each(|&request| act(request));
        left -= got as u64;
        if got < wanted {
            return;
        }
    }
}

/// The seed of one guest's workload, in a simulation with several guests and this seed.
#[must_use]
pub fn guest_seed(seed: u64, guest: u64) -> u64 {
    derived_seed(seed, guest)
}

/// The workloads of guests that ask at their rates, each with `blocks` numbers and its own seed.
pub(super) fn interleaved(
    workloads: &[&WorkloadSpec],
    blocks: u64,
    block_bytes: u64,
    seed: u64,
) -> Result<Interleave<Generator>, WorkloadError> {
    let streams = workloads
        .iter()
        .zip(0..)
        .map(|(workload, guest)| workload.generator(block_bytes, guest_seed(seed, guest)));
    let streams = streams.collect::<Result<Vec<_>, _>>()?;
    let rates = workloads.iter().map(|workload| workload.rate());
    Ok(Interleave::new(streams, blocks).at_rates(rates.collect()))
}
