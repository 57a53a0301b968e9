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
    /// Of a sample of the blocks, its requests for each one that would be expected; otherwise 1.
    pub excess: f64,
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
    let windows = windows.into_iter();
    let windows: Vec<Window> = windows
        .map(|window| balanced(window, settled.excess))
        .collect();
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
    // Windows have equally many requests of the guests, and not of those that come to the host.
    let host = |w: &Window| (w.counters[last].hits, w.counters[last].requests);
    let host: Vec<(u64, u64)> = windows.iter().map(host).collect();
    let host_requests: u64 = host.iter().map(|window| window.1).sum();
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
        host_hit_ratio: Estimate::of_counts(&host)
            .filter(|_| has_host)
            .map(|ratio| ratio.within(0.0, 1.0)),
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

/// A window with as many requests as its sample should have. Those that it lacks, or has too many, are for the most popular blocks,
/// which are in the sample or not, and nearly always hits: SHARDS-adj (Waldspurger and others, FAST 2015), as for sampled curves.
fn balanced(mut window: Window, excess: f64) -> Window {
    let lacking = window.requests() as f64 * (1.0 / excess - 1.0);
    let Some((served, counters)) = window.served.first_mut().zip(window.counters.first_mut())
    else {
        return window;
    };
    // There are no more hits to be taken away than were found.
    let more = lacking.round().max(-(served.reads as f64)) as i64;
    for count in [
        &mut served.reads,
        &mut counters.hits,
        &mut counters.requests,
    ] {
        *count = count.saturating_add_signed(more);
    }
    window
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

#[cfg(test)]
mod tests {
    use super::*;
    use futae_policy::Counters;
    use futae_sim::machine::Served;

    #[test]
    fn what_a_sample_lacks_are_hits_of_the_first_level() {
        let served = |reads, writes| Served {
            reads,
            writes,
            ..Served::default()
        };
        let window = Window {
            served: vec![served(60, 5), served(30, 5)],
            counters: vec![Counters {
                requests: 100,
                hits: 65,
                misses: 35,
                ..Counters::default()
            }],
            ..Window::default()
        };
        for (excess, requests, reads) in [
            (1.0, 100, 60),
            (0.5, 200, 160),
            (1.25, 80, 40),
            (10.0, 40, 0),
        ] {
            let found = balanced(window.clone(), excess);
            assert_eq!(
                (found.requests(), found.served[0].reads),
                (requests, reads),
                "{excess}"
            );
            assert_eq!(found.served[1], window.served[1], "{excess}");
            let counters = &found.counters[0];
            assert_eq!(counters.requests - counters.hits, 35, "{excess}");
            assert_eq!(counters.requests, requests, "{excess}");
        }
    }
}
