//! The signals that end this program, after all that runs was taken down.

use anyhow::anyhow;
use futae_terminal::failure::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

static STOPPED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on these signals do not end the program at once. They set this flag, which is the same for every caller.
pub fn watch() -> io::Result<Arc<AtomicBool>> {
    let stopped = STOPPED.get_or_init(Arc::default);
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(stopped))?;
    }
    Ok(Arc::clone(stopped))
}

/// The flag, if signals are watched.
pub fn watched() -> Option<Arc<AtomicBool>> {
    STOPPED.get().cloned()
}

/// What came of the work, unless a signal ended it. A signal from a terminal reaches guests and servers, too, and then their end
/// is no news.
pub fn unless_stopped<T>(stopped: &AtomicBool, done: Result<T, Failure>) -> Result<T, Failure> {
    match stopped.load(Ordering::Relaxed) {
        true => Err(anyhow!("interrupted; everything was taken down").into()),
        false => done,
    }
}
