//! `futae plot`: charts of results that were written before.

mod mean;
mod pareto;
mod runs;
mod time;

use crate::plot::{Bar, HeatMap, Line, Look, Plot, Scale, axis_unit, size_text};
use crate::save::{Picture, print};
use futae_terminal::failure::Failure;
use mean::Mean;
use pareto::pareto;
use runs::{Run, read};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use time::over_time;

/// What is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// The miss ratio by size, a line for each policy
    Mrc,
    /// The hit ratio by size, a line for each policy
    HitRatio,
    /// The hit ratio of two levels together, by the size of the upper and of the lower one
    HeatMap,
    /// Reads of the store by memory, a mark for each run, and a line through the runs that no other one beats in both
    Pareto,
    /// The hit ratio over time, a line for each run of `futae sim --windows --json`
    Time,
}

/// Draw results: miss-ratio curves, hit ratio by size and over time, heat maps of two levels, reads by memory
///
/// Reads the tables of `futae sweep` and of `futae sim --csv`, the JSON of `futae sim --json`, and for mrc also the
/// table of `futae mrc --csv`. Results of `futae sim --objects` are for mrc and hit-ratio. Runs that differ in their seed only are drawn as their mean; in
/// charts by size with its 95 % interval, as are sampled curves with `--repeats`.
#[derive(clap::Args)]
pub struct Args {
    /// What to draw
    #[arg(value_name = "KIND")]
    kind: Kind,
    /// Results, CSV or JSON
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The picture, .svg, .pdf or .png
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Draw sizes on a logarithmic axis; for mrc, hit-ratio and pareto
    #[arg(long)]
    log_x: bool,
}

/// Reads the files and draws.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.log_x && matches!(args.kind, Kind::HeatMap | Kind::Time) {
        return Err(Failure::usage(
            "--log-x is for mrc, hit-ratio and pareto, which have an axis of sizes",
        ));
    }
    let picture = Picture::new(&args.out)?;
    let drawn = |plot: Plot| Plot {
        log_x: args.log_x,
        ..plot
    };
    let mut runs = Vec::new();
    for file in args.files.iter().filter(|_| args.kind != Kind::Time) {
        runs.extend(read(file)?);
    }
    match args.kind {
        Kind::Time => picture.write(&over_time(&args.files)?)?,
        Kind::Mrc | Kind::HitRatio => {
            picture.write(&drawn(by_size(&runs, args.kind == Kind::Mrc)?))?;
        }
        Kind::Pareto => picture.write(&drawn(pareto(&runs)?))?,
        Kind::HeatMap => picture.write_svg(&heat_map(&runs)?.svg())?,
    }
    print(&format!("{}\n", args.out.display()))
}

/// A line for each policy of each source.
fn by_size(runs: &[Run], is_miss: bool) -> Result<Plot, Failure> {
    let sources: BTreeSet<&str> = runs.iter().map(|run| run.source.as_str()).collect();
    let mut names: Vec<String> = Vec::new();
    let mut lines: Vec<BTreeMap<u64, Mean<'_>>> = Vec::new();
    for run in runs {
        let [(policy, bytes)] = &run.levels[..] else {
            continue;
        };
        let name = match sources.len() {
            0 | 1 => policy.clone(),
            _ => format!("{policy}, {}", run.source),
        };
        let at = names.iter().position(|it| *it == name).unwrap_or_else(|| {
            names.push(name);
            lines.push(BTreeMap::new());
            lines.len() - 1
        });
        let y = if is_miss {
            run.miss_ratio
        } else {
            1.0 - run.miss_ratio
        };
        lines[at].entry(*bytes).or_default().add(run, y)?;
    }
    let largest = lines.iter().filter_map(|line| line.last_key_value());
    let Some(largest) = largest.map(|(&bytes, _)| bytes).max() else {
        return Err(Failure::usage(
            "there is no run of one level; `futae plot heat-map` draws two levels",
        ));
    };
    let (unit, unit_name) = axis_unit(largest as f64);
    let bars = lines.iter().enumerate().flat_map(|(line, points)| {
        let bar = move |(&bytes, mean): (&u64, &Mean<'_>)| {
            Some(Bar {
                line,
                x: bytes as f64 / unit,
                y: mean.value(),
                half: mean.half()?,
            })
        };
        points.iter().filter_map(bar)
    });
    let bars = bars.collect();
    let drawn = names.into_iter().zip(lines).map(|(name, points)| Line {
        name,
        points: points
            .iter()
            .map(|(&bytes, mean)| (bytes as f64 / unit, mean.value()))
            .collect(),
        look: Look::Marked,
    });
    let what = if is_miss { "miss ratio" } else { "hit ratio" };
    let only = sources
        .first()
        .filter(|source| sources.len() == 1 && !source.is_empty());
    Ok(Plot {
        title: only.map_or_else(
            || format!("{what} by size"),
            |source| format!("{what} by size, {source}"),
        ),
        x_label: format!("size of the cache, {unit_name}"),
        x_unit: unit_name,
        y_label: what.to_owned(),
        y_scale: Scale::Percent,
        lines: drawn.collect(),
        bars,
        ..Plot::default()
    })
}

