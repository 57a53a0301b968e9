//! The authors' program on lists, with the same lots and the same learning rate.

use super::rate::Rate;
use crate::Prng;

#[derive(Clone, Copy)]
pub struct Entry {
    block: u64,
    freq: u64,
    time: u64,
    demoted: bool,
    new: bool,
}

pub struct Cacheus {
    size: usize,
    time: u64,
    s: Vec<Entry>,
    q: Vec<Entry>,
    s_limit: usize,
    lru_hist: Vec<Entry>,
    lfu_hist: Vec<Entry>,
    w_lru: f64,
    rate: Rate,
    prng: Prng,
    lot: f64,
}

fn take(list: &mut Vec<Entry>, block: u64) -> Option<Entry> {
    let at = list.iter().position(|entry| entry.block == block)?;
    Some(list.remove(at))
}

fn ratio(a: usize, b: usize) -> usize {
    ((a as f64 / b.max(1) as f64 + 0.5) as usize).max(1)
}

impl Cacheus {
    pub fn new(size: usize, seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let q_limit = ((size as f64 * 0.01 + 0.5) as usize).max(1);
        Self {
            size,
            time: 0,
            s: Vec::new(),
            q: Vec::new(),
            s_limit: size - q_limit,
            lru_hist: Vec::new(),
            lfu_hist: Vec::new(),
            w_lru: 0.5,
            rate: Rate::new(size as u32),
            lot: prng.unit(),
            prng,
        }
    }

    fn dem_count(&self) -> usize {
        self.q.iter().filter(|entry| entry.demoted).count()
    }

    fn nor_count(&self) -> usize {
        self.lru_hist.iter().filter(|entry| entry.new).count()
    }

    fn demote(&mut self) {
        if !self.s.is_empty() {
            let mut oldest = self.s.remove(0);
            oldest.demoted = true;
            self.q.push(oldest);
        }
    }

    fn limit_stack(&mut self) {
        while !self.s.is_empty() && self.s.len() >= self.s_limit {
            self.demote();
        }
    }

    fn adjust_weights(&mut self, factors: [f64; 2]) {
        let lru = self.w_lru * factors[0];
        let lfu = (1.0 - self.w_lru) * factors[1];
        self.w_lru = (lru / (lru + lfu)).clamp(0.01, 0.99);
    }

    fn evict(&mut self) {
        let all = || self.q.iter().chain(&self.s);
        let lru = all().next().expect("full").block;
        let lfu = all()
            .min_by_key(|entry| (entry.freq, std::cmp::Reverse(entry.time)))
            .expect("full")
            .block;
        let by_lru = self.lot < self.w_lru;
        self.lot = self.prng.unit();
        let block = if by_lru { lru } else { lfu };
        let found = take(&mut self.q, block).or_else(|| take(&mut self.s, block));
        let mut gone = found.expect("resident");
        gone.demoted = false;
        let limit = self.size / 2;
        if lru == lfu || limit == 0 {
            return;
        }
        let history = if by_lru {
            &mut self.lru_hist
        } else {
            &mut self.lfu_hist
        };
        history.push(gone);
        if history.len() > limit {
            history.remove(0);
        }
    }

    fn come_back(&mut self, entry: Entry) {
        if self.s.len() + self.q.len() == self.size {
            self.evict();
        }
        self.s.push(Entry {
            time: self.time,
            demoted: false,
            new: false,
            ..entry
        });
        self.limit_stack();
    }

    fn come_first(&mut self, block: u64) {
        let mut entry = Entry {
            block,
            freq: 1,
            time: self.time,
            demoted: false,
            new: false,
        };
        let total = self.s.len() + self.q.len();
        if self.s.len() < self.s_limit && self.q.is_empty() {
            self.s.push(entry);
        } else if total < self.size && self.q.len() < self.size - self.s_limit {
            self.q.push(entry);
        } else {
            if total == self.size {
                self.evict();
            }
            entry.new = true;
            self.q.push(entry);
            self.limit_stack();
        }
    }
}

impl crate::contract::Reference for Cacheus {
    fn access(&mut self, block: u64) -> bool {
        self.time += 1;
        self.rate.tick(&mut self.prng);
        let loss = (-self.rate.rate()).exp();
        if let Some(mut entry) = take(&mut self.s, block) {
            (entry.freq, entry.time) = (entry.freq + 1, self.time);
            self.s.push(entry);
        } else if let Some(at) = self.q.iter().position(|entry| entry.block == block) {
            if self.q[at].demoted {
                let more = self.s_limit + ratio(self.nor_count(), self.dem_count());
                self.s_limit = more.min(self.size - 1);
            }
            let mut entry = self.q.remove(at);
            (entry.freq, entry.time, entry.demoted) = (entry.freq + 1, self.time, false);
            if self.s.len() >= self.s_limit {
                self.demote();
            }
            self.s.push(entry);
        } else if let Some(entry) = take(&mut self.lru_hist, block) {
            if entry.new {
                let more = self.size - self.s_limit + ratio(self.dem_count(), self.nor_count());
                self.s_limit = self.size - more.min(self.size - 1).max(1);
            }
            self.adjust_weights([loss, 1.0]);
            self.come_back(entry);
            return false;
        } else if let Some(entry) = take(&mut self.lfu_hist, block) {
            self.adjust_weights([1.0, loss]);
            self.come_back(entry);
            return false;
        } else {
            self.come_first(block);
            return false;
        }
        self.rate.note_hit();
        true
    }

    fn resident(&self) -> Vec<u64> {
        self.s
            .iter()
            .chain(&self.q)
            .map(|entry| entry.block)
            .collect()
    }
}
