//! The same procedure on lists, with the same random draws and the same forest.

use super::super::lrb::{Uses, label};
use crate::Prng;
use crate::structures::{Features, Forest};
use std::collections::BTreeMap;

pub struct ThreeLCache {
    slots: usize,
    labels: usize,
    prng: Prng,
    now: u64,
    /// Oldest first.
    order: Vec<u64>,
    /// In the order in which lots number them: one that leaves is replaced by the last.
    held: Vec<u64>,
    /// Oldest first.
    past: Vec<u64>,
    /// Times of all uses since the block was last dropped from the records.
    uses: BTreeMap<u64, Vec<u64>>,
    waiting: Vec<(u64, Features, u64)>,
    labelled: Vec<(Features, f32)>,
    forest: Option<Forest>,
    expected: BTreeMap<u64, f64>,
    victims_left: usize,
    newcomers: Vec<u64>,
    /// The block at which the scan continues; `None`: the oldest.
    next: Option<u64>,
    length: usize,
    passed: usize,
    oldest_percent: usize,
    reserved_percent: usize,
    uses_most: usize,
    /// Uses of the victims of this round, and whether the scan had reached them.
    victims: Vec<(usize, bool)>,
    candidates: usize,
    /// Victims and candidates when the scan left the oldest.
    oldest: (usize, usize),
    reached: u64,
    has_evicted: bool,
    forgotten_after: [u64; 2],
}

impl ThreeLCache {
    pub fn new(slots: usize, seed: u64, labels: usize) -> Self {
        Self {
            slots,
            labels,
            prng: Prng::new(seed),
            now: 0,
            order: Vec::new(),
            held: Vec::new(),
            past: Vec::new(),
            uses: BTreeMap::new(),
            waiting: Vec::new(),
            labelled: Vec::new(),
            forest: None,
            expected: BTreeMap::new(),
            victims_left: 0,
            newcomers: Vec::new(),
            next: None,
            length: 0,
            passed: 0,
            oldest_percent: 1,
            reserved_percent: 2,
            uses_most: 1,
            victims: Vec::new(),
            candidates: 0,
            oldest: (0, 0),
            reached: 0,
            has_evicted: false,
            forgotten_after: [0; 2],
        }
    }

    fn features(&self, block: u64) -> Features {
        let mut known = Uses::default();
        for &at in &self.uses[&block] {
            known.note(at, [1; 2]);
        }
        known.features_plain(self.now)
    }

    fn take_sample(&mut self, block: u64) -> Option<(u64, Features, u64)> {
        let at = self.waiting.iter().position(|one| one.0 == block)?;
        Some(self.waiting.remove(at))
    }

    fn learn(&mut self, features: Features, after: u64) {
        if self.forest.is_some() && self.prng.below(4) != 0 {
            return;
        }
        self.labelled.push((features, label(after)));
        if self.labelled.len() >= self.labels && self.victims_left == 0 {
            self.forest = Some(Forest::learn(&self.labelled));
            self.labelled.clear();
            self.expected.clear();
            self.forgotten_after[0] = self.forgotten_after[1];
        }
    }

    fn tick(&mut self, block: u64) {
        self.now += 1;
        if let Some((_, features, since)) = self.take_sample(block) {
            self.learn(features, self.now - since);
        }
        let all = self.held.len() + self.past.len();
        if self.has_evicted && all > 0 {
            let lot = self.prng.below(all as u64) as usize;
            let drawn = self.held.get(lot).or_else(|| self.past.first());
            let drawn = *drawn.expect("there are some");
            if !self.waiting.iter().any(|one| one.0 == drawn) {
                let features = self.features(drawn);
                self.waiting.push((drawn, features, self.now));
            }
        }
    }

    fn after(&self, block: u64) -> Option<u64> {
        let at = self.order.iter().position(|&other| other == block)?;
        self.order.get(at + 1).copied()
    }

