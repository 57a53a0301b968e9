//! `futae-lab inference`: how much of a told cache's gain one has that infers what the cache above evicts.

use clap::builder::ValueParser;
use futae_policy::{
    Access, AccessKind, BlockId, HashIndex, Kind, Level, Outcome, PolicySpec, RegisteredPolicy,
    Shape,
};
use futae_sim::LevelSpecError;
use futae_terminal::failure::Failure;
use futae_terminal::output::output;
use futae_trace::WorkloadSpec;
use serde::Serialize;
use serde_json::json;
use std::io::Write;

/// Compare policies that infer evictions with one that gets reports of them
///
/// Each line is a policy of the lower cache under a workload. Its gain is that of the combined hit
/// ratio over an LRU without reports, as a share of the gain of `exclusive` with reports of all
/// evictions. Loads are blocks that the policy read from the store on its own; wrong ones were
/// still in the cache above.
#[derive(clap::Args)]
pub struct Args {
    /// Workloads
    #[arg(long = "workload", value_name = "WORKLOAD", num_args = 1.., default_values = WORKLOADS, value_parser = ValueParser::new(str::parse::<WorkloadSpec>))]
    workloads: Vec<WorkloadSpec>,
    /// Policies of the lower cache
    #[arg(long = "policy", value_name = "POLICY", num_args = 1.., default_values = POLICIES)]
    policies: Vec<PolicySpec>,
    /// Policies of the cache above
    #[arg(long, value_name = "POLICY", num_args = 1.., default_value = "lru")]
    above: Vec<PolicySpec>,
    /// Size of each of the two caches, percent of the workload's blocks
    #[arg(
        long,
        value_name = "PERCENT,...",
        value_delimiter = ',',
        default_value = "10,30",
        value_parser = clap::value_parser!(u32).range(1..=100)
    )]
    sizes: Vec<u32>,
    /// Requests before counting begins, and requests that are counted, as a multiple of the blocks
    #[arg(long, value_name = "PASSES", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    passes: u64,
    /// Seed of all randomness
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const WORKLOADS: [&str; 4] = [
    "uniform:64MiB",
    "zipf(0.8):64MiB",
    "zipf(1.0):64MiB",
    "zipf(1.1):64MiB",
];
const POLICIES: [&str; 3] = [
    Kind::inferred.name(),
    Kind::mru.name(),
    Kind::lfu_history.name(),
];
const BLOCK_BYTES: u64 = 4096;

type Cache = Level<Box<dyn RegisteredPolicy>, HashIndex>;

/// What two caches came to, per request.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Counted {
    combined_hit_ratio: f64,
    /// Requests that the store served.
    demand_reads: f64,
    /// Blocks that the policy asked for by itself.
    loads: f64,
    /// Of those, blocks that the cache above held.
    wrong_share: Option<f64>,
}

#[derive(Serialize)]
struct Row {
    workload: String,
    above: String,
    size_percent: u32,
    policy: String,
    counted: Counted,
    /// None where the one that is told gains nothing.
    gain_share: Option<f64>,
}

/// What was gained, as a share of the most.
fn share_of(gained: f64, most: f64) -> Option<f64> {
    (most != 0.0).then(|| gained / most)
}

