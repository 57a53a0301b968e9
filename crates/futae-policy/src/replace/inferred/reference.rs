//! The same procedure on lists, with `lru` as the inner order.

use super::gaps::Gaps;

pub struct Inferred {
    pub slots: usize,
    pub gaps: Gaps,
    /// The next victim first.
    pub served: Vec<u64>,
    /// The oldest first.
    pub kept: Vec<u64>,
    /// Block, when it was served, how often; the oldest first.
    pub above: Vec<(u64, u64, u32)>,
    pub gone: Vec<(u64, u64, u32)>,
    pub now: u64,
    pub wanted: Vec<u64>,
}

fn take(list: &mut Vec<(u64, u64, u32)>, block: u64) -> Option<(u64, u64, u32)> {
    let at = list.iter().position(|one| one.0 == block)?;
    Some(list.remove(at))
}

impl Inferred {
    pub fn new(slots: usize) -> Self {
        Self {
            slots,
            gaps: Gaps::new(0.02),
            served: Vec::new(),
            kept: Vec::new(),
            above: Vec::new(),
            gone: Vec::new(),
            now: 0,
            wanted: Vec::new(),
        }
    }

    fn serve(&mut self, block: u64) {
        let before = take(&mut self.above, block).or_else(|| take(&mut self.gone, block));
        if let Some((_, at, _)) = before {
            self.gaps.note(self.now - at);
        }
        let times = before.map_or(1, |before| before.2 + 1);
        self.above.push((block, self.now, times));
        if self.above.len() > 4 * self.slots {
            self.above.remove(0);
        }
        self.now += 1;
        let Some(stay) = self.gaps.earliest() else {
            return;
        };
        while self
            .above
            .first()
            .is_some_and(|one| self.now - one.1 >= stay)
        {
            let left = self.above.remove(0);
            if let Some(at) = self.served.iter().position(|&held| held == left.0) {
                self.kept.push(self.served.remove(at));
            } else if left.2 >= 2 {
                if self.wanted.len() == self.slots {
                    self.wanted.remove(0);
                }
                self.wanted.push(left.0);
            }
            self.gone.push(left);
            if self.gone.len() > 4 * self.slots {
                self.gone.remove(0);
            }
        }
    }

    fn make_room(&mut self) {
        if self.served.len() + self.kept.len() < self.slots {
            return;
        }
        if self.served.is_empty() {
            self.kept.remove(0);
        } else {
            self.served.remove(0);
        }
    }
}

impl crate::contract::Reference for Inferred {
    fn access(&mut self, block: u64) -> bool {
        let is_hit = self.resident().contains(&block);
        if is_hit {
            self.served.retain(|&held| held != block);
            self.kept.retain(|&held| held != block);
            self.served.insert(0, block);
            self.serve(block);
        } else {
            self.serve(block);
            if self.kept.len() < self.slots {
                self.make_room();
                self.served.insert(0, block);
            }
        }
        for wanted in std::mem::take(&mut self.wanted) {
            let is_gone = self.gone.iter().any(|one| one.0 == wanted);
            if is_gone && !self.resident().contains(&wanted) {
                self.make_room();
                self.kept.push(wanted);
            }
        }
        is_hit
    }

    fn resident(&self) -> Vec<u64> {
        [&self.served[..], &self.kept].concat()
    }
}
