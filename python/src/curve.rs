//! `mrc`: a miss-ratio curve, as `futae mrc` finds it.

use crate::ask::{Reading, parsed};
use crate::patience::patiently;
use crate::refused;
use futae_policy::{Kind, PolicySpec, Shape};
use futae_sim::curve::{
    Curve, ExactLru, MiniTrace, Shards, Source, SourceError, TraceStream, even_sizes,
    simulate_sizes,
};
use futae_sim::run::ViewChoice;
use futae_trace::{BlockRequest, Doubt, TraceOptions, View};
use futae_units::Size;
use pyo3::prelude::*;
use serde_json::json;
use std::path::Path;

/// What curves are wanted, as the options of the command line say it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Wanted {
    policy: String,
    exact: bool,
    shards: Option<f64>,
    shards_blocks: Option<usize>,
    mini: Option<f64>,
    sizes: Option<Vec<String>>,
    points: usize,
    requests: Option<u64>,
    seed: u64,
}

/// What is made of the requests as they pass.
struct Makings {
    exact: Option<ExactLru>,
    shards: Option<Shards>,
    /// All requests, for exact curves of any policy.
    full: Option<MiniTrace>,
    small: Option<MiniTrace>,
}

/// Where the requests come from, opened on the thread that reads them.
struct Origin {
    source: String,
    view: ViewChoice,
    options: TraceOptions,
}

impl Makings {
    fn take(&mut self, request: BlockRequest) {
        let block = request.block();
        if let Some(exact) = &mut self.exact {
            exact.access(block as u32);
        }
        if let Some(shards) = &mut self.shards {
            shards.access(block);
        }
        for mini in [&mut self.full, &mut self.small].into_iter().flatten() {
            mini.access(block, request.is_write());
        }
    }

    /// Distinct blocks as the sample has it.
    fn distinct(&self) -> u64 {
        let shards = self.shards.as_ref().map(Shards::distinct);
        let small = self.small.as_ref().map(MiniTrace::distinct);
        shards.or(small).unwrap_or(0)
    }
}

/// Opens a trace in memory, or a workload; also with warnings.
fn whole(origin: &Origin, wanted: &Wanted) -> Result<(Source, Vec<String>), SourceError> {
    let path = Path::new(&origin.source);
    if path.exists() {
        let (view, options) = (origin.view, &origin.options);
        let (source, skipped, doubts) = Source::of_trace(path, view, options, wanted.requests)?;
        return Ok((source, warnings(skipped, &doubts)));
    }
    let bytes = origin.options.unit_bytes;
    let view = View::Blocks(bytes);
    let source = Source::open(&origin.source, view, bytes, wanted.requests, wanted.seed)?;
    Ok((source, Vec::new()))
}

/// A curve counts blocks, so nothing is said of their bytes.
fn warnings(skipped: u64, doubts: &[Doubt]) -> Vec<String> {
    let doubts = doubts.iter().filter(|doubt| **doubt != Doubt::SizesIgnored);
    let mut warnings: Vec<String> = doubts.map(ToString::to_string).collect();
    if skipped > 0 {
        warnings.push(format!("{skipped} bad records left out"));
    }
    warnings
}

/// A number with commas between thousands, as tables of the command line have it.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let of_digit = |(at, digit): (usize, char)| {
        let left = digits.len() - at;
        let is_comma = at > 0 && left.is_multiple_of(3);
        is_comma.then_some(',').into_iter().chain([digit])
    };
    digits.chars().enumerate().flat_map(of_digit).collect()
}

impl Wanted {
    fn is_exact(&self) -> bool {
        let is_sampled =
            self.shards.is_some() || self.shards_blocks.is_some() || self.mini.is_some();
        self.exact || !is_sampled
    }

    fn makings(&self, policy: &PolicySpec) -> PyResult<Makings> {
        let is_lru = *policy == PolicySpec::of(Kind::lru);
        let by_distance = self.shards.is_some() || self.shards_blocks.is_some();
        if by_distance && policy.name != Kind::lru.name() {
            return Err(refused(format!(
                "shards and shards_blocks are for lru; for {policy} there is mini, such as mini=0.1"
            )));
        }
        if self.shards_blocks == Some(0) || self.points == 0 {
            return Err(refused("shards_blocks and points are at least 1"));
        }
        let mini = |rate| MiniTrace::new(rate, self.seed).map_err(refused);
        let shards = match (self.shards_blocks, self.shards) {
            (Some(blocks), rate) => {
                Some(Shards::fixed_size(blocks, rate.unwrap_or(1.0), self.seed))
            }
            (None, rate) => rate.map(|rate| Shards::fixed_rate(rate, self.seed)),
        };
        Ok(Makings {
            exact: (self.is_exact() && is_lru).then(ExactLru::default),
            shards: shards.transpose().map_err(refused)?,
            full: (self.is_exact() && !is_lru)
                .then(|| mini(1.0))
                .transpose()?,
            small: self.mini.map(mini).transpose()?,
        })
    }

