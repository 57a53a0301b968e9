//! `futae sim`: what a hierarchy of caches would do with a workload or a trace.

mod ask;
mod objects;
mod render;

pub(super) use ask::failure;
pub(super) use futae_policy::split_policies;

use super::source_args::SourceName;
use super::trace_args::{TraceArgs, ViewArgs};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::report::{Subject, page};
use crate::save::{Output, TableFile, print};
use futae_sim::objects::Lives;
use futae_sim::queueing::LatencyModel;
use futae_sim::run::{Column, Order, Think};
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
    sources: Vec<SourceName>,
    /// A level, top down, as POLICY:SIZE; SIZE,SIZE gives a run for each, and SIZE/SIZE a size for each guest
    #[arg(long = "level", value_name = "POLICY:SIZE")]
    levels: Vec<String>,
    /// What a level sends to the level below when it evicts a block: demote (its data), notice (its
    /// number) or none [default: demote above an exclusive level, none elsewhere]
    #[arg(long)]
    link: Option<Link>,
    /// When written data goes to the store: write-through (at once) or write-back (when the block
    /// is evicted)
    #[arg(long, value_name = "MODE", default_value_t)]
    write_mode: WriteMode,
    /// Number of guests. Each has its own instance of all levels but the last, which they share
    /// [default: as many as there are traces or workloads]
    #[arg(long)]
    guests: Option<u32>,
    /// Order of the requests of guests with traces: recorded (by the traces' times), together (by
    /// times counted from each trace's first request) or turns (one access of each guest in turn)
    /// [default: recorded where times overlap, together where they do not, turns where a trace has
    /// no times]
    #[arg(long)]
    order: Option<Order>,
    /// Seed of all randomness
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Warm-up, which is not counted: a number of requests, or of a trace a share (10%) or a time
    /// (1h) [default: 5 times the blocks of the workload; none of a trace]
    #[arg(long, value_name = "REQUESTS|SHARE|TIME")]
    warmup: Option<Warmup>,
    /// Requests that are counted [default: 5 times the blocks of the workload; all of a trace]
    #[arg(long)]
    requests: Option<u64>,
    /// With --json, report the hit ratio over time, too: in this many windows with equal numbers of
    /// requests, or in windows of this length of a trace's time
    #[arg(long, value_name = "COUNT|TIME")]
    windows: Option<Windows>,
    /// For traces, report bounds of the hit ratio of optimal caches of these sizes (OPT-LB and
    /// OPT-UB)
    #[arg(long)]
    bounds: bool,
    /// Policies of a single level
    #[arg(long = "policy", value_name = "POLICY,...", conflicts_with = "levels")]
    policies: Option<String>,
    /// Sizes of a single level, such as 1%,10%,1GiB
    #[arg(
        long,
        value_name = "SIZE,...",
        requires = "policies",
        conflicts_with = "levels"
    )]
    sizes: Option<String>,
    /// Simulate objects that differ in size: sizes of caches are bytes, or shares of the bytes of
    /// all objects, and a cache evicts until a new object fits
    #[arg(
        long,
        requires = "policies",
        conflicts_with_all = ["levels", "link", "guests", "by_guest", "order", "windows", "bounds", "latency", "clients", "report", "parquet", "write_mode"]
    )]
    objects: bool,
    /// With --objects: lifetime of an object after it was placed or written, such as 1h, or none
    /// for no limit [default: as long as the trace says]
    #[arg(long, value_name = "TIME|none")]
    ttl: Option<Lives>,
    /// With --objects: do not place objects that are larger, such as 1MiB
    #[arg(long, value_name = "SIZE")]
    admit_size_max: Option<Size>,
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    view: ViewArgs,
    /// Report how long requests take, with latencies such as
    /// upper=1us,lower=10us,store=100us,link=5us. A time is fixed, exp(MEAN), uniform(LEAST,MOST)
    /// or lognormal(MEAN,SIGMA); with *N, as in store=exp(100us)*8, a place works on N requests at
    /// a time and others wait; store-write is for writes of the store. Requests arrive at the times
    /// of the trace
    #[arg(long, value_name = "PLACE=TIME,...")]
    latency: Option<LatencyModel>,
    /// With --latency: keep this many requests in flight, instead of the times of the trace
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    clients: Option<u32>,
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
    think: Option<Think>,
    /// Simulations that run at the same time [default: one for each processor]; if there are half
    /// as many or fewer, each may use a thread for each level and one that generates the requests
    /// of a workload
    #[arg(long)]
    threads: Option<usize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print CSV
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// With --csv or --parquet: one row for each guest and level, with the guest's requests that
    /// reached the level
    #[arg(long)]
    by_guest: bool,
    /// Write an HTML page with charts and numbers, without external files
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Write the columns of --csv as Parquet
    #[arg(long, value_name = "FILE")]
    parquet: Option<PathBuf>,
}

