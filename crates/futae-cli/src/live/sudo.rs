//! Sudo and others 1993, live: two stores in one cache that writes back, one of them far away.
//!
//! `live-stores`: the session of X and eqntott that is simulated, with its
//! text in one store and its heap in the other, at several weights. `live-measured`: a mix of
//! requests for both stores under LRU, under every weight by hand and under measured ones. All
//! variants run at the same time, each with stores and a cache of its own, so that
//! whatever else the machine does hits all of them.

use super::stores::{DELAY, Step, Store, Stores, check};
use super::{Experiment, Options};
use crate::failure::Failure;
use anyhow::anyhow;
use futae_papers::sudo::{Page, Session};
use futae_papers::{Check, Grid, Reproduction, Source};
use futae_policy::Prng;
use futae_trace::{DenseTrace, TraceOptions, TraceReader, View, WorkloadReader, WorkloadSpec};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// The live experiments of this paper.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        paper: "sudo-1993",
        figure: "live-stores",
        title: "start-up and total time by weight, with a near and a far store in one cache",
        run: run_session,
    },
    Experiment {
        paper: "sudo-1993",
        figure: "live-measured",
        title: "mean access time: LRU, weights by hand, and measured weights",
        run: run_mix,
    },
];

/// Blocks of the session's cache: less than the simulation's 1300, so that more of its time is spent on
/// what was given up, and less on the requests themselves.
const FRAMES: u32 = 900;
/// Sessions, each by a seed of its own, that times are means of: with text near, and with text far.
const SESSIONS: [u64; 2] = [3, 1];
const WEIGHTS: [u32; 4] = [1, 2, 4, 8];
/// One of so many uses of a heap page that is there modifies it.
const USES_A_WRITE: u64 = 4;
/// Requests of the mix for each store; the first half warms up.
const REQUESTS: usize = 8000;
const NEAR: &str = "zipf(0.8):2000blocks";
const FAR: &str = "zipf(0.8):1000blocks";
/// One of so many requests of the synthetic mix is a write.
const REQUESTS_A_WRITE: u64 = 10;
/// One of so many blocks of the mix can be in the cache.
const BLOCKS_A_SLOT: u32 = 3;
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// What is asked of a cache, by one program after the other.
struct Plan {
    steps: Vec<Step>,
    /// How many steps the first part has: start-up, or warm-up.
    first: usize,
    blocks: [u32; 2],
    slots: u32,
}

/// What came of a variant.
#[derive(Clone, Default)]
struct Outcome {
    /// Seconds that the steps took, of the first part and of the others.
    seconds: [f64; 2],
    /// Blocks of the far store that were asked for and not there.
    far_misses: u64,
    /// The weights in force at the end: near clean, far clean, near dirty, far dirty.
    weights: Vec<f64>,
}

impl Outcome {
    /// The weights that were in force, against that of far dirty blocks.
    fn ratios(&self) -> String {
        let last = self.weights.last().copied().unwrap_or(f64::NAN);
        let ratios = self
            .weights
            .iter()
            .map(|weight| format!("{:.1}", weight / last));
        match self.weights.is_empty() {
            true => "–".to_owned(),
            false => ratios.collect::<Vec<_>>().join(" : "),
        }
    }

    /// Adds one of so many, of which this is the mean.
    fn add(&mut self, one: Self, of: u64) {
        for (sum, seconds) in self.seconds.iter_mut().zip(one.seconds) {
            *sum += seconds / of as f64;
        }
        self.far_misses += one.far_misses / of;
        self.weights = one.weights;
    }

    fn total(&self) -> f64 {
        self.seconds.iter().sum()
    }
}

/// Where the text of the programs is; the heap is in the other store.
fn session(seed: u64, text: Store) -> Plan {
    let session = Session::new(seed);
    let mut prng = Prng::new(seed ^ 1);
    let (mut steps, mut first) = (Vec::new(), 0);
    let mut is_new = vec![true; session.pages()];
    let heap = match text {
        Store::Near => Store::Far,
        Store::Far => Store::Near,
    };
    for (at, page) in session.references.iter().enumerate() {
        if at == session.started {
            first = steps.len();
        }
        let block = page.number() as u32;
        let mut step = |store, is_write| {
            steps.push(Step {
                store,
                block,
                is_write,
            });
        };
        match page {
            // Everything but X is always near: it is what the machine itself runs.
            Page::Text { of_x: false, .. } => step(Store::Near, false),
            Page::Text { .. } => step(text, false),
            // A new page is filled and not read.
            Page::Heap(_) if std::mem::take(&mut is_new[block as usize]) => step(heap, true),
            Page::Heap(_) => {
                step(heap, false);
                if prng.below(USES_A_WRITE) == 0 {
                    step(heap, true);
                }
            }
        }
    }
    Plan {
        steps,
        first,
        blocks: [session.pages() as u32; 2],
        slots: FRAMES,
    }
}

