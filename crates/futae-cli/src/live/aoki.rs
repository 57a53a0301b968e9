//! Aoki and Shiba 2024, live at a sixteenth of its sizes: memory moved between two readers.
//!
//! G1 reads a file of 128 MiB and then one of 256, G2 the other way round. Each has memory of its own:
//! a control group (`aoki_group`), or a whole guest (`aoki_guest`). `futae_allocate` moves it: never, by
//! the paper's value, or by miss-ratio curves. The reading of the paper is that of the simulation
//! (`futae_papers`); only that a miss takes as long as the disk takes here.

use super::{Experiment, Options};
use super::{aoki_group, aoki_guest};
use crate::failure::Failure;
use futae_allocate::{Config, Keeper, Report};
use futae_papers::{Check, Grid, Reproduction, Source};
use futae_trace::Size;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The live experiments of this paper.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        paper: "aoki-2024",
        figure: "live-cgroup",
        title: "two readers in control groups, whose limits futae balance moves",
        run: aoki_group::run,
    },
    Experiment {
        paper: "aoki-2024",
        figure: "live-guest",
        title: "two guests with agents, whose balloons futae balance moves",
        run: aoki_guest::run,
    },
];

pub const MIB: u64 = 1 << 20;
pub const SMALL: u64 = 128 * MIB;
pub const LARGE: u64 = 256 * MIB;
/// What both have together for their page caches, and what each has at least and at most.
pub const TOTAL: u64 = 384 * MIB;
pub const LEAST: u64 = 64 * MIB;
pub const MOST: u64 = TOTAL - LEAST;
/// Bytes of the files in the order in which each guest reads them.
pub const FILES: [[u64; 2]; 2] = [[SMALL, LARGE], [LARGE, SMALL]];
/// How pages are chosen: normally distributed, a sixth of the file.
pub const CHOICE: &str = "normal(0.1666667)";
const TRIALS_MAX: usize = 300;
/// How long reports may take to arrive.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Who moves memory.
const SYSTEMS: [&str; 3] = ["static", "paper", "mrc"];

/// When a guest was done with its first file, and with its second.
pub type Ends = [Duration; 2];

/// One run.
pub struct Outcome {
    /// Page reads that hit, by trial, of both together.
    hits: Vec<u64>,
    /// Page reads that missed, likewise.
    misses: Vec<u64>,
    /// G1's memory after each trial, in bytes.
    memory: Vec<u64>,
    /// By guest.
    ends: [Ends; 2],
}

impl Outcome {
    fn all_hits(&self) -> u64 {
        self.hits.iter().sum()
    }

    fn mean_hits(&self) -> f64 {
        self.all_hits() as f64 / self.hits.len().max(1) as f64
    }

    fn seconds(&self) -> f64 {
        self.ends[0][1].max(self.ends[1][1]).as_secs_f64()
    }
}

/// Page reads of each file: so many times the larger file's pages.
pub fn reads(options: &Options<'_>, passes: u64) -> u64 {
    let passes = options.passes.unwrap_or(passes);
    passes.saturating_mul(LARGE / 4096)
}

/// The seed of a guest's first file; the second has the next.
pub fn seed(options: &Options<'_>, guest: usize) -> u64 {
    options.seed.wrapping_mul(4).wrapping_add(2 * guest as u64)
}

/// The beginning of a configuration: all but the guests.
pub fn head(system: &str, trial: Duration, total: u64) -> String {
    format!(
        "total = \"{}\"\nperiod = {}\nevaluator = \"{system}\"\nreserve = \"64MiB\"\n\
         [paper]\nstep = \"6400KiB\"\n",
        Size::Bytes(total),
        trial.as_secs_f64()
    )
}

