//! Segments of blocks in the order in which they were written, and what is known of each.

use crate::Slot;
use crate::structures::{FEATURES, Features, Queues, magnitude};

const LINE: usize = 0;

/// Blocks that were written in succession.
#[derive(Clone, Debug, Default)]
pub struct Segment {
    /// Its blocks, first written first.
    pub blocks: Vec<Slot>,
    /// When its first block was written or, if it is a merged one, when it was merged.
    pub created: u64,
    /// Requests for its blocks since then.
    pub requests: u64,
    /// How many of its blocks they were for.
    pub requested: u32,
    /// Blocks written per access when it was filled, in 255ths.
    pub writes: u8,
}

impl Segment {
    /// What the forest is asked about.
    pub fn features(&self, now: u64) -> Features {
        let mut features = [0; FEATURES];
        features[0] = magnitude(now - self.created);
        features[1] = magnitude(self.requests);
        features[2] = magnitude(u64::from(self.requested));
        features[3] = self.writes;
        features
    }
}

/// Segments by number, in a line: the first written first. The last one is being written. None is
/// empty.
#[derive(Clone, Debug)]
pub struct Segments {
    all: Vec<Segment>,
    free: Vec<u32>,
    line: Queues,
}

impl Segments {
    /// None yet.
    pub fn new() -> Self {
        Self {
            all: Vec::new(),
            free: Vec::new(),
            line: Queues::new(1, 0),
        }
    }

    /// How many there are.
    pub fn len(&self) -> u32 {
        self.line.len(LINE)
    }

    pub fn get(&self, segment: u32) -> &Segment {
        &self.all[segment as usize]
    }

    pub fn at(&mut self, segment: u32) -> &mut Segment {
        &mut self.all[segment as usize]
    }

    pub fn first(&self) -> Option<u32> {
        self.line.front(LINE).map(|at| at.0)
    }

    pub fn last(&self) -> Option<u32> {
        self.line.back(LINE).map(|at| at.0)
    }

    pub fn after(&self, segment: u32) -> Option<u32> {
        self.line.after(Slot(segment)).map(|at| at.0)
    }

    /// In the order of the line.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.line.iter(LINE).map(|at| at.0)
    }

    /// A new segment at the end of the line.
    pub fn open(&mut self, created: u64) -> u32 {
        let segment = Segment {
            created,
            ..Segment::default()
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.all[number as usize] = segment;
                number
            }
            None => {
                self.all.push(segment);
                (self.all.len() - 1) as u32
            }
        };
        self.line.push_back(LINE, Slot(number));
        number
    }

    /// Takes a segment out of the line.
    pub fn close(&mut self, segment: u32) -> Segment {
        self.line.remove(Slot(segment));
        self.free.push(segment);
        std::mem::take(self.at(segment))
    }

    /// `number` segments in line from `first`, if all have been written.
    pub fn written_from(&self, first: u32, number: usize) -> Option<Vec<u32>> {
        let last = self.last();
        let line = std::iter::successors(Some(first), |&at| self.after(at));
        let written = line.take_while(|&at| Some(at) != last);
        let chosen: Vec<u32> = written.take(number).collect();
        (chosen.len() == number).then_some(chosen)
    }
}