/// The requests for both stores, in turn by their shares.
fn mix(options: &Options<'_>) -> Result<Plan, Failure> {
    let traces = match options.traces {
        Some([near, far]) => [read(near)?, read(far)?],
        None => {
            let draw = |text: &str, seed| -> Result<DenseTrace, Failure> {
                let spec: WorkloadSpec = text.parse()?;
                let drawn = WorkloadReader::new(&spec, 4096, seed, REQUESTS as u64)?;
                dense(drawn)
            };
            let seed = options.seed.wrapping_mul(2);
            [draw(NEAR, seed)?, draw(FAR, seed.wrapping_add(1))?]
        }
    };
    let mut prng = Prng::new(options.seed);
    let lengths = [0, 1].map(|at: usize| traces[at].ids().len());
    let (mut steps, mut taken) = (Vec::new(), [0, 0]);
    while taken != lengths {
        // The one of which less has been taken.
        let behind = taken[0] * lengths[1] > taken[1] * lengths[0];
        let at = usize::from(behind);
        let is_write = match options.traces {
            Some(_) => traces[at].is_write(taken[at]),
            None => prng.below(REQUESTS_A_WRITE) == 0,
        };
        steps.push(Step {
            store: [Store::Near, Store::Far][at],
            block: traces[at].ids()[taken[at]],
            is_write,
        });
        taken[at] += 1;
    }
    let blocks = [traces[0].distinct(), traces[1].distinct()];
    Ok(Plan {
        first: steps.len() / 2,
        steps,
        blocks,
        slots: (blocks[0] + blocks[1]).div_ceil(BLOCKS_A_SLOT),
    })
}

/// The first requests of a trace file. What begins at the same place is one block.
fn read(path: &Path) -> Result<DenseTrace, Failure> {
    let reader = TraceReader::open(path, &TraceOptions::default())?;
    let trace = dense(reader.take(REQUESTS))?;
    match trace.ids() {
        [] => Err(anyhow!("{}: no requests", path.display()).into()),
        _ => Ok(trace),
    }
}

fn dense(
    requests: impl Iterator<Item = Result<futae_trace::Request, futae_trace::TraceError>>,
) -> Result<DenseTrace, Failure> {
    let requests: Vec<_> = requests.collect::<Result<_, _>>()?;
    let trace = DenseTrace::from_requests(&requests, View::Start);
    trace.map_err(|error| anyhow!("{error}").into())
}

/// Runs variants at the same time: a policy, and what is asked.
fn run_all(
    options: &Options<'_>,
    progress: &dyn Fn(f64),
    variants: &[(String, &Plan)],
) -> Result<Vec<Outcome>, Failure> {
    check()?;
    let place = tempfile::Builder::new().prefix("futae-paper-").tempdir()?;
    let all: usize = variants.iter().map(|(_, plan)| plan.steps.len()).sum();
    let (done, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let is_over = || failed.load(Ordering::Relaxed) || options.stopped.load(Ordering::Relaxed);
    let outcomes = thread::scope(|scope| {
        let mut threads = Vec::new();
        for (at, (policy, plan)) in variants.iter().enumerate() {
            let place = place.path().join(at.to_string());
            let (done, failed, is_over) = (&done, &failed, &is_over);
            threads.push(scope.spawn(move || {
                let outcome = run_one(&place, policy, plan, done, is_over);
                failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
                outcome
            }));
        }
        while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
            progress(done.load(Ordering::Relaxed) as f64 / all as f64);
            thread::sleep(LOOK_INTERVAL);
        }
        let panicked = |_| Err(anyhow!("a variant of the experiment broke down"));
        let ended = threads.into_iter();
        ended
            .map(|thread| thread.join().unwrap_or_else(panicked))
            .collect::<Vec<_>>()
    });
    if options.stopped.load(Ordering::Relaxed) {
        return Err(anyhow!("interrupted; everything was taken down").into());
    }
    // The first that failed says why; others were only told to end.
    let mut made = Vec::new();
    for outcome in outcomes {
        made.push(outcome?);
    }
    made.into_iter()
        .collect::<Option<_>>()
        .ok_or_else(|| anyhow!("a variant of the experiment did not end").into())
}

