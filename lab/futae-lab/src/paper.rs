//! `futae paper`: the experiments of the source papers, reproduced in simulation, and some live.

use crate::{interrupt, live};
use clap::Subcommand;
use futae_papers::{Check, Experiment, Grid, Options, Progress, Reproduction, Source, experiments};
use futae_terminal::failure::Failure;
use futae_terminal::output::output;
use futae_terminal::table::percent;
use std::io::Write;
use std::path::PathBuf;

/// Reproduce the experiments of the source papers
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List papers and figures
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Run one paper's experiments, or one figure's, and check them
    ///
    /// Exits with 1 if a check fails.
    Run(RunArgs),
}

#[derive(clap::Args)]
struct RunArgs {
    /// The paper, such as sugimoto-2015
    name: String,
    /// Only this figure, such as fig12
    figure: Option<String>,
    /// Use real caches, mounts and guests on a small scale, instead of a simulation; see
    /// docs/explanation/papers.md for what each needs
    #[arg(long)]
    live: bool,
    /// Divide sizes by this, a power of two from 1 to 1024; 1 is the paper's full size. Only figures 6 to 14 of
    /// sugimoto-2015 are so large; the others, and live experiments, ignore it
    #[arg(long, default_value_t = 64)]
    scale: u64,
    /// Seed of all randomness
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run it this many times, with this seed and those that follow, and check every run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Requests of warm-up and of measurement, as a multiple of the blocks [default: as the
    /// experiment prescribes]. Of those that are simulated only sugimoto-2015 takes it; the others ignore it
    #[arg(long)]
    passes: Option<u64>,
    /// For live-measured of sudo-1993: trace files of a near and of a far store, in place of synthetic
    /// requests
    #[arg(long, num_args = 2, value_names = ["NEAR", "FAR"], requires = "live")]
    traces: Option<Vec<PathBuf>>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl RunArgs {
    /// What an experiment is given, but for its seed.
    fn options(&self) -> Options {
        let traces = self.traces.clone();
        Options {
            scale: self.scale,
            passes: self.passes,
            traces: traces.and_then(|traces| traces.try_into().ok()),
            ..Options::default()
        }
    }
}

/// Lists or runs.
pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.action {
        Action::List { json } => list(*json),
        Action::Run(args) => reproduce(args),
    }
}

/// How an experiment is run.
#[derive(Clone, Copy)]
enum How {
    Simulated(Experiment),
    Live(live::experiment::Experiment),
}

impl How {
    /// Every experiment, the live ones last.
    fn all() -> Vec<Self> {
        let simulated = experiments().into_iter().map(Self::Simulated);
        let live = live::experiments().into_iter().map(Self::Live);
        simulated.chain(live).collect()
    }

    fn is_live(&self) -> bool {
        matches!(self, Self::Live(_))
    }

    fn takes_traces(&self) -> bool {
        self.is_live() && self.names()[1] == "live-measured"
    }

    /// Paper, figure and title.
    fn names(&self) -> [&'static str; 3] {
        match self {
            Self::Simulated(one) => [one.paper, one.figure, one.title],
            Self::Live(one) => [one.paper, one.figure, one.title],
        }
    }

