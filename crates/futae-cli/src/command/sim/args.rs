//! What `futae sim` is given.

use crate::command::source_args::SourceName;
use crate::command::trace_args::{TraceArgs, ViewArgs};
use futae_sim::objects::Lives;
use futae_sim::queueing::LatencyModel;
use futae_sim::run::{Order, Think};
use futae_sim::study::{Warmup, Windows};
use futae_sim::{Link, WriteMode};
use futae_units::Size;
use std::path::PathBuf;

/// Simulate a hierarchy of caches under a workload or a trace
///
/// Levels are given top down, once each: `--level lru:3GiB --level exclusive:4GiB` is a guest's
/// LRU cache over a host's exclusive one. Instead of levels, `--policy` and `--sizes` (both may
/// name several, separated by commas) give one run per policy and size of a single level. A trace
/// is read once for all runs, and counted from its first request to its last. Several workloads,
/// or several traces, are one for each guest, with results by guest.
#[derive(clap::Args)]
pub struct Args {
    /// The requests: a trace file or its URL, or a workload, e.g. uniform:10GiB, zipf(1.0):10GiB,
    /// loop:6GiB
    #[arg(value_name = "TRACE|WORKLOAD", required = true)]
    pub(super) sources: Vec<SourceName>,
    /// A level, top down, as POLICY:SIZE; SIZE,SIZE gives a run for each, and SIZE/SIZE a size for each guest
    #[arg(long = "level", value_name = "POLICY:SIZE")]
    pub(super) levels: Vec<String>,
    /// What a level sends to the level below when it evicts a block: demote (its data), notice (its
    /// number) or none [default: demote above an exclusive level, none elsewhere]
    #[arg(long)]
    pub(super) link: Option<Link>,
    /// When written data goes to the store: write-through (at once) or write-back (when the block
    /// is evicted)
    #[arg(long, value_name = "MODE", default_value_t)]
    pub(super) write_mode: WriteMode,
    /// Number of guests. Each has its own instance of all levels but the last, which they share
    /// [default: as many as there are traces or workloads]
    #[arg(long)]
    pub(super) guests: Option<u32>,
    /// Order of the requests of guests with traces: recorded (by the traces' times), together (by
    /// times counted from each trace's first request) or turns (one access of each guest in turn)
    /// [default: recorded where times overlap, together where they do not, turns where a trace has
    /// no times]
    #[arg(long)]
    pub(super) order: Option<Order>,
    /// Seed of all randomness
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Warm-up, which is not counted: a number of requests, or of a trace a share (10%) or a time
    /// (1h) [default: 5 times the blocks of the workload; none of a trace]
    #[arg(long, value_name = "REQUESTS|SHARE|TIME")]
    pub(super) warmup: Option<Warmup>,
    /// Requests that are counted [default: 5 times the blocks of the workload; all of a trace]
    #[arg(long)]
    pub(super) requests: Option<u64>,
    /// With --json, report the hit ratio over time, too: in this many windows with equal numbers of
    /// requests, or in windows of this length of a trace's time
    #[arg(long, value_name = "COUNT|TIME")]
    pub(super) windows: Option<Windows>,
    /// For traces, report bounds of the hit ratio of optimal caches of these sizes (OPT-LB and
    /// OPT-UB)
    #[arg(long)]
    pub(super) bounds: bool,
    /// Policies of a single level
    #[arg(long = "policy", value_name = "POLICY,...", conflicts_with = "levels")]
    pub(super) policies: Option<String>,
    /// Sizes of a single level, such as 1%,10%,1GiB
    #[arg(
        long,
        value_name = "SIZE,...",
        requires = "policies",
        conflicts_with = "levels"
    )]
    pub(super) sizes: Option<String>,
    /// Simulate objects that differ in size: sizes of caches are bytes, or shares of the bytes of
    /// all objects, and a cache evicts until a new object fits
    #[arg(
        long,
        requires = "policies",
        conflicts_with_all = ["levels", "link", "guests", "by_guest", "order", "windows", "bounds", "latency", "clients", "report", "parquet", "write_mode"]
    )]
    pub(super) objects: bool,
    /// With --objects: lifetime of an object after it was placed or written, such as 1h, or none
    /// for no limit [default: as long as the trace says]
    #[arg(long, value_name = "TIME|none")]
    pub(super) ttl: Option<Lives>,
    /// With --objects: do not place objects that are larger, such as 1MiB
    #[arg(long, value_name = "SIZE")]
    pub(super) admit_size_max: Option<Size>,
    #[command(flatten)]
    pub(super) trace: TraceArgs,
    #[command(flatten)]
    pub(super) view: ViewArgs,
    /// Report how long requests take, with latencies such as
    /// upper=1us,lower=10us,store=100us,link=5us. A time is fixed, exp(MEAN), uniform(LEAST,MOST)
    /// or lognormal(MEAN,SIGMA); with *N, as in store=exp(100us)*8, a place works on N requests at
    /// a time and others wait; store-write is for writes of the store. Requests arrive at the times
    /// of the trace
    #[arg(long, value_name = "PLACE=TIME,...")]
    pub(super) latency: Option<LatencyModel>,
    /// With --latency: keep this many requests in flight, instead of the times of the trace
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) clients: Option<u32>,
    /// With --latency: each guest sends its next request this long after the answer to its previous
    /// one: recorded (the time between two requests of the trace, less how long the first took if
    /// the trace says so), 0 or a time such as 1ms. So the latencies decide the order of the
    /// guests' requests
    #[arg(
        long,
        value_name = "recorded|TIME",
        requires = "latency",
        conflicts_with_all = ["clients", "windows", "bounds", "report", "objects"]
    )]
    pub(super) think: Option<Think>,
    /// Simulations that run at the same time [default: one for each processor]; if there are half
    /// as many or fewer, each may use a thread for each level and one that generates the requests
    /// of a workload
    #[arg(long)]
    pub(super) threads: Option<usize>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Print CSV
    #[arg(long, conflicts_with = "json")]
    pub(super) csv: bool,
    /// With --csv or --parquet: one row for each guest and level, with the guest's requests that
    /// reached the level
    #[arg(long)]
    pub(super) by_guest: bool,
    /// Write an HTML page with charts and numbers, without external files
    #[arg(long, value_name = "FILE.html")]
    pub(super) report: Option<PathBuf>,
    /// Write the columns of --csv as Parquet
    #[arg(long, value_name = "FILE")]
    pub(super) parquet: Option<PathBuf>,
}
