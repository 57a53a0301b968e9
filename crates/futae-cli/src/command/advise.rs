//! `futae advise`: how to divide memory between guests and host, and under which policy, from a trace.

mod apply;
mod choices;
mod reason;
mod render;
mod weigh;

use super::forecast::{Forecast, Place, model};
use super::record::Facts;
use super::source_args::SourceName;
use super::trace_args::{TraceArgs, ViewArgs, say_doubts, say_skipped};
use super::verify::judge::NOT_SIMULATED;
use crate::save::{Output, print};
use choices::Memory;
use futae_policy::{Kind, PolicySpec};
use futae_sim::WriteMode;
use futae_sim::forecast::WINDOWS;
use futae_sim::run::{Amount, Latency, Neighbours, Reading, Requests, Traces, in_parallel};
use futae_terminal::failure::Failure;
use futae_terminal::progress::Progress;
use futae_trace::WorkloadSpec;
use futae_units::Size;
use std::path::PathBuf;

/// What a request takes where nothing else is said: memory, a host's cache over a socket, and an SSD.
const LATENCY_DEFAULT: &str = "upper=1us,lower=10us,link=30us,store=300us";

/// Advise how to divide memory between guests and host, and which policy to use
///
/// Simulates choices of memory and policies under a trace or a workload, and recommends the best.
/// Each figure has the bounds within which 95 of 100 runs of this length are expected under the
/// same load. A recording by futae record was made at the host, where only the host's cache can be
/// chosen. The requests of any other trace are taken as those of programs in the guest.
#[derive(clap::Args)]
pub struct Args {
    /// The requests, one source for each guest: a trace file or its URL, or a workload, e.g.
    /// zipf(1.0):10GiB
    #[arg(value_name = "TRACE|WORKLOAD", required = true)]
    sources: Vec<SourceName>,
    /// Total memory to divide; for a trace made at the host, the memory of the host's cache
    #[arg(long)]
    memory: Size,
    /// Where the requests were made [default: host for a recording by futae record, otherwise guest]
    #[arg(long, value_enum)]
    at: Option<Place>,
    /// Memory of each guest's own cache, if it is fixed; all of --memory is then the host's
    #[arg(long, value_name = "SIZE")]
    guest_memory: Option<Size>,
    /// Replacement policy of a guest's own cache: linux (active and inactive lists), mglru
    /// (multi-generational LRU), lru, or any policy
    #[arg(long, value_name = "POLICY", default_value_t = PolicySpec::of(Kind::linux))]
    guest_cache: PolicySpec,
    /// A server's control socket: take the replacement policy of the guests' caches from the
    /// reports of its agents
    #[arg(long, value_name = "CONTROL", conflicts_with = "guest_cache")]
    agents: Option<String>,
    /// Policies for the host's cache, separated by commas [default: those that suit the place]
    #[arg(long, value_name = "POLICY,...")]
    policies: Option<String>,
    /// What a request takes [default: upper=1us,lower=10us,link=30us,store=300us; for a recording
    /// by futae record, the recorded latency of the store]
    #[arg(long, value_name = "PLACE=TIME,...")]
    latency: Option<Latency>,
    /// Requests before counting begins [default: a quarter of a trace, 5 times the blocks of a workload that repeats]
    #[arg(long, value_name = "REQUESTS")]
    warmup: Option<u64>,
    /// Requests that are counted [default: all that are left, or 5 times the blocks of a workload that repeats]
    #[arg(long)]
    requests: Option<u64>,
    /// Seed of all randomness
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    view: ViewArgs,
    /// Threads [default: one for each processor]
    #[arg(long)]
    threads: Option<usize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write the forecast to FILE, for futae verify
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Write the advised cache and policy into FILE, a configuration of futae serve. Its other
    /// settings stay
    #[arg(long, value_name = "FILE.toml")]
    apply: Option<PathBuf>,
}

/// What is asked for.
enum Source {
    Traces(Box<Traces>),
    Workloads(Vec<WorkloadSpec>),
}