    fn run(&self, options: &Options, progress: &Progress<'_>) -> Result<Reproduction, Failure> {
        match self {
            Self::Simulated(one) => Ok(one.run(options, progress)?),
            Self::Live(one) => one.run(options, progress),
        }
    }
}

fn list(json: bool) -> Result<(), Failure> {
    let mut out = output();
    let all = How::all();
    if json {
        let as_json = |how: &How| {
            let [paper, figure, title] = how.names();
            let live = how.is_live();
            serde_json::json!({ "paper": paper, "figure": figure, "title": title, "live": live })
        };
        let all: Vec<_> = all.iter().map(as_json).collect();
        let list = serde_json::json!({ "experiments": all });
        writeln!(out, "{}", serde_json::to_string_pretty(&list)?)?;
        return Ok(());
    }
    for how in all {
        let [paper, figure, title] = how.names();
        let live = if how.is_live() { "--live: " } else { "" };
        writeln!(out, "{paper:<14} {figure:<10} {live}{title}")?;
    }
    Ok(())
}

fn reproduce(args: &RunArgs) -> Result<(), Failure> {
    if args.passes == Some(0) {
        return Err(Failure::usage("--passes must be at least 1"));
    }
    let chosen = choose(args)?;
    if args.traces.is_some() && !chosen.iter().any(How::takes_traces) {
        return Err(Failure::usage("--traces is for live-measured of sudo-1993"));
    }
    if !args.live && (!args.scale.is_power_of_two() || args.scale > 1024) {
        return Err(Failure::usage(format!(
            "--scale {} is not a power of two from 1 to 1024",
            args.scale
        )));
    }
    let mut options = args.options();
    if args.live {
        // What is live has something to take down first.
        options.stopped = interrupt::watch()?;
    }
    let mut made = Vec::new();
    let Some(end) = args.seed.checked_add(args.seeds) else {
        return Err(Failure::usage(
            "--seed and --seeds go beyond the largest number",
        ));
    };
    for how in chosen {
        let [paper, figure, _] = how.names();
        for seed in args.seed..end {
            options.seed = seed;
            let progress =
                futae_terminal::progress::Progress::new(&format!("{paper} {figure}"), args.json);
            let reproduction = how.run(&options, &|fraction| progress.set(fraction));
            let reproduction = interrupt::unless_stopped(&options.stopped, reproduction)?;
            drop(progress);
            show(args, &reproduction)?;
            made.push(reproduction);
        }
        if args.seeds > 1 && !args.json {
            let last = made.len() - args.seeds as usize;
            write!(output(), "{}", over_seeds(&made[last..]))?;
        }
    }
    finish(args, made)
}

/// Each as soon as it is there, unless all go into one JSON.
fn show(args: &RunArgs, made: &Reproduction) -> Result<(), Failure> {
    if !args.json {
        write!(output(), "{}", render(made))?;
    }
    Ok(())
}

fn finish(args: &RunArgs, made: Vec<Reproduction>) -> Result<(), Failure> {
    if args.json {
        let text = serde_json::to_string_pretty(&as_json(&made))?;
        writeln!(output(), "{text}")?;
    }
    let checks = made.iter().flat_map(|one| &one.checks);
    match checks.filter(|check| !check.ok).count() {
        0 => Ok(()),
        1 => Err(anyhow::anyhow!("1 check failed").into()),
        failed => Err(anyhow::anyhow!("{failed} checks failed").into()),
    }
}

/// The experiments that are asked for, or what could be.
fn choose(args: &RunArgs) -> Result<Vec<How>, Failure> {
    let all = How::all().into_iter();
    let all: Vec<_> = all.filter(|how| how.is_live() == args.live).collect();
    let of_paper = |how: &&How| how.names()[0] == args.name;
    let of_paper: Vec<How> = all.iter().filter(of_paper).copied().collect();
    let live = if args.live { " live" } else { "" };
    if of_paper.is_empty() {
        let mut known: Vec<_> = all.iter().map(|how| how.names()[0]).collect();
        known.dedup();
        let message = format!(
            "unknown{live} paper {:?}; there are: {}",
            args.name,
            known.join(", ")
        );
        return Err(Failure::usage(message));
    }
    let Some(figure) = &args.figure else {
        return Ok(of_paper);
    };
    let found = of_paper.iter().find(|how| how.names()[1] == figure);
    found.map(|&how| vec![how]).ok_or_else(|| {
        let known: Vec<_> = of_paper.iter().map(|how| how.names()[1]).collect();
        Failure::usage(format!(
            "{} has no{live} figure {figure:?}; there are: {}",
            args.name,
            known.join(", ")
        ))
    })
}

/// One figure as itself, several under `figures`; all checks together in `checks`.
fn as_json(made: &[Reproduction]) -> serde_json::Value {
    let checks: Vec<_> = made
        .iter()
        .flat_map(|one| one.checks.iter().map(move |check| (one, check)))
        .map(|(one, check)| {
            serde_json::json!({
                "figure": one.figure,
                "seed": one.seed,
                "name": check.name,
                "value": check.value,
                "low": check.low,
                "high": check.high,
                "ok": check.ok,
                "source": check.source,
            })
        })
        .collect();
    serde_json::json!({
        "figures": made,
        "checks": checks,
        "ok": made.iter().all(Reproduction::ok),
        "version": env!("CARGO_PKG_VERSION"),
    })
}

fn render(made: &Reproduction) -> String {
    let mut text = format!("{} {}: {}\n\n", made.paper, made.figure, made.title);
    let mut line = |line: String| {
        text.push_str(line.trim_end());
        text.push('\n');
    };
    line(format!("  {:<14} {}", "seed", made.seed));
    for (name, value) in &made.parameters {
        line(format!("  {name:<14} {value}"));
    }
    line(String::new());
    grid(&made.result).into_iter().for_each(&mut line);
    for (head, sentences) in [("published:", &made.published), ("errata:", &made.errata)] {
        line(format!("\n{head}"));
        sentences
            .iter()
            .for_each(|sentence| line(format!("  {sentence}")));
    }
    line("\nchecks:".to_owned());
    made.checks.iter().map(verdict).for_each(&mut line);
    let passed = made.checks.iter().filter(|check| check.ok).count();
    let all = made.checks.len();
    let share = (all > 0).then(|| passed as f64 / all as f64);
    line(format!("{passed} of {all} passed ({})\n", percent(share)));
    text
}

/// What every check of an experiment came to with each seed.
fn over_seeds(made: &[Reproduction]) -> String {
    let Some(first) = made.first() else {
        return String::new();
    };
    let seeds = made.len();
    let mut text = format!("{} {}, {seeds} seeds:\n", first.paper, first.figure);
    // Which checks there are may depend on the seed.
    let mut named: Vec<&Check> = Vec::new();
    for check in made.iter().flat_map(|one| &one.checks) {
        if named.iter().all(|known| known.name != check.name) {
            named.push(check);
        }
    }
    for check in named {
        let of_seed =
            |one: &Reproduction| one.checks.iter().find(|it| it.name == check.name).cloned();
        let all: Vec<Option<Check>> = made.iter().map(of_seed).collect();
        let value = |check: &Check| check.value.map_or_else(|| "undefined".to_owned(), number);
        let values = all
            .iter()
            .map(|check| check.as_ref().map_or_else(|| "–".to_owned(), value));
        let values = values.collect::<Vec<_>>().join(", ");
        let checked = all.iter().flatten().count();
        let ok = all.iter().flatten().filter(|check| check.ok).count();
        let word = if ok == checked { "ok" } else { "FAILED" };
        let name = &check.name;
        text.push_str(&format!(
            "  {word:<6} {name}: {values} ({ok} of {checked} passed)\n"
        ));
    }
    text.push('\n');
    text
}

/// A table's lines, columns to the right but for the first.
fn grid(grid: &Grid) -> Vec<String> {
    let rows = || std::iter::once(&grid.heads).chain(&grid.rows);
    let width = |column: usize| {
        let cells = rows().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..grid.heads.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let mut text = String::from("  ");
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = " ".repeat(width - cell.chars().count());
            if at == 0 {
                text.push_str(cell);
                text.push_str(&gap);
            } else {
                text.push_str("  ");
                text.push_str(&gap);
                text.push_str(cell);
            }
        }
        text
    };
    rows().map(line).collect()
}

