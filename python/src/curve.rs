//! `mrc`: a miss-ratio curve, as `futae mrc` finds it.

use crate::arrow::Rows;
use crate::error::refused;
use crate::numbers::{NAME, NumberReader};
use crate::patience::patiently;
use crate::reading::{Reading, parsed};
use futae_policy::{Kind, PolicySpec, Shape};
use futae_sim::curve::{
    Makings, Methods, Source, SourceError, TraceStream, cache_sizes, even_sizes,
};
use futae_sim::run::{Neighbours, ViewChoice};
use futae_trace::{BlockRequest, Doubt, TraceOptions, TraceReader, View, is_trace};
use pyo3::prelude::*;
use serde_json::json;
use std::ffi::OsString;
use std::path::PathBuf;

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
    repeats: u64,
    sizes: Option<Vec<String>>,
    points: usize,
    requests: Option<u64>,
    seed: u64,
}

/// What a caller gives: a name, a table of requests, or an array of block numbers.
#[derive(FromPyObject)]
pub enum Given<'py> {
    Name(OsString),
    Table(PyRef<'py, Rows>),
    Array(Bound<'py, PyAny>),
}

/// What there is to read.
enum Content {
    /// By its name, opened on the thread that reads it.
    Named,
    Opened(Box<TraceReader>),
    Numbers(NumberReader),
}

/// Where the requests come from.
pub struct Origin {
    /// The name that results have for it.
    pub source: String,
    path: PathBuf,
    /// Bytes of a block.
    pub block_bytes: u64,
    view: ViewChoice,
    options: TraceOptions,
    content: Content,
}

impl Origin {
    /// What a caller gave. A name is of a file that exists, or of a workload.
    pub fn of(given: Given<'_>, reading: &Reading) -> PyResult<Self> {
        let (view, options) = (reading.view()?, reading.options()?);
        let mut path = PathBuf::new();
        let (source, content) = match given {
            Given::Name(name) => {
                path = name.into();
                if !is_trace(&path) {
                    reading.refuse()?;
                }
                (path.display().to_string(), Content::Named)
            }
            Given::Table(rows) => {
                let reader = rows.open("table", &options)?;
                ("table".to_owned(), Content::Opened(Box::new(reader)))
            }
            Given::Array(array) => {
                reading.refuse()?;
                let reader = NumberReader::open(&array, options.unit_bytes)?;
                (NAME.to_owned(), Content::Numbers(reader))
            }
        };
        Ok(Self {
            source,
            path,
            block_bytes: options.unit_bytes,
            view,
            options,
            content,
        })
    }

    fn is_workload(&self) -> bool {
        matches!(self.content, Content::Named) && !is_trace(&self.path)
    }
}

/// Reads a trace into memory for runs that use neighbours as said, or makes a workload from a seed; of both so many requests. Also
/// with warnings.
pub fn whole(
    origin: Origin,
    (requests, seed): (Option<u64>, u64),
    neighbours: Neighbours,
    tell: &dyn Fn(f64),
) -> Result<(Source, Vec<String>), String> {
    let text = |error: SourceError| error.to_string();
    let (view, bytes) = (origin.view, origin.block_bytes);
    let path = &origin.path;
    let read = match origin.content {
        Content::Named if is_trace(path) => {
            Source::of_trace(path, view, &origin.options, requests, neighbours)
        }
        Content::Named => {
            let view = View::Blocks(bytes);
            let source = Source::open(&origin.source, view, bytes, requests, seed);
            source.map(|source| (source, 0, Vec::new()))
        }
        Content::Opened(reader) => Source::of_opened(*reader, (view, bytes), requests, neighbours),
        Content::Numbers(reader) => {
            let (mut reader, view) = (reader.telling(tell), (View::Start, bytes));
            let source = Source::of_reader(&mut reader, view, requests, neighbours);
            source.map(|source| (source, 0, Vec::new()))
        }
    };
    let (source, skipped, doubts) = read.map_err(text)?;
    Ok((source, warnings(skipped, &doubts)))
}

/// Passes the accesses of a trace, and keeps them if the exact curve is to be simulated of this many requests; also with warnings.
fn passing(
    origin: Origin,
    requests: Option<u64>,
    makings: &mut Makings,
    tell: &dyn Fn(f64),
) -> Result<(Option<Source>, Vec<String>), String> {
    let text = |error: SourceError| error.to_string();
    let is_kept = makings.is_simulated();
    let act = |request| makings.take(request);
    let (view, bytes) = (origin.view, origin.block_bytes);
    let stream = match origin.content {
        Content::Named => TraceStream::open(&origin.path, view, &origin.options),
        Content::Opened(reader) => Ok(TraceStream::of_opened(*reader, view, bytes)),
        Content::Numbers(mut reader) => {
            passing_numbers(&mut reader, bytes, act, tell)?;
            reader.rewind();
            let kept = is_kept.then(|| {
                let (mut reader, view) = (reader.telling(tell), (View::Start, bytes));
                Source::of_reader(&mut reader, view, requests, Neighbours::Unused)
            });
            return Ok((kept.transpose().map_err(text)?, Vec::new()));
        }
    };
    let mut stream = stream.map_err(text)?;
    let kept = match is_kept {
        true => stream.each_kept(requests, act, tell).map(Some),
        false => stream.each(act, tell).map(|()| None),
    };
    let kept = kept.map_err(text)?;
    Ok((kept, warnings(stream.skipped(), &stream.doubts())))
}

/// Numbers that are read at a time.
const NUMBERS: usize = 1 << 16;

/// As on the command line: memory is that of all samples.
const REPEATS_MAX: u64 = 64;

const TOO_MANY_BLOCKS: &str = "too many blocks for an exact curve: take shards, or a larger block";

/// The same of an array. Its blocks are in the sample as they would be in a file of the same numbers.
fn passing_numbers(
    reader: &mut NumberReader,
    block_bytes: u64,
    mut act: impl FnMut(BlockRequest),
    tell: &dyn Fn(f64),
) -> Result<(), String> {
    let (length, mut numbers, mut taken) = (reader.length(), Vec::new(), 0);
    while taken < length {
        numbers.clear();
        let read = reader.read(&mut numbers, NUMBERS);
        read.map_err(|error| error.to_string())?;
        for &number in &numbers {
            act(BlockRequest::read(key(number, block_bytes)));
        }
        taken += numbers.len();
        tell(taken as f64 / length as f64);
    }
    Ok(())
}

/// Bytes of a sector, by which requests of files are told apart.
const SECTOR_BYTES: u64 = 512;

/// A number below 2^63 for a block: its first sector, where that is so small.
fn key(number: u64, block_bytes: u64) -> u64 {
    let sector = number.checked_mul(block_bytes / SECTOR_BYTES);
    let sector = sector.filter(|&sector| sector <= u64::MAX >> 1);
    sector.unwrap_or_else(|| number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 1)
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
            repeats: self.repeats as u32,
            requests: self.requests,
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
        if !(1..=REPEATS_MAX).contains(&self.repeats) {
            return Err(refused(format!("repeats is from 1 to {REPEATS_MAX}")));
        }
        if self.repeats > 1 && !methods.is_sampled() {
            return Err(refused(
                "repeats draws samples again; say how to sample, such as mini=0.1",
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
        origin: Origin,
        policy: &PolicySpec,
        mut makings: Makings,
        tell: &(dyn Fn(f64) + Sync),
    ) -> Result<(String, Vec<String>), String> {
        let (block_bytes, name) = (origin.block_bytes, origin.source.clone());
        let text = |error: SourceError| error.to_string();
        let half = |done: f64| tell(done / 2.0);
        let is_sampled = self.methods().is_sampled();
        let (source, warnings) = if !origin.is_workload() && is_sampled {
            passing(origin, self.requests, &mut makings, &half)?
        } else {
            let neighbours = Neighbours::of_policy(policy);
            let drawn = (self.requests, self.seed);
            let (source, warnings) = whole(origin, drawn, neighbours, &|_| tell(0.0))?;
            if makings.has_too_many(source.blocks()) {
                return Err(TOO_MANY_BLOCKS.to_owned());
            }
            makings.take_all(&source, &half).map_err(text)?;
            (Some(source), warnings)
        };
        let requests = source.as_ref().map_or(makings.requests(), Source::requests);
        let blocks = source.as_ref().map(|source| (source.blocks(), false));
        let (blocks, is_estimate) = blocks.unwrap_or_else(|| makings.distinct());
        if makings.has_too_many(blocks) {
            return Err(TOO_MANY_BLOCKS.to_owned());
        }
        if blocks == 0 || makings.has_empty_sample() {
            return Err(match requests {
                0 => format!("{name} has no requests"),
                _ => "no block is in the sample: take a higher rate".to_owned(),
            });
        }
        let sizes = self.sizes(block_bytes, blocks)?;
        let second = |done: f64| tell(0.5 + done / 2.0);
        let of = (source.as_ref(), self.seed);
        let found = makings.curves(policy, &sizes, of, &second);
        let found = found.map_err(|error| error.to_string())?;
        let value = json!({
            "source": name,
            "policy": policy.to_string(),
            "block_bytes": block_bytes,
            "requests": requests,
            "blocks": blocks,
            "blocks_estimated": is_estimate,
            "seed": self.seed,
            "version": env!("CARGO_PKG_VERSION"),
            "curves": found,
        });
        Ok((value.to_string(), warnings))
    }
}

/// Finds the curves. Returns the JSON that `futae mrc --json` prints, and warnings.
#[pyfunction]
pub fn mrc(
    py: Python<'_>,
    source: Given<'_>,
    wanted: Wanted,
    reading: Reading,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, Vec<String>)> {
    futae_plugin::enable();
    let policy: PolicySpec = parsed(&wanted.policy)?;
    let trial = futae_policy::build(&policy, &Shape { slots: 16, seed: 0 });
    trial.map_err(refused)?;
    let makings = wanted.makings(&policy)?;
    let origin = Origin::of(source, &reading)?;
    let find = |tell: &(dyn Fn(f64) + Sync)| wanted.find(origin, &policy, makings, tell);
    patiently(py, progress.as_ref(), None, find)?.map_err(refused)
}
