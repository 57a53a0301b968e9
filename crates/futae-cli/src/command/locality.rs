//! `futae locality`: how soon blocks come back, at the application and below each cache.

use super::source_args::SourceArgs;
use crate::densities::{Densities, GIB, Height};
use crate::failure::Failure;
use crate::plot::Plot;
use crate::progress::Progress;
use crate::save::{Picture, print};
use crate::table::{Table, count};
use futae_policy::{Kind, PolicySpec};
use futae_sim::curve::Source;
use futae_sim::locality::{Bins, GAP_THRESHOLD, Locality, Tap};
use futae_sim::theory::shortest_gap;
use futae_sim::{LevelSpec, Link, links};
use serde_json::json;
use std::path::PathBuf;

/// Show how soon blocks come back: re-access intervals at each level
///
/// An interval is the data of the other requests, at that level, between two requests for one
/// block. Below an LRU cache there are none shorter than a gap, and a lower LRU or FIFO cache
/// smaller than the gap has no hits.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    source: SourceArgs,
    /// A level, top down, as POLICY:SIZE; without any only the application's requests are shown
    #[arg(long = "level", value_name = "POLICY:SIZE")]
    levels: Vec<String>,
    /// What crosses to the level below when a block is evicted: demote (its data), notice (its
    /// number) or none [default: demote above an exclusive level, none elsewhere]
    #[arg(long)]
    link: Option<Link>,
    /// Requests before counting begins [default: a fifth of all]
    #[arg(long, value_name = "REQUESTS")]
    warmup: Option<u64>,
    /// How many bins the intervals are counted in
    #[arg(long, default_value_t = 60)]
    bins: usize,
    /// Bins of growing width, for intervals of all lengths
    #[arg(long)]
    log: bool,
    /// Draw the densities into a file, .svg or .png
    #[arg(long, visible_alias = "svg", value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The result, with what it was found by.
struct Shown<'a> {
    args: &'a Args,
    levels: Vec<LevelSpec>,
    source: Source,
    block_bytes: u64,
    warmup: u64,
    locality: Locality,
}

/// Simulates and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.bins == 0 {
        return Err(Failure::usage("--bins is at least 1"));
    }
    let picture = args.plot.as_deref().map(Picture::new).transpose()?;
    let shown = Shown::find(args)?;
    let plot = shown.plot();
    if let Some(picture) = picture {
        picture.write(&plot)?;
    }
    let text = if args.json {
        format!("{}\n", serde_json::to_string_pretty(&shown.as_json())?)
    } else {
        format!("{}\n{}", plot.text(72, 18), shown.table())
    };
    print(&text)
}

impl<'a> Shown<'a> {
    fn find(args: &'a Args) -> Result<Self, Failure> {
        let levels = args
            .levels
            .iter()
            .map(|level| level.parse().map_err(Failure::usage));
        let levels: Vec<LevelSpec> = levels.collect::<Result<_, _>>()?;
        let (source, block_bytes) = args.source.open_whole()?;
        let joined = links(&levels, args.link);
        let (blocks, seed) = (source.blocks(), args.source.seed);
        let locality = Locality::new(&levels, &joined, block_bytes, blocks, seed);
        let mut locality = locality.map_err(Failure::usage)?;
        let warmup = args.warmup.unwrap_or(source.requests() / 5);
        if warmup >= source.requests() {
            let message = format!(
                "--warmup {warmup} leaves none of {} requests to count",
                source.requests()
            );
            return Err(Failure::usage(message));
        }
        {
            let progress = Progress::new("simulating", args.json);
            let mut number = 0;
            let act = |request| {
                if number == warmup {
                    locality.restart();
                }
                number += 1;
                locality.access(request);
            };
            source.each(act, &|fraction| progress.set(fraction))?;
        }
        Ok(Self {
            args,
            levels,
            source,
            block_bytes,
            warmup,
            locality,
        })
    }

    /// The gap that theory gives for one tap (`futae_sim::theory`), in bytes, where it gives one: below
    /// one LRU cache under uniform reads.
    fn theory_bytes(&self, at: usize) -> Option<f64> {
        let Source::Workload { spec, .. } = &self.source else {
            return None;
        };
        let level = self.levels.first().filter(|_| at == 1)?;
        if level.policy != PolicySpec::of(Kind::lru) || !spec.to_string().starts_with("uniform:") {
            return None;
        }
        let blocks = self.source.blocks();
        let slots = level.slots(self.block_bytes, blocks).ok()?;
        let gap = shortest_gap(f64::from(slots), blocks as f64);
        gap.is_finite().then_some(gap * self.block_bytes as f64)
    }

    fn densities(&self) -> Densities<'_> {
        let taps = self.locality.taps().iter();
        Densities {
            places: taps
                .map(|tap| (tap.place.clone(), &tap.intervals))
                .collect(),
            bins: self.args.bins,
            kind: match self.args.log {
                true => Bins::Log,
                false => Bins::Linear,
            },
            block_bytes: self.block_bytes,
        }
    }

    fn plot(&self) -> Plot {
        let title = format!("re-access intervals of {}", self.args.source.source);
        self.densities().plot(title, Height::Density)
    }

    fn table(&self) -> String {
        let heads = [
            "in GB (2^30 bytes)",
            "re-accesses",
            "median",
            "90 %",
            "gap",
            "in theory",
        ];
        let mut table = Table::new(heads);
        let gb = |bytes: Option<f64>| match bytes {
            Some(bytes) => format!("{:.4}", bytes / GIB),
            None => "–".to_owned(),
        };
        for (at, tap) in self.locality.taps().iter().enumerate() {
            let intervals = &tap.intervals;
            table.row([
                tap.place.clone(),
                count(intervals.reaccesses()),
                gb(intervals.quantile_bytes(0.5)),
                gb(intervals.quantile_bytes(0.9)),
                gb(intervals.gap_bytes()),
                gb(self.theory_bytes(at)),
            ]);
        }
        format!(
            "{} requests after {} of warm-up, {} blocks of {} bytes, seed {}\n\n{}\n\
             gap: the largest interval below which the density is at most {} % of that up to the \
             median\n",
            count(self.source.requests() - self.warmup),
            count(self.warmup),
            count(self.source.blocks()),
            self.block_bytes,
            self.args.source.seed,
            table.render(),
            100.0 * GAP_THRESHOLD
        )
    }

    fn as_json(&self) -> serde_json::Value {
        let densities = self.densities();
        let tap = |(at, tap): (usize, &Tap)| {
            json!({
                "place": tap.place,
                "reaccesses": tap.intervals.reaccesses(),
                "median_bytes": tap.intervals.quantile_bytes(0.5),
                "gap_bytes": tap.intervals.gap_bytes(),
                "theory_gap_bytes": self.theory_bytes(at),
                "bins": densities.of(&tap.intervals),
            })
        };
        let taps = self.locality.taps().iter().enumerate().map(tap);
        json!({
            "source": self.args.source.source,
            "levels": self.levels,
            "block_bytes": self.block_bytes,
            "blocks": self.source.blocks(),
            "requests": self.source.requests() - self.warmup,
            "warmup_requests": self.warmup,
            "seed": self.args.source.seed,
            "version": env!("CARGO_PKG_VERSION"),
            "gap_threshold": GAP_THRESHOLD,
            "taps": taps.collect::<Vec<_>>(),
        })
    }
}
