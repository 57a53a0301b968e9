//! Work under way by range. A request that overlaps it has to wait, or gets its result.

use super::flights::{Background, Flight, Run, Span, Write};
use super::line::{Awaited, Line};
use super::ranges::Ranges;
use crate::Request;
use futae_policy::BlockId;
use hashbrown::HashMap;
use slab::Slab;

/// How often the request that is decided on has waited.
#[derive(Clone, Copy, Default)]
pub enum Turn {
    /// It has just come.
    #[default]
    New,
    /// It has waited, or is a part of one that has begun.
    Again,
    /// More than once: it has this place in the line, and those before it have begun.
    InLine(usize),
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
    /// How often the request that is decided on has waited.
    pub turn: Turn,
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

    /// What has to end or to begin in `span` before the request that is decided on may read there.
    pub fn before_reading(&mut self, span: &Span) -> Option<Awaited> {
        if !self.line.is_empty() {
            let has_turn = match self.turn {
                Turn::InLine(place) => self.line.keeps(place, span),
                Turn::New | Turn::Again => false,
            };
            if !has_turn && self.line.over(span) {
                return Some(Awaited::Turn);
            }
        }
        self.write_over(span).map(Awaited::Write)
    }

    /// The same before it may write there.
    pub fn before_writing(&mut self, blocks: &Span) -> Option<Awaited> {
        let before = self.before_reading(blocks);
        before.or_else(|| self.flight_over(blocks).map(Awaited::Flight))
    }

    /// The request that is decided on waits. If it has waited before, or overlaps one in the line, it takes a place in the line,
    /// where it claims `claim`.
    pub fn wait(&mut self, awaited: Awaited, claim: Span, request: Request) {
        let place = match (self.turn, awaited) {
            (Turn::New, Awaited::Write(key)) => return self.writes[key].parked.push(request),
            (Turn::New, Awaited::Flight(key)) => return self.flights[key].parked.push(request),
            (Turn::New, Awaited::Run(key)) => return self.runs[key].parked.push(request),
            (Turn::InLine(place), _) => place,
            (Turn::New, Awaited::Turn) | (Turn::Again, _) => self.line.enter(),
        };
        self.line.wait(place, awaited, claim, request);
    }

    /// The request that is decided on begins as several.
    pub fn leave_line(&mut self) {
        if let Turn::InLine(place) = self.turn {
            self.line.release(place);
        }
    }

    /// Whether work is under way. For tests.
    pub fn has(&self, awaited: Awaited) -> bool {
        match awaited {
            Awaited::Turn => false,
            Awaited::Write(key) => self.writes.contains(key),
            Awaited::Flight(key) => self.flights.contains(key),
            Awaited::Run(key) => self.runs.contains(key),
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
