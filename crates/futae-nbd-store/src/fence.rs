//! Serialises writes to overlapping ranges, for servers whose smallest block is larger than a byte.
//! There a write of a few bytes is a read followed by a longer write, which must not overlap
//! another write to the same block.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Work = Box<dyn FnOnce(Pass) + Send>;

#[derive(Default)]
struct State {
    active: Vec<(u64, Range<u64>)>,
    waiting: VecDeque<(u64, Range<u64>, Work)>,
    last: u64,
}

/// The ranges that are being written.
#[derive(Default)]
pub(super) struct Fence {
    state: Mutex<State>,
}

/// Permission to write a range, until it is dropped.
pub(super) struct Pass {
    fence: Arc<Fence>,
    number: u64,
}

impl State {
    /// Whether a write may begin: no active write, and no earlier waiting one, overlaps it.
    fn is_free(&self, range: &Range<u64>, before: usize) -> bool {
        let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        !self.active.iter().any(|(_, other)| overlaps(other))
            && !self
                .waiting
                .iter()
                .take(before)
                .any(|(_, other, _)| overlaps(other))
    }
}

impl Fence {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the work as soon as the range is free, possibly at once.
    pub(super) fn enter(
        self: &Arc<Self>,
        range: Range<u64>,
        work: impl FnOnce(Pass) + Send + 'static,
    ) {
        let mut state = self.lock();
        state.last += 1;
        let number = state.last;
        if !state.is_free(&range, usize::MAX) {
            state.waiting.push_back((number, range, Box::new(work)));
            return;
        }
        state.active.push((number, range));
        drop(state);
        work(Pass {
            fence: Arc::clone(self),
            number,
        });
    }

    fn leave(self: &Arc<Self>, number: u64) {
        let mut state = self.lock();
        state.active.retain(|(active, _)| *active != number);
        let mut ready = Vec::new();
        let mut at = 0;
        while at < state.waiting.len() {
            if !state.is_free(&state.waiting[at].1, at) {
                at += 1;
            } else if let Some((number, range, work)) = state.waiting.remove(at) {
                state.active.push((number, range));
                ready.push((number, work));
            }
        }
        drop(state);
        for (number, work) in ready {
            work(Pass {
                fence: Arc::clone(self),
                number,
            });
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let fence = Arc::clone(&self.fence);
        fence.leave(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_writes_wait_in_their_order() {
        let fence = Arc::new(Fence::default());
        let passes: Arc<Mutex<Vec<(char, Pass)>>> = Arc::default();
        let enter = |name: char, range: Range<u64>| {
            let passes = Arc::clone(&passes);
            fence.enter(range, move |pass| {
                passes.lock().expect("no panic").push((name, pass));
            });
        };
        let names = || {
            passes
                .lock()
                .expect("no panic")
                .iter()
                .map(|p| p.0)
                .collect::<String>()
        };
        let leave = |name: char| {
            let mut held = passes.lock().expect("no panic");
            let at = held.iter().position(|p| p.0 == name).expect("it entered");
            let (_, pass) = held.swap_remove(at);
            drop(held);
            drop(pass);
        };
        enter('a', 0..10);
        enter('b', 5..20); // waits for a
        enter('c', 15..30); // overlaps b, which is before it
        enter('d', 40..50);
        assert_eq!(names(), "ad");
        leave('a');
        assert_eq!(names(), "db");
        leave('b');
        assert_eq!(names(), "dc");
    }
}
