//! `mrc`: a miss-ratio curve, as `futae mrc` finds it.

use crate::ask::{Reading, parsed};
use crate::patience::patiently;
use crate::refused;
use futae_policy::{Kind, PolicySpec, Shape};
use futae_sim::curve::{
    Made, Makings, Methods, Source, SourceError, TraceStream, cache_sizes, even_sizes,
};
use futae_sim::run::ViewChoice;
use futae_trace::{Doubt, TraceOptions, View, is_trace};
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
    aet: Option<f64>,
    kosmo: Option<f64>,
    kosmo_blocks: Option<usize>,
    mini: Option<f64>,
    repeats: u32,
    sizes: Option<Vec<String>>,
    points: usize,
    requests: Option<u64>,
    seed: u64,
}

/// Where the requests come from, opened on the thread that reads them.
pub struct Origin {
    pub source: String,
    pub view: ViewChoice,
    pub options: TraceOptions,
}

impl Origin {
    /// What a caller named, which exists or is a workload.
    pub fn of(source: String, reading: &Reading) -> PyResult<Self> {
        let (view, options) = (reading.view()?, reading.options()?);
        if !is_trace(&source) {
            reading.refuse()?;
        }
        Ok(Self {
            source,
            view,
            options,
        })
    }
}

/// Opens a trace in memory, or a workload; also with warnings.
pub fn whole(
    origin: &Origin,
    requests: Option<u64>,
    seed: u64,
) -> Result<(Source, Vec<String>), SourceError> {
    let path = Path::new(&origin.source);
    if is_trace(path) {
        let (view, options) = (origin.view, &origin.options);
        let (source, skipped, doubts) = Source::of_trace(path, view, options, requests)?;
        return Ok((source, warnings(skipped, &doubts)));
    }
    let bytes = origin.options.unit_bytes;
    let view = View::Blocks(bytes);
    let source = Source::open(&origin.source, view, bytes, requests, seed)?;
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

impl Wanted {
    fn methods(&self) -> Methods {
        Methods {
            exact: self.exact,
            shards: self.shards,
            shards_blocks: self.shards_blocks,
            aet: self.aet,
            kosmo: self.kosmo,
            kosmo_blocks: self.kosmo_blocks,
            mini: self.mini,
            repeats: self.repeats,
            seed: self.seed,
        }
    }

    fn makings(&self, policy: &PolicySpec) -> PyResult<Makings> {
        let methods = self.methods();
        if methods.is_by_distance() && policy.name != Kind::lru.name() {
            return Err(refused(format!(
                "shards, shards_blocks and aet are for lru; for {policy} there is mini, such as mini=0.1"
            )));
        }
        if [self.shards_blocks, self.kosmo_blocks].contains(&Some(0)) || self.points == 0 {
            return Err(refused(
                "shards_blocks, kosmo_blocks and points are at least 1",
            ));
        }
        methods.makings(policy).map_err(refused)
    }

    fn sizes(&self, block_bytes: u64, blocks: u64) -> Result<Vec<u64>, String> {
        let Some(texts) = &self.sizes else {
            return Ok(even_sizes(self.points, blocks));
        };
        let texts = texts.iter().map(String::as_str);
        cache_sizes(texts, block_bytes, blocks).map_err(|error| error.to_string())
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
        let is_exact = self.methods().is_exact();
        let (requests, blocks, is_estimate, warnings) = if is_trace(path) && !is_exact {
            let stream = TraceStream::open(path, origin.view, &origin.options);
            let mut stream = stream.map_err(text)?;
            let limit = self.requests.unwrap_or(u64::MAX);
            let requests = stream.each(limit, |request| makings.take(request), &half);
            let warnings = warnings(stream.skipped(), &stream.doubts());
            (requests.map_err(text)?, makings.distinct(), true, warnings)
        } else {
            let (source, warnings) = whole(origin, self.requests, self.seed).map_err(text)?;
            if makings.has_too_many(source.blocks()) {
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
        let second = |done: f64| tell(0.5 + done / 2.0);
        let found = makings.curves(policy, &sizes, self.seed, &second);
        let found = found.map_err(|error| error.to_string())?;
        let truth = found.first().filter(|_| is_exact);
        let curve = |(at, made): (usize, &Made)| {
            let error = truth.filter(|_| at > 0);
            json!({
                "method": made.method,
                "mean_absolute_error": error.map(|truth| truth.curve.mean_absolute_error(&made.curve, &sizes)),
                "half_widths": made.half_widths,
                "points": made.curve.points(),
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
    let origin = Origin::of(source, &reading)?;
    let find = |tell: &(dyn Fn(f64) + Sync)| wanted.find(&origin, &policy, makings, tell);
    patiently(py, progress.as_ref(), false, find)?.map_err(refused)
}
