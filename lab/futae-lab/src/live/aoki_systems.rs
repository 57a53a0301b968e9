//! What the experiments with two readers have in common: the sizes, the systems that move memory, the race, the table, the checks.

use super::aoki_pace::{MISS_COST, TRIAL_READS};
use super::aoki_race::{Race, Trials};
use futae_allocate::paper;
use futae_balance::{Config, Controller, Report};
use futae_papers::aoki::{Hits, Simulated, Spread, TRIALS_COMPARED, simulated_hits};
use futae_papers::{Check, Grid, Options, Reproduction, Source};
use futae_terminal::failure::Failure;
use futae_units::Size;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub const MIB: u64 = 1 << 20;
/// The paper's sizes are this many times as large.
const SCALE: u64 = 16;
pub const SMALL: u64 = 128 * MIB;
pub const LARGE: u64 = 256 * MIB;
/// What both have together, and what each has at least and at most.
pub const TOTAL: u64 = 384 * MIB;
pub const LEAST: u64 = 64 * MIB;
pub const MOST: u64 = TOTAL - LEAST;
/// Of each guest's memory so much is no page cache: a sixteenth of 0.4 GiB.
pub const OVERHEAD: u64 = MIB * 256 / 10;
/// Bytes of the files in the order in which each guest reads them.
pub const FILES: [[u64; 2]; 2] = [[SMALL, LARGE], [LARGE, SMALL]];
/// What reading a file takes in trials if all hits, as in the simulation.
const PHASE_TRIALS: u64 = 11;
/// How much longer than meant readers may take in all: otherwise trials are not what they should be.
const LATE: f64 = 1.05;
/// How far beyond the simulated runs the hits of a system may be, relative to those of fixed memory.
const NEAR: f64 = 0.05;
const TRIALS_MAX: usize = 300;
/// How long reports may take to arrive.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Who moves memory.
const SYSTEMS: [&str; 3] = ["static", "paper", "mrc"];

/// When a guest was done with its first file, and with its second, in trials.
pub type Ends = [f64; 2];

/// One run.
pub struct Outcome {
    /// Page reads that hit, by trial, of both together.
    hits: Vec<u64>,
    /// Page reads that missed, likewise.
    misses: Vec<u64>,
    /// How far apart the paper's values of both were, by trial.
    apart: Vec<f64>,
    /// G1's memory after each trial, in bytes.
    memory: Vec<u64>,
    /// By guest.
    ends: [Ends; 2],
}

impl Outcome {
    /// Of the first this many trials.
    fn hits_of(&self, trials: usize) -> u64 {
        self.hits.iter().take(trials).sum()
    }

    /// How long both readers took, to how long they should.
    fn late(&self) -> f64 {
        let trials: f64 = self.ends.iter().map(|ends| ends[1]).sum();
        let (hits, misses): (u64, u64) = (self.hits.iter().sum(), self.misses.iter().sum());
        let meant = hits + u64::from(MISS_COST) * misses;
        trials * f64::from(TRIAL_READS) / meant as f64
    }

    fn last_end(&self) -> f64 {
        self.ends[0][1].max(self.ends[1][1])
    }
}

/// Page reads of each file: 11 trials of hits only, unless this many times the larger file's pages are asked for.
pub fn reads(options: &Options) -> u64 {
    let passes = |passes: u64| passes.saturating_mul(LARGE / 4096);
    options
        .passes
        .map_or(PHASE_TRIALS * u64::from(TRIAL_READS), passes)
}

/// The seed of a guest's first file; the second has the next.
pub fn seed(options: &Options, guest: usize) -> u64 {
    options.seed.wrapping_mul(4).wrapping_add(2 * guest as u64)
}

/// The beginning of a configuration: all but the guests.
pub fn head(system: &str, trial: Duration, total: u64) -> String {
    format!(
        "total = \"{}\"\nperiod = {}\nevaluator = \"{system}\"\nreserve = \"64MiB\"\n{}",
        Size::Bytes(total),
        trial.as_secs_f64(),
        match system {
            "paper" => "[paper]\nstep = \"6400KiB\"\n",
            _ => "",
        }
    )
}

/// What the simulation says of the paper's rule and of `mrc`, beside fixed memory, if that is what is run. The guests
/// have `on_top` bytes more that are no page cache.
pub fn simulated(
    choice: &'static str,
    options: &Options,
    on_top: u64,
) -> Result<Option<Simulated>, Failure> {
    if options.passes.is_some() {
        return Ok(None);
    }
    let hits = simulated_hits(choice, on_top * SCALE / MIB, options.seed)?;
    Ok(Some(hits))
}

