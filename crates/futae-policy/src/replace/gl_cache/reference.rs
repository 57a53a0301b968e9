//! The same procedure on lists, with the same forest.

use crate::structures::{Features, Forest, magnitude};
use std::collections::BTreeMap;

#[derive(Clone, PartialEq)]
struct Segment {
    /// Blocks, and whether each was requested since the segment was created.
    blocks: Vec<(u64, bool)>,
    created: u64,
    requests: u64,
    writes: u64,
    /// Distinguishes it from all others, before and after.
    name: u64,
}

impl Segment {
    fn features(&self, now: u64) -> Features {
        let requested = self.blocks.iter().filter(|block| block.1).count() as u64;
        let mut features = [0; 7];
        features[0] = magnitude(now - self.created);
        features[1] = magnitude(self.requests);
        features[2] = magnitude(requested);
        features[3] = self.writes as u8;
        features
    }
}

pub struct GlCache {
    slots: u64,
    size: usize,
    merge: usize,
    train: u64,
    now: u64,
    /// First written first.
    line: Vec<Segment>,
    leaving: Vec<u64>,
    last: BTreeMap<u64, u64>,
    since: Option<u64>,
    /// The features of each row, and the times of the first uses of its blocks since the snapshot.
    rows: Vec<(Features, Vec<u64>)>,
    /// Blocks of the snapshot that were not used since, with their rows.
    unused: BTreeMap<u64, usize>,
    forest: Option<Forest>,
    /// The names of segments as they were ranked, least useful first, and how many have been
    /// considered.
    ranked: Vec<u64>,
    considered: usize,
    /// The name of the segment with which merging in turn continues.
    turn: Option<u64>,
    names: u64,
    written: u64,
    writes: u64,
}

impl GlCache {
    pub fn new(slots: usize, size: usize, merge: usize, train: usize) -> Self {
        Self {
            slots: slots as u64,
            size,
            merge,
            train: (train * slots).max(256) as u64,
            now: 0,
            line: Vec::new(),
            leaving: Vec::new(),
            last: BTreeMap::new(),
            since: None,
            rows: Vec::new(),
            unused: BTreeMap::new(),
            forest: None,
            ranked: Vec::new(),
            considered: 0,
            turn: None,
            names: 0,
            written: 0,
            writes: 0,
        }
    }

    fn write(&mut self, block: u64) {
        self.written += 1;
        let is_full = |segment: &Segment| segment.blocks.len() >= self.size;
        if self.line.last().is_none_or(is_full) {
            if let Some(full) = self.line.last_mut() {
                full.writes = self.writes;
            }
            self.names += 1;
            self.line.push(Segment {
                blocks: Vec::new(),
                created: self.now,
                requests: 0,
                writes: 0,
                name: self.names,
            });
        }
        let open = self.line.last_mut().expect("there is one");
        open.blocks.push((block, false));
        self.last.insert(block, self.now);
    }

    fn used(&mut self, block: u64) {
        if let Some(row) = self.unused.remove(&block) {
            self.rows[row].1.push(self.now);
        }
    }

    fn snapshot(&mut self) {
        self.since = Some(self.now);
        self.rows.clear();
        self.unused.clear();
        let written = self.line.len().saturating_sub(1);
        for (row, segment) in self.line[..written].iter().enumerate() {
            self.rows.push((segment.features(self.now), Vec::new()));
            let blocks = segment.blocks.iter().map(|block| (block.0, row));
            self.unused.extend(blocks);
        }
    }

    fn learn(&mut self, since: u64) {
        let utility = |uses: &Vec<u64>| -> f64 {
            let counted = uses.iter().skip(self.size / self.merge);
            counted.map(|at| 1.0 / (at - since) as f64).sum()
        };
        let all: Vec<f64> = self.rows.iter().map(|row| utility(&row.1)).collect();
        let low = all.iter().copied().fold(f64::MAX, f64::min);
        let high = all.iter().copied().fold(0.0, f64::max);
        let range = if high > low { high - low } else { 1.0 };
        let labels = all.iter().map(|utility| ((utility - low) / range) as f32);
        let features = self.rows.iter().map(|row| row.0);
        let samples: Vec<_> = features.zip(labels).collect();
        if !samples.is_empty() {
            self.forest = Some(Forest::learn(&samples));
        }
    }

    fn tick(&mut self) {
        if self.now.is_multiple_of(self.slots) {
            self.writes = 255 * self.written / self.slots;
            self.written = 0;
        }
        if let Some(since) = self.since
            && self.now - since > self.train
        {
            self.learn(since);
            self.snapshot();
            self.ranked.clear();
            self.considered = 0;
        }
    }

