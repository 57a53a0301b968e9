//! Files that stay, and are then swapped at once: hits in steady state, against the best division
//! that stays, and how soon it is reached. Not in the paper, which prints no numbers for it.

use super::guests::{
    GIB, LEAST_MIB, MISS_COST, MOVERS, Phases, SETTINGS, STATIC_MIB, Setting, TRIAL_UNITS, Trials,
    UNIT_PAGES, mover, reader, simulate,
};
use crate::report::{Check, Grid, Options, PaperError, Progress, Reproduction, Source};
use futae_sim::curve::{Curve, ExactLru};
use futae_sim::run::in_parallel;

/// Trials before the files are swapped, and after.
const TRIALS: usize = 30;
/// Of those, the last this many are steady.
const STEADY: usize = 12;
const SEEDS: u64 = 4;
/// What `mrc` moves in a trial, at most.
const STEP_MIB: u64 = 2 * STATIC_MIB / 8;
/// What counts as the best division.
const GOOD: f64 = 0.98;
/// Requests that make an exact curve, as a multiple of the file, after half as many for warmth.
const CURVE_PASSES: u64 = 60;

/// What each division gives, without a simulation: two guests that read all the time.
struct Divisions {
    /// Of the 2 GB file and of the 4 GB file.
    curves: [Curve; 2],
    overhead: u64,
    best_hits: f64,
    /// Memory of the guest with the 2 GB file, in MiB.
    best: u64,
}

impl Divisions {
    fn new(setting: &Setting, seed: u64) -> Result<Self, PaperError> {
        let curve = |size: u64| {
            let mut reader = reader(setting.access, size, seed)?;
            let mut exact = ExactLru::default();
            for request in 0..size * CURVE_PASSES {
                if request == size * CURVE_PASSES / 3 {
                    exact.restart();
                }
                // A file has a few thousand units.
                exact.access(reader.next_block().0 as u32);
            }
            Ok::<_, PaperError>(exact.curve())
        };
        let mut divisions = Self {
            curves: [curve(2 * GIB)?, curve(4 * GIB)?],
            overhead: setting.overhead_mib,
            best_hits: 0.0,
            best: 0,
        };
        for small in (LEAST_MIB..=2 * STATIC_MIB - LEAST_MIB).step_by(4) {
            let hits = divisions.hits(small);
            if hits > divisions.best_hits {
                (divisions.best_hits, divisions.best) = (hits, small);
            }
        }
        Ok(divisions)
    }

    /// Page reads a trial that hit, if the guest with the 2 GB file has so much memory.
    fn hits(&self, small: u64) -> f64 {
        let guest = |curve: &Curve, memory: u64| {
            let miss = curve.miss_ratio_at(memory - self.overhead);
            (1.0 - miss) / (1.0 + (MISS_COST - 1) as f64 * miss)
        };
        let [one, other] = &self.curves;
        let share = guest(one, small) + guest(other, 2 * STATIC_MIB - small);
        share * (TRIAL_UNITS * UNIT_PAGES) as f64
    }

    /// After how many trials from `first` on G1's memory is as good as the best, if it becomes so
    /// within `TRIALS`; and how many of these did not move a whole step.
    fn reached(&self, run: &Trials, first: usize) -> [f64; 2] {
        let is_good = |&memory: &u64| {
            let small = if first == 0 {
                memory
            } else {
                2 * STATIC_MIB - memory
            };
            self.hits(small) >= GOOD * self.best_hits
        };
        let memory = &run.memory[first..first + TRIALS];
        let Some(at) = memory.iter().position(is_good) else {
            return [f64::NAN; 2];
        };
        let steps = memory[..=at].windows(2);
        let whole = steps.filter(|pair| pair[0].abs_diff(pair[1]) + 1 >= STEP_MIB);
        [(at + 1) as f64, (at + 1 - whole.count()) as f64]
    }
}

/// Means over the seeds, but for the times, which are the worst.
struct Steady {
    memory: [f64; 2],
    /// Relative to the best division, before the swap and after.
    hits: [f64; 2],
    reached: [f64; 2],
    /// Those of them that did not move a whole step.
    partial: [f64; 2],
}

