//! A run of one seed, whatever comes of it.

use crate::cover::Cover;
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

/// Runs `seed`, for so many actions if that is given, and adds what it covers to `cover`.
///
/// # Errors
///
/// The cache did what it must not do, or panicked.
pub fn run_seed(
    seed: u64,
    actions: Option<u64>,
    traces: bool,
    cover: &mut Cover,
) -> Result<(), Failure> {
    note_panics();
    let sim = Sim::new(seed, actions);
    sim.lock().traces = traces;
    let result = catch_unwind(AssertUnwindSafe(|| sim.run()));
    let result = result.unwrap_or_else(|_| {
        let panic = PANIC.lock().unwrap_or_else(PoisonError::into_inner).take();
        Err(panic.unwrap_or_else(|| "a panic".to_owned()))
    });
    let (engine, held, jobs) = {
        let mut inside = sim.lock();
        cover.add(&inside.cover);
        (
            inside.engine.take(),
            std::mem::take(&mut inside.held),
            std::mem::take(&mut inside.jobs),
        )
    };
    if result.is_err() {
        // An engine that panicked may not be fit to be dropped.
        std::mem::forget((engine, held, jobs));
    } else {
        drop((engine, held, jobs));
        debug_assert_eq!(Arc::strong_count(&sim), 1, "the run is over");
    }
    result.map_err(|what| Failure { seed, what })
}
