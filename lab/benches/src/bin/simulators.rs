//! `simulators`: `futae sim` beside libCacheSim, whole runs from a trace on disk, in turns.

use anyhow::{Context, ensure};
use clap::Parser;
use futae_bench::process::run_to_end;
use futae_bench::report::Spread;
use futae_policy::VolumeId;
use futae_trace::{
    BlockRequest, BlockStream, Request, RequestKind, TraceWriter, View, WorkloadSpec, WriteOptions,
};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compare `futae sim` with libCacheSim's `cachesim`, one thread each, from the same trace
#[derive(Parser)]
struct Args {
    /// The futae program
    #[arg(long, value_name = "PATH")]
    futae: PathBuf,
    /// The cachesim program
    #[arg(long, value_name = "PATH", default_value = "cachesim")]
    cachesim: PathBuf,
    /// Requests of a generated trace
    #[arg(long, default_value_t = 20_000_000)]
    requests: u64,
    /// A recorded trace in place of generated ones. cachesim reads it as oracleGeneral, and futae both as it is and so
    #[arg(long, value_name = "PATH", requires = "slots")]
    trace: Option<PathBuf>,
    /// Slots of the cache for --trace
    #[arg(long, requires = "trace")]
    slots: Option<u32>,
    /// How often each is run
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only these policies, by futae's names
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// futae's name of a policy, libCacheSim's, and how many times as fast it is to be.
const POLICIES: &[(&str, &str, f64)] = &[
    ("fifo", "fifo", 5.0),
    ("lru", "lru", 5.0),
    ("clock", "clock", 5.0),
    ("sieve", "sieve", 5.0),
    ("lfu-in-cache", "lfu", 3.0),
    ("2q", "2q", 3.0),
    ("arc", "arc", 3.0),
    ("s3-fifo", "s3fifo", 3.0),
    ("lirs", "lirs", 3.0),
    ("w-tinylfu", "wtinylfu", 3.0),
    ("opt", "belady", 3.0),
    ("lecar", "lecar", 1.0),
    ("lhd", "lhd", 1.0),
    ("gdsf", "gdsf", 1.0),
    ("random", "random", 1.0),
];

/// Bytes of a request in oracleGeneral.
const ORACLE_GENERAL_BYTES: u64 = 24;

/// A workload, and the slots of the cache.
const TRACES: &[(&str, u32)] = &[
    ("zipf(1.0):1000000blocks", 91_474),
    ("uniform:2621440blocks", 262_019),
];

/// A trace that both simulators read.
struct Subject {
    name: String,
    /// What futae reads: the trace as it is, if it was recorded, and what cachesim reads.
    own: Vec<(&'static str, PathBuf)>,
    oracle_general: PathBuf,
    requests: u64,
    slots: u32,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    ensure!(args.rounds > 0, "--rounds: at least one");
    let cachesim = from_anywhere(&args.cachesim)?;
    let has_peer = Command::new(&cachesim).arg("--version").output();
    if let Err(why) = &has_peer {
        println!(
            "{}: {why}; futae is measured alone (libCacheSim is built from its sources; name its \
             program with --cachesim)",
            args.cachesim.display()
        );
    }
    let directory = tempfile::Builder::new().prefix("futae-bench-").tempdir()?;
    let peer = has_peer.is_ok().then_some(cachesim.as_path());
    match (&args.trace, args.slots) {
        (Some(trace), Some(slots)) => {
            let subject = recorded(&args.futae, trace, slots, directory.path())?;
            compare(&args, &subject, peer)?;
        }
        _ => {
            for &(workload, slots) in TRACES {
                let subject = generated(workload, slots, args.requests, directory.path());
                compare(&args, &subject.context("writing the trace")?, peer)?;
            }
        }
    }
    println!("\nRequests a processor second of the whole process: median (lowest–highest).");
    Ok(())
}

/// The requests of a workload.
fn generated(
    workload: &str,
    slots: u32,
    requests: u64,
    directory: &Path,
) -> anyhow::Result<Subject> {
    let trace = directory.join("trace.oracleGeneral");
    write(workload, requests, &trace)?;
    Ok(Subject {
        name: workload.to_owned(),
        own: vec![("futae", trace.clone())],
        oracle_general: trace,
        requests,
        slots,
    })
}

/// A trace of somebody else's.
fn recorded(futae: &Path, trace: &Path, slots: u32, directory: &Path) -> anyhow::Result<Subject> {
    let oracle_general = directory.join("trace.oracleGeneral");
    let mut command = Command::new(futae);
    command.args(["trace", "convert"]).arg(trace);
    let converted = command.arg(&oracle_general).output()?;
    let errors = String::from_utf8_lossy(&converted.stderr);
    ensure!(converted.status.success(), "futae trace convert: {errors}");
    let bytes = std::fs::metadata(&oracle_general)?.len();
    Ok(Subject {
        name: trace.display().to_string(),
        own: vec![
            ("futae, the trace as it is", trace.to_owned()),
            ("futae, oracleGeneral", oracle_general.clone()),
        ],
        oracle_general,
        requests: bytes / ORACLE_GENERAL_BYTES,
        slots,
    })
}

/// Runs every policy that is wanted, both programs in turns.
fn compare(args: &Args, subject: &Subject, cachesim: Option<&Path>) -> anyhow::Result<()> {
    let Subject {
        name,
        own,
        oracle_general,
        requests,
        slots,
    } = subject;
    let directory = oracle_general.parent().context("a directory")?;
    println!("\n{name}, {requests} requests, {slots} slots:\n");
    let columns = own.iter().map(|(name, _)| format!(" {name} | ratio |"));
    let columns: String = columns.collect();
    println!("| policy | libCacheSim, M requests/s |{columns} aim |");
    println!("|---|---|{}---|", "---|---|".repeat(own.len()));
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|one| one == name);
    let million = *requests as f64 / 1e6;
    for &(policy, peers_name, aim) in POLICIES.iter().filter(|policy| wanted(policy.0)) {
        let mut peers = Vec::new();
        let mut speeds = vec![Vec::new(); own.len()];
        for _ in 0..args.rounds {
            if let Some(cachesim) = cachesim {
                let mut command = Command::new(cachesim);
                // It leaves a file with its figures where it is run.
                command.current_dir(directory);
                command
                    .arg(oracle_general)
                    .args(["oracleGeneral", peers_name]);
                command.args([&slots.to_string(), "--ignore-obj-size", "1"]);
                command.args(["--print-head-req", "0"]);
                peers.push(million / run_to_end(&mut command, directory)?);
            }
            for ((_, trace), speeds) in own.iter().zip(&mut speeds) {
                let mut command = Command::new(&args.futae);
                let level = format!("{policy}:{slots}blocks");
                command
                    .arg("sim")
                    .arg(trace)
                    .args(["--level", &level, "--json"]);
                speeds.push(million / run_to_end(&mut command, directory)?);
            }
        }
        let cells = speeds.into_iter().map(|speeds| {
            let ratios = speeds.iter().zip(&peers).map(|(own, peer)| own / peer);
            let ratios = shown(ratios.collect());
            format!(" {} | {ratios} |", shown(speeds))
        });
        let cells: String = cells.collect();
        println!("| {policy} | {} |{cells} {aim} |", shown(peers));
    }
    Ok(())
}

/// A program as it is named from any directory: one without a path is looked for as always.
fn from_anywhere(program: &Path) -> std::io::Result<PathBuf> {
    if program.components().count() == 1 {
        return Ok(program.to_owned());
    }
    std::path::absolute(program)
}

fn shown(numbers: Vec<f64>) -> String {
    if numbers.is_empty() {
        return "–".to_owned();
    }
    let Spread {
        median,
        lowest,
        highest,
    } = Spread::of(numbers.into_iter());
    format!("{median:.2} ({lowest:.2}–{highest:.2})")
}

/// Writes the requests of a workload as oracleGeneral.
fn write(workload: &str, requests: u64, path: &Path) -> anyhow::Result<()> {
    let workload: WorkloadSpec = workload.parse()?;
    let mut stream = workload.generator(4096, 1)?;
    let options = WriteOptions::of_name(path, None, View::Start)?;
    let mut writer = TraceWriter::create(path, &options)?;
    let mut batch = [BlockRequest::default(); 1024];
    let mut left = requests;
    while left > 0 {
        let wanted = left.min(batch.len() as u64) as usize;
        let got = stream.fill(&mut batch[..wanted]);
        for (at, request) in batch[..got].iter().enumerate() {
            let request = Request {
                guest: 0,
                volume: VolumeId(0),
                offset_bytes: request.block() * 512,
                length_bytes: 4096,
                kind: RequestKind::Read,
                time_us: Some((requests - left + at as u64) * 1000),
            };
            writer.write(&request, &[])?;
        }
        left -= got as u64;
        if got < wanted {
            break;
        }
    }
    Ok(writer.finish()?)
}