/// Simulates, prints and writes.
pub fn run(args: &Args) -> Result<(), Failure> {
    let output = |path: &PathBuf| Output::new(path);
    let saved = args.save.as_ref().map(output).transpose()?;
    let block_bytes = args.trace.block_bytes()?;
    let target = |path: &PathBuf| apply::Target::new(path, block_bytes);
    let applied = args.apply.as_ref().map(target).transpose()?;
    let facts = facts(args)?;
    let at = args.at.unwrap_or(match facts {
        Some(_) => Place::Host,
        None => Place::Guest,
    });
    let guest_cache = guest_cache(args)?;
    let neighbours = match at {
        // It is the first level of all choices.
        Place::Guest => Neighbours::of_policy(&guest_cache),
        // What guests read ahead is among the requests.
        Place::Host => Neighbours::Unused,
    };
    let source = open(args, neighbours)?;
    let forecast = forecast(args, &source, facts.as_ref(), (at, &guest_cache))?;
    if let Some(file) = saved {
        file.write(format!("{}\n", serde_json::to_string_pretty(&forecast)?).as_bytes())?;
    }
    if let Some(target) = applied {
        target.write(forecast.advised())?;
    }
    print(&if args.json {
        format!("{}\n", serde_json::to_string_pretty(&forecast)?)
    } else {
        render::render(&forecast)
    })
}

/// The facts of a recording, if it is one; all of several must be.
fn facts(args: &Args) -> Result<Option<Facts>, Failure> {
    let all = args
        .sources
        .iter()
        .map(|source| Facts::beside(source.path()));
    let all: Vec<_> = all
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .flatten()
        .collect();
    let samples = all.windows(2).any(|two| two[0].sample != two[1].sample);
    if samples || !all.is_empty() && all.len() != args.sources.len() {
        return Err(Failure::usage(
            "either all sources are recordings with the same sample, or none is",
        ));
    }
    // Else the forecast is of caches with more or fewer blocks than the one that is asked, and of other requests.
    let asked = args.trace.block_bytes()?;
    if let Some(facts) = all.iter().find(|facts| facts.block_bytes != asked) {
        let (recorded, asked) = (Size::Bytes(facts.block_bytes), Size::Bytes(asked));
        return Err(Failure::usage(format!(
            "the cache that was recorded has blocks of {recorded}, and the forecast would be of blocks of {asked}: give \
             --block {recorded}"
        )));
    }
    if let Some(lost) = all.iter().find(|facts| facts.lost > facts.requests / 100) {
        eprintln!(
            "futae: warning: {} of {} requests are missing in the recording, so hits may be too few; record a --sample",
            lost.lost,
            lost.lost + lost.requests
        );
    }
    all.iter().for_each(warn_of_what_is_not_simulated);
    let together = |mut all: Facts, mut one: Facts| {
        all.add(&mut one);
        all
    };
    Ok(all.into_iter().reduce(together))
}

/// Warns of requests that the simulation does not have as they are.
fn warn_of_what_is_not_simulated(facts: &Facts) {
    let (in_part, dropped) = (facts.write_around_blocks, facts.dropped_blocks);
    let all = facts.cache_requests + in_part;
    let is_much = |blocks: u64| blocks as f64 > NOT_SIMULATED * all as f64;
    if is_much(in_part) {
        eprintln!(
            "futae: warning: {in_part} of {all} blocks were written in part and not cached. The simulation takes such a write for one \
             of the whole block, so the hit ratio of a server will be another one; a recording of a cache with smaller blocks \
             (--block) has fewer of them"
        );
    }
    if is_much(dropped) {
        eprintln!(
            "futae: warning: TRIM, WRITE_ZEROES or failed requests dropped {dropped} blocks. A trace has no such requests, so hits may \
             be too many"
        );
    }
}

