//! What a balancer of memory between guests did lately, for its page.

use crate::watch::locked;
use futae_allocate::Decision;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Instant;

/// Moves that are shown.
pub(crate) const MOVES_MAX: usize = 50;

/// A period of a balancer.
#[derive(Clone, Debug)]
pub struct Period {
    /// When it ended, as people write it.
    pub time: String,
    /// What was decided.
    pub decision: Decision,
    /// Bytes that the host could give, its reserve left out; none if it does not tell.
    pub host_free: Option<u64>,
    /// The host's memory pressure: the share of time in which programs waited for memory; none if it does not tell.
    pub host_pressure: Option<f64>,
    /// Whether nobody was told anything.
    pub dry_run: bool,
    /// What could not be seen or told, and what guests lack, in sentences.
    pub problems: Vec<String>,
}

/// What was done so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Done {
    /// The last period.
    pub(crate) last: Option<Period>,
    /// The last periods in which something moved, the newest first.
    pub(crate) moves: VecDeque<Period>,
    /// All periods, those in which something moved, and the bytes that guests gave in them.
    pub(crate) periods: u64,
    pub(crate) moved: u64,
    pub(crate) moved_bytes: u64,
}

/// What a balancer did, kept for its page.
pub struct Moves {
    version: String,
    begun: Instant,
    done: Mutex<Done>,
}

impl Moves {
    /// Nothing yet, of a program of this version.
    #[must_use]
    pub fn new(version: &str) -> Self {
        Self {
            version: version.to_owned(),
            begun: Instant::now(),
            done: Mutex::default(),
        }
    }

    /// A period is over.
    pub fn note(&self, period: Period) {
        let mut done = locked(&self.done);
        done.periods += 1;
        if period.decision.moves() {
            done.moved += 1;
            done.moved_bytes += given(&period.decision);
            done.moves.push_front(period.clone());
            done.moves.truncate(MOVES_MAX);
        }
        done.last = Some(period);
    }

    /// The version of the program, how long it has run, in seconds, and what was done.
    pub(crate) fn so_far(&self) -> (&str, f64, Done) {
        let seconds = self.begun.elapsed().as_secs_f64();
        (&self.version, seconds, locked(&self.done).clone())
    }
}

/// Bytes that guests give by a decision.
pub(crate) fn given(decision: &Decision) -> u64 {
    let guests = decision.guests.iter();
    guests
        .map(|guest| guest.before.saturating_sub(guest.target))
        .sum()
}