    fn rank(&mut self) {
        let forest = self.forest.as_ref().expect("it was learned");
        let written = self.line.len().saturating_sub(1);
        let mut ranked: Vec<(f64, u64, u64)> = Vec::new();
        for segment in &self.line[..written] {
            let utility = f64::from(forest.predict(&segment.features(self.now)));
            let blocks = segment.blocks.len() as f64;
            let utility = if utility > 0.0 {
                utility / blocks
            } else {
                utility * blocks
            };
            ranked.push((utility, segment.created, segment.name));
        }
        ranked.sort_by(|a, b| (a.0, a.1).partial_cmp(&(b.0, b.1)).expect("numbers"));
        self.ranked = ranked.into_iter().map(|one| one.2).collect();
        self.considered = 0;
    }

    /// Where the segment of this name is, if enough written ones follow.
    fn place(&self, name: u64) -> Option<usize> {
        let at = self.line.iter().position(|one| one.name == name)?;
        (at + self.merge < self.line.len()).then_some(at)
    }

    fn choose(&mut self) -> Option<usize> {
        if self.forest.is_none() {
            let first = self.line.first()?.name;
            let turn = self.turn.and_then(|turn| self.place(turn));
            let at = turn.or_else(|| self.place(first))?;
            self.turn = self.line.get(at + self.merge).map(|next| next.name);
            return Some(at);
        }
        if self.considered as f64 >= self.ranked.len() as f64 * 0.02 {
            self.rank();
        }
        while let Some(&name) = self.ranked.get(self.considered) {
            self.considered += 1;
            if let Some(at) = self.place(name) {
                return Some(at);
            }
        }
        None
    }

    fn make_room(&mut self) {
        if self.since.is_none() {
            self.snapshot();
        }
        let Some(at) = self.choose() else {
            let worst = self.ranked.first().copied();
            let worst = worst.and_then(|worst| self.line.iter().position(|one| one.name == worst));
            let at = worst.unwrap_or(0);
            if self.turn == Some(self.line[at].name) {
                self.turn = self.line.get(at + 1).map(|next| next.name);
            }
            let gone = self.line.remove(at);
            self.leaving.extend(gone.blocks.iter().map(|block| block.0));
            self.ranked.clear();
            self.considered = 0;
            return;
        };
        let merged: Vec<Segment> = self.line.drain(at..at + self.merge).collect();
        let of = |segment: &Segment| segment.blocks.clone();
        let blocks: Vec<u64> = merged.iter().flat_map(of).map(|block| block.0).collect();
        let mut uses: Vec<u64> = blocks.iter().map(|block| self.last[block]).collect();
        uses.sort_unstable();
        let kept = (blocks.len() / self.merge).clamp(1, self.size);
        let oldest = uses[uses.len() - kept];
        let (stay, leave): (Vec<u64>, Vec<u64>) =
            (blocks.into_iter()).partition(|block| self.last[block] >= oldest);
        self.leaving.extend(leave);
        self.names += 1;
        let writes = merged.iter().map(|one| one.writes).sum::<u64>();
        let segment = Segment {
            blocks: stay.into_iter().map(|block| (block, false)).collect(),
            created: self.now,
            requests: 0,
            writes: writes / self.merge as u64,
            name: self.names,
        };
        self.line.insert(at, segment);
    }
}

impl crate::contract::Reference for GlCache {
    fn access(&mut self, block: u64) -> bool {
        if let Some(at) = self.leaving.iter().position(|&other| other == block) {
            self.now += 1;
            self.used(block);
            self.leaving.remove(at);
            self.write(block);
            self.tick();
            return true;
        }
        let holds = |segment: &Segment| segment.blocks.iter().any(|held| held.0 == block);
        if let Some(at) = self.line.iter().position(holds) {
            self.now += 1;
            self.used(block);
            self.last.insert(block, self.now);
            let segment = &mut self.line[at];
            segment.requests += 1;
            let mut blocks = segment.blocks.iter_mut();
            blocks.find(|held| held.0 == block).expect("held").1 = true;
            self.tick();
            return true;
        }
        if self.resident().len() as u64 == self.slots {
            if self.leaving.is_empty() {
                self.make_room();
            }
            self.leaving.remove(0);
        }
        self.now += 1;
        self.used(block);
        self.write(block);
        self.tick();
        false
    }

    fn resident(&self) -> Vec<u64> {
        let all = self.line.iter().flat_map(|segment| &segment.blocks);
        let held = all.map(|block| block.0);
        held.chain(self.leaving.iter().copied()).collect()
    }
}