/// How guests replace: as was said, or as the agents of a server report.
fn guest_cache(args: &Args) -> Result<PolicySpec, Failure> {
    let Some(control) = &args.agents else {
        return Ok(args.guest_cache.clone());
    };
    let guests = super::record::Source::new(control, None).guests()?;
    let Some((first, cache)) = guests.first() else {
        return Err(Failure::Failed(anyhow::anyhow!(
            "{control}: no agent has said how its guest's kernel replaces pages; say it with --guest-cache"
        )));
    };
    let block_bytes = args.trace.block_bytes()?;
    let policy = model(cache, block_bytes);
    let models = guests
        .iter()
        .map(|(guest, cache)| (guest, model(cache, block_bytes)));
    if let Some((guest, other)) = models.into_iter().find(|(_, other)| *other != policy) {
        return Err(Failure::Failed(anyhow::anyhow!(
            "{control}: the page cache of guest {first} is {policy}, and that of guest {guest} is {other}; choose one by --guest-cache"
        )));
    }
    Ok(policy)
}

fn open(args: &Args, neighbours: Neighbours) -> Result<Source, Failure> {
    let files = args
        .sources
        .iter()
        .filter(|source| source.is_trace())
        .count();
    if files == 0 {
        let parsed = args.sources.iter().map(|source| {
            let parsed = source.text().parse::<WorkloadSpec>();
            parsed.map_err(|error| {
                Failure::usage(format!("{source} is no file, and no workload: {error}"))
            })
        });
        args.trace.refuse()?;
        args.view.refuse()?;
        return Ok(Source::Workloads(parsed.collect::<Result<_, _>>()?));
    }
    if files < args.sources.len() {
        return Err(Failure::usage(
            "either all guests have traces, or all have workloads",
        ));
    }
    let paths: Vec<PathBuf> = args.sources.iter().map(|it| it.path().into()).collect();
    let (options, view) = (args.trace.options()?, args.view.choice()?);
    let progress = Progress::new("reading", args.json);
    let reading = Reading {
        options: vec![options; paths.len()],
        view,
        neighbours,
        ..Reading::default()
    };
    let traces = Traces::read_guests(&paths, &reading, &mut |done| progress.set(done));
    let traces = traces.map_err(super::sim::failure)?;
    say_skipped(traces.facts().records_skipped);
    say_doubts(&traces.facts().doubts);
    Ok(Source::Traces(Box::new(traces)))
}

