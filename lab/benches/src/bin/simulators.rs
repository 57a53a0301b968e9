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
    /// Requests of a trace
    #[arg(long, default_value_t = 20_000_000)]
    requests: u64,
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

/// A workload, and the slots of the cache.
const TRACES: &[(&str, u32)] = &[
    ("zipf(1.0):1000000blocks", 91_474),
    ("uniform:2621440blocks", 262_019),
];

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
    for &(workload, slots) in TRACES {
        let trace = directory.path().join("trace.oracleGeneral");
        write(workload, args.requests, &trace).context("writing the trace")?;
        println!("\n{workload}, {} requests, {slots} slots:\n", args.requests);
        println!(
            "| policy | futae, M requests/s | libCacheSim | ratio | aim |\n|---|---|---|---|---|"
        );
        let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|one| one == name);
        for &(name, peers_name, aim) in POLICIES.iter().filter(|policy| wanted(policy.0)) {
            let futae = || {
                let mut command = Command::new(&args.futae);
                let level = format!("{name}:{slots}blocks");
                command
                    .arg("sim")
                    .arg(&trace)
                    .args(["--level", &level, "--json"]);
                command
            };
            let peer = || {
                let mut command = Command::new(&cachesim);
                // It leaves a file with its figures where it is run.
                command.current_dir(directory.path());
                command.arg(&trace).args(["oracleGeneral", peers_name]);
                command.args([&slots.to_string(), "--ignore-obj-size", "1"]);
                command.args(["--print-head-req", "0"]);
                command
            };
            let (mut own, mut peers, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..args.rounds {
                let million = args.requests as f64 / 1e6;
                own.push(million / run_to_end(&mut futae(), directory.path())?);
                if has_peer.is_ok() {
                    peers.push(million / run_to_end(&mut peer(), directory.path())?);
                    ratios.push(own[own.len() - 1] / peers[peers.len() - 1]);
                }
            }
            println!(
                "| {name} | {} | {} | {} | {aim} |",
                shown(own),
                shown(peers),
                shown(ratios)
            );
        }
    }
    println!("\nRequests a processor second of the whole process: median (lowest–highest).");
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
