//! `demo-pairs`: what demotion costs a reader: `futae demo` over stores of several latencies, reads a second over an
//! exclusive lower cache beside those over an LRU one.

use anyhow::{Context, ensure};
use clap::Parser;
use futae_bench::report::Spread;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// Run `futae demo` several times for each store latency and compare exclusive with LRU, run by run
#[derive(Parser)]
struct Args {
    /// The program under test
    #[arg(long, value_name = "PATH", default_value = "target/release/futae")]
    futae: PathBuf,
    /// Runs for each latency; each has one part over LRU and one over exclusive
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Latencies, as `futae demo --store-latency` takes them; 0 is the disk as it is
    #[arg(long, value_name = "DURATION", value_delimiter = ',', default_values = ["0", "200us", "5ms"])]
    latency: Vec<String>,
    /// Arguments for `futae demo`, e.g. -- --image 160MiB --upper 48MiB --lower 64MiB
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// One part of one run.
#[derive(Clone, Copy)]
struct Part {
    reads_per_second: f64,
    store_reads: f64,
    /// Processor time of a read in microseconds.
    processor_us: f64,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    ensure!(args.rounds > 0, "--rounds: at least one");
    println!(
        "`futae demo {}`, {} runs for each latency. Reads a second and processor time of a read in µs: median \
         (lowest–highest); ratios run by run.\n",
        args.arguments.join(" "),
        args.rounds
    );
    println!(
        "| store latency | lru | exclusive | exclusive / lru | processor time, lru | exclusive / lru | \
         store reads, exclusive / lru |\n|---|---|---|---|---|---|---|"
    );
    for latency in &args.latency {
        let runs = (0..args.rounds).map(|_| run(&args, latency));
        let runs = runs.collect::<anyhow::Result<Vec<_>>>()?;
        let speed = |part: &Part| part.reads_per_second;
        let lru = shown(runs.iter().map(|(lru, _)| speed(lru)), 0);
        let exclusive = shown(runs.iter().map(|(_, exclusive)| speed(exclusive)), 0);
        let ratios = runs
            .iter()
            .map(|(lru, exclusive)| speed(exclusive) / speed(lru));
        let store = runs
            .iter()
            .map(|(lru, exclusive)| exclusive.store_reads / lru.store_reads);
        let spent = shown(runs.iter().map(|(lru, _)| lru.processor_us), 1);
        let more = runs
            .iter()
            .map(|(lru, exclusive)| exclusive.processor_us / lru.processor_us);
        let (ratios, more, store) = (shown(ratios, 2), shown(more, 2), shown(store, 2));
        println!("| {latency} | {lru} | {exclusive} | {ratios} | {spent} | {more} | {store} |");
    }
    Ok(())
}

/// Both parts of a run: over LRU, over exclusive.
fn run(args: &Args, latency: &str) -> anyhow::Result<(Part, Part)> {
    let mut command = Command::new(&args.futae);
    command.args(["demo", "--json"]).args(&args.arguments);
    if latency != "0" {
        command.args(["--store-latency", latency]);
    }
    let output = command
        .output()
        .with_context(|| format!("starting {}", args.futae.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "futae demo failed: {said}");
    let report: Value = serde_json::from_slice(&output.stdout).context("a report")?;
    let part = |policy: &str| {
        let runs = report["runs"].as_array()?;
        let run = runs.iter().find(|run| run["policy"] == policy)?;
        Some(Part {
            reads_per_second: run["reads_per_second"].as_f64()?,
            store_reads: run["store_reads"].as_f64()?,
            processor_us: run["processor_seconds_per_read"].as_f64()? * 1e6,
        })
    };
    let parts = part("lru").zip(part("exclusive"));
    parts.context("a report without both lower caches")
}

fn shown(numbers: impl Iterator<Item = f64>, digits: usize) -> String {
    let Spread {
        median,
        lowest,
        highest,
    } = Spread::of(numbers);
    format!("{median:.digits$} ({lowest:.digits$}–{highest:.digits$})")
}
