//! A run of one seed, whatever comes of it.

use crate::cover::Cover;
use crate::crash_states::States;
use crate::sim::Sim;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, Once, PoisonError};

/// What went wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed that shows it.
    pub seed: u64,
    /// In words.
    pub what: String,
}

/// Where the last panic was, and what it said.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            let mut last = PANIC.lock().unwrap_or_else(PoisonError::into_inner);
            *last = Some(panic.to_string());
        }));
    });
}

/// Runs `seed` and adds what it covers to `cover`. `traces`: prints every event.
///
/// # Errors
///
/// The cache did what it must not do, or panicked.
pub fn run_seed(seed: u64, traces: bool, cover: &mut Cover) -> Result<(), Failure> {
    run(seed, traces, cover, Sim::run)
}

/// Runs `seed` and judges every state that a crash can leave.
///
/// # Errors
///
/// A crash could leave what it must not leave, or as [`run_seed`].
pub fn crash_states(seed: u64, traces: bool, states: &mut States) -> Result<(), Failure> {
    run(seed, traces, &mut Cover::default(), |sim| {
        sim.run_through_states(states)
    })
}

fn run(
    seed: u64,
    traces: bool,
    cover: &mut Cover,
    how: impl FnOnce(&Arc<Sim>) -> Result<(), String>,
) -> Result<(), Failure> {
    note_panics();
    let sim = Sim::new(seed);
    sim.lock().traces = traces;
    let result = catch_unwind(AssertUnwindSafe(|| how(&sim)));
    let result = result.unwrap_or_else(|_| {
        let panic = PANIC.lock().unwrap_or_else(PoisonError::into_inner).take();
        Err(panic.unwrap_or_else(|| "a panic".to_owned()))
    });
    let left = {
        let mut inside = sim.lock();
        cover.add(&inside.cover);
        (
            inside.engine.take(),
            std::mem::take(&mut inside.held),
            std::mem::take(&mut inside.jobs),
        )
    };
    if result.is_err() {
        // An engine that has panicked may not be fit to be dropped.
        std::mem::forget(left);
    }
    result.map_err(|what| Failure { seed, what })
}
