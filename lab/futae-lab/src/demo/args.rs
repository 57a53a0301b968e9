//! What is typed, and how large everything is by it.

use super::plan::{BLOCK_BYTES, GuestsPlan};
use super::way::{Transport, Way};
use futae_machine::Kernel;
use futae_terminal::failure::Failure;
use futae_units::{Size, parse_duration};
use std::time::Duration;

/// More than that and the guests' kernels begin to complain.
const LATENCY_MAX: Duration = Duration::from_secs(1);

/// Two guests in QEMU above the host's memory, used in several ways: `futae demo --guests`
///
/// Each combination of the given kernels, choices, store latencies and disks runs in each way, one after the other.
#[derive(clap::Args)]
pub struct Args {
    /// As `futae demo` has it; there is no other demonstration here
    #[arg(long, hide = true)]
    guests: bool,
    /// The ways to run: QEMU's cache=none and cache=writeback, futae with LRU, futae exclusive, and the guests with the
    /// memory of the lower cache themselves
    #[arg(long, value_name = "WAY,...", value_delimiter = ',', default_values_t = Way::ALL)]
    ways: Vec<Way>,
    /// Linux in the guests: 6.1 or 6.12 [default: 6.1, or 6.12 where Debian has no other]
    #[arg(long, value_name = "VERSION,...", value_delimiter = ',', value_parser = kernel)]
    kernel: Vec<Kernel>,
    /// How the guests reach the disks that futae serves
    #[arg(long, value_name = "HOW,...", value_delimiter = ',', default_values_t = [Transport::Nbd])]
    disk: Vec<Transport>,
    /// How the next block is chosen: uniform, zipf(EXPONENT), normal(SIGMA), loop; can be given several times
    #[arg(long, value_name = "CHOICE", default_value = "uniform")]
    choice: Vec<String>,
    /// The share of writes among the operations, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    writes: f64,
    /// The guests read and write a file on ext4 instead of the device
    #[arg(long)]
    files: bool,
    /// Latency that nbdkit adds to each operation of the store, such as 5ms or 200us
    #[arg(
        long,
        value_name = "TIME,...",
        value_delimiter = ',',
        default_value = "0"
    )]
    store_latency: Vec<String>,
    /// Size of each guest's disk image
    #[arg(long, value_name = "SIZE", default_value = "160MiB")]
    image: String,
    /// Size of the lower cache
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    lower: String,
    /// Operations before counting begins [default: twice the blocks of the image, in each guest]
    #[arg(long, value_name = "READS")]
    warmup: Option<u64>,
    /// Operations that are counted [default: 0.4 times the blocks of the image, in each guest]
    #[arg(long, value_name = "READS")]
    reads: Option<u64>,
    /// Seed of all randomness
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// What is to be run, in this order.
pub(super) fn plans(args: &Args) -> Result<Vec<GuestsPlan>, Failure> {
    let image_blocks = blocks("image", &args.image)?;
    let reads = args.reads.unwrap_or((image_blocks * 2 / 5).max(1));
    if reads == 0 {
        return Err(Failure::usage("--reads 0 leaves nothing to count"));
    }
    let lower_blocks = blocks("lower", &args.lower)? as u32;
    let latencies = args.store_latency.iter().map(|text| latency(text));
    let latencies = latencies.collect::<Result<Vec<_>, _>>()?;
    let kernels = match args.kernel.as_slice() {
        [] => vec![None],
        some => some.iter().copied().map(Some).collect(),
    };
    let mut plans = Vec::new();
    for kernel in kernels {
        for choice in &args.choice {
            for &store_latency in &latencies {
                plans.extend(args.disk.iter().map(|&transport| GuestsPlan {
                    ways: args.ways.clone(),
                    kernel,
                    transport,
                    choice: choice.clone(),
                    image_blocks,
                    lower_blocks,
                    seed: args.seed,
                    warmup: args.warmup.unwrap_or(image_blocks * 2),
                    reads,
                    writes: args.writes,
                    files: args.files,
                    store_latency,
                }));
            }
        }
    }
    plans.iter().try_for_each(GuestsPlan::check)?;
    Ok(plans)
}

/// A time, or none at all.
fn latency(text: &str) -> Result<Duration, Failure> {
    if text.trim_end_matches(char::is_alphabetic) == "0" {
        return Ok(Duration::ZERO);
    }
    let time = parse_duration(text);
    let time = time.map_err(|error| Failure::usage(format!("--store-latency {error}")))?;
    let is_whole = time.subsec_nanos().is_multiple_of(1000);
    if !is_whole || time > LATENCY_MAX {
        let message = format!(
            "--store-latency {text}: whole microseconds, by which nbdkit delays, and at most a second"
        );
        return Err(Failure::usage(message));
    }
    Ok(time)
}

/// The blocks of a size that an option gives.
pub fn blocks(what: &str, text: &str) -> Result<u64, Failure> {
    let size: Size = text.parse().map_err(Failure::usage)?;
    let blocks = size.blocks(BLOCK_BYTES).map_err(Failure::usage)?;
    if blocks == 0 || blocks >= u64::from(u32::MAX) {
        return Err(Failure::usage(format!(
            "--{what} {text} is not between 1 and 2^32 blocks"
        )));
    }
    Ok(blocks)
}

/// A kernel by its version.
pub fn kernel(version: &str) -> Result<Kernel, String> {
    match version {
        "6.1" => Ok(Kernel::Debian61),
        "6.12" => Ok(Kernel::Debian612),
        other => Err(format!("no guest has Linux {other}: 6.1 or 6.12")),
    }
}