fn steady(
    setting: &Setting,
    name: &str,
    divisions: &Divisions,
    seeds: &[u64],
) -> Result<Steady, PaperError> {
    let mut made = Steady {
        memory: [0.0; 2],
        hits: [0.0; 2],
        reached: [0.0; 2],
        partial: [0.0; 2],
    };
    let mean = 1.0 / (seeds.len() * STEADY) as f64;
    for &seed in seeds {
        let run = simulate(
            setting,
            mover(name, seed),
            Phases::Trials(TRIALS, TRIALS),
            seed,
        )?;
        for half in 0..2 {
            let end = (half + 1) * TRIALS;
            let last = end - STEADY..end;
            let hits: u64 = run.hits[last.clone()].iter().sum();
            made.hits[half] += mean * hits as f64 / divisions.best_hits;
            made.memory[half] += mean * run.memory[last].iter().sum::<u64>() as f64;
            let [reached, partial] = divisions.reached(&run, half * TRIALS);
            made.reached[half] = worst(made.reached[half], reached);
            made.partial[half] = worst(made.partial[half], partial);
        }
    }
    Ok(made)
}

/// The later of two times; a run that never gets there has none, and then there is no worst one.
fn worst(one: f64, other: f64) -> f64 {
    if one.is_nan() || other.is_nan() {
        return f64::NAN;
    }
    one.max(other)
}

pub fn run(options: &Options, progress: &Progress<'_>) -> Result<Reproduction, PaperError> {
    let seeds: Vec<u64> = (0..SEEDS).map(|n| options.seed.wrapping_add(n)).collect();
    let mut result = Grid::new([
        "access, overhead",
        "memory moves",
        "G1 MiB",
        "hits of best",
        "reached after",
        "swapped: G1 MiB",
        "hits of best",
        "reached after",
    ]);
    let rows = in_parallel(
        SETTINGS.len(),
        options.threads,
        progress,
        |row, progress| {
            let setting = &SETTINGS[row];
            let divisions = Divisions::new(setting, options.seed)?;
            let mut all = Vec::new();
            for (done, name) in MOVERS.iter().enumerate() {
                progress(done as f64 / MOVERS.len() as f64);
                all.push(steady(setting, name, &divisions, &seeds)?);
            }
            progress(1.0);
            Ok::<_, PaperError>((divisions, all))
        },
    );
    let mut checks = Vec::new();
    for (setting, row) in SETTINGS.iter().zip(rows) {
        let (divisions, all) = row?;
        let reached = |trials: f64| match trials.is_nan() {
            true => "never".to_owned(),
            false => format!("{trials:.0}"),
        };
        for (name, steady) in MOVERS.iter().zip(&all) {
            result.row([
                setting.name.to_owned(),
                (*name).to_owned(),
                format!("{:.0}", steady.memory[0]),
                format!("{:.3}", steady.hits[0]),
                reached(steady.reached[0]),
                format!("{:.0}", steady.memory[1]),
                format!("{:.3}", steady.hits[1]),
                reached(steady.reached[1]),
            ]);
        }
        result.row([
            setting.name.to_owned(),
            "best that stays".to_owned(),
            divisions.best.to_string(),
            "1".to_owned(),
            String::new(),
            (2 * STATIC_MIB - divisions.best).to_string(),
            "1".to_owned(),
            String::new(),
        ]);
        if let Some(mrc) = all.last() {
            checks.extend(of_curves(setting, mrc));
        }
    }
    Ok(Reproduction {
        parameters: vec![
            ("guests", "as in fig2".to_owned()),
            (
                "trials",
                format!(
                    "{TRIALS}, and {TRIALS} more with the files swapped; the last {STEADY} of each count"
                ),
            ),
            (
                "best that stays",
                "by the exact miss-ratio curves of both files, every 4 MiB".to_owned(),
            ),
            (
                "runs",
                format!(
                    "{SEEDS} seeds from {}: means of memory and hits, the worst of times",
                    options.seed
                ),
            ),
        ],
        result,
        published: vec!["the total hits exceed those of the static division as trials proceed"],
        checks,
        ..Reproduction::default()
    })
}

fn of_curves(setting: &Setting, mrc: &Steady) -> Vec<Check> {
    let name = |what: &str| format!("mrc, {}: {what}", setting.name);
    let mut checks = Vec::new();
    for (half, when) in ["", ", files swapped"].into_iter().enumerate() {
        checks.push(Check::within(
            Source::Model,
            name(&format!(
                "hits in steady state of the best division's{when}"
            )),
            mrc.hits[half],
            GOOD,
            None,
        ));
        checks.push(Check::within(
            Source::Model,
            name(&format!(
                "trials until memory is as good as the best, whole steps apart{when}"
            )),
            mrc.partial[half],
            None,
            5.0,
        ));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::super::EXPERIMENTS;
    use super::*;

    #[test]
    fn curves_find_the_best_division_soon_and_keep_to_it() {
        let made = EXPERIMENTS[1]
            .run(&Options::default(), &|_| ())
            .expect("runs");
        assert!(made.ok(), "{:#?}\n{:#?}", made.checks, made.result);
    }
}
