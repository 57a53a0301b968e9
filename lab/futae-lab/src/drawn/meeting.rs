//! Where guests wait for each other, so that each reads while the others do.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Guests that meet again and again, until one fails.
pub struct Meeting {
    guests: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Guests that wait for the next meeting.
    come: usize,
    /// Meetings so far.
    meetings: u64,
    has_failed: bool,
}

/// A guest; if its thread panics, nobody waits for it.
pub struct Guest<'a>(&'a Meeting);

impl Meeting {
    pub fn new(guests: usize) -> Self {
        Self {
            guests,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub fn guest(&self) -> Guest<'_> {
        Guest(self)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guest<'_> {
    /// Waits until all have come; false if one has failed.
    pub fn meets(&self) -> bool {
        let mut state = self.0.state();
        state.come += 1;
        if state.come == self.0.guests {
            state.come = 0;
            state.meetings += 1;
            self.0.changed.notify_all();
        }
        let meetings = state.meetings;
        while state.come > 0 && state.meetings == meetings && !state.has_failed {
            state = self
                .0
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        !state.has_failed
    }

    /// It comes no more, so nobody waits any more.
    pub fn fails(&self) {
        self.0.state().has_failed = true;
        self.0.changed.notify_all();
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.fails();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn no_guest_is_a_round_ahead_of_another() {
        let meeting = Meeting::new(3);
        let rounds: [AtomicU32; 3] = Default::default();
        std::thread::scope(|scope| {
            for own in &rounds {
                let (meeting, rounds) = (&meeting, &rounds);
                scope.spawn(move || {
                    let guest = meeting.guest();
                    for round in 0..500 {
                        assert!(guest.meets());
                        own.fetch_add(1, Ordering::SeqCst);
                        for other in rounds {
                            let other = other.load(Ordering::SeqCst);
                            assert!((round..=round + 2).contains(&other), "{other} at {round}");
                        }
                    }
                });
            }
        });
        assert!(
            rounds
                .iter()
                .all(|rounds| rounds.load(Ordering::SeqCst) == 500)
        );
    }

    #[test]
    fn nobody_waits_for_one_that_has_failed_or_panicked() {
        for panics in [false, true] {
            let meeting = Meeting::new(2);
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| meeting.guest().meets());
                let fails = scope.spawn(|| {
                    let guest = meeting.guest();
                    assert!(!panics, "on purpose");
                    guest.fails();
                });
                assert_eq!(fails.join().is_err(), panics);
                assert!(!waits.join().expect("no panic"));
            });
            assert!(!meeting.guest().meets());
        }
    }
}
