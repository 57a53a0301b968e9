//! What runs have covered.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

/// States that are told apart at most, so that a run of days stays small.
const STATES_MAX: usize = 1 << 24;

/// The numbers of states are mixed already, so that they are their own hash.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = self.0.rotate_left(8) ^ number;
    }
}

/// What runs have covered.
#[derive(Default)]
pub struct Cover {
    /// Requests that were answered.
    pub operations: u64,
    /// Reads of sectors that were checked.
    pub sectors: u64,
    /// Processes that died.
    pub process_crashes: u64,
    /// Losses of power.
    pub power_losses: u64,
    /// Clean restarts.
    pub restarts: u64,
    /// Store operations that failed.
    pub failures: u64,
    /// Resizes.
    pub resizes: u64,
    /// Blocks that were demoted from above.
    pub demotions: u64,
    /// Reads that were answered from an equal block, in the last engines of runs.
    pub equal_reads: u64,
    /// Reads of pages that the kernel held.
    pub page_hits: u64,
    /// Pages that it was given before anybody read them.
    pub pages_put: u64,
    /// Pages that the cache had it drop.
    pub pages_given_up: u64,
    /// Copies of dropped pages that were demoted.
    pub pages_demoted: u64,
    /// A number that depends on every request's answer and on every state.
    pub digest: u64,
    states: HashSet<u64, BuildHasherDefault<AsItIs>>,
}

impl Cover {
    /// The run is in a state.
    pub fn note_state(&mut self, parts: &[u64]) {
        let mix = |all: u64, part: &u64| {
            let all = (all ^ part).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
            all ^ (all >> 29)
        };
        let state = parts.iter().fold(0, mix);
        self.digest = mix(mix(self.digest, &state), &self.sectors);
        self.insert(state);
    }

    fn insert(&mut self, state: u64) {
        if self.states.len() < STATES_MAX {
            self.states.insert(state);
        }
    }

    /// Distinct states, up to 16,777,216: the kind of cache, what is under way (requests and store operations, by
    /// kind, up to three), what is not stable, away, or marked.
    pub fn states(&self) -> usize {
        self.states.len()
    }

    /// Those of another run, too.
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.sectors += other.sectors;
        self.process_crashes += other.process_crashes;
        self.power_losses += other.power_losses;
        self.restarts += other.restarts;
        self.failures += other.failures;
        self.resizes += other.resizes;
        self.demotions += other.demotions;
        self.equal_reads += other.equal_reads;
        self.page_hits += other.page_hits;
        self.pages_put += other.pages_put;
        self.pages_given_up += other.pages_given_up;
        self.pages_demoted += other.pages_demoted;
        self.digest ^= other.digest.rotate_left((self.operations % 64) as u32);
        other.states.iter().for_each(|&state| self.insert(state));
    }
}