fn verdict(check: &Check) -> String {
    let shown = |value: Option<f64>, none: &str| value.map_or_else(|| none.to_owned(), number);
    let bounds = match (check.low, check.high) {
        (Some(low), None) if low == f64::MIN_POSITIVE => "above 0".to_owned(),
        (Some(low), None) => format!("at least {}", number(low)),
        (None, Some(high)) => format!("at most {}", number(high)),
        (Some(low), Some(high)) if low == high => format!("exactly {}", number(low)),
        (low, high) => format!("{} to {}", shown(low, "–"), shown(high, "–")),
    };
    let source = match check.source {
        Source::Published => "published",
        Source::Model => "model",
    };
    let word = if check.ok { "ok" } else { "FAILED" };
    let value = shown(check.value, "undefined");
    format!("  {word:<6} {}: {value} ({bounds}; {source})", check.name)
}

/// Up to three decimals.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0" } else { text }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_that_fails_is_seen() {
        let of = |value| Reproduction {
            paper: "p",
            figure: "f",
            checks: vec![Check::within(Source::Model, "more", value, 1.0, None)],
            ..Reproduction::default()
        };
        let said = over_seeds(&[of(1.5), of(0.5)]);
        assert_eq!(
            said,
            "p f, 2 seeds:\n  FAILED more: 1.5, 0.5 (1 of 2 passed)\n\n"
        );
        let said = over_seeds(&[of(1.5), of(2.0)]);
        assert!(
            said.contains("ok     more: 1.5, 2 (2 of 2 passed)"),
            "{said}"
        );
    }

    /// A live experiment checks some claims only where every simulated run with this seed has them.
    #[test]
    fn a_check_that_a_seed_does_not_have_is_taken_for_no_other() {
        let of = |checks: &[(&str, f64)]| Reproduction {
            paper: "p",
            figure: "f",
            checks: checks
                .iter()
                .map(|&(name, value)| Check::within(Source::Model, name, value, 1.0, None))
                .collect(),
            ..Reproduction::default()
        };
        let said = over_seeds(&[
            of(&[("some", 2.0), ("all", 3.0)]),
            of(&[("all", 4.0)]),
            of(&[("all", 5.0), ("other", 0.0)]),
        ]);
        assert_eq!(
            said,
            "p f, 3 seeds:\n  ok     some: 2, –, – (1 of 1 passed)\n  ok     all: 3, 4, 5 (3 of 3 passed)\n  \
             FAILED other: –, –, 0 (0 of 1 passed)\n\n"
        );
    }

    #[test]
    fn verdicts_show_value_and_bounds() {
        let check = Check::within(Source::Model, "hits", 0.25, 0.2, 0.3);
        assert_eq!(verdict(&check), "  ok     hits: 0.25 (0.2 to 0.3; model)");
        let check = Check::within(Source::Published, "gap", f64::NAN, f64::MIN_POSITIVE, None);
        assert_eq!(
            verdict(&check),
            "  FAILED gap: undefined (above 0; published)"
        );
    }
}
