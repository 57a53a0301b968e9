//! Work under way by range. A request that overlaps it has to wait, or gets its result.

use super::flights::{Background, Flight, Run, Span, Write};
use super::line::{Awaited, Line};
use super::ranges::Ranges;
use crate::Request;
use futae_policy::BlockId;
use hashbrown::HashMap;
use slab::Slab;
use std::collections::VecDeque;

/// A queue in which a request waits.
#[derive(Clone, Copy)]
pub enum Queue {
    /// Behind a write, by its key.
    OfWrite(usize),
    /// Behind a request that is first in its range, by its key.
    OfFirst(usize),
}

/// Writes, reads that fill frames, and write-backs under way.
#[derive(Default)]
pub struct UnderWay {
    pub flights: Slab<Flight>,
    /// For each whole block that is being read: the flight that reads it.
    pub flight_of: HashMap<BlockId, usize>,
    pub writes: Slab<Write>,
    pub runs: Slab<Run>,
    /// The requests that no other one may overtake.
    pub line: Line,
    /// Requests that have waited, and are decided on in a later step.
    pub left: Slab<Request>,
    /// Whether the request that is decided on has just come: it has not waited yet.
    pub is_new: bool,
    /// The queue of the last request that began to wait in one, until somebody has taken note.
    pub waits_in: Option<Queue>,
    write_ranges: Ranges,
    flight_ranges: Ranges,
    /// The piece of a large block that is being loaded; at most one, beside which whole blocks may
    /// be read.
    piece: Option<(Span, usize)>,
    run_ranges: Ranges,
    block_bytes: u64,
}

impl UnderWay {
    /// Empty tables for blocks of this many bytes.
    pub fn new(block_bytes: u64) -> Self {
        Self {
            block_bytes,
            ..Self::default()
        }
    }

    /// A write begins; no work under way overlaps its blocks.
    pub fn add_write(&mut self, write: Write) -> usize {
        let blocks = write.blocks;
        debug_assert!(self.write_over(&blocks).is_none(), "{blocks:?} is taken");
        let key = self.writes.insert(write);
        self.write_ranges.insert(&blocks, key);
        key
    }

    /// A write has ended.
    pub fn remove_write(&mut self, key: usize) -> Write {
        let write = self.writes.remove(key);
        self.write_ranges.remove(&write.blocks, key);
        self.line.note_end(Awaited::Write(key));
        write
    }

    /// A request waits until work under way in its range has ended. If it has waited before, no other one overtakes it from now
    /// on.
    pub fn wait(&mut self, awaited: Awaited, blocks: Span, request: Request) {
        if !self.is_new {
            let key = self.line.add(awaited, blocks, request);
            self.waits_in = Some(Queue::OfFirst(key));
            return;
        }
        match awaited {
            Awaited::Write(key) => {
                self.writes[key].parked.push_back(request);
                self.waits_in = Some(Queue::OfWrite(key));
            }
            Awaited::Flight(key) => self.flights[key].parked.push(request),
            Awaited::Run(key) => self.runs[key].parked.push(request),
        }
    }

    /// A request waits until one that is first in a part of its range has begun.
    pub fn wait_behind(&mut self, first: usize, request: Request) {
        self.line.behind(first).push_back(request);
        self.waits_in = Some(Queue::OfFirst(first));
    }

    /// The requests in a queue.
    pub fn queue(&mut self, of: Queue) -> &mut VecDeque<Request> {
        match of {
            Queue::OfWrite(key) => &mut self.writes[key].parked,
            Queue::OfFirst(key) => self.line.behind(key),
        }
    }

    /// A write under way whose blocks overlap `span`.
    pub fn write_over(&self, span: &Span) -> Option<usize> {
        self.write_ranges.over(span)
    }

    /// A flight that has been assembled begins: from now on other requests wait for it if it fills
    /// frames.
    pub fn depart(&mut self, key: usize) {
        let Flight {
            span: Some(span),
            whole,
            background,
            ..
        } = self.flights[key]
        else {
            return;
        };
        if background == Background::Piece {
            self.piece = Some((span, key));
        } else if whole {
            self.flight_ranges.insert(&span, key);
        }
    }

    /// A flight has ended; its blocks are no longer awaited.
    pub fn arrive(&mut self, key: usize) -> Flight {
        let flight = self.flights.remove(key);
        self.line.note_end(Awaited::Flight(key));
        let Some(span) = flight.span else {
            return flight;
        };
        if flight.background == Background::Piece {
            self.piece = None;
        } else if flight.whole {
            self.flight_ranges.remove(&span, key);
        }
        for index in span.offset / self.block_bytes..span.end().div_ceil(self.block_bytes) {
            let block = BlockId::new(span.volume, index);
            if self.flight_of.get(&block) == Some(&key) {
                self.flight_of.remove(&block);
            }
        }
        flight
    }

