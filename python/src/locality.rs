//! `locality`: re-access intervals, as `futae locality` finds them.

use crate::curve::{Given, Origin, whole};
use crate::error::refused;
use crate::patience::patiently;
use crate::reading::{Reading, parsed};
use futae_sim::locality::{BINS_MAX, Bins, Study};
use futae_sim::run::Neighbours;
use futae_sim::{LevelSpec, Link};
use pyo3::prelude::*;

/// What is counted, as the options of the command line say it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Counted {
    link: Option<String>,
    warmup: Option<u64>,
    requests: Option<u64>,
    bins: usize,
    log: bool,
    seed: u64,
}

/// Finds the intervals. Returns the JSON that `futae locality --json` prints, and warnings.
#[pyfunction]
pub fn locality(
    py: Python<'_>,
    source: Given<'_>,
    levels: Vec<String>,
    counted: Counted,
    reading: Reading,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, Vec<String>)> {
    futae_plugin::enable();
    if !(1..=BINS_MAX).contains(&counted.bins) {
        return Err(refused(format!("bins is from 1 to {BINS_MAX}")));
    }
    let levels: Vec<LevelSpec> = levels
        .iter()
        .map(|level| parsed(level))
        .collect::<PyResult<_>>()?;
    let link: Option<Link> = counted.link.as_deref().map(parsed).transpose()?;
    let origin = Origin::of(source, &reading)?;
    let kind = match counted.log {
        true => Bins::Log,
        false => Bins::Linear,
    };
    let name = origin.source.clone();
    let find = |tell: &(dyn Fn(f64) + Sync)| -> Result<(String, Vec<String>), String> {
        let neighbours = Neighbours::of([&levels[..]]);
        let drawn = (counted.requests, counted.seed);
        let (source, warnings) = whole(origin, drawn, neighbours, &|_| tell(0.0))?;
        let study = Study::of(source, (levels, link), counted.warmup, counted.seed, tell);
        let study = study.map_err(|error| error.to_string())?;
        let summary = study.summary(&name, counted.bins, kind);
        let json = serde_json::to_string(&summary).map_err(|error| error.to_string())?;
        Ok((json, warnings))
    };
    patiently(py, progress.as_ref(), None, find)?.map_err(refused)
}
