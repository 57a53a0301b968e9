//! A run of one seed, whatever comes of it.

use crate::cover::Cover;
use crate::crash_states::States;
use crate::options::Options;
use crate::sim::Sim;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};

/// What went wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed that shows it.
    pub seed: u64,
    /// In words.
    pub what: String,
}

thread_local! {
    /// While a run is on in this thread: where its panic was, and what it said.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static IS_ON: Cell<bool> = const { Cell::new(false) };
}

/// Has panics of runs noted, and others printed as before.
fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if IS_ON.get() {
                PANIC.set(Some(panic.to_string()));
            } else {
                before(panic);
            }
        }));
    });
}

/// Runs `seed` and adds what it covers to `cover`.
///
/// # Errors
///
/// The cache did what it must not do, or panicked.
pub fn run_seed(seed: u64, options: Options, cover: &mut Cover) -> Result<(), Failure> {
    run(seed, options, cover, Sim::run)
}

/// Runs `seed` and judges every state that a crash can leave.
///
/// # Errors
///
/// A crash could leave what it must not leave, or as [`run_seed`].
pub fn crash_states(seed: u64, options: Options, states: &mut States) -> Result<(), Failure> {
    run(seed, options, &mut Cover::default(), |sim| {
        sim.run_through_states(states)
    })
}

fn run(
    seed: u64,
    options: Options,
    cover: &mut Cover,
    how: impl FnOnce(&Arc<Sim>) -> Result<(), String>,
) -> Result<(), Failure> {
    note_panics();
    let sim = Sim::new(seed);
    sim.lock().options = options;
    IS_ON.set(true);
    let result = catch_unwind(AssertUnwindSafe(|| how(&sim)));
    IS_ON.set(false);
    let result = result.unwrap_or_else(|_| {
        let panic = PANIC.take();
        Err(panic.unwrap_or_else(|| "a panic".to_owned()))
    });
    let left = {
        let mut inside = sim.lock();
        cover.add(&inside.cover);
        (
            inside.engine.take(),
            std::mem::take(&mut inside.held),
            std::mem::take(&mut inside.jobs),
            std::mem::take(&mut inside.letters),
            inside.below.take(),
        )
    };
    if result.is_err() {
        // An engine that has panicked may not be fit to be dropped.
        std::mem::forget(left);
    }
    result.map_err(|what| Failure { seed, what })
}