/// One map; a second pair of policies or a second source needs a picture of its own.
fn heat_map(runs: &[Run]) -> Result<HeatMap, Failure> {
    let mut all: BTreeMap<(u64, u64), Mean<'_>> = BTreeMap::new();
    let mut subjects = BTreeSet::new();
    for run in runs {
        let [(upper, upper_bytes), (lower, lower_bytes)] = &run.levels[..] else {
            continue;
        };
        subjects.insert(format!("{upper} over {lower}, {}", run.source));
        all.entry((*upper_bytes, *lower_bytes))
            .or_default()
            .add(run, 1.0 - run.miss_ratio)?;
    }
    let mut subjects = subjects.into_iter();
    let Some(subject) = subjects.next() else {
        return Err(Failure::usage(
            "there is no run of two levels; a plan of `futae sweep` has them as \
             levels = [[\"lru:1%,5%\", \"exclusive:5%,10%\"]]",
        ));
    };
    if let Some(other) = subjects.next() {
        let message = format!(
            "a heat map shows one pair of policies and one source; there are {subject} and {other}"
        );
        return Err(Failure::usage(message));
    }
    let uppers: BTreeSet<u64> = all.keys().map(|key| key.0).collect();
    let lowers: BTreeSet<u64> = all.keys().map(|key| key.1).collect();
    let texts =
        |sizes: &BTreeSet<u64>| sizes.iter().map(|&bytes| size_text(bytes as f64)).collect();
    let row = |lower: &u64| {
        uppers
            .iter()
            .map(|upper| Some(all.get(&(*upper, *lower))?.value()))
            .collect()
    };
    Ok(HeatMap {
        title: format!(
            "hit ratio of both levels, {}",
            subject.trim_end_matches(", ")
        ),
        x_label: "upper cache".to_owned(),
        y_label: "lower cache".to_owned(),
        columns: texts(&uppers),
        rows: texts(&lowers),
        values: lowers.iter().map(row).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(source: &str, seed: u64, conditions: &[(&'static str, &str)]) -> Run {
        let conditions = conditions.iter();
        Run {
            source: source.to_owned(),
            levels: vec![("lru".to_owned(), 4096)],
            miss_ratio: seed as f64 / 10.0,
            half_width: None,
            memory_bytes: 4096,
            reads_per_request: None,
            seed: Some(seed),
            conditions: conditions
                .map(|(name, value)| (*name, (*value).to_owned()))
                .collect(),
        }
    }

    #[test]
    fn only_runs_that_differ_in_their_seed_are_one_figure() {
        let drawn = |runs: &[Run]| by_size(runs, true).map_err(|failure| failure.to_string());
        let one = |more: &[(&'static str, &str)]| [run("a", 1, more), run("a", 2, more)];
        let plot = drawn(&one(&[("guests", "1")])).expect("a plot");
        assert_eq!((plot.lines.len(), plot.bars.len()), (1, 1));
        let plot = drawn(&[run("a", 1, &[]), run("b", 2, &[])]).expect("a plot");
        assert_eq!((plot.lines.len(), plot.bars.len()), (2, 0));
        for name in ["guests", "links"] {
            let refused = drawn(&[run("a", 1, &[(name, "x")]), run("a", 2, &[(name, "y")])]);
            let said = format!("have {name} x and y");
            assert!(refused.is_err_and(|why| why.contains(&said)), "{name}");
        }
        // One file may say more than the other.
        let plot = drawn(&[
            run("a", 1, &[("guests", "1"), ("links", "x")]),
            run("a", 2, &[("links", "x")]),
        ]);
        assert_eq!(plot.expect("a plot").lines.len(), 1);
    }
}
