//! `nbd-hot`: how fast an NBD server answers reads, at each of several queue depths.

use anyhow::Context;
use clap::Parser;
use futae_bench::client;
use futae_bench::load::{self, Load, Measured, Order};
use futae_bench::process::own_cpu_seconds;
use futae_nbd::NbdUri;
use futae_units::parse_block_bytes;
use serde_json::json;
use std::time::Duration;

/// Read from an NBD export at fixed queue depths and say how fast it was
#[derive(Parser)]
struct Args {
    /// nbd+unix:///EXPORT?socket=PATH or nbd://HOST/EXPORT
    uri: NbdUri,
    /// Reads under way on each connection
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64])]
    depth: Vec<usize>,
    /// Seconds for each depth
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Bytes of a random read
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = request_bytes)]
    block: u32,
    /// Read in order instead, this much at a time
    #[arg(long, value_name = "SIZE", value_parser = request_bytes)]
    sequential: Option<u32>,
    /// Connections at once
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Read everything once before measuring
    #[arg(long)]
    warm: bool,
    /// Check every byte against the benchmark's pattern
    #[arg(long)]
    verify: bool,
    /// Write the benchmark's pattern over the export first. What it held is lost
    #[arg(long)]
    fill: bool,
    /// Seed of the random order
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON, a line for each depth
    #[arg(long)]
    json: bool,
}

fn request_bytes(text: &str) -> anyhow::Result<u32> {
    let bytes = parse_block_bytes(text, 512, u64::from(client::REQUEST_BYTES_MAX))?;
    Ok(bytes as u32)
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let duration = Duration::try_from_secs_f64(args.seconds).context("--seconds")?;
    if args.fill {
        client::fill(&args.uri).context("filling the export")?;
    }
    let (order, bytes) = match args.sequential {
        Some(bytes) => (Order::Sequential, bytes),
        None => (Order::Random, args.block),
    };
    if args.warm {
        load::read_all(&args.uri, 128 << 10, args.verify).context("reading everything once")?;
    }
    if !args.json {
        println!("depth  thousand/s     GB/s  mean µs   p99 µs  client CPU µs a reply");
    }
    for &depth in &args.depth {
        let before = own_cpu_seconds();
        let load = Load {
            order,
            request_bytes: bytes,
            depth,
            connections: args.connections,
            duration,
            verify: args.verify,
            seed: args.seed,
        };
        let measured = load::run(&args.uri, &load)?;
        let cpu_us = (own_cpu_seconds() - before) * 1e6 / measured.replies.max(1) as f64;
        show(&args, depth, bytes, &measured, cpu_us);
    }
    Ok(())
}

fn show(args: &Args, depth: usize, bytes: u32, measured: &Measured, cpu_us: f64) {
    let thousand = measured.per_second() / 1e3;
    let gigabytes = measured.bytes_per_second() / 1e9;
    let mean_us = measured.latency.mean_ns() / 1e3;
    let p99_us = measured.latency.quantile_ns(0.99) as f64 / 1e3;
    if args.json {
        let line = json!({
            "depth": depth,
            "connections": args.connections,
            "request_bytes": bytes,
            "order": if args.sequential.is_some() { "sequential" } else { "random" },
            "replies": measured.replies,
            "seconds": measured.seconds,
            "thousand_per_second": thousand,
            "gigabytes_per_second": gigabytes,
            "mean_us": mean_us,
            "p99_us": p99_us,
            "client_cpu_us": cpu_us,
        });
        println!("{line}");
    } else {
        println!(
            "{depth:>5}  {thousand:>10.1}  {gigabytes:>7.3}  {mean_us:>7.1}  {p99_us:>7.1}  {cpu_us:>6.2}"
        );
    }
}
