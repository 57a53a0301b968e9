//! Variants of an experiment, each with stores and a cache of its own, all at the same time.

use super::super::stores::{Stores, check};
use super::plan::Plan;
use anyhow::anyhow;
use futae_engine::EngineStatus;
use futae_papers::Options;
use futae_terminal::failure::Failure;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// What came of a variant.
#[derive(Clone, Default)]
pub(super) struct Outcome {
    /// Seconds that the steps took, of the first part and of the others.
    pub(super) seconds: [f64; 2],
    /// Reads of the far store, of the first part and of the others.
    pub(super) far_reads: [u64; 2],
    /// The weights in force at the end: near clean, far clean, near dirty, far dirty.
    pub(super) weights: Vec<f64>,
}

impl Outcome {
    /// The weights that were in force, against that of far dirty blocks.
    pub(super) fn ratios(&self) -> String {
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

    /// Adds one of this many, of which the seconds are the mean and the reads the sum.
    pub(super) fn add(&mut self, one: Self, of: u64) {
        for (sum, seconds) in self.seconds.iter_mut().zip(one.seconds) {
            *sum += seconds / of as f64;
        }
        for (sum, reads) in self.far_reads.iter_mut().zip(one.far_reads) {
            *sum += reads;
        }
        self.weights = one.weights;
    }

    pub(super) fn total(&self) -> f64 {
        self.seconds.iter().sum()
    }

    pub(super) fn far_reads(&self) -> u64 {
        self.far_reads.iter().sum()
    }
}

/// Runs variants at the same time: a policy, and what is asked.
pub(super) fn run_all(
    options: &Options,
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
        if at == plan.first {
            outcome.far_reads[0] = far_reads(&stores.status()?);
        }
        outcome.seconds[part] += stores.carry_out(step)?.as_secs_f64();
        done.fetch_add(1, Ordering::Relaxed);
    }
    let status = stores.status()?;
    outcome.weights = status.weights.iter().map(|of| of.weight).collect();
    outcome.far_reads[1] = far_reads(&status) - outcome.far_reads[0];
    Ok(Some(outcome))
}

/// Reads of the far store so far.
fn far_reads(status: &EngineStatus) -> u64 {
    let far = status.volumes.iter().filter(|volume| volume.name == "far");
    far.map(|volume| volume.store_reads).sum()
}
