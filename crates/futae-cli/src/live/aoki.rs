//! Aoki and Shiba 2024, live at a sixteenth of its sizes: memory moved between two readers.
//!
//! G1 reads a file of 128 MiB and then one of 256, G2 the other way round; each has a control group
//! for a guest, 384 MiB together and 64 at least. `futae_allocate` moves their limits: never, by
//! the paper's value, or by miss-ratio curves. The reading of the paper is that of the simulation
//! (`futae_papers`); only that a miss takes as long as this machine's disk.

use super::aoki_reader::{CHOICE, Script, forget, read};
use super::cgroup::{Bound, Group};
use super::process::{futae, run_json};
use super::{Experiment, Options};
use crate::failure::Failure;
use anyhow::Context;
use futae_allocate::actuator::Actuator;
use futae_allocate::{Config, Keeper};
use futae_papers::{Check, Grid, Reproduction, Source};
use futae_trace::Size;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The live experiments of this paper.
pub const EXPERIMENTS: &[Experiment] = &[Experiment {
    paper: "aoki-2024",
    figure: "live-cgroup",
    title: "two readers in control groups, whose limits futae balance moves",
    run,
}];

const MIB: u64 = 1 << 20;
const SMALL: u64 = 128 * MIB;
const LARGE: u64 = 256 * MIB;
const TOTAL: u64 = 384 * MIB;
const TRIAL: Duration = Duration::from_secs(1);
/// Page reads of each file, as a multiple of the larger file's pages.
const PASSES: u64 = 50;
const TRIALS_MAX: usize = 300;

/// Who moves memory.
const SYSTEMS: [&str; 3] = ["static", "paper", "mrc"];

/// One run.
struct Outcome {
    /// Page reads that hit, by trial, of both together.
    hits: Vec<u64>,
    /// G1's memory after each trial, in bytes.
    memory: Vec<u64>,
    /// By guest and file.
    ends: [[Duration; 2]; 2],
}

impl Outcome {
    fn mean_hits(&self) -> f64 {
        self.hits.iter().sum::<u64>() as f64 / self.hits.len().max(1) as f64
    }

    fn seconds(&self) -> f64 {
        self.ends[0][1].max(self.ends[1][1]).as_secs_f64()
    }
}

