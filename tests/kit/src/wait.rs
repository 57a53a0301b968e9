//! Waiting for a condition. No test sleeps to be right: it waits for what it needs, and says so if that does not come.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// How long a test waits for what must come. It is long because machines that run tests are busy; a test that passes
/// does not notice.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The pause between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Waits until `is_so`.
///
/// # Panics
///
/// If it is not so within [`PATIENCE`]; the message is `what`.
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    obtain(what, || is_so().then_some(()).ok_or("it is not so"));
}

/// Attempts something until it succeeds.
///
/// # Panics
///
/// If no attempt succeeds within [`PATIENCE`]; the message is `what` and the last error.
#[track_caller]
pub fn obtain<T, E: Display>(what: &str, attempt: impl FnMut() -> Result<T, E>) -> T {
    match within(PATIENCE, attempt) {
        Ok(value) => value,
        Err(error) => panic!("not within {} s: {what}: {error}", PATIENCE.as_secs()),
    }
}

/// Attempts something until it succeeds, for as long as `limit`, and at least once; the last error if it never does.
pub fn within<T, E>(limit: Duration, mut attempt: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let deadline = Instant::now() + limit;
    loop {
        let outcome = attempt();
        if outcome.is_ok() || Instant::now() >= deadline {
            return outcome;
        }
        thread::sleep(LOOK_INTERVAL);
    }
}

/// Waits until the clock by which the kernel dates files has moved on: it goes in steps of some milliseconds. The new
/// time is later than that of every file written before the call.
///
/// # Panics
///
/// If the directory of temporary files cannot be written to.
#[must_use]
pub fn later_file_time() -> SystemTime {
    let now = || {
        let file = tempfile::tempfile().expect("a temporary file");
        let metadata = file.metadata().expect("its metadata");
        metadata.modified().expect("its time")
    };
    let begin = now();
    obtain("the clock of files moves on", || {
        let time = now();
        (time > begin).then_some(time).ok_or("it stands still")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_repeated_until_it_succeeds() {
        let mut attempts = 0;
        let third = obtain("three attempts", || {
            attempts += 1;
            (attempts == 3).then_some(attempts).ok_or("too few")
        });
        assert_eq!(third, 3);
    }

    #[test]
    fn what_never_comes_is_an_error_after_one_attempt_at_least() {
        let mut attempts = 0;
        let never = within(Duration::ZERO, || {
            attempts += 1;
            Err::<(), _>(attempts)
        });
        assert_eq!(never, Err(1));
    }
}
