//! All servers in turns: every load on every server, round after round, each round starting with
//! another server, so that what else the machine does falls on all alike.

use crate::load::{self, Load, Order};
use crate::process::own_cpu_seconds;
use crate::servers::Hot;
use std::time::Duration;

/// What is asked of every server.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Loads, by the headings of their columns.
    pub loads: Vec<(String, Load)>,
    /// How often.
    pub rounds: usize,
}

impl Plan {
    /// Random reads at each depth, and sequential ones of another size.
    #[must_use]
    pub fn new(
        depths: &[usize],
        block_bytes: u32,
        sequential: Option<(u32, usize)>,
        duration: Duration,
        rounds: usize,
    ) -> Self {
        let load = |order, request_bytes, depth| Load {
            order,
            request_bytes,
            depth,
            connections: 1,
            duration,
            verify: false,
            seed: 1,
        };
        let random = |&depth: &usize| {
            let name = format!("{} KiB random, depth {depth}", block_bytes >> 10);
            (name, load(Order::Random, block_bytes, depth))
        };
        let mut loads: Vec<_> = depths.iter().map(random).collect();
        if let Some((bytes, depth)) = sequential {
            let name = format!("{} KiB sequential, depth {depth}", bytes >> 10);
            loads.push((name, load(Order::Sequential, bytes, depth)));
        }
        Self { loads, rounds }
    }
}

/// One load on one server in one round.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Replies a second.
    pub per_second: f64,
    /// Mean latency in nanoseconds.
    pub mean_ns: f64,
    /// 99 of 100 replies came within this many nanoseconds.
    pub p99_ns: f64,
    /// Processor seconds of the server for a reply.
    pub server_cpu: f64,
    /// Processor seconds of the client for a reply.
    pub client_cpu: f64,
}

/// Samples by load, server and round.
pub type Samples = Vec<Vec<Vec<Sample>>>;

/// Runs every load on every server, in turns; `progress` is told how far it is.
pub fn run(
    plan: &Plan,
    servers: &[Hot],
    progress: &mut dyn FnMut(usize),
) -> anyhow::Result<Samples> {
    let mut samples = vec![vec![Vec::with_capacity(plan.rounds); servers.len()]; plan.loads.len()];
    for round in 0..plan.rounds {
        progress(round);
        for (at, (_, load)) in plan.loads.iter().enumerate() {
            for turn in 0..servers.len() {
                let which = (turn + round) % servers.len();
                let seed = load.seed + round as u64;
                let sample = sample(&servers[which], &Load { seed, ..*load })?;
                samples[at][which].push(sample);
            }
        }
    }
    Ok(samples)
}

fn sample(server: &Hot, load: &Load) -> anyhow::Result<Sample> {
    let cpu = || [server.running.cpu_seconds(), own_cpu_seconds()];
    let before = cpu();
    let measured = load::run(&server.uri, load)?;
    let after = cpu();
    // Warming up took processor time, too.
    let replies = measured.replies as f64 * (1.0 + load::WARM_UP_PART);
    Ok(Sample {
        per_second: measured.per_second(),
        mean_ns: measured.latency.mean_ns(),
        p99_ns: measured.latency.quantile_ns(0.99) as f64,
        server_cpu: (after[0] - before[0]) / replies,
        client_cpu: (after[1] - before[1]) / replies,
    })
}
