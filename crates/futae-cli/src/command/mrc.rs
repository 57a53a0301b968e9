//! `futae mrc`: which share of requests a cache of each size would miss.

use super::source_args::{Input, SourceArgs, say_curve_doubts};
use super::trace_args::say_skipped;
use crate::defaults::CURVE_POLICY;
use crate::plot::{Bar, Line, Look, Plot, Scale, axis_unit};
use crate::save::{Picture, print};
use futae_policy::{Kind, PolicySpec, Shape};
use futae_sim::curve::{Made, Makings, Methods, Point, Source, cache_sizes, even_sizes};
use futae_sim::run::Neighbours;
use futae_sim::run::{Column, Values};
use futae_terminal::failure::Failure;
use futae_terminal::progress::Progress;
use futae_terminal::table::count;
use serde_json::json;
use std::fmt::Write as _;
use std::path::PathBuf;

const TOO_MANY_BLOCKS: &str =
    "too many blocks for an exact curve: take --shards, or a larger --block";

/// Compute a miss-ratio curve: misses by cache size
///
/// Without a method the curve is exact: of LRU by stack distances in one pass, of any other policy
/// by a simulation of each size, as futae sim does it; a trace is then read into memory. Sampled
/// curves are computed while the trace is read, with memory for the sample only. Caches begin
/// empty, and first requests count as misses.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    source: SourceArgs,
    /// The policy, such as lru, sieve or 2q(k_in=0.3)
    #[arg(long, default_value = CURVE_POLICY)]
    policy: String,
    /// Compute the exact curve; with other methods, also report their error
    #[arg(long)]
    exact: bool,
    /// Sample this share of the blocks (SHARDS, fixed rate; lru only)
    #[arg(long, value_name = "RATE")]
    shards: Option<f64>,
    /// Sample this many blocks (SHARDS, fixed size; lru only), beginning at the rate of --shards, or
    /// else with all
    #[arg(long, value_name = "BLOCKS")]
    shards_blocks: Option<usize>,
    /// Estimate from the reuse times of this share of the blocks (AET; lru only)
    #[arg(long, value_name = "RATE")]
    aet: Option<f64>,
    /// Find the sizes that hit the requests for this share of the blocks (Kosmo; fifo, lru, lfu, lfu-in-cache and lrfu)
    #[arg(long, value_name = "RATE")]
    kosmo: Option<f64>,
    /// The same for this many blocks, beginning at the rate of --kosmo, or else with all
    #[arg(long, value_name = "BLOCKS")]
    kosmo_blocks: Option<usize>,
    /// Simulate small caches under the requests for this share of the blocks (any policy without
    /// readahead)
    #[arg(long, value_name = "RATE")]
    mini: Option<f64>,
    /// Use this many samples for each sampled curve, and report their mean and 95 % intervals.
    /// Takes the memory of all samples
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    repeats: u32,
    /// Cache sizes, such as 1%,10%,1GiB [default: evenly spaced up to all blocks]
    #[arg(long, value_name = "SIZE,...")]
    sizes: Option<String>,
    /// Number of evenly spaced sizes
    #[arg(long, default_value_t = 40, conflicts_with = "sizes")]
    points: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print CSV
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Draw the curves into a file, .svg, .pdf or .png
    #[arg(long, visible_alias = "svg", value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// What is asked for, and what it was read as.
struct Asked<'a> {
    args: &'a Args,
    policy: PolicySpec,
    block_bytes: u64,
    requests: u64,
    /// Distinct blocks, and whether that is what the sample says.
    blocks: u64,
    is_estimate: bool,
    sizes: Vec<u64>,
    /// The requests, if they are in memory or are generated anew.
    source: Option<Source>,
}

/// Computes and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    futae_plugin::enable();
    let picture = args.plot.as_deref().map(Picture::new).transpose()?;
    let (asked, makings) = Asked::read(args)?;
    let found = asked.find(&makings)?;
    let plot = asked.plot(&found);
    if let Some(picture) = picture {
        picture.write(&plot)?;
    }
    let text = if args.json {
        let value = asked.as_json(&found);
        format!("{}\n", serde_json::to_string_pretty(&value)?)
    } else if args.csv {
        asked.csv(&found)
    } else {
        format!("{}\n{}", plot.text(72, 18), asked.table(&found))
    };
    print(&text)
}