/// One variant; none if it was told to end.
fn run_one(
    place: &Path,
    policy: &str,
    plan: &Plan,
    done: &AtomicU64,
    is_over: &(dyn Fn() -> bool + Sync),
) -> anyhow::Result<Option<Outcome>> {
    let mut stores = Stores::start(place, policy, plan.slots, plan.blocks)?;
    let mut outcome = Outcome::default();
    for (at, &step) in plan.steps.iter().enumerate() {
        if is_over() {
            return Ok(None);
        }
        let part = usize::from(at >= plan.first);
        outcome.seconds[part] += stores.carry_out(step)?.as_secs_f64();
        done.fetch_add(1, Ordering::Relaxed);
    }
    let status = stores.status()?;
    outcome.weights = status.weights.iter().map(|of| of.weight).collect();
    let far = status.volumes.into_iter();
    outcome.far_misses = far
        .filter(|volume| volume.name == "far")
        .map(|volume| volume.misses)
        .sum();
    Ok(Some(outcome))
}

fn by_hand(class: &str, weight: u32, inactive: &str) -> String {
    let classes = ["local-clean", "remote-clean", "local-dirty", "remote-dirty"];
    let weights = classes.map(|of| format!("{of}:{}", if of == class { weight } else { 1 }));
    format!("cost(weights={}{inactive})", weights.join(","))
}

const INACTIVE: &str = ",inactive=0.15";

fn run_session(options: &Options<'_>, progress: &dyn Fn(f64)) -> Result<Reproduction, Failure> {
    let settings = [
        ("near", "local-clean", Store::Near),
        ("far", "remote-clean", Store::Far),
    ];
    let mut result = Grid::new([
        "text of X",
        "weight",
        "start-up, s",
        "change",
        "in all, s",
        "change",
        "far misses",
        "weights in force",
    ]);
    let mut checks = Vec::new();
    let rounds: u64 = SESSIONS.iter().sum();
    let mut round = 0_u64;
    for ((text, class, store), sessions) in settings.iter().zip(SESSIONS) {
        let mut names = WEIGHTS.map(|weight| weight.to_string()).to_vec();
        names.push("measured".to_owned());
        let mut policies = WEIGHTS
            .map(|weight| by_hand(class, weight, INACTIVE))
            .to_vec();
        policies.push(format!("cost(weights=measured{INACTIVE})"));
        let mut all = vec![Outcome::default(); policies.len()];
        for number in 0..sessions {
            let plan = session(options.seed.wrapping_add(number), *store);
            let variants: Vec<_> = policies.iter().map(|one| (one.clone(), &plan)).collect();
            let progress = |fraction: f64| progress((round as f64 + fraction) / rounds as f64);
            let made = run_all(options, &progress, &variants)?;
            let parts = all.iter_mut().zip(made);
            parts.for_each(|(sum, one)| sum.add(one, sessions));
            round += 1;
        }
        let change = |now: f64, then: f64| format!("{:+.1} %", 100.0 * (now / then - 1.0));
        for (name, outcome) in names.into_iter().zip(&all) {
            let first = &all[0];
            result.row([
                (*text).to_owned(),
                name,
                format!("{:.1}", outcome.seconds[0]),
                change(outcome.seconds[0], first.seconds[0]),
                format!("{:.1}", outcome.total()),
                change(outcome.total(), first.total()),
                outcome.far_misses.to_string(),
                outcome.ratios(),
            ]);
        }
        if *text == "near" {
            checks = session_checks(&all);
        }
    }
    Ok(Reproduction {
        parameters: vec![
            (
                "workload",
                format!(
                    "the synthetic X and eqntott of the simulation, mean of {} seeds with text near, {} with text far",
                    SESSIONS[0], SESSIONS[1]
                ),
            ),
            (
                "cache",
                format!("{FRAMES} blocks of 4 KiB, inactive queue 15 %, write-back"),
            ),
            (
                "stores",
                format!("a file, and one behind nbdkit that is {DELAY} slower"),
            ),
            (
                "text near",
                "X's text in the near store, all heap in the far one; the weight is that of near clean blocks".to_owned(),
            ),
            (
                "text far",
                "X's text in the far store, all heap in the near one; the weight is that of far clean blocks".to_owned(),
            ),
        ],
        result,
        published: vec![
            "start-up time falls as the weight of what is cheap to get back grows",
            "with text on a server total time is best at weight 4, and no worse at high weights",
        ],
        errata: vec![
            "in the paper both stores take about 20 ms a page; here one is a hundred times faster than the other, so a weight for the far one makes everything slower, which is what measured weights are to find out",
        ],
        checks,
        ..Reproduction::default()
    })
}

