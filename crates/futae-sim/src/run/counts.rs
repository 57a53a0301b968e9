//! The counts of a machine so far, and those of a window of a run.

use crate::machine::{Machine, Served};
use futae_policy::Counters;

/// The counts of one window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Where the requests were served: at each level, top down, and last by the store.
    pub served: Vec<Served>,
    /// Reads from the store, including those for notices and preloads.
    pub store_reads: u64,
    /// Writes to the store.
    pub store_writes: u64,
    /// The writes by the level that accepted them, top down, the store last.
    pub writes_taken: Vec<u64>,
    /// The counters of each level, top down, summed over guests.
    pub counters: Vec<Counters>,
}

impl Window {
    /// Requests.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.served.iter().map(|at| at.reads + at.writes).sum()
    }
}

/// The counts of a machine so far.
pub(super) struct Counted {
    store_reads: u64,
    store_writes: u64,
    taken: Option<Vec<u64>>,
    counters: Vec<Counters>,
}

impl Counted {
    /// Those of this machine.
    pub(super) fn by(machine: &dyn Machine) -> Self {
        let store = machine.store();
        Self {
            store_reads: store.reads + store.notice_reads + store.preload_reads,
            store_writes: store.writes,
            taken: machine.written().map(|written| written.taken),
            counters: machine.counters(),
        }
    }

    /// The counts since then, with where requests were served meanwhile.
    pub(super) fn window_since(&self, then: &Self, served: Vec<Served>) -> Window {
        let through = || {
            // Under write-through the store accepts every write.
            let mut taken = vec![0; served.len()];
            if let Some(last) = taken.last_mut() {
                *last = served.iter().map(|at| at.writes).sum();
            }
            taken
        };
        let writes_taken = match (&self.taken, &then.taken) {
            (Some(now), Some(then)) => now.iter().zip(then).map(|(now, then)| now - then).collect(),
            _ => through(),
        };
        let counters = self.counters.iter().zip(&then.counters);
        Window {
            counters: counters.map(|(now, then)| now.since(then)).collect(),
            store_reads: self.store_reads - then.store_reads,
            store_writes: self.store_writes - then.store_writes,
            writes_taken,
            served,
        }
    }
}
