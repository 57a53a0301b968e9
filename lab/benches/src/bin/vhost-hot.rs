//! `vhost-hot`: how fast a vhost-user-blk device answers reads, at each of several queue depths.

use anyhow::{Context, ensure};
use clap::Parser;
use futae_bench::ring::{DEPTH_MAX, Ring, SECTOR};
use futae_units::Size;
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Read from a vhost-user-blk device at random, at fixed queue depths, and say how fast it was
#[derive(Parser)]
struct Args {
    /// The device's unix socket
    #[arg(required_unless_present = "floor")]
    socket: Option<PathBuf>,
    /// In place of a device, measure the least that any must do: a thread of this program that copies each answer out
    /// of so much memory
    #[arg(long, value_name = "SIZE", conflicts_with = "socket")]
    floor: Option<Size>,
    /// Reads under way; at most 85
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64])]
    depth: Vec<usize>,
    /// Seconds for each depth
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Bytes of a read
    #[arg(long, default_value_t = 4096)]
    bytes: u64,
    /// Read everything once before measuring
    #[arg(long)]
    warm: bool,
    /// Seed of the random order
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON, a line for each depth
    #[arg(long)]
    json: bool,
}

/// How often the clock is looked at, in rounds of polling.
const LOOK_ROUNDS: u32 = 256;
/// How long the device may answer nothing.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let duration = Duration::try_from_secs_f64(args.seconds).context("--seconds")?;
    let mut ring = match (&args.socket, args.floor) {
        (Some(socket), _) => Ring::connect(socket, args.bytes)?,
        (None, floor) => Ring::with_floor(
            args.bytes,
            floor.context("SOCKET or --floor")?.bytes(SECTOR)?,
        )?,
    };
    ring.enable()?;
    let blocks = ring.size_bytes / args.bytes;
    if args.warm {
        let mut next = 0..blocks;
        run(&mut ring, 16, Duration::MAX, || {
            next.next().map(|block| block * args.bytes)
        })?;
    }
    if !args.json {
        println!("depth  thousand/s");
    }
    for &depth in &args.depth {
        ensure!(
            (1..=DEPTH_MAX).contains(&depth),
            "--depth {depth}: 1 to {DEPTH_MAX}"
        );
        let mut state = args.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let draw = || {
            // xorshift64*
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            let number = state.wrapping_mul(0x2545_F491_4F6C_DD1D);
            let block = (u128::from(number) * u128::from(blocks)) >> 64;
            Some(block as u64 * args.bytes)
        };
        let (replies, seconds) = run(&mut ring, depth, duration, draw)?;
        let thousand = replies as f64 / seconds / 1e3;
        if args.json {
            let line = json!({
                "depth": depth,
                "request_bytes": args.bytes,
                "replies": replies,
                "seconds": seconds,
                "thousand_per_second": thousand,
            });
            println!("{line}");
        } else {
            println!("{depth:>5}  {thousand:>10.1}");
        }
    }
    Ok(())
}

/// Keeps `depth` reads under way for a time, or until there is none left; how many were answered, in how many
/// seconds.
fn run(
    ring: &mut Ring,
    depth: usize,
    duration: Duration,
    mut next: impl FnMut() -> Option<u64>,
) -> anyhow::Result<(u64, f64)> {
    let begin = Instant::now();
    let (mut under_way, mut replies, mut rounds) = (0usize, 0u64, 0u32);
    let (mut is_over, mut last) = (false, begin);
    for at in 0..depth as u16 {
        if let Some(offset) = next() {
            ring.ask(at, offset)?;
            under_way += 1;
        }
    }
    ring.publish()?;
    while under_way > 0 {
        let mut asked = false;
        while let Some(at) = ring.answered()? {
            replies += 1;
            under_way -= 1;
            if let Some(offset) = next().filter(|_| !is_over) {
                ring.ask(at, offset)?;
                under_way += 1;
                asked = true;
            }
        }
        if asked {
            ring.publish()?;
        } else {
            std::hint::spin_loop();
        }
        rounds = rounds.wrapping_add(1);
        if asked {
            last = begin;
        }
        if rounds.is_multiple_of(LOOK_ROUNDS) {
            let now = Instant::now();
            is_over |= now - begin >= duration;
            if last == begin {
                last = now;
            }
            ensure!(now - last < PATIENCE, "the device answers nothing any more");
        }
    }
    Ok((replies, begin.elapsed().as_secs_f64()))
}