    /// Extends the last flight in `started` by `wanted` if it is adjacent and the result is no
    /// longer than `bytes_max`; otherwise starts another flight.
    pub fn extend_or_start(
        &mut self,
        wanted: Span,
        whole: bool,
        bytes_max: u64,
        started: &mut Vec<usize>,
    ) -> usize {
        if let Some(&last) = started.last() {
            let flight = &mut self.flights[last];
            let adjacent = flight.span.filter(|span| {
                span.end() == wanted.offset && span.length + wanted.length <= bytes_max
            });
            if let (Some(span), true) = (adjacent, flight.whole == whole) {
                flight.span = Some(Span {
                    length: span.length + wanted.length,
                    ..span
                });
                return last;
            }
        }
        let flight = Flight {
            span: Some(wanted),
            whole,
            ..Flight::default()
        };
        let key = self.flights.insert(flight);
        started.push(key);
        key
    }

    /// A read under way that overlaps `span` and fills frames or may be waited for by other
    /// requests.
    pub fn flight_over(&self, span: &Span) -> Option<usize> {
        let piece = self.piece;
        let piece = piece.filter(|(piece, _)| piece.overlap(span).is_some());
        let piece = piece.map(|(_, key)| key);
        piece.or_else(|| self.flight_ranges.over(span))
    }

    /// A write-back begins.
    pub fn add_run(&mut self, run: Run) -> usize {
        let blocks = self.blocks_of_run(&run);
        let key = self.runs.insert(run);
        self.run_ranges.insert(&blocks, key);
        key
    }

    /// A write-back has ended.
    pub fn remove_run(&mut self, key: usize) -> Run {
        let run = self.runs.remove(key);
        self.line.note_end(Awaited::Run(key));
        let blocks = self.blocks_of_run(&run);
        self.run_ranges.remove(&blocks, key);
        run
    }

    fn blocks_of_run(&self, run: &Run) -> Span {
        Span {
            volume: run.volume,
            offset: run.first * self.block_bytes,
            length: (run.end - run.first) * self.block_bytes,
        }
    }

    /// A write-back under way that covers a block in `span`.
    pub fn run_over(&self, span: &Span) -> Option<usize> {
        let offset = span.offset / self.block_bytes * self.block_bytes;
        self.run_ranges.over(&Span {
            volume: span.volume,
            offset,
            length: span.end() - offset,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futae_policy::VolumeId;

    const BLOCK: u64 = 4096;

    fn span(first: u64, blocks: u64) -> Span {
        Span {
            volume: VolumeId(0),
            offset: first * BLOCK,
            length: blocks * BLOCK,
        }
    }

    #[test]
    fn adjacent_misses_are_one_flight_until_it_is_long_enough() {
        let (mut under_way, mut started) = (UnderWay::new(BLOCK), Vec::new());
        let mut fetch = |first, whole| {
            let wanted = span(first, 1);
            under_way.extend_or_start(wanted, whole, 3 * BLOCK, &mut started)
        };
        let first = fetch(1, true);
        assert_eq!((fetch(2, true), fetch(3, true)), (first, first));
        let second = fetch(4, true);
        assert_ne!(second, first, "long enough");
        assert_ne!(fetch(5, false), second, "one fills frames, one does not");
        assert_eq!(under_way.flights[first].span, Some(span(1, 3)));
        assert_eq!(started.len(), 3);
    }

    #[test]
    fn what_overlaps_is_found_while_it_is_under_way() {
        let mut under_way = UnderWay::new(BLOCK);
        let key = under_way.extend_or_start(span(4, 2), true, BLOCK, &mut Vec::new());
        under_way.flight_of.insert(BlockId::on_first(5), key);
        assert_eq!(under_way.flight_over(&span(5, 9)), None, "not sent yet");
        under_way.depart(key);
        assert_eq!(under_way.flight_over(&span(5, 9)), Some(key));
        assert_eq!(under_way.flight_over(&span(6, 9)), None);
        under_way.arrive(key);
        assert!(under_way.flight_of.is_empty() && under_way.flight_over(&span(5, 9)).is_none());
        let key = under_way.add_run(Run {
            volume: VolumeId(0),
            first: 8,
            end: 10,
            span: span(8, 2),
            parked: Vec::new(),
        });
        let inside = Span {
            offset: 9 * BLOCK + 100,
            length: 1,
            ..span(0, 0)
        };
        assert_eq!(under_way.run_over(&inside), Some(key));
        under_way.remove_run(key);
        assert_eq!(under_way.run_over(&inside), None);
    }
}