/// Simulates, prints and writes.
pub fn run(args: &Args) -> Result<(), Failure> {
    futae_plugin::enable();
    if args.objects {
        return objects::run(args);
    }
    // clap would not require --objects beside --level, since the two exclude each other.
    let of_objects = [
        ("--ttl", args.ttl.is_some()),
        ("--admit-size-max", args.admit_size_max.is_some()),
    ];
    if let Some((option, _)) = of_objects.iter().find(|option| option.1) {
        return Err(Failure::usage(format!(
            "{option} is for --objects, with --policy and --sizes"
        )));
    }
    let output = |path: &PathBuf| Output::new(path);
    let page_file = args.report.as_ref().map(output).transpose()?;
    let table_file = args.parquet.as_deref().map(TableFile::new).transpose()?;
    if args.windows.is_some() && !args.json {
        return Err(Failure::usage(
            "--windows is for --json, which alone has the hit ratio over time; add --json, and draw it with `futae plot time`",
        ));
    }
    if args.by_guest && !args.csv && args.parquet.is_none() {
        return Err(Failure::usage(
            "--by-guest is for --csv and --parquet; what is printed otherwise has the results by guest anyhow",
        ));
    }
    let (report, source) = ask::simulate(args)?;
    let name = names(&args.sources);
    if let (Some(file), Some(source)) = (page_file, source) {
        let progress = Progress::new("reporting", args.json);
        let subject = Subject {
            report: &report,
            requests: source.requests(),
            source: &name,
            command: &command_line(
                std::env::args_os()
                    .skip(1)
                    .map(|it| it.to_string_lossy().into_owned()),
            ),
        };
        let page = page(&subject, &|fraction| progress.set(fraction))?;
        file.write(page.as_bytes())?;
    }
    if args.by_guest && report.runs.iter().any(|run| run.by_guest.is_empty()) {
        return Err(Failure::usage(
            "--by-guest is for several guests; name a trace for each, or --guests",
        ));
    }
    let columns = || match args.by_guest {
        true => report.guest_columns(),
        false => report.columns(),
    };
    if let Some(file) = table_file {
        file.write(&columns())?;
    }
    print(&if args.json {
        format!("{}\n", serde_json::to_string_pretty(&report)?)
    } else if args.csv {
        Column::csv(&columns())
    } else {
        render::render(&report, &name)
    })
}

/// The traces or workloads, as a user is shown them.
fn names(sources: &[SourceName]) -> String {
    let names: Vec<&str> = sources.iter().map(SourceName::text).collect();
    names.join(", ")
}

/// The command as a shell takes it.
fn command_line(arguments: impl Iterator<Item = String>) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_.,:=/%+@".contains(c);
    let quoted = arguments.map(|argument| {
        if !argument.is_empty() && argument.chars().all(is_plain) {
            return argument;
        }
        format!("'{}'", argument.replace('\'', "'\\''"))
    });
    std::iter::once("futae".to_owned())
        .chain(quoted)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::command_line;

    #[test]
    fn a_command_can_be_given_to_a_shell() {
        let arguments = ["sim", "zipf(1.0):1GiB", "it's", "--sizes", "1%,2%", ""];
        assert_eq!(
            command_line(arguments.map(str::to_owned).into_iter()),
            r"futae sim 'zipf(1.0):1GiB' 'it'\''s' --sizes 1%,2% ''"
        );
    }
}
