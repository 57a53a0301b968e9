//! Waiting in this crate's unit tests.

use std::time::{Duration, Instant};

/// How long something that happens on another thread may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something is so, and fails with `what` if it does not become so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() >= PATIENCE {
            panic!("{what}");
        }
        std::thread::yield_now();
    }
}
