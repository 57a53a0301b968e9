//! Why a simulation cannot be run.

use crate::spec::LevelSpecError;
use futae_policy::SpecError;
use futae_trace::{TraceError, WorkloadError};

/// Why a simulation cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// A level cannot be built.
    #[error(transparent)]
    Level(#[from] LevelSpecError),
    /// A policy cannot be built at the size of its level.
    #[error(transparent)]
    Policy(#[from] SpecError),
    /// The workload does not fit the block size.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A policy needs a future that is unknown.
    #[error(
        "level {0:?} must know what will be asked of it, which is known for the first level only"
    )]
    Future(String),
    /// Several guests above a level that a policy directs.
    #[error(
        "level {0:?} directs the level below it, which takes directions from one guest only; simulate one guest"
    )]
    DirectedByGuests(String),
    /// A level that a policy directs, under write-back.
    #[error(
        "level {0:?} directs the level below it, which is not told of writes that stay above; simulate write-through"
    )]
    DirectedWriteBack(String),
    /// A level that reads ahead, over a trace whose blocks are not numbered by their places.
    #[error(
        "level {0:?} reads ahead, and the trace was read without the places of its blocks; leave out readahead"
    )]
    Neighbours(String),
    /// A level that reads ahead, with a view in which blocks have no neighbours.
    #[error(
        "a level reads ahead, and with --view start blocks have no neighbours; use --view blocks, or leave out readahead"
    )]
    NoNeighbours,
    /// Runs that read ahead beside others, over a trace that they do not view alike.
    #[error(
        "trace {0} names objects that have sizes: runs with a level that reads ahead cut them into blocks, and the others take each as one \
         block; say --view blocks for all of them, or simulate them apart"
    )]
    MixedViews(String),
    /// A trace without times, for an order that needs them.
    #[error(
        "trace {0} has no times, so its requests cannot be put in the order of time; use --order turns"
    )]
    NoTimes(String),
    /// Times that are too far apart to be counted in nanoseconds.
    #[error(
        "the times of {0} are more than 292 years apart, so latencies cannot be simulated; if their unit is not what the trace's format \
         or its columns say, give it, such as --columns time=0:ns,offset=1,length=2"
    )]
    Span(String),
    /// Latencies and think times that together are more than can be counted in nanoseconds.
    #[error(
        "latencies and think times add up to more than the 584 years that are counted; shorten the times of --latency and --think"
    )]
    Ages,
    /// Recorded think times of a trace without times.
    #[error(
        "trace {0} has no times, so think times are not known; give one, such as --think 1ms or --think 0"
    )]
    NoThink(String),
    /// A closed loop in turns.
    #[error(
        "with think times the answers decide the order, so guests cannot take turns; leave out --order turns"
    )]
    ClosedTurns,
    /// The future of a closed loop.
    #[error(
        "with think times the answers decide the order, so no policy and no bound can know it in advance; leave out opt and --bounds, or --think"
    )]
    ClosedFuture,
    /// Recorded arrivals without times.
    #[error(
        "when requests came is not known: the trace has no times, or it is a workload; say with --clients how many are \
         under way at a time"
    )]
    NoArrivals,
    /// The sizes per guest do not match the guests or the level.
    #[error(
        "level {level} has {sizes} sizes, and {guests} guests; a level above the last has one size for all guests or one for \
         each, and the last, which they share, has one"
    )]
    SizesByGuest {
        /// The level.
        level: String,
        /// Its sizes.
        sizes: usize,
        /// Guests.
        guests: u32,
    },
    /// Bounds were requested for a part of a trace.
    #[error("bounds hold for a whole trace from empty caches; leave out --warmup and --requests")]
    PartialBounds,
    /// Too many requests to be numbered.
    #[error("a policy that must know the future takes at most 2^32 - 2 requests")]
    TooLong,
    /// The warm-up leaves nothing of a trace to count.
    #[error(
        "a warm-up of {warmup} requests leaves nothing to count: the trace has {accesses}; shorten --warmup"
    )]
    Warmup {
        /// Requests of the warm-up.
        warmup: u64,
        /// Accesses of the trace.
        accesses: u64,
    },
    /// Too few requests to count.
    #[error(
        "{requests} requests are too few to count, and {least} are the least; raise --requests"
    )]
    Few {
        /// Requested number of requests.
        requests: u64,
        /// The smallest number.
        least: u64,
    },
    /// A stream ended early.
    #[error("the requests end after {got}, and {wanted} were to be sent")]
    Ended {
        /// Requests sent.
        got: u64,
        /// Requests promised.
        wanted: u64,
    },
    /// Nothing to simulate.
    #[error("a simulation needs at least one level and one guest")]
    Empty,
    /// Levels and links do not match.
    #[error("{levels} levels need {} links, not {links}", .levels - 1)]
    Links {
        /// Levels.
        levels: usize,
        /// Links given.
        links: usize,
    },
    /// More blocks than can be simulated.
    #[error(
        "{guests} guests with {blocks} blocks each are more than the 2^32 - 1 blocks of a simulation"
    )]
    TooManyBlocks {
        /// Guests.
        guests: u32,
        /// Blocks of each.
        blocks: u64,
    },
    /// A stream has a block beyond its declared number of blocks.
    #[error("request {request} is for block {block}, but there are only {blocks} blocks")]
    BlockRange {
        /// The request, counted from 0.
        request: u64,
        /// The block.
        block: u64,
        /// The declared number of blocks.
        blocks: u64,
    },
    /// Simulations to be compared had different requests.
    #[error("the simulations of one report have different requests (digests {0} and {1})")]
    Different(String, String),
}