impl Args {
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
            requests: self.source.requests,
            seed: self.source.seed,
        }
    }
}

impl<'a> Asked<'a> {
    /// Goes through the requests once.
    fn read(args: &'a Args) -> Result<(Self, Makings), Failure> {
        let policy: PolicySpec = args.policy.parse().map_err(Failure::usage)?;
        let shape = Shape { slots: 16, seed: 0 };
        futae_policy::build(&policy, &shape).map_err(Failure::usage)?;
        let methods = args.methods();
        if args.repeats > 1 && !methods.is_sampled() {
            return Err(Failure::usage(
                "--repeats draws samples again; say how to sample: --shards, --shards-blocks, --aet, --kosmo, --kosmo-blocks or --mini",
            ));
        }
        if methods.is_by_distance() && policy.name != Kind::lru.name() {
            let message = format!(
                "--shards, --shards-blocks and --aet are for lru; for {policy} there is --mini, such as \
                 --mini 0.1"
            );
            return Err(Failure::usage(message));
        }
        if [args.shards_blocks, args.kosmo_blocks].contains(&Some(0)) || args.points == 0 {
            return Err(Failure::usage(
                "--shards-blocks, --kosmo-blocks and --points are at least 1",
            ));
        }
        let mut makings = methods.makings(&policy).map_err(Failure::usage)?;
        let neighbours = Neighbours::of_policy(&policy);
        let whole = (!methods.is_sampled()).then_some(neighbours);
        let (source, block_bytes) = args.source.open(whole)?;
        if let Input::Whole(source) = &source
            && makings.has_too_many(source.blocks())
        {
            return Err(Failure::usage(TOO_MANY_BLOCKS));
        }
        let progress = Progress::new("reading", args.json || args.csv);
        let set = |fraction| progress.set(fraction);
        let source = match source {
            Input::Whole(source) => {
                makings.take_all(&source, &set)?;
                Some(source)
            }
            Input::Stream(mut stream) => {
                let is_kept = makings.is_simulated();
                let take = |request| makings.take(request);
                let kept = match is_kept {
                    true => Some(stream.each_kept(args.source.requests, take, &set)?),
                    false => {
                        stream.each(take, &set)?;
                        None
                    }
                };
                say_skipped(stream.skipped());
                say_curve_doubts(stream.doubts());
                kept
            }
        };
        let requests = source.as_ref().map_or(makings.requests(), Source::requests);
        let blocks = source.as_ref().map(|source| (source.blocks(), false));
        let (blocks, is_estimate) = blocks.unwrap_or_else(|| makings.distinct());
        drop(progress);
        if makings.has_too_many(blocks) {
            return Err(Failure::usage(TOO_MANY_BLOCKS));
        }
        if blocks == 0 || makings.has_empty_sample() {
            let message = match requests {
                0 => format!("{} has no requests", args.source.source),
                _ => "no block is in the sample: take a higher rate".to_owned(),
            };
            return Err(Failure::usage(message));
        }
        let sizes = match &args.sizes {
            Some(text) => {
                cache_sizes(text.split(','), block_bytes, blocks).map_err(Failure::usage)?
            }
            None => even_sizes(args.points, blocks),
        };
        let asked = Self {
            args,
            policy,
            block_bytes,
            requests,
            blocks,
            is_estimate,
            sizes,
            source,
        };
        Ok((asked, makings))
    }

    /// Every curve that is asked for, the exact one first.
    fn find(&self, makings: &Makings) -> Result<Vec<Made>, Failure> {
        let progress = Progress::new("simulating", self.args.json || self.args.csv);
        let set = |fraction| progress.set(fraction);
        let seed = self.args.source.seed;
        let of = (self.source.as_ref(), seed);
        let curves = makings.curves(&self.policy, &self.sizes, of, &set);
        curves.map_err(Failure::usage)
    }

    fn bytes(&self, blocks: u64) -> f64 {
        blocks as f64 * self.block_bytes as f64
    }

