//! The choice written plainly: whole shadows, a lead and a score for each candidate.

use crate::contract::level_of;
use crate::{Access, BlockId, Kind, Level, Outcome, PolicySpec, RegisteredPolicy, Trait};

/// A candidate that is of use without a cache above.
struct Candidate {
    name: String,
    level: Level<Box<dyn RegisteredPolicy>>,
    /// Whether each request of this window hit.
    window: Vec<bool>,
    lead: f64,
    score: f64,
}

/// Which candidate is in force, for a cache whose shadows have all of its slots.
pub struct Choice {
    candidates: Vec<Candidate>,
    in_force: usize,
    slots: u32,
    lag: f64,
    next: Option<usize>,
}

impl Choice {
    /// The first candidate is in force.
    pub fn new(slots: u32, seed: u64) -> Self {
        let marked = Kind::ALL.iter().filter(|kind| {
            kind.traits().contains(&Trait::Candidate)
                && !PolicySpec::of(**kind).lives_on_demotions()
        });
        let candidate = |kind: &Kind| Candidate {
            name: kind.name().to_owned(),
            level: level_of(kind.name(), slots, seed),
            window: Vec::new(),
            lead: 0.0,
            score: 0.0,
        };
        Self {
            candidates: marked.map(candidate).collect(),
            in_force: 0,
            slots,
            lag: 0.0,
            next: None,
        }
    }

    /// A read, which hit in the cache itself or not. Whether a change is due now.
    pub fn see(&mut self, index: u64, is_hit: bool) -> bool {
        for candidate in &mut self.candidates {
            let outcome = candidate
                .level
                .access(&Access::read(BlockId::on_first(index)));
            candidate.window.push(matches!(outcome, Outcome::Hit(_)));
        }
        let mine = self.candidates[self.in_force].window.clone();
        let expected = *mine.last().expect("a request");
        let fewer = f64::from(u8::from(expected)) - f64::from(u8::from(is_hit));
        self.lag = (self.lag + fewer - 0.0025).max(0.0);
        if mine.len() < 64 {
            return false;
        }
        let of = |window: &[bool]| window.iter().filter(|&&hit| hit).count() as f64;
        for candidate in &mut self.candidates {
            let gain = of(&candidate.window) - of(&mine);
            candidate.lead = (candidate.lead + gain - 0.0025 * mine.len() as f64).max(0.0);
            candidate.score = 0.9 * candidate.score + gain;
        }
        let others = || (0..self.candidates.len()).filter(|&at| at != self.in_force);
        let first_most = |value: &dyn Fn(usize) -> f64| {
            let most = others().map(value).fold(f64::MIN, f64::max);
            others().find(|&at| value(at) >= most).expect("another")
        };
        let ahead = first_most(&|at| self.candidates[at].lead);
        let best = first_most(&|at| self.candidates[at].score);
        let cost = f64::from(self.slots).max(32.0);
        self.next = if self.candidates[ahead].lead >= cost {
            Some(ahead)
        } else {
            (self.lag >= 2.0 * cost).then_some(best)
        };
        for candidate in &mut self.candidates {
            candidate.window.clear();
        }
        self.next.is_some()
    }

    /// The change that is due is made; who is in force from now on.
    pub fn change(&mut self) -> String {
        self.in_force = self.next.take().expect("a change is due");
        self.lag = 0.0;
        for candidate in &mut self.candidates {
            (candidate.lead, candidate.score) = (0.0, 0.0);
        }
        self.candidates[self.in_force].name.clone()
    }
}