/// Runs every system by `one`, and makes a table and checks of what comes of them.
pub fn compare(
    parameters: Vec<(&'static str, String)>,
    trial: Duration,
    progress: &dyn Fn(f64),
    one: &mut dyn FnMut(&str) -> Result<Outcome, Failure>,
) -> Result<Reproduction, Failure> {
    let mut result = Grid::new([
        "memory moves",
        "trials",
        "hits a trial",
        "hits in all",
        "hit ratio",
        "G1 switches (s)",
        "G2 switches (s)",
        "G1 ends (s)",
        "G2 ends (s)",
        "G1 MiB at a quarter",
        "at three quarters",
    ]);
    let mut all = Vec::new();
    for (number, system) in SYSTEMS.into_iter().enumerate() {
        let outcome = one(system)?;
        let at = |part: usize| {
            let memory = outcome.memory.get(outcome.memory.len() * part / 4);
            memory.map_or_else(|| "–".to_owned(), |bytes| (bytes / MIB).to_string())
        };
        let end =
            |guest: usize, file: usize| format!("{:.1}", outcome.ends[guest][file].as_secs_f64());
        let (hits, misses) = (outcome.all_hits(), outcome.misses.iter().sum::<u64>());
        result.row([
            system.to_owned(),
            outcome.hits.len().to_string(),
            format!("{:.0}", outcome.mean_hits()),
            hits.to_string(),
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
        ]);
        all.push(outcome);
        progress((number + 1) as f64 / SYSTEMS.len() as f64);
    }
    let mut parameters = parameters;
    parameters.push(("trial", format!("{} s", trial.as_secs_f64())));
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
        checks: checks(&all),
        ..Reproduction::default()
    })
}

fn checks(all: &[Outcome]) -> Vec<Check> {
    let [fixed, paper, curves] = all else {
        return Vec::new();
    };
    // All systems read the same, so these do not depend on how fast the disk was meanwhile.
    let more = |name: &str, one: &Outcome, other: &Outcome| {
        let value = one.all_hits() as f64 / other.all_hits() as f64;
        Check::within(Source::Model, name, value, 1.0, None)
    };
    vec![
        more("hits in all, mrc to static", curves, fixed),
        more("hits in all, mrc to paper", curves, paper),
        more("hits in all, paper to static", paper, fixed),
        Check::within(
            Source::Model,
            "end of the last reader, mrc to static",
            curves.seconds() / fixed.seconds(),
            None,
            1.0,
        ),
    ]
}

/// Something that reads both files of a guest. It is given the moment when all began, and whether it shall
/// end early.
pub type Reader<'a> = Box<dyn FnOnce(Instant, &AtomicBool) -> anyhow::Result<Ends> + Send + 'a>;

/// Has both guests read at the same time, while the allocator keeps them.
pub fn race(
    config: &Config,
    readers: [Reader<'_>; 2],
    options: &Options<'_>,
    before: impl FnOnce() -> anyhow::Result<()>,
) -> Result<Outcome, Failure> {
    let mut keeper = Keeper::new(config, false)?;
    before()?;
    let trial = config.period();
    let (mut hits, mut misses, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    let over = AtomicBool::new(false);
    let begin = Instant::now();
    let ends = std::thread::scope(|scope| {
        let over = &over;
        let readers = readers.map(|reader| scope.spawn(move || reader(begin, over)));
        let mut next = begin;
        while readers.iter().any(|reader| !reader.is_finished()) {
            // What takes long to tell does not make a trial longer.
            next = (next + trial).max(Instant::now());
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            let report = keeper.period();
            let [found, missed] = counted(&report);
            hits.push(found);
            misses.push(missed);
            memory.push(keeper.targets()[0]);
            if options.stopped.load(Ordering::Relaxed) || hits.len() >= TRIALS_MAX {
                over.store(true, Ordering::Relaxed);
            }
        }
        // What was still on its way belongs to the last trial.
        std::thread::sleep(LAST_WORDS);
        let [found, missed] = counted(&keeper.period());
        if let (Some(hits), Some(misses)) = (hits.last_mut(), misses.last_mut()) {
            *hits += found;
            *misses += missed;
        }
        readers.map(|reader| {
            let broken = |_| Err(anyhow::anyhow!("a reader's thread broke off"));
            reader.join().unwrap_or_else(broken)
        })
    });
    let [first, second] = ends;
    Ok(Outcome {
        hits,
        misses,
        memory,
        ends: [first?, second?],
    })
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
