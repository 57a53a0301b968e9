//! Why a study is refused.

use crate::SimulationError;
use crate::objects::ObjectError;
use futae_units::Size;

/// Why a study cannot be made. The messages name the options of the command line.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A simulation cannot be run.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// Objects cannot be simulated.
    #[error(transparent)]
    Objects(#[from] ObjectError),
    /// Bounds of a workload.
    #[error("--bounds is for traces")]
    BoundsOfWorkload,
    /// Think times of a workload.
    #[error("--think is for traces; futae trace convert writes a workload to a trace")]
    ThinkOfWorkload,
    /// The order of workloads.
    #[error("--order is for traces; workloads take turns")]
    OrderOfWorkload,
    /// Another number of guests than of workloads.
    #[error("--guests {guests} does not fit {workloads} workloads")]
    Workloads {
        /// Guests.
        guests: u32,
        /// Workloads.
        workloads: usize,
    },
    /// Another number of guests than of traces.
    #[error("each guest has a trace of its own: name one for each")]
    Guests,
    /// A share or a time of a workload.
    #[error("a workload has no length and no times: give --warmup in requests")]
    WarmupOfWorkload,
    /// A warm-up by time without times.
    #[error(
        "a warm-up by time needs traces with times, in the order of time; give --warmup in requests"
    )]
    WarmupWithoutTimes,
    /// A warm-up by time in a closed loop.
    #[error(
        "with --think the latencies decide when requests come; give --warmup in requests or as a share"
    )]
    WarmupOfThink,
    /// Windows of time without times.
    #[error(
        "windows of time need traces with times, in the order of time; give --windows a number"
    )]
    WindowsWithoutTimes,
    /// More windows than anyone looks at.
    #[error("{0} windows are too many; give --windows a longer time")]
    TooManyWindows(u64),
    /// Clients without latencies.
    #[error("--clients is for --latency, such as --latency store=100us*8")]
    ClientsWithoutLatency,
    /// Nobody asks.
    #[error("--clients 0: no client makes requests")]
    NoClients,
    /// Think times without latencies.
    #[error(
        "--think needs --latency, such as --latency upper=1us,store=100us: the answers decide when guests ask"
    )]
    ThinkWithoutLatency,
    /// Two options that exclude each other.
    #[error("{0} cannot be used with {1}")]
    Conflict(&'static str, &'static str),
    /// Queueing of requests that were not kept.
    #[error("the requests were not kept for --latency")]
    NotKept,
    /// The largest object is not in bytes.
    #[error("--admit-size-max {0} is no size of an object: give bytes, such as 1MiB")]
    AdmitSize(Size),
}