    fn plot(&self, found: &[Made]) -> Plot {
        let largest = self.sizes.last().copied().unwrap_or(1);
        let (unit, name) = axis_unit(self.bytes(largest));
        let line = |found: &Made| Line {
            name: found.method.clone(),
            points: std::iter::once((0.0, 1.0))
                .chain(found.curve.points().iter().map(|point| {
                    let x = self.bytes(point.blocks) / unit;
                    (x, point.miss_ratio)
                }))
                .collect(),
            look: Look::Line,
        };
        let bars = |(line, found): (usize, &Made)| {
            let points = found.curve.points().iter().zip(&found.half_widths);
            let bar = |(point, &half): (&Point, &f64)| Bar {
                line,
                x: self.bytes(point.blocks) / unit,
                y: point.miss_ratio,
                half,
            };
            points.map(bar).collect::<Vec<_>>()
        };
        Plot {
            title: format!("{} on {}", self.policy, self.args.source.source),
            x_label: format!(
                "cache size, {name}, in blocks of {} bytes",
                self.block_bytes
            ),
            x_unit: name,
            y_label: "miss ratio".to_owned(),
            y_scale: Scale::Number,
            log_x: false,
            lines: found.iter().map(line).collect(),
            rules: Vec::new(),
            bars: found.iter().enumerate().flat_map(bars).collect(),
        }
    }

    fn table(&self, found: &[Made]) -> String {
        let mut text = format!(
            "{} requests, {}{} blocks of {} bytes, seed {}\n\n{:>15}",
            count(self.requests),
            if self.is_estimate { "about " } else { "" },
            count(self.blocks),
            self.block_bytes,
            self.args.source.seed,
            "cache blocks"
        );
        let short = |found: &Made| found.method.split(' ').next().unwrap_or("").to_owned();
        // Writing to a string cannot fail.
        for found in found {
            let width = if found.half_widths.is_empty() { 10 } else { 18 };
            let _ = write!(text, "  {:>width$}", short(found));
        }
        text.push('\n');
        for (at, &size) in self.sizes.iter().enumerate() {
            let _ = write!(text, "{:>15}", count(size));
            for found in found {
                let percent = 100.0 * found.curve.miss_ratio_at(size);
                let _ = write!(text, "  {percent:>8.2} %");
                if let Some(half) = found.half_widths.get(at) {
                    let _ = write!(text, " ± {:>5.2}", 100.0 * half);
                }
            }
            text.push('\n');
        }
        for found in found {
            if let Some(error) = found.mean_absolute_error {
                let (method, error) = (&found.method, 100.0 * error);
                let _ = writeln!(text, "\nmean absolute error of {method}: {error:.3} points");
            }
        }
        text
    }

    fn csv(&self, found: &[Made]) -> String {
        let points = found.iter().flat_map(|found| {
            let points = found.curve.points().iter().enumerate();
            points.map(move |(at, point)| (found, at, point))
        });
        let points: Vec<(&Made, usize, &Point)> = points.collect();
        let same = |text: String| Values::Texts(vec![text; points.len()]);
        let of_method = |found: &Made| found.method.replace(',', "");
        let half = |&(found, at, _): &(&Made, usize, _)| found.half_widths.get(at).copied();
        let bytes = |point: &Point| point.blocks.saturating_mul(self.block_bytes);
        let columns = [
            (
                "method",
                Values::Texts(points.iter().map(|it| of_method(it.0)).collect()),
            ),
            (
                "cache_blocks",
                Values::Counts(points.iter().map(|it| it.2.blocks).collect()),
            ),
            (
                "cache_bytes",
                Values::Counts(points.iter().map(|it| bytes(it.2)).collect()),
            ),
            (
                "miss_ratio",
                Values::Numbers(points.iter().map(|it| Some(it.2.miss_ratio)).collect()),
            ),
            (
                "half_width",
                Values::Numbers(points.iter().map(half).collect()),
            ),
            ("policy", same(self.policy.to_string())),
            (
                "seed",
                Values::Counts(vec![self.args.source.seed; points.len()]),
            ),
            ("source", same(self.args.source.source.to_string())),
        ];
        Column::csv(&columns.map(|(name, values)| Column { name, values }))
    }

    fn as_json(&self, found: &[Made]) -> serde_json::Value {
        json!({
            "source": self.args.source.source.text(),
            "policy": self.policy.to_string(),
            "block_bytes": self.block_bytes,
            "requests": self.requests,
            "blocks": self.blocks,
            "blocks_estimated": self.is_estimate,
            "seed": self.args.source.seed,
            "version": env!("CARGO_PKG_VERSION"),
            "curves": found,
        })
    }
}
