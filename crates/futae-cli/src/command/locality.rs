//! `futae locality`: how soon blocks come back, at the application and below each cache.

use super::source_args::SourceArgs;
use crate::densities::{Densities, GIB, Height};
use crate::plot::Plot;
use crate::save::{Picture, print};
use futae_sim::locality::{BINS_MAX, Bins, GAP_THRESHOLD, Study, Summary};
use futae_sim::run::Neighbours;
use futae_sim::{LevelSpec, Link};
use futae_terminal::failure::Failure;
use futae_terminal::progress::Progress;
use futae_terminal::table::{Table, count};
use std::path::PathBuf;

/// Show re-access intervals at each level: how soon blocks are requested again
///
/// An interval is the amount of data of other requests, at that level, between two requests for the
/// same block. Below an LRU cache there are none shorter than a gap, and a lower LRU or FIFO cache
/// smaller than the gap has no hits.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    source: SourceArgs,
    /// A level, top down, as POLICY:SIZE; without any only the application's requests are shown
    #[arg(long = "level", value_name = "POLICY:SIZE")]
    levels: Vec<String>,
    /// What a level sends to the level below when it evicts a block: demote (its data), notice (its
    /// number) or none [default: demote above an exclusive level, none elsewhere]
    #[arg(long)]
    link: Option<Link>,
    /// Requests before counting begins [default: a fifth of all]
    #[arg(long, value_name = "REQUESTS")]
    warmup: Option<u64>,
    /// Number of bins
    #[arg(long, default_value_t = 60)]
    bins: usize,
    /// Use bins of growing width (logarithmic)
    #[arg(long)]
    log: bool,
    /// Draw the densities into a file, .svg, .pdf or .png
    #[arg(long, visible_alias = "svg", value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The result, with what it was found by.
struct Shown<'a> {
    args: &'a Args,
    study: Study,
}

/// Simulates and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    futae_plugin::enable();
    if !(1..=BINS_MAX).contains(&args.bins) {
        return Err(Failure::usage(format!("--bins is from 1 to {BINS_MAX}")));
    }
    let picture = args.plot.as_deref().map(Picture::new).transpose()?;
    let shown = Shown::find(args)?;
    let plot = shown.plot();
    if let Some(picture) = picture {
        picture.write(&plot)?;
    }
    let text = if args.json {
        format!("{}\n", serde_json::to_string_pretty(&shown.summary())?)
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
        let neighbours = Neighbours::of([&levels[..]]);
        let source = args.source.open_whole(neighbours)?;
        let progress = Progress::new("simulating", args.json);
        let study = Study::of(
            source,
            (levels, args.link),
            args.warmup,
            args.source.seed,
            &|fraction| progress.set(fraction),
        );
        let study = study.map_err(Failure::usage)?;
        Ok(Self { args, study })
    }

    fn kind(&self) -> Bins {
        match self.args.log {
            true => Bins::Log,
            false => Bins::Linear,
        }
    }

    fn densities(&self) -> Densities<'_> {
        let taps = self.study.taps().iter();
        Densities {
            places: taps
                .map(|tap| (tap.place.clone(), &tap.intervals))
                .collect(),
            bins: self.args.bins,
            kind: self.kind(),
            block_bytes: self.study.block_bytes(),
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
        for (at, tap) in self.study.taps().iter().enumerate() {
            let intervals = &tap.intervals;
            table.row([
                tap.place.clone(),
                count(intervals.reaccesses()),
                gb(intervals.quantile_bytes(0.5)),
                gb(intervals.quantile_bytes(0.9)),
                gb(intervals.gap_bytes()),
                gb(self.study.theory_bytes(at)),
            ]);
        }
        format!(
            "{} requests after {} of warm-up, {} blocks of {} bytes, seed {}\n\n{}\n\
             gap: the largest interval below which the density is at most {} % of that up to the \
             median\n",
            count(self.study.source().requests() - self.study.warmup()),
            count(self.study.warmup()),
            count(self.study.source().blocks()),
            self.study.block_bytes(),
            self.args.source.seed,
            table.render(),
            100.0 * GAP_THRESHOLD
        )
    }

    fn summary(&self) -> Summary<'_> {
        self.study
            .summary(self.args.source.source.text(), self.args.bins, self.kind())
    }
}
