//! The choice and the imitation as plain code, for a cache whose shadows have all of its slots.

use crate::contract::level_of;
use crate::{Access, BlockId, Kind, Level, Outcome, PolicySpec, RegisteredPolicy, Trait};

/// A candidate that is of use without a cache above.
struct Candidate {
    name: String,
    level: Level<Box<dyn RegisteredPolicy>>,
    hits: f64,
    score: f64,
}

/// A candidate with a quarter of the slots, and by how many hits it leads the first one there.
struct Smaller {
    at: usize,
    level: Level<Box<dyn RegisteredPolicy>>,
    won: f64,
    lost: f64,
}

/// A cache of `slots` slots.
pub struct Plain {
    candidates: Vec<Candidate>,
    /// Until the first eviction: the first candidate, and those that may be in force then.
    opening: Vec<Smaller>,
    in_force: usize,
    left: usize,
    slots: usize,
    seen: u32,
    requests: u64,
    /// Requests when all but 16 slots were filled.
    before_last: u64,
    held: Vec<BlockId>,
    /// Blocks that the leader does not hold, next victim first.
    strays: Vec<BlockId>,
    /// The policies that came into force, in order.
    pub changes: Vec<String>,
}

impl Plain {
    /// The first candidate is in force.
    pub fn new(slots: u32, seed: u64) -> Self {
        let marked = Kind::ALL.iter().filter(|kind| {
            kind.traits().contains(&Trait::Candidate)
                && !PolicySpec::of(**kind).lives_on_demotions()
        });
        let candidate = |kind: &Kind| Candidate {
            name: kind.name().to_owned(),
            level: level_of(kind.name(), slots, seed),
            hits: 0.0,
            score: 0.0,
        };
        let opens = |(at, kind): (usize, &Kind)| {
            let is_one = at == 0 || kind.traits().contains(&Trait::Opens);
            let level = || level_of(kind.name(), slots / 4, seed);
            (is_one && slots >= 64).then(|| Smaller {
                at,
                level: level(),
                won: 0.0,
                lost: 0.0,
            })
        };
        Self {
            opening: marked.clone().enumerate().filter_map(opens).collect(),
            candidates: marked.map(candidate).collect(),
            in_force: 0,
            left: usize::MAX,
            slots: slots as usize,
            seen: 0,
            requests: 0,
            before_last: 0,
            held: Vec::new(),
            strays: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// A read. Whether it hits.
    pub fn read(&mut self, index: u64) -> bool {
        let block = BlockId::on_first(index);
        let is_hit = self.held.contains(&block);
        if !is_hit && self.held.len() == self.slots {
            self.open();
        }
        let mut is_first = false;
        for smaller in &mut self.opening {
            let is_hit = matches!(smaller.level.access(&Access::read(block)), Outcome::Hit(_));
            if smaller.at == 0 {
                is_first = is_hit;
            } else if is_hit != is_first {
                *(if is_hit {
                    &mut smaller.won
                } else {
                    &mut smaller.lost
                }) += 1.0;
            }
        }
        let mut given_up = None;
        for (at, candidate) in self.candidates.iter_mut().enumerate() {
            match candidate.level.access(&Access::read(block)) {
                Outcome::Hit(_) => candidate.hits += 1.0,
                Outcome::Admitted { evicted, .. } if at == self.in_force => given_up = evicted,
                _ => {}
            }
        }
        let left = given_up.map(|victim| victim.block);
        self.strays
            .extend(left.filter(|left| self.held.contains(left)));
        if let Some(at) = self.strays.iter().position(|stray| *stray == block) {
            let stray = self.strays.remove(at);
            if !self.leads(block) {
                self.strays.push(stray);
            }
        }
        self.seen += 1;
        self.requests += 1;
        if self.seen == 64 {
            self.judge();
        }
        if !is_hit && self.leads(block) {
            if self.held.len() == self.slots {
                let victim = self.strays.remove(0);
                self.held.retain(|held| *held != victim);
            }
            self.held.push(block);
            if self.held.len() + 16 == self.slots {
                self.before_last = self.requests;
            }
        }
        is_hit
    }

    fn leads(&self, block: BlockId) -> bool {
        self.candidates[self.in_force].level.find(block).is_some()
    }

    /// Chooses the order of the first eviction.
    fn open(&mut self) {
        let mut most = 0.0;
        let opening = std::mem::take(&mut self.opening);
        // The last 16 blocks came faster than 8 times the mean: it is another load.
        let late = self.requests - self.before_last;
        if 16 * self.requests > 8 * self.slots as u64 * late {
            return;
        }
        for smaller in opening {
            let ahead = smaller.won - smaller.lost;
            let needed = (smaller.won + smaller.lost).sqrt().max(2.0);
            if ahead >= needed && ahead > most {
                most = ahead;
                self.left = 0;
                self.in_force = smaller.at;
            }
        }
        if most > 0.0 {
            self.changes
                .push(self.candidates[self.in_force].name.clone());
        }
    }

    fn judge(&mut self) {
        let kept = (-f64::from(self.seen) / (20.0 * self.slots as f64)).exp();
        self.seen = 0;
        for candidate in &mut self.candidates {
            candidate.score = candidate.score * kept + std::mem::take(&mut candidate.hits);
        }
        let scores: Vec<f64> = self.candidates.iter().map(|it| it.score).collect();
        let most = scores.iter().copied().fold(0.0, f64::max);
        if most - scores[self.in_force] < (0.002 * self.slots as f64).max(1.0) {
            return;
        }
        let best = scores.iter().position(|score| *score == most);
        let best = best.expect("the most");
        // Each block to be fetched costs 0.35 hits, but for the first change, and twice that on the way back.
        let price = if best == self.left { 0.7 } else { 0.35 };
        let level = &self.candidates[best].level;
        let missing = self.held.iter().filter(|it| level.find(**it).is_none());
        if !self.changes.is_empty() && most - scores[self.in_force] < price * missing.count() as f64
        {
            return;
        }
        let mut worst_first = self.strays.clone();
        let order = self.candidates[self.in_force].level.order();
        worst_first.extend(order.into_iter().rev().filter(|it| self.held.contains(it)));
        self.left = std::mem::replace(&mut self.in_force, best);
        worst_first.retain(|block| !self.leads(*block));
        self.strays = worst_first;
        self.changes
            .push(self.candidates[self.in_force].name.clone());
    }

    /// The resident blocks, in no order.
    pub fn held(&self) -> &[BlockId] {
        &self.held
    }
}
