//! `futae load`: reads and writes real paths at random.

use crate::load::{self, Files, LoadPlan, Pace, Until};
use anyhow::{Context, anyhow};
use futae_terminal::failure::Failure;
use futae_terminal::output::output;
use futae_terminal::progress::Progress;
use futae_trace::WorkloadSpec;
use futae_units::Size;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Read and write files or a device at random, and report the speed
///
/// Operations are aligned to their size. The same seed gives the same operations in the same order,
/// with any number of threads. Exits with 1 if --verify found wrong data.
#[derive(clap::Args)]
pub struct Args {
    /// A directory for files named load-0000.dat and so on, or one file or block device
    path: PathBuf,
    /// Number of files in a directory [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    files: Option<u32>,
    /// Size of each file; the first part of a longer one is used [default: as long as they are]
    #[arg(long, value_name = "SIZE")]
    file_size: Option<String>,
    /// Size of an operation: whole sectors of 512 bytes, up to 1GiB
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    operation: String,
    /// Distribution of the places of operations: uniform, zipf(EXPONENT), normal(SIGMA), loop, scan
    #[arg(long, default_value = "uniform")]
    choice: String,
    /// Read a workload as `futae sim` takes it, with its sizes, e.g. 'shift(normal(0.1):64MiB, every=10000)',
    /// from the first places of the files
    #[arg(long, value_name = "WORKLOAD", conflicts_with_all = ["choice", "writes"])]
    workload: Option<String>,
    /// The share of writes among the operations, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    writes: f64,
    /// Threads, each with one operation in flight
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// How long [default: 10, unless --operations is given]
    #[arg(long, conflicts_with = "operations")]
    seconds: Option<f64>,
    /// How many operations
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    operations: Option<u64>,
    /// Read numbers of operations from standard input, one per line, and run and report a round for
    /// each, with --json on one line. The rounds are parts of one sequence. Ends at the end of the
    /// input
    #[arg(long, conflicts_with_all = ["seconds", "operations", "verify", "record"])]
    rounds: bool,
    /// Minimum mean time of an operation, in microseconds: a faster thread waits
    #[arg(long, value_name = "MICROSECONDS", allow_negative_numbers = true)]
    hit_us: Option<f64>,
    /// The same for an operation whose data comes from a disk [default: as --hit-us]
    #[arg(long, value_name = "MICROSECONDS", requires = "hit_us")]
    miss_us: Option<f64>,
    /// Seed of all randomness
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Skip the first N operations of the sequence, to continue where a run of N operations with
    /// the same seed ended
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "verify")]
    skip: u64,
    /// Bypass the kernel's page cache (O_DIRECT)
    #[arg(long)]
    direct: bool,
    /// Read through memory mappings of the files (mmap) instead of by system calls
    #[arg(long, conflicts_with = "direct")]
    map: bool,
    /// Read each place twice in succession, like programs that check data before they use it
    #[arg(long)]
    read_twice: bool,
    /// Check what is read against what was written
    #[arg(long)]
    verify: bool,
    /// At the end, report the pages of the files in the kernel's page cache: how many, and with
    /// --json their numbers
    #[arg(long)]
    resident: bool,
    /// Create missing files
    #[arg(long)]
    create: bool,
    /// First fill existing files and devices with the load's data; their contents are lost
    #[arg(long)]
    overwrite: bool,
    /// Write the operations to FILE as a trace, which `futae sim` and others read; the name
    /// determines the format, e.g. load.csv.zst
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The longest operation.
const OPERATION_BYTES_MAX: u64 = 1 << 30;
const SECTOR: u64 = 512;
/// A year; more cannot be meant.
const SECONDS_MAX: f64 = 366.0 * 86_400.0;
const SECONDS: f64 = 10.0;
/// A minute.
const PACE_US_MAX: f64 = 60e6;

/// Runs and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut plan = plan(args)?;
    let stopped = Arc::new(AtomicBool::new(false));
    let waits = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&waits))?;
        signal_hook::flag::register(signal, Arc::clone(&stopped))?;
    }
    let progress = Progress::new("making the files", args.json);
    let files = Files::open(&plan, &mut |fraction| {
        progress.set(fraction);
        !stopped.load(Ordering::Relaxed)
    })?;
    drop(progress);
    if !args.rounds {
        return round(args, &plan, &files, &stopped);
    }
    let mut lines = std::io::stdin().lines();
    loop {
        waits.store(true, Ordering::Relaxed);
        let line = lines.next();
        waits.store(false, Ordering::Relaxed);
        let Some(line) = line else {
            return Ok(());
        };
        let line = line.context("standard input")?;
        let operations = line.trim().parse().ok().filter(|count| *count > 0);
        let operations: u64 = operations.ok_or_else(|| {
            anyhow!("standard input: {line:?} is not a number of operations from 1 on")
        })?;
        plan.until = Until::Operations(operations);
        round(args, &plan, &files, &stopped)?;
        plan.skip = plan.skip.saturating_add(operations);
    }
}

