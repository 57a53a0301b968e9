//! `evictions`: what the agent costs a machine whose page cache evicts at full speed.

use anyhow::Context;
use clap::Parser;
use futae_bench::evictions::{self, MemoryDisk, Settings};
use futae_bench::process::Nursery;
use futae_units::Size;
use std::path::PathBuf;
use std::time::Duration;

/// Read a disk at random in a small memory cgroup, with and without an agent in turns, and say what the agent costs
///
/// Needs root. The agent and the load share a processor, as in a guest that has one. Without --disk a zram
/// device is read, which answers faster than any real disk: the agent's share of a read is then the largest.
#[derive(Parser)]
struct Args {
    /// The program under test
    #[arg(long, value_name = "PATH", default_value = "target/release/futae")]
    futae: PathBuf,
    /// What is read in place of a disk in memory: a file or a block device, larger than the memory
    #[arg(long, value_name = "PATH")]
    disk: Option<PathBuf>,
    /// Memory of the cgroup
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = bytes)]
    memory: u64,
    /// Seconds of a turn
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Rounds, each with all turns
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Let the agent and the load run on any processor
    #[arg(long)]
    apart: bool,
    /// Print JSON, a line for each row
    #[arg(long)]
    json: bool,
}

/// Bytes of the disk in memory.
const DISK_BYTES: u64 = 512 << 20;

fn bytes(text: &str) -> Result<u64, String> {
    match text.parse::<Size>() {
        Ok(Size::Bytes(bytes)) => Ok(bytes),
        Ok(_) => Err("a size in bytes, e.g. 64MiB".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let directory = tempfile::tempdir()?;
    let nursery = Nursery::new(directory.path().to_owned())?;
    let own = match &args.disk {
        Some(_) => None,
        None => Some(MemoryDisk::new(DISK_BYTES)?),
    };
    let disk = args
        .disk
        .or_else(|| own.as_ref().map(|disk| disk.path.clone()));
    let settings = Settings {
        futae: args.futae,
        disk: disk.context("there is no disk")?,
        memory_bytes: args.memory,
        duration: Duration::try_from_secs_f64(args.seconds).context("--seconds")?,
        rounds: args.rounds,
        processor: (!args.apart).then_some(0),
    };
    let rows = evictions::run(&settings, &nursery, directory.path())?;
    if !args.json {
        println!(
            "{:<34}{:>10}{:>10}{:>18}{:>12}{:>9}{:>15}",
            "agent", "reads/s", "cost", "quartiles", "CPU us/read", "more", "without data"
        );
    }
    for row in rows {
        if args.json {
            println!("{}", serde_json::to_string(&row)?);
            continue;
        }
        let [low, high] = row
            .cost_quartiles
            .map(|cost| format!("{:+.1}", cost * 100.0));
        let without = row
            .told_without_data
            .map(|share| format!("{:.1} %", share * 100.0));
        println!(
            "{:<34}{:>10.0}{:>8.1} %{:>18}{:>12.2}{:>9.2}{:>15}",
            row.turn.name(),
            row.reads_per_second,
            row.cost * 100.0,
            format!("{low} to {high}"),
            row.cpu_us,
            row.extra_cpu_us,
            without.unwrap_or_default(),
        );
    }
    Ok(())
}
