//! What is typed, and how large everything is by it.

use super::way::{Transport, Way};
use super::{BLOCK_BYTES, GuestsPlan, play};
use futae_machine::Kernel;
use futae_terminal::failure::Failure;
use futae_trace::WorkloadSpec;
use futae_units::Size;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Two guests in QEMU above the host's memory, used in four ways: `futae demo --guests`
#[derive(clap::Args)]
pub struct Args {
    /// As `futae demo` has it; there is no other demonstration here
    #[arg(long, hide = true)]
    guests: bool,
    /// The ways to run: QEMU's cache=none and cache=writeback, futae with LRU, futae exclusive
    #[arg(long, value_name = "WAY,...", value_delimiter = ',', default_values_t = Way::ALL)]
    ways: Vec<Way>,
    /// Linux in the guests: 6.1 or 6.12 [default: 6.1, or 6.12 where Debian has no other]
    #[arg(long, value_name = "VERSION", value_parser = kernel)]
    kernel: Option<Kernel>,
    /// How the guests reach the disks that futae serves
    #[arg(long, value_name = "HOW", default_value_t = Transport::Nbd)]
    disk: Transport,
    /// How the next block is chosen: uniform, zipf(EXPONENT), normal(SIGMA), loop
    #[arg(long, value_name = "CHOICE", default_value = "uniform")]
    choice: String,
    /// Size of each guest's disk image
    #[arg(long, value_name = "SIZE", default_value = "160MiB")]
    image: String,
    /// Size of the lower cache
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    lower: String,
    /// Reads before counting begins [default: twice the blocks of the image, in each guest]
    #[arg(long, value_name = "READS")]
    warmup: Option<u64>,
    /// Reads that are counted [default: 0.4 times the blocks of the image, in each guest]
    #[arg(long, value_name = "READS")]
    reads: Option<u64>,
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
    let report = play(&plan, &stopped, args.json)?;
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        out.write_all(report.render().as_bytes())?;
    }
    Ok(())
}

fn plan(args: &Args) -> Result<GuestsPlan, Failure> {
    let image_blocks = blocks("image", &args.image)?;
    let reads = args.reads.unwrap_or((image_blocks * 2 / 5).max(1));
    if reads == 0 {
        return Err(Failure::usage("--reads 0 leaves nothing to count"));
    }
    let plan = GuestsPlan {
        ways: args.ways.clone(),
        kernel: args.kernel,
        transport: args.disk,
        choice: args.choice.clone(),
        image_blocks,
        lower_blocks: blocks("lower", &args.lower)? as u32,
        seed: args.seed,
        warmup: args.warmup.unwrap_or(image_blocks * 2),
        reads,
    };
    match plan.workload().parse::<WorkloadSpec>() {
        Ok(_) => Ok(plan),
        Err(error) => Err(Failure::usage(format!("--choice {}: {error}", args.choice))),
    }
}

/// The blocks of a size that an option gives.
fn blocks(what: &str, text: &str) -> Result<u64, Failure> {
    let size: Size = text.parse().map_err(Failure::usage)?;
    let blocks = size.blocks(BLOCK_BYTES).map_err(Failure::usage)?;
    if blocks == 0 || blocks >= u64::from(u32::MAX) {
        return Err(Failure::usage(format!(
            "--{what} {text} is not between 1 and 2^32 blocks"
        )));
    }
    Ok(blocks)
}

fn kernel(version: &str) -> Result<Kernel, String> {
    match version {
        "6.1" => Ok(Kernel::Debian61),
        "6.12" => Ok(Kernel::Debian612),
        other => Err(format!("no guest has Linux {other}: 6.1 or 6.12")),
    }
}