/// Does what the plan says, and reports it.
fn round(args: &Args, plan: &LoadPlan, files: &Files, stopped: &AtomicBool) -> Result<(), Failure> {
    let progress = Progress::new("load", args.json);
    let mut report = load::work(plan, files, stopped, &mut |fraction| {
        progress.set(fraction);
    })?;
    if args.resident {
        report.resident_pages = Some(files.pages_in_memory()?);
    }
    drop(progress);
    let mut out = output();
    match (args.json, args.rounds) {
        (true, true) => writeln!(out, "{}", serde_json::to_string(&report)?)?,
        (true, false) => writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?,
        (false, _) => write!(out, "{}", report.render())?,
    }
    out.flush()?;
    if report.verify_errors > 0 {
        let (wrong, told) = (report.verify_errors, report.faults.join("; "));
        return Err(anyhow!("{wrong} reads gave wrong data: {told}").into());
    }
    if stopped.load(Ordering::Relaxed) {
        return Err(anyhow!("interrupted; the figures are of what was done until then").into());
    }
    Ok(())
}

fn plan(args: &Args) -> Result<LoadPlan, Failure> {
    let size = |what: &str, text: &str| -> Result<u64, Failure> {
        let size = text.parse().and_then(|size: Size| size.bytes(SECTOR));
        size.map_err(|error| Failure::usage(format!("--{what}: {error}")))
    };
    let operation_bytes = size("operation", &args.operation)?;
    if operation_bytes == 0
        || operation_bytes % SECTOR != 0
        || operation_bytes > OPERATION_BYTES_MAX
    {
        let message = format!(
            "--operation {} is not a multiple of 512 bytes up to 1GiB",
            args.operation
        );
        return Err(Failure::usage(message));
    }
    if !(0.0..=1.0).contains(&args.writes) {
        let message = format!("--writes {} is not a share from 0 to 1", args.writes);
        return Err(Failure::usage(message));
    }
    let until = match (args.operations, args.seconds) {
        (Some(operations), _) => Until::Operations(operations),
        (None, seconds) => {
            let seconds = seconds.unwrap_or(SECONDS);
            if !(seconds > 0.0 && seconds <= SECONDS_MAX) {
                let message = format!("--seconds {seconds} is not a time above 0, up to a year");
                return Err(Failure::usage(message));
            }
            Until::Time(Duration::from_secs_f64(seconds))
        }
    };
    // Wrong choices are told before files are made.
    load::choice(&args.choice, args.writes, Size::Bytes(operation_bytes))?;
    let workload = args.workload.as_deref().map(workload).transpose()?;
    let file_bytes = args.file_size.as_deref();
    Ok(LoadPlan {
        path: args.path.clone(),
        files: args.files,
        file_bytes: file_bytes.map(|text| size("file-size", text)).transpose()?,
        operation_bytes,
        choice: args.workload.as_ref().unwrap_or(&args.choice).clone(),
        workload,
        writes: args.writes,
        threads: args.threads.into(),
        until,
        pace: pace(args)?,
        seed: args.seed,
        skip: args.skip,
        direct: args.direct,
        map: args.map,
        read_twice: args.read_twice,
        verify: args.verify,
        create: args.create,
        overwrite: args.overwrite,
        record: args.record.clone(),
    })
}

/// A workload that only reads.
fn workload(text: &str) -> Result<WorkloadSpec, Failure> {
    if text.contains("writes") {
        let message = format!("--workload {text}: it only reads; use --choice with --writes");
        return Err(Failure::usage(message));
    }
    let parsed = text.parse();
    parsed.map_err(|error| Failure::usage(format!("--workload: {error}")))
}

fn pace(args: &Args) -> Result<Option<Pace>, Failure> {
    let time = |what: &str, us: f64| match (0.0..=PACE_US_MAX).contains(&us) {
        true => Ok(Duration::from_secs_f64(us / 1e6)),
        false => Err(Failure::usage(format!(
            "--{what} {us} is not a time in microseconds, from 0 to a minute"
        ))),
    };
    let Some(hit) = args.hit_us else {
        return Ok(None);
    };
    Ok(Some(Pace {
        hit: time("hit-us", hit)?,
        miss: time("miss-us", args.miss_us.unwrap_or(hit))?,
    }))
}
