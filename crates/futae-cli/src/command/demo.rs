//! `futae demo`: the two-level cache live on this machine, beside its prediction.

use crate::demo::{self, DemoPlan};
use crate::laboratory;
use futae_control::check_memory_bytes;
use futae_terminal::failure::Failure;
use futae_terminal::output::output;
use futae_trace::BlockRequest;
use futae_units::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Size, parse_block_bytes, parse_duration};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::env;
use std::ffi::OsString;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Show the two-level cache live on this machine, beside its prediction
///
/// Makes a disk image, serves it from a lower cache over a socket, mounts it through an upper
/// cache, and reads blocks uniformly at random: first over an LRU lower cache, then over one kept
/// exclusive by demotion. The image is made in $TMPDIR. At the end the demonstration removes
/// everything that it made.
///
/// With --guests the upper caches are the page caches of two Debian kernels in QEMU, which know
/// nothing of futae, and the memory of the lower cache is used in five ways: not at all, by the
/// host's page cache, by futae with LRU, by futae with an exclusive cache to which an agent in each
/// guest demotes, and by the guests themselves. Each combination of the given kernels, choices,
/// store latencies and disks runs in each way.
#[derive(clap::Args)]
pub struct Args {
    /// Two guests in QEMU above the host's memory, used in five ways; takes some minutes, and needs
    /// the laboratory, futae-lab
    #[arg(long, conflicts_with_all = ["upper", "block", "threads"])]
    guests: bool,
    /// With --guests, the ways to run: direct, writeback, lru, exclusive, memory [default: all]
    #[arg(long, value_name = "WAY,...", requires = "guests")]
    ways: Option<String>,
    /// With --guests, Linux in the guests: 6.1 or 6.12 [default: 6.1, or 6.12 where Debian has no other]
    #[arg(long, value_name = "VERSION,...", requires = "guests")]
    kernel: Option<String>,
    /// With --guests, how they reach the disks that futae serves: nbd, vhost-user [default: nbd]
    #[arg(long, value_name = "HOW,...", requires = "guests")]
    disk: Option<String>,
    /// With --guests, how the next block is chosen: uniform, zipf(EXPONENT), normal(SIGMA), loop; can be
    /// given several times [default: uniform]
    #[arg(long, value_name = "CHOICE", requires = "guests")]
    choice: Vec<String>,
    /// With --guests, the share of writes among the operations, from 0 to 1 [default: 0]
    #[arg(long, value_name = "SHARE", requires = "guests")]
    writes: Option<String>,
    /// With --guests, read and write a file on ext4 instead of the device
    #[arg(long, requires = "guests")]
    files: bool,
    /// Size of the disk image, of each guest's with --guests [default: 640MiB, which is 1/16 of the
    /// paper's; with --guests 160MiB]
    #[arg(long, value_name = "SIZE")]
    image: Option<String>,
    /// Size of the upper cache
    #[arg(long, value_name = "SIZE", default_value = "192MiB")]
    upper: String,
    /// Size of the lower cache [default: 256MiB; with --guests 64MiB]
    #[arg(long, value_name = "SIZE")]
    lower: Option<String>,
    /// Bytes of a block: a power of two from 4KiB to 256MiB
    #[arg(long, default_value = "4KiB")]
    block: String,
    /// Reads before counting begins [default: 2.5 times the blocks of the image; with --guests
    /// twice, in each guest]
    #[arg(long, value_name = "READS")]
    warmup: Option<usize>,
    /// Reads that are counted [default: 1.25 times the blocks of the image; with --guests
    /// 0.4 times, in each guest]
    #[arg(long, value_name = "READS")]
    reads: Option<usize>,
    /// Threads that read; with 1, every decision is as simulated
    #[arg(long, default_value_t = 8)]
    threads: usize,
    /// Latency that is added to the disk, e.g. 200us or 5ms: each read of the disk image begins
    /// that much later. With --guests every operation of the store, by nbdkit in whole
    /// milliseconds, and several values can be given [default: 0]
    #[arg(long, value_name = "DURATION,...")]
    store_latency: Option<String>,
    /// Seed of all randomness
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let block_bytes =
        parse_block_bytes(&args.block, BLOCK_BYTES_MIN, BLOCK_BYTES_MAX).map_err(Failure::usage)?;
    if args.guests {
        // As they were typed: the laboratory reads them again.
        let words: Vec<_> = env::args_os().skip_while(|word| word != "demo").collect();
        return laboratory::become_it("demo", words.iter().skip(1).map(OsString::as_os_str));
    }
    let stopped = Arc::new(AtomicBool::new(false));
    let plan = plan(args, block_bytes)?;
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stopped))?;
    }
    let report = demo::run(&plan, &stopped, args.json)?;
    let mut out = output();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        out.write_all(report.render().as_bytes())?;
    }
    Ok(())
}

/// The blocks of a size that an option gives.
fn blocks(what: &str, text: &str, block_bytes: u64) -> Result<u64, Failure> {
    let size: Size = text.parse().map_err(Failure::usage)?;
    let blocks = size.blocks(block_bytes).map_err(Failure::usage)?;
    if blocks == 0 || blocks >= u64::from(u32::MAX) {
        return Err(Failure::usage(format!(
            "--{what} {text} is not between 1 and 2^32 blocks"
        )));
    }
    Ok(blocks)
}

/// How much later reads of the disk image begin.
fn store_latency(args: &Args) -> Result<Duration, Failure> {
    let Some(text) = &args.store_latency else {
        return Ok(Duration::ZERO);
    };
    let latency = parse_duration(text);
    latency.map_err(|error| Failure::usage(format!("--store-latency {text}: {error}")))
}

fn plan(args: &Args, block_bytes: u64) -> Result<DemoPlan, Failure> {
    let blocks = |what: &str, text: &str| blocks(what, text, block_bytes);
    let image_blocks = blocks("image", args.image.as_deref().unwrap_or("640MiB"))?;
    let whole = image_blocks as usize;
    let mut plan = DemoPlan {
        block_bytes,
        image_blocks,
        upper_blocks: blocks("upper", &args.upper)? as u32,
        lower_blocks: blocks("lower", args.lower.as_deref().unwrap_or("256MiB"))? as u32,
        seed: args.seed,
        warmup_requests: args.warmup.unwrap_or(whole * 5 / 2),
        threads: args.threads.clamp(1, 256),
        store_latency: store_latency(args)?,
        requests: Vec::new(),
    };
    let counted = args.reads.unwrap_or(whole * 5 / 4);
    if counted == 0 {
        return Err(Failure::usage("--reads 0 leaves nothing to count"));
    }
    let requests = plan.warmup_requests.saturating_add(counted);
    let bytes = (requests as u64).saturating_mul(size_of::<BlockRequest>() as u64);
    check_memory_bytes("a list of --warmup and --reads", bytes).map_err(Failure::usage)?;
    plan.draw(requests)?;
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn more_reads_than_the_memory_can_hold_are_refused() {
        let most = usize::MAX.to_string();
        for words in [
            ["--reads", &most],
            ["--warmup", &most],
            ["--reads", "1000000000000000"],
        ] {
            let line = Line::parse_from([&["demo"], &words[..]].concat());
            let refused = plan(&line.args, 4096).map(drop).expect_err("too many");
            let said = refused.to_string();
            assert!(said.contains("--warmup and --reads"), "{said}");
        }
    }
}