fn forecast(
    args: &Args,
    source: &Source,
    facts: Option<&Facts>,
    (at, guest_cache): (Place, &PolicySpec),
) -> Result<Forecast, Failure> {
    let block_bytes = args.trace.block_bytes()?;
    let requests = match source {
        Source::Traces(traces) => Requests::Traces(traces),
        Source::Workloads(workloads) => Requests::Workloads {
            workloads,
            block_bytes,
            seed: args.seed,
        },
    };
    let sample = facts.map_or(1.0, |facts| facts.sample);
    let memory = Memory {
        bytes: args.memory.bytes(block_bytes).map_err(Failure::usage)?,
        block_bytes,
        guests: args.sources.len() as u32,
        sample,
    };
    let guest_bytes = args
        .guest_memory
        .map(|size| size.bytes(block_bytes))
        .transpose();
    let guest = choices::Guest {
        policy: guest_cache,
        bytes: guest_bytes.map_err(Failure::usage)?,
    };
    let plans = choices::choices(at, &memory, &guest, args.policies.as_deref())?;
    let usual: Latency = LATENCY_DEFAULT.parse().map_err(Failure::usage)?;
    let measured = facts.and_then(|facts| facts.store_read_micros);
    let latency = match (args.latency, measured) {
        (Some(given), _) => given,
        // What the store of the recording took says more than what stores usually take.
        (None, Some(micros)) => Latency {
            store: micros / 1e6,
            ..usual
        },
        (None, None) => usual,
    };
    let windows = u64::from(WINDOWS);
    let amount = requests.amount(args.warmup, args.requests, windows);
    let amount = amount.map_err(super::sim::failure)?;
    let settled = weigh::Settled {
        amount: Amount {
            requests: amount.requests / windows * windows,
            ..amount
        },
        block_bytes,
        seed: args.seed,
        excess: facts.map_or(1.0, Facts::excess),
    };
    // So many are left of a window by `weigh`, and of none there are no ratios.
    let of_window = settled.amount.requests / windows;
    if (of_window as f64) < settled.excess {
        return Err(Failure::usage(format!(
            "the sample has {} requests to count, which is too few: its blocks are requested {:.0} times as often as others; record for \
             longer, or a larger --sample",
            settled.amount.requests, settled.excess
        )));
    }
    let progress = Progress::new("simulating", args.json);
    let threads = args
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let options = in_parallel(
        plans.len(),
        threads,
        &|done| progress.set(done),
        |at, progress| weigh::weigh(&requests, &plans[at], &settled, &latency, progress),
    );
    let mut options = options
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .map_err(super::sim::failure)?;
    drop(progress);
    let mut best = reason::best(&options);
    // Guests keep their own writes back in any case, so the mode is up for choice only below them.
    if at == Place::Host && options[best].host_write_share > 0.0 {
        let plan = choices::Plan {
            write_mode: WriteMode::WriteBack,
            ..plans[best].clone()
        };
        let choice = weigh::weigh(&requests, &plan, &settled, &latency, &mut |_| {});
        options.push(choice.map_err(super::sim::failure)?);
        best = reason::best(&options);
    }
    Ok(Forecast {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        sources: args.sources.iter().map(ToString::to_string).collect(),
        at,
        memory_bytes: memory.bytes,
        block_bytes,
        guests: memory.guests,
        sample,
        requests: settled.amount.requests,
        warmup_requests: settled.amount.warmup,
        reason: reason::reason(&options, best, at),
        best,
        options,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use serde_json::json;
    use std::fs;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// The one block of this sample has nearly all requests of the cache, and a hundredth of them would be its share.
    #[test]
    fn a_sample_of_which_nothing_would_be_left_is_refused() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("a.csv");
        let trace = path.to_str().expect("a plain name");
        for (requests, is_enough) in [(600, false), (6000, true)] {
            let lines = "0,4096\n".repeat(requests);
            fs::write(&path, format!("offset,length\n{lines}")).expect("a trace");
            let recorded = json!({
                "futae_recording": "0.1.0", "policy": "lru", "block_bytes": 4096, "capacity_blocks": 9, "sample": 0.01,
                "requests": requests, "lost": 0, "seconds": 1.0, "cache_requests": requests + 9, "cache_hits": 0,
                "store_read_micros": null
            });
            fs::write(format!("{trace}.json"), recorded.to_string()).expect("what was recorded");
            let saved = place.path().join("forecast.json");
            let save = saved.to_str().expect("a plain name");
            let line = [
                "advise",
                trace,
                "--memory",
                "1GiB",
                "--policies",
                "lru",
                "--save",
                save,
            ];
            let advised = run(&Line::parse_from(line).args).map_err(|failure| failure.to_string());
            if is_enough {
                advised.expect("a forecast");
                let forecast = Forecast::read(&saved).map_err(|failure| failure.to_string());
                forecast.expect("it can be read");
            } else {
                let refused = advised.expect_err("too few");
                assert!(refused.contains("has 440 requests to count"), "{refused}");
            }
        }
    }

    #[test]
    fn a_recording_of_blocks_of_another_size_is_refused() {
        let place = tempfile::tempdir().expect("a directory");
        let trace = place.path().join("a.csv");
        let trace = trace.to_str().expect("a plain name");
        fs::write(trace, "offset,length\n0,65536\n").expect("a trace");
        let recorded = json!({
            "futae_recording": "0.1.0", "policy": "lru", "block_bytes": 65536, "capacity_blocks": 9, "sample": 1.0,
            "requests": 1, "lost": 0, "seconds": 1.0, "cache_requests": 1, "cache_hits": 0, "store_read_micros": null
        });
        fs::write(format!("{trace}.json"), recorded.to_string()).expect("what was recorded");
        let found = |more: &[&str]| {
            let line = [&["advise", trace, "--memory", "1MiB"], more].concat();
            let found = facts(&Line::parse_from(line).args);
            found.map_err(|failure| failure.to_string())
        };
        let same = found(&["--block", "64KiB"]).expect("the facts");
        assert_eq!(same.map(|facts| facts.block_bytes), Some(65536));
        for more in [&[][..], &["--block", "128KiB"]] {
            let refused = found(more).map(|_| ()).expect_err("of another size");
            assert!(refused.contains("give --block 64KiB"), "{refused}");
        }
    }
}