    fn sizes(&self, block_bytes: u64, blocks: u64) -> Result<Vec<u64>, String> {
        let Some(texts) = &self.sizes else {
            return Ok(even_sizes(self.points, blocks));
        };
        let one = |text: &String| {
            let size: Size = text.parse().map_err(|error| format!("{error}"))?;
            let blocks = size.blocks_of(block_bytes, blocks);
            match blocks.map_err(|error| error.to_string())? {
                0 => Err("a cache of sizes has at least one block".to_owned()),
                blocks => Ok(blocks),
            }
        };
        let mut sizes = texts.iter().map(one).collect::<Result<Vec<_>, _>>()?;
        sizes.sort_unstable();
        sizes.dedup();
        Ok(sizes)
    }

    /// Reads the requests and finds the curves: what `futae mrc --json` prints, and warnings.
    fn find(
        &self,
        origin: &Origin,
        policy: &PolicySpec,
        mut makings: Makings,
        tell: &(dyn Fn(f64) + Sync),
    ) -> Result<(String, Vec<String>), String> {
        let block_bytes = origin.options.unit_bytes;
        let path = Path::new(&origin.source);
        let text = |error: SourceError| error.to_string();
        let half = |done: f64| tell(done / 2.0);
        let (requests, blocks, is_estimate, warnings) = if path.exists() && !self.is_exact() {
            let stream = TraceStream::open(path, origin.view, &origin.options);
            let mut stream = stream.map_err(text)?;
            let limit = self.requests.unwrap_or(u64::MAX);
            let requests = stream.each(limit, |request| makings.take(request), &half);
            let warnings = warnings(stream.skipped(), &stream.doubts());
            (requests.map_err(text)?, makings.distinct(), true, warnings)
        } else {
            let (source, warnings) = whole(origin, self).map_err(text)?;
            if makings.exact.is_some() && source.blocks() > ExactLru::BLOCKS_MAX {
                return Err(
                    "too many blocks for an exact curve: take shards, or a larger block".to_owned(),
                );
            }
            let read = source.each(|request| makings.take(request), &half);
            read.map_err(text)?;
            (source.requests(), source.blocks(), false, warnings)
        };
        if blocks == 0 {
            return Err(match requests {
                0 => format!("{} has no requests", origin.source),
                _ => "no block is in the sample: take a higher rate".to_owned(),
            });
        }
        let sizes = self.sizes(block_bytes, blocks)?;
        let found = self.curves(policy, makings, &sizes, &|done| tell(0.5 + done / 2.0))?;
        let truth = found.first().filter(|_| self.is_exact());
        let curve = |(at, (method, curve)): (usize, &(String, Curve))| {
            let error = truth.filter(|_| at > 0);
            json!({
                "method": method,
                "mean_absolute_error": error.map(|truth| truth.1.mean_absolute_error(curve, &sizes)),
                "points": curve.points(),
            })
        };
        let value = json!({
            "source": origin.source,
            "policy": policy.to_string(),
            "block_bytes": block_bytes,
            "requests": requests,
            "blocks": blocks,
            "blocks_estimated": is_estimate,
            "seed": self.seed,
            "version": env!("CARGO_PKG_VERSION"),
            "curves": found.iter().enumerate().map(curve).collect::<Vec<_>>(),
        });
        Ok((value.to_string(), warnings))
    }

    /// Every curve that is asked for, by its method, the exact one first.
    fn curves(
        &self,
        policy: &PolicySpec,
        makings: Makings,
        sizes: &[u64],
        tell: &(dyn Fn(f64) + Sync),
    ) -> Result<Vec<(String, Curve)>, String> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let simulate = |trace: &MiniTrace| {
            let curve = simulate_sizes(trace, policy, sizes, self.seed, threads, tell);
            curve.map_err(|error| error.to_string())
        };
        let mut found = Vec::new();
        if let Some(exact) = &makings.exact {
            found.push(("exact".to_owned(), exact.curve().at(sizes)));
        }
        if let Some(full) = &makings.full {
            found.push(("exact".to_owned(), simulate(full)?.at(sizes)));
        }
        if let Some(shards) = &makings.shards {
            let sampled = grouped(shards.sampled_blocks());
            let name = format!("shards {:.3} % ({sampled} blocks)", 100.0 * shards.rate());
            found.push((name, shards.curve().at(sizes)));
        }
        if let Some(small) = &makings.small {
            found.push((format!("mini {}", small.rate()), simulate(small)?.at(sizes)));
        }
        Ok(found)
    }
}

/// Finds the curves. Returns the JSON that `futae mrc --json` prints, and warnings.
#[pyfunction]
pub fn mrc(
    py: Python<'_>,
    source: String,
    wanted: Wanted,
    reading: Reading,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, Vec<String>)> {
    let policy: PolicySpec = parsed(&wanted.policy)?;
    let trial = futae_policy::build(&policy, &Shape { slots: 16, seed: 0 });
    trial.map_err(refused)?;
    let makings = wanted.makings(&policy)?;
    let origin = Origin {
        view: reading.view()?,
        options: reading.options()?,
        source,
    };
    if !Path::new(&origin.source).exists() {
        reading.refuse()?;
    }
    let find = |tell: &(dyn Fn(f64) + Sync)| wanted.find(&origin, &policy, makings, tell);
    patiently(py, progress.as_ref(), false, find)?.map_err(refused)
}