fn run(options: &Options<'_>, progress: &dyn Fn(f64)) -> Result<Reproduction, Failure> {
    let place = tempfile::Builder::new().prefix("futae-paper-").tempdir()?;
    let mut result = Grid::new([
        "memory moves",
        "trials",
        "hits a trial",
        "G1 switches (s)",
        "G2 switches (s)",
        "G1 ends (s)",
        "G2 ends (s)",
        "G1 MiB at a quarter",
        "at three quarters",
    ]);
    let files = make_files(place.path())?;
    let passes = options.passes.unwrap_or(PASSES);
    let reads = passes.saturating_mul(LARGE / 4096);
    let mut all = Vec::new();
    for (number, system) in SYSTEMS.into_iter().enumerate() {
        for (path, _) in files.iter().flatten() {
            forget(path)?;
        }
        let outcome = one(place.path(), &files, system, reads, options)?;
        let at = |part: usize| {
            let memory = outcome.memory.get(outcome.memory.len() * part / 4);
            memory.map_or_else(|| "–".to_owned(), |bytes| (bytes / MIB).to_string())
        };
        let end =
            |guest: usize, file: usize| format!("{:.1}", outcome.ends[guest][file].as_secs_f64());
        result.row([
            system.to_owned(),
            outcome.hits.len().to_string(),
            format!("{:.0}", outcome.mean_hits()),
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
    Ok(Reproduction {
        parameters: vec![
            (
                "readers",
                format!("{CHOICE} by 4 KiB, {reads} of each file, one thread each; files of 128 and 256 MiB"),
            ),
            (
                "guests",
                "two memory control groups, together 384 MiB, each at least 64 MiB, page cache and programs".to_owned(),
            ),
            ("trial", format!("{} s", TRIAL.as_secs())),
            (
                "paper",
                "as printed: 6.25 MiB while the values are less than 500 apart".to_owned(),
            ),
        ],
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
    let more = |name: &str, one: &Outcome, other: &Outcome| {
        Check::within(
            Source::Model,
            name,
            one.mean_hits() / other.mean_hits(),
            1.0,
            None,
        )
    };
    vec![
        more("hits a trial, mrc to static", curves, fixed),
        more("hits a trial, mrc to paper", curves, paper),
        more("hits a trial, paper to static", paper, fixed),
        Check::within(
            Source::Model,
            "end of the last reader, mrc to static",
            curves.seconds() / fixed.seconds(),
            None,
            1.0,
        ),
    ]
}

/// Each guest's files.
fn make_files(place: &Path) -> Result<[[(PathBuf, u64); 2]; 2], Failure> {
    let file = |name: &str, bytes: u64| -> Result<(PathBuf, u64), Failure> {
        let path = place.join(name);
        let mut load = futae(["load", "--create", "--json", "--operations", "1"])?;
        load.args(["--file-size", &Size::Bytes(bytes).to_string()])
            .arg(&path);
        run_json("making a file", load)?;
        Ok((path, bytes))
    };
    Ok([
        [file("g1-first", SMALL)?, file("g1-second", LARGE)?],
        [file("g2-first", LARGE)?, file("g2-second", SMALL)?],
    ])
}

fn one(
    place: &Path,
    files: &[[(PathBuf, u64); 2]; 2],
    system: &str,
    reads: u64,
    options: &Options<'_>,
) -> Result<Outcome, Failure> {
    let groups = [
        Group::new(&[Bound::Memory(TOTAL / 2)])?,
        Group::new(&[Bound::Memory(TOTAL / 2)])?,
    ];
    let mut config = format!(
        "total = \"{}\"\nperiod = {}\nevaluator = \"{system}\"\n[paper]\nstep = \"6400KiB\"\n",
        Size::Bytes(TOTAL),
        TRIAL.as_secs()
    );
    let mut listeners = Vec::new();
    for (number, group) in (1..).zip(&groups) {
        let socket = place.join(format!("{system}-{number}.sock"));
        let (kind, path) = match group.memory() {
            Some(Actuator::Cgroup1 { path }) => ("cgroup1", path),
            Some(Actuator::Cgroup2 { path }) => ("cgroup2", path),
            _ => return Err(anyhow::anyhow!("a control group without memory").into()),
        };
        config += &format!(
            "[[guest]]\nname = \"G{number}\"\nminimum = \"64MiB\"\nmaximum = \"320MiB\"\n\
             start = \"192MiB\"\nagent = {{ connect = {:?} }}\n\
             actuator = {{ kind = \"{kind}\", path = {path:?} }}\n",
            socket.display().to_string()
        );
        listeners.push(UnixListener::bind(&socket).with_context(|| socket.display().to_string())?);
    }
    let mut keeper = Keeper::new(&Config::parse(&config)?, false)?;
    let scripts = [0, 1].map(|guest: usize| Script {
        files: files[guest].clone(),
        reads,
        seed: options.seed.wrapping_mul(4).wrapping_add(2 * guest as u64),
    });
    let (mut hits, mut memory) = (Vec::new(), Vec::new());
    let over = AtomicBool::new(false);
    let begin = Instant::now();
    let ends = std::thread::scope(|scope| {
        let over = &over;
        let parts = scripts.iter().zip(&groups).zip(&listeners);
        let readers: Vec<_> = parts
            .map(|((script, group), listener)| {
                scope.spawn(move || read(script, group, listener, begin, over))
            })
            .collect();
        while readers.iter().any(|reader| !reader.is_finished()) {
            std::thread::sleep(TRIAL);
            let report = keeper.period();
            let guests = report.decision.guests.iter();
            let found = guests.filter_map(|guest| Some(guest.activity?.hits)).sum();
            hits.push(found);
            memory.push(keeper.targets()[0]);
            if options.stopped.load(Ordering::Relaxed) || hits.len() >= TRIALS_MAX {
                over.store(true, Ordering::Relaxed);
            }
        }
        let join = |reader: std::thread::ScopedJoinHandle<'_, anyhow::Result<[Duration; 2]>>| {
            reader
                .join()
                .unwrap_or_else(|_| Err(anyhow::anyhow!("a reader's thread broke off")))
        };
        readers
            .into_iter()
            .map(join)
            .collect::<anyhow::Result<Vec<_>>>()
    })?;
    Ok(Outcome {
        hits,
        memory,
        ends: [ends[0], ends[1]],
    })
}
