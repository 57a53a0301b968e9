//! Where guests wait for each other, so that each reads while the others do.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How far a guest, or the one who measures, has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    Booted,
    Warm,
    /// It reads nothing.
    Idle,
    /// The server was asked what it has counted.
    Asked,
    Counted,
}

const POINTS: usize = Point::Counted as usize + 1;

/// Guests that wait for each other.
pub struct Meeting {
    guests: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    come: [usize; POINTS],
    has_failed: bool,
}

impl Meeting {
    pub fn new(guests: usize) -> Self {
        Self {
            guests,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more has come so far.
    pub fn come(&self, point: Point) {
        self.state().come[point as usize] += 1;
        self.changed.notify_all();
    }

    /// One fails, so that nobody waits any more.
    pub fn fail(&self) {
        self.state().has_failed = true;
        self.changed.notify_all();
    }

    fn are_all(&self, state: &State, point: Point) -> bool {
        let all = match point {
            Point::Asked => 1,
            _ => self.guests,
        };
        state.has_failed || state.come[point as usize] >= all
    }

    /// Waits until all have come so far; false if one has failed.
    pub fn wait(&self, point: Point) -> bool {
        let mut state = self.state();
        while !self.are_all(&state, point) {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        !state.has_failed
    }

    /// For one who goes on until all have come so far: each call is a question whether to. With the first one it has come itself.
    pub fn goes_on(&self, point: Point) -> impl Fn() -> bool {
        let has_come = Cell::new(false);
        move || {
            if !has_come.replace(true) {
                self.come(point);
            }
            !self.are_all(&self.state(), point)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_goes_on_until_the_other_has_come_or_failed() {
        let meeting = Meeting::new(2);
        let goes_on = meeting.goes_on(Point::Warm);
        assert!(goes_on() && goes_on(), "its own coming counts once");
        let other = meeting.goes_on(Point::Warm);
        assert!(!other() && !goes_on());
        assert!(meeting.wait(Point::Warm));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| meeting.wait(Point::Asked));
            meeting.come(Point::Asked);
            assert!(waits.join().expect("no panic"));
            let waits = scope.spawn(|| meeting.wait(Point::Counted));
            meeting.fail();
            assert!(!waits.join().expect("no panic"));
        });
        assert!(!meeting.goes_on(Point::Counted)());
    }
}
