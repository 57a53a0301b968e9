//! `futae demo`: the two-level cache live on this machine, beside its prediction.

use crate::demo::{self, DemoPlan};
use crate::failure::Failure;
use futae_trace::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Size, parse_block_bytes};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Show the two-level cache live on this machine, beside its prediction
///
/// Makes a disk image, serves it from a lower cache over a socket, mounts it through an upper
/// cache, and reads blocks uniformly at random: first over an LRU lower cache, then over one kept
/// exclusive by demotion. Everything is taken down and removed in the end. TMPDIR chooses where
/// the image is made.
#[derive(clap::Args)]
pub struct Args {
    /// Size of the disk image (1/16 of the paper's 10 GiB)
    #[arg(long, value_name = "SIZE", default_value = "640MiB")]
    image: String,
    /// Size of the upper cache
    #[arg(long, value_name = "SIZE", default_value = "192MiB")]
    upper: String,
    /// Size of the lower cache
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    lower: String,
    /// Bytes of a block: a power of two from 4KiB to 256MiB
    #[arg(long, default_value = "4KiB")]
    block: String,
    /// Reads before counting begins [default: 2.5 times the blocks of the image]
    #[arg(long, value_name = "READS")]
    warmup: Option<usize>,
    /// Reads that are counted [default: 1.25 times the blocks of the image]
    #[arg(long, value_name = "READS")]
    reads: Option<usize>,
    /// Threads that read; with 1, every decision is as simulated
    #[arg(long, default_value_t = 8)]
    threads: usize,
    /// All randomness comes from this number
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let plan = plan(args)?;
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stopped))?;
    }
    let report = demo::run(&plan, &stopped, args.json)?;
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        write!(out, "{}", report.render())?;
    }
    Ok(())
}

fn plan(args: &Args) -> Result<DemoPlan, Failure> {
    let block_bytes =
        parse_block_bytes(&args.block, BLOCK_BYTES_MIN, BLOCK_BYTES_MAX).map_err(Failure::usage)?;
    let blocks = |what: &str, text: &str| -> Result<u64, Failure> {
        let size: Size = text.parse().map_err(Failure::usage)?;
        let blocks = size.blocks(block_bytes).map_err(Failure::usage)?;
        if blocks == 0 || blocks >= u64::from(u32::MAX) {
            return Err(Failure::usage(format!(
                "--{what} {text} is not between 1 and 2^32 blocks"
            )));
        }
        Ok(blocks)
    };
    let image_blocks = blocks("image", &args.image)?;
    let whole = image_blocks as usize;
    let mut plan = DemoPlan {
        block_bytes,
        image_blocks,
        upper_blocks: blocks("upper", &args.upper)? as u32,
        lower_blocks: blocks("lower", &args.lower)? as u32,
        seed: args.seed,
        warmup_requests: args.warmup.unwrap_or(whole * 5 / 2),
        threads: args.threads.clamp(1, 256),
        requests: Vec::new(),
    };
    let counted = args.reads.unwrap_or(whole * 5 / 4);
    if counted == 0 {
        return Err(Failure::usage("--reads 0 leaves nothing to count"));
    }
    plan.draw(plan.warmup_requests + counted)?;
    Ok(plan)
}
