//! One choice, simulated.

use super::choices::Plan;
use crate::command::forecast::Choice;
use futae_sim::SimulationError;
use futae_sim::forecast::{Estimate, WINDOWS};
use futae_sim::run::{Amount, Latency, Requests, TraceSimulation, Window};

/// How each choice is simulated.
pub struct Settled {
    pub amount: Amount,
    pub block_bytes: u64,
    pub seed: u64,
}

/// What comes of a choice.
pub fn weigh(
    requests: &Requests<'_>,
    plan: &Plan,
    settled: &Settled,
    latency: &Latency,
    progress: &mut dyn FnMut(f64),
) -> Result<Choice, SimulationError> {
    let spec = TraceSimulation {
        levels: plan.levels.clone(),
        links: plan.links.clone(),
        write_mode: plan.write_mode,
        seed: settled.seed,
        warmup_requests: settled.amount.warmup,
        requests: Some(settled.amount.requests),
    };
    let windows = requests.in_windows(&spec, settled.block_bytes, WINDOWS, progress)?;
    let figure = |of: &dyn Fn(&Window) -> f64| -> Vec<f64> { windows.iter().map(of).collect() };
    let per_request =
        |of: fn(&Window) -> u64| estimate(&figure(&|w| of(w) as f64 / w.requests() as f64));
    let missed = |w: &Window| w.served.last().map_or(0, |at| at.reads + at.writes);
    let hits = figure(&|w| 1.0 - missed(w) as f64 / w.requests() as f64);
    let seconds = figure(&|w| {
        let times = latency.access_times(&w.served, &w.writes_taken);
        times.mean_access_seconds.unwrap_or(0.0)
    });
    let last = plan.levels.len() - 1;
    let host = |w: &Window| w.counters[last].requests;
    let host_requests: u64 = windows.iter().map(host).sum();
    let host_ratios: Option<Vec<f64>> = windows
        .iter()
        .map(|w| w.counters[last].hit_ratio())
        .collect();
    let has_host = plan.host_policy.is_some();
    let writes: u64 = windows
        .iter()
        .flat_map(|w| &w.served)
        .map(|at| at.writes)
        .sum();
    Ok(Choice {
        levels: plan.levels.iter().map(ToString::to_string).collect(),
        links: plan.links.clone(),
        write_mode: plan.write_mode,
        guest_bytes: plan.guest_bytes,
        host_bytes: plan.host_bytes,
        host_policy: plan.host_policy.clone(),
        hit_ratio: estimate(&hits).within(0.0, 1.0),
        host_hit_ratio: host_ratios
            .filter(|_| has_host)
            .map(|ratios| estimate(&ratios).within(0.0, 1.0)),
        host_requests: if has_host { host_requests } else { 0 },
        host_write_share: if host_requests > 0 {
            writes as f64 / host_requests as f64
        } else {
            0.0
        },
        store_reads_per_request: per_request(|w| w.store_reads).within(0.0, f64::MAX),
        store_writes_per_request: per_request(|w| w.store_writes).within(0.0, f64::MAX),
        mean_access_seconds: estimate(&seconds).within(0.0, f64::MAX),
        window_seconds: seconds,
    })
}

/// There are always [`WINDOWS`] windows, and none without requests.
fn estimate(figures: &[f64]) -> Estimate {
    let mean = figures.iter().sum::<f64>() / figures.len().max(1) as f64;
    Estimate::of(figures).unwrap_or(Estimate {
        mean,
        low: mean,
        high: mean,
        window_deviation: 0.0,
        windows: 1,
        part_deviation: None,
    })
}