    fn draw(&mut self) -> (Vec<u64>, bool) {
        let mut chosen = Vec::new();
        if self.length == 0 {
            self.length = self.order.len();
        }
        let rate = match self.length {
            0..=2 => 1,
            length => (length / 100 + 2).min(1024),
        };
        let reserved = self.slots * self.reserved_percent / 100;
        let many = (self.slots * 10 * self.reserved_percent / 100).max(1);
        while self.newcomers.len() > reserved && chosen.len() < rate * 3 / 2 {
            chosen.push(self.newcomers.remove(0));
        }
        if self.newcomers.len() >= many && !chosen.is_empty() {
            return (chosen, false);
        }
        let mut found = 0;
        let mut is_over = false;
        while found < rate && !is_over {
            let block = self.next.unwrap_or(self.order[0]);
            let oldest = self.length * self.oldest_percent / 100 + 2;
            if self.passed <= oldest {
                let reached = self.victims.iter().filter(|victim| victim.1).count();
                self.oldest = (reached, self.candidates);
            }
            let uses = &self.uses[&block];
            if uses.len() <= self.uses_most || self.passed < oldest {
                self.reached = *uses.last().expect("it was used");
                chosen.push(block);
                found += 1;
                self.candidates += 1;
            }
            self.passed += 1;
            self.next = self.after(block);
            is_over = self.passed >= self.length;
        }
        if is_over {
            self.begin();
        }
        if chosen.is_empty() {
            chosen.extend(self.order.first());
        }
        (chosen, is_over)
    }

    fn begin(&mut self) {
        if !self.victims.is_empty() {
            let mut uses: Vec<usize> = self.victims.iter().map(|victim| victim.0).collect();
            uses.sort_unstable();
            let enough = (99 * uses.len()).div_ceil(100);
            self.uses_most = 1 << uses[enough - 1].ilog2();
        }
        let reached = self.victims.iter().filter(|victim| victim.1).count();
        let later = (reached - self.oldest.0, self.candidates - self.oldest.1);
        if self.oldest.0 * later.1 > later.0 * self.oldest.1 {
            self.oldest_percent = (self.oldest_percent + 1).min(100);
        } else {
            self.oldest_percent = (self.oldest_percent - 1).max(1);
        }
        if reached > self.newcomers.len() {
            self.reserved_percent = (self.reserved_percent + 1).min(100);
        } else {
            self.reserved_percent = (self.reserved_percent / 2).max(1);
        }
        self.length = self.order.len();
        (self.passed, self.next) = (0, self.order.first().copied());
        self.victims.clear();
        self.candidates = 0;
        self.oldest = (0, 0);
    }

    fn rank(&mut self) {
        let (chosen, is_over) = self.draw();
        if is_over {
            self.expected.clear();
        }
        let forest = self.forest.clone().expect("it was learned");
        for &block in &chosen {
            let at = super::next_use(&forest, &self.features(block), self.now);
            self.expected.insert(block, at);
        }
        self.victims_left = (chosen.len() / 2).max(1);
    }

    fn leave(&mut self, block: u64) {
        if self.next == Some(block) {
            self.next = self.after(block);
        }
        self.order.retain(|&other| other != block);
        self.expected.remove(&block);
    }

    fn evict(&mut self, victim: u64) {
        self.has_evicted = true;
        self.victims_left = self.victims_left.saturating_sub(1);
        let uses = &self.uses[&victim];
        let last = *uses.last().expect("it was used");
        self.victims.push((uses.len(), last <= self.reached));
        self.leave(victim);
        self.newcomers.retain(|&other| other != victim);
        let at = self.held.iter().position(|&held| held == victim);
        self.held.swap_remove(at.expect("it is held"));
        if self.past.len() >= self.slots {
            let old = self.past.remove(0);
            if let Some((_, features, _)) = self.take_sample(old) {
                let unused = self.now - self.uses[&old].last().expect("it was used");
                let after = self.forgotten_after[0] + unused;
                self.forgotten_after[1] = self.forgotten_after[1].max(unused);
                self.learn(features, after);
            }
            self.uses.remove(&old);
        }
        self.past.push(victim);
    }
}

impl crate::contract::Reference for ThreeLCache {
    fn access(&mut self, block: u64) -> bool {
        if self.order.contains(&block) {
            self.tick(block);
            self.uses.get_mut(&block).expect("known").push(self.now);
            self.leave(block);
            self.order.push(block);
            return true;
        }
        self.past.retain(|&other| other != block);
        if self.order.len() == self.slots {
            let victim = if self.forest.is_none() {
                self.order[0]
            } else {
                if self.victims_left == 0 || self.expected.is_empty() {
                    self.rank();
                }
                let latest = self.expected.values().copied().fold(0.0, f64::max);
                let mut worst = self.expected.iter().filter(|one| *one.1 == latest);
                *worst.next().expect("there are candidates").0
            };
            self.evict(victim);
        }
        self.tick(block);
        self.uses.entry(block).or_default().push(self.now);
        self.order.push(block);
        self.held.push(block);
        if self.forest.is_some() {
            self.newcomers.push(block);
        }
        false
    }

    fn resident(&self) -> Vec<u64> {
        self.order.clone()
    }
}