/// With text near.
fn session_checks(all: &[Outcome]) -> Vec<Check> {
    let by_weight = &all[..WEIGHTS.len()];
    let steps = by_weight
        .windows(2)
        .map(|pair| 100.0 * (1.0 - pair[1].seconds[0] / pair[0].seconds[0]));
    let at_8 = 100.0 * (by_weight[3].total() / by_weight[0].total() - 1.0);
    let name = "text near: start-up falls from weight to weight, least step in percent";
    let least = steps.fold(f64::INFINITY, f64::min);
    let above = f64::MIN_POSITIVE;
    let total = "text near: total at weight 8 above weight 1, in percent";
    vec![
        Check::within(Source::Model, name, least, above, None),
        Check::within(Source::Model, total, at_8, None, 0.0),
    ]
}

fn run_mix(options: &Options<'_>, progress: &dyn Fn(f64)) -> Result<Reproduction, Failure> {
    let plan = mix(options)?;
    let mut variants = vec![("lru".to_owned(), &plan)];
    for weight in WEIGHTS {
        variants.push((by_hand("local-clean", weight, ""), &plan));
    }
    variants.push(("cost(weights=measured)".to_owned(), &plan));
    let all = run_all(options, progress, &variants)?;
    let counted = plan.steps.len() - plan.first;
    let mean = |outcome: &Outcome| 1000.0 * outcome.seconds[1] / counted as f64;
    let names = ["lru", "1", "2", "4", "8", "measured"];
    let mut result = Grid::new([
        "weight",
        "mean access, ms",
        "against lru",
        "far misses",
        "weights in force",
    ]);
    for (name, outcome) in names.into_iter().zip(&all) {
        result.row([
            name.to_owned(),
            format!("{:.3}", mean(outcome)),
            format!("{:+.1} %", 100.0 * (mean(outcome) / mean(&all[0]) - 1.0)),
            outcome.far_misses.to_string(),
            outcome.ratios(),
        ]);
    }
    let measured = mean(&all[names.len() - 1]);
    let by_hand = all[1..=WEIGHTS.len()].iter().map(mean);
    let best = by_hand.fold(f64::INFINITY, f64::min);
    let requests = match options.traces {
        Some([near, far]) => format!("near {}, far {}", near.display(), far.display()),
        None => format!("synthetic, near {NEAR}, far {FAR}, a tenth writes"),
    };
    Ok(Reproduction {
        parameters: vec![
            ("requests", requests),
            (
                "counted",
                format!("{counted}, after as many of warm-up; one at a time"),
            ),
            (
                "cache",
                format!(
                    "{} blocks of 4 KiB, a third of those asked for, write-back",
                    plan.slots
                ),
            ),
            (
                "stores",
                format!("a file, and one behind nbdkit that is {DELAY} slower"),
            ),
            (
                "weight",
                "that of near clean blocks, against 1 of every other class".to_owned(),
            ),
        ],
        result,
        published: vec!["weights are tuned by hand; measuring them is ours"],
        errata: Vec::new(),
        checks: vec![
            Check::within(
                Source::Model,
                "mean access time of measured weights below lru, in percent",
                100.0 * (1.0 - measured / mean(&all[0])),
                15.0,
                None,
            ),
            Check::within(
                Source::Model,
                "mean access time of measured weights above the best by hand, in percent",
                100.0 * (measured / best - 1.0),
                None,
                5.0,
            ),
        ],
        ..Reproduction::default()
    })
}