/// Prints the table.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for workload in &args.workloads {
        for above in &args.above {
            for &size in &args.sizes {
                let of = |policy: &PolicySpec, is_told| {
                    simulate(workload, above, policy, is_told, size, args)
                };
                let alone = of(&PolicySpec::of(Kind::lru), false)?;
                let told = of(&PolicySpec::of(Kind::exclusive), true)?;
                let gained = |it: &Counted| it.combined_hit_ratio - alone.combined_hit_ratio;
                let mut add = |policy: String, counted: Counted| {
                    rows.push(Row {
                        workload: workload.to_string(),
                        above: above.to_string(),
                        size_percent: size,
                        policy,
                        counted,
                        gain_share: share_of(gained(&counted), gained(&told)),
                    });
                };
                add(Kind::lru.name().to_owned(), alone);
                add(format!("{}, told", Kind::exclusive.name()), told);
                for policy in &args.policies {
                    add(policy.to_string(), of(policy, false)?);
                }
            }
        }
    }
    let mut out = output();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &json!({ "rows": rows }))?;
        writeln!(out)?;
        return Ok(());
    }
    writeln!(
        out,
        "workload | above | each % | below | hits % | gain % | demand reads % | loads % | wrong %"
    )?;
    writeln!(
        out,
        "--- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---:"
    )?;
    for row in &rows {
        let it = &row.counted;
        let percent = |share: f64| format!("{:.1}", 100.0 * share);
        let known = |share: Option<f64>| share.map_or_else(|| "–".to_owned(), percent);
        writeln!(
            out,
            "{} | {} | {} | {} | {} | {} | {} | {} | {}",
            row.workload,
            row.above,
            row.size_percent,
            row.policy,
            percent(it.combined_hit_ratio),
            known(row.gain_share),
            percent(it.demand_reads),
            percent(it.loads),
            known(it.wrong_share),
        )?;
    }
    Ok(())
}

fn cache(policy: &PolicySpec, slots: u32, seed: u64) -> Result<Cache, Failure> {
    let built = futae_policy::build(policy, &Shape { slots, seed }).map_err(Failure::usage)?;
    Ok(Level::new(built, HashIndex::default(), slots))
}

fn simulate(
    workload: &WorkloadSpec,
    above: &PolicySpec,
    below: &PolicySpec,
    is_told: bool,
    size: u32,
    args: &Args,
) -> Result<Counted, Failure> {
    let blocks = workload.blocks(BLOCK_BYTES)?;
    let slots = u128::from(blocks) * u128::from(size) / 100;
    let slots = u32::try_from(slots.max(1)).ok();
    let slots = slots.filter(|&slots| u64::from(slots) <= LevelSpecError::IDLE_BLOCKS_MAX);
    let slots = slots.ok_or_else(|| {
        let most = LevelSpecError::IDLE_BLOCKS_MAX;
        Failure::usage(format!(
            "--workload {workload}: {size} % of its {blocks} blocks are more than the {most} of a cache here; take a smaller one"
        ))
    })?;
    let mut upper = cache(above, slots, args.seed)?;
    let mut lower = cache(below, slots, args.seed)?;
    let mut requests = workload.generator(BLOCK_BYTES, args.seed)?;
    let all = args
        .passes
        .checked_mul(blocks)
        .and_then(|counted| counted.checked_mul(2));
    let all = all.ok_or_else(|| {
        let passes = args.passes;
        Failure::usage(format!("--passes {passes}: more than 2^64 requests"))
    })?;
    let counted = all / 2;
    let (mut missed, mut loads, mut wrong) = (0_u64, 0_u64, 0_u64);
    for number in 0..all {
        let counts = u64::from(number >= counted);
        let block = BlockId::on_first(requests.next_block().0);
        let read = Access::read(block);
        let evicted = match upper.access(&read) {
            Outcome::Hit(_) => continue,
            Outcome::Admitted { evicted, .. } => evicted,
            Outcome::Bypassed => None,
        };
        let is_hit = matches!(lower.access(&read), Outcome::Hit(_));
        missed += counts * u64::from(!is_hit);
        if let (true, Some(victim)) = (is_told, evicted) {
            lower.access(&Access::of(victim.block, AccessKind::Demotion));
        }
        while let Some(wanted) = lower.review() {
            loads += counts;
            wrong += counts * u64::from(upper.find(wanted).is_some());
            lower.access(&Access::of(wanted, AccessKind::Preload));
        }
    }
    let share = |count: u64| count as f64 / counted.max(1) as f64;
    Ok(Counted {
        combined_hit_ratio: 1.0 - share(missed),
        demand_reads: share(missed),
        loads: share(loads),
        wrong_share: (loads > 0).then(|| wrong as f64 / loads as f64),
    })
}

#[cfg(test)]
mod tests {
    use super::share_of;

    #[test]
    fn of_no_gain_there_is_no_share() {
        assert_eq!(share_of(0.1, 0.4), Some(0.25));
        assert_eq!((share_of(0.1, 0.0), share_of(0.0, 0.0)), (None, None));
    }
}