/// Runs every system by `one`, and makes a table and checks of what comes of them.
pub fn compare(
    parameters: Vec<(&'static str, String)>,
    simulated: Option<Simulated>,
    progress: &dyn Fn(f64),
    one: &mut dyn FnMut(&str) -> Result<Outcome, Failure>,
) -> Result<Reproduction, Failure> {
    let mut result = Grid::new([
        "memory moves",
        "trials",
        "hits, first 24 trials",
        "to static",
        "until one run ends, to static",
        "hits in all",
        "to static",
        "hit ratio",
        "G1 switches",
        "G2 switches",
        "G1 ends",
        "G2 ends",
        "G1 MiB at a quarter",
        "at three quarters",
        "e apart at most",
        "time to that meant",
    ]);
    let mut all = Vec::new();
    for (number, system) in SYSTEMS.into_iter().enumerate() {
        all.push(one(system)?);
        progress((number + 1) as f64 / SYSTEMS.len() as f64);
    }
    for (system, outcome) in SYSTEMS.into_iter().zip(&all) {
        let at = |part: usize| {
            let memory = outcome.memory.get(outcome.memory.len() * part / 4);
            memory.map_or_else(|| "–".to_owned(), |bytes| (bytes / MIB).to_string())
        };
        let end = |guest: usize, file: usize| format!("{:.1}", outcome.ends[guest][file]);
        let (hits, misses) = (
            outcome.hits_of(TRIALS_MAX),
            outcome.misses.iter().sum::<u64>(),
        );
        let to_static = Hits::relative(&outcome.hits, &all[0].hits);
        let apart = outcome.apart.iter().copied().fold(0.0, f64::max);
        result.row([
            system.to_owned(),
            outcome.hits.len().to_string(),
            outcome.hits_of(TRIALS_COMPARED).to_string(),
            format!("{:.3}", to_static.compared),
            format!("{:.3}", to_static.until_one_ends),
            hits.to_string(),
            format!("{:.3}", to_static.in_all),
            format!(
                "{:.2} %",
                100.0 * hits as f64 / (hits + misses).max(1) as f64
            ),
            end(0, 0),
            end(1, 0),
            end(0, 1),
            end(1, 1),
            at(1),
            at(3),
            format!("{apart:.0}"),
            format!("{:.3}", outcome.late()),
        ]);
    }
    let mut parameters = parameters;
    let mut checks = checks(&all, simulated.as_ref());
    let late = all.iter().map(|one| one.late()).fold(0.0, f64::max);
    checks.push(Check::within(
        Source::Model,
        "readers keep their pace: time to that meant, at worst",
        late,
        None,
        LATE,
    ));
    if let Some(simulated) = simulated {
        checks.extend(beside_simulation(&all, simulated));
        let text = |runs: Spread| {
            let [least, most] = runs.ends;
            let text = |of: fn(&Hits) -> f64| {
                let [mean, least, most] = [runs.mean, least, most].each_ref().map(of);
                format!("{mean:.3} ({least:.3} to {most:.3})")
            };
            let (compared, in_all) = (text(|hits| hits.compared), text(|hits| hits.in_all));
            format!("{compared} in the first 24 trials, {in_all} in all")
        };
        let [paper, mrc] = [simulated.paper, simulated.mrc].map(text);
        let text = format!(
            "hits to static, eight runs each: paper, also with thresholds of 450 and 550, {paper}; mrc {mrc}"
        );
        parameters.push(("simulated", text));
    }
    parameters.push((
        "paper",
        "as printed: 6.25 MiB while the values are less than 500 apart".to_owned(),
    ));
    Ok(Reproduction {
        parameters,
        result,
        published: vec![
            "the whole run takes 24 trials, and 30 without the system",
            "more hits than without in 19 of the first 24 trials",
        ],
        checks,
        ..Reproduction::default()
    })
}

/// Who has more hits than whom. Two of the comparisons depend on how pages are chosen: they are checked where every
/// simulated run has them.
fn checks(all: &[Outcome], simulated: Option<&Simulated>) -> Vec<Check> {
    let [fixed, paper, curves] = all else {
        return Vec::new();
    };
    let mut checks = Vec::new();
    let mut more = |name: &str, value: f64| {
        checks.push(Check::within(Source::Model, name, value, 1.0, None));
    };
    let [mrc, mrc_to_paper, printed] = [(curves, fixed), (curves, paper), (paper, fixed)]
        .map(|(one, other)| Hits::relative(&one.hits, &other.hits));
    more("hits of the first 24 trials, mrc to static", mrc.compared);
    more("hits in all, mrc to static", mrc.in_all);
    more(
        "hits of the first 24 trials, paper to static",
        printed.compared,
    );
    more("hits in all, mrc to paper", mrc_to_paper.in_all);
    if simulated.is_none_or(|runs| runs.mrc_to_paper.ends[0].compared > 1.0) {
        more(
            "hits of the first 24 trials, mrc to paper",
            mrc_to_paper.compared,
        );
    }
    if simulated.is_none_or(|runs| runs.paper.ends[0].in_all > 1.0) {
        more("hits in all, paper to static", printed.in_all);
    }
    checks.push(Check::within(
        Source::Model,
        "end of the last reader, mrc to static",
        curves.last_end() / fixed.last_end(),
        None,
        1.0,
    ));
    checks
}

/// Hits relative to those of fixed memory, beside the simulated runs, of which none is this one.
fn beside_simulation(all: &[Outcome], simulated: Simulated) -> Vec<Check> {
    let [fixed, paper, curves] = all else {
        return Vec::new();
    };
    let mut checks = Vec::new();
    for (name, moved, simulated) in [
        ("paper", paper, simulated.paper),
        ("mrc", curves, simulated.mrc),
    ] {
        let live = Hits::relative(&moved.hits, &fixed.hits);
        let mut near = |measure: &str, of: fn(&Hits) -> f64| {
            let [least, most] = simulated.ends.each_ref().map(of);
            let off = of(&live) - of(&live).clamp(least, most);
            let name = format!("{measure}, {name} to static, beyond what is simulated");
            checks.push(Check::within(Source::Model, name, off, -NEAR, NEAR));
        };
        near("hits of the first 24 trials", |hits| hits.compared);
        near("hits in all", |hits| hits.in_all);
    }
    checks
}

/// Something that reads both files of a guest.
pub type Reader<'a> = Box<dyn FnOnce(&Race) -> anyhow::Result<Ends> + Send + 'a>;

/// Has both guests read at the same time, while the allocator keeps them.
pub fn race(
    config: &Config,
    readers: [Reader<'_>; 2],
    options: &Options,
    trials: Trials,
    before: impl FnOnce() -> anyhow::Result<()>,
) -> Result<Outcome, Failure> {
    let mut controller = Controller::new(config, false)?;
    before()?;
    let (mut hits, mut misses) = (Vec::new(), Vec::new());
    let (mut apart, mut memory) = (Vec::new(), Vec::new());
    let race = Race::new(trials);
    let ends = std::thread::scope(|scope| {
        let race = &race;
        let readers = readers.map(|reader| {
            scope.spawn(move || {
                let ends = reader(race);
                // A reader that breaks off because the other did does not know why.
                let follows = ends.is_err() && race.break_off();
                (ends, follows)
            })
        });
        while readers.iter().any(|reader| !reader.is_finished()) {
            let is_over = || {
                options.stopped.load(Ordering::Relaxed)
                    || readers.iter().all(|reader| reader.is_finished())
            };
            race.end_of_trial(is_over);
            let report = controller.period();
            let [found, missed] = counted(&report);
            hits.push(found);
            misses.push(missed);
            apart.push(values_apart(&report));
            memory.push(controller.targets()[0]);
            if options.stopped.load(Ordering::Relaxed) || hits.len() >= TRIALS_MAX {
                race.break_off();
            }
            race.next_trial();
        }
        // What was still on its way belongs to the last trial.
        std::thread::sleep(LAST_WORDS);
        let [found, missed] = counted(&controller.period());
        if let (Some(hits), Some(misses)) = (hits.last_mut(), misses.last_mut()) {
            *hits += found;
            *misses += missed;
        }
        readers.map(|reader| {
            let broken = |_| (Err(anyhow::anyhow!("a reader's thread broke off")), false);
            reader.join().unwrap_or_else(broken)
        })
    });
    let [(first, follows), (second, _)] = ends;
    let ends = match follows {
        true => {
            let second = second?;
            [first?, second]
        }
        false => [first?, second?],
    };
    Ok(Outcome {
        hits,
        misses,
        apart,
        memory,
        ends,
    })
}

/// The difference between the paper's values of both guests; 0 where one is not heard.
fn values_apart(report: &Report) -> f64 {
    let value = |guest: usize| {
        let guest = &report.decision.guests[guest];
        Some(paper::evaluation(&guest.activity?, guest.before))
    };
    let both = value(0).zip(value(1));
    both.map_or(0.0, |(one, other)| (one - other).abs())
}

/// Hits and misses of both guests in a period.
fn counted(report: &Report) -> [u64; 2] {
    let activity = || {
        report
            .decision
            .guests
            .iter()
            .filter_map(|guest| guest.activity)
    };
    [
        activity().map(|did| did.hits).sum(),
        activity().map(|did| did.misses).sum(),
    ]
}
