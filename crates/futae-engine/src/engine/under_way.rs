//! What is under way where: a request that overlaps it has to wait, or is answered by it.

use super::flights::{Background, Flight, Span, Write};
use super::ranges::Ranges;
use super::state::State;
use super::write_back::Run;

/// Where writes, reads that fill frames, and write-backs are under way.
#[derive(Debug, Default)]
pub struct UnderWay {
    writes: Ranges,
    flights: Ranges,
    /// The piece of a large block that is being loaded; there is one at most, and whole blocks may be
    /// read beside it.
    piece: Option<(Span, usize)>,
    runs: Ranges,
}

impl UnderWay {
    /// A write whose blocks overlap `span`.
    pub fn write_over(&self, span: &Span) -> Option<usize> {
        self.writes.over(span)
    }
}

impl State {
    /// A write begins; nothing that is under way overlaps its blocks.
    pub fn add_write(&mut self, write: Write) -> usize {
        let blocks = write.blocks;
        debug_assert!(self.write_over(&blocks).is_none(), "{blocks:?} is taken");
        let key = self.writes.insert(write);
        self.under_way.writes.insert(&blocks, key);
        key
    }

    /// A write is over.
    pub fn remove_write(&mut self, key: usize) -> Write {
        let write = self.writes.remove(key);
        self.under_way.writes.remove(&write.blocks, key);
        write
    }

    /// A write under way whose blocks overlap `span`.
    pub fn write_over(&self, span: &Span) -> Option<usize> {
        self.under_way.write_over(span)
    }

    /// A read that fills frames, or may be waited for by others, begins.
    pub fn note_departure(&mut self, key: usize) {
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
            self.under_way.piece = Some((span, key));
        } else if whole {
            self.under_way.flights.insert(&span, key);
        }
    }

    /// A read is over.
    pub fn note_arrival(&mut self, flight: &Flight, span: &Span, key: usize) {
        if flight.background == Background::Piece {
            self.under_way.piece = None;
        } else if flight.whole {
            self.under_way.flights.remove(span, key);
        }
    }

    /// A read under way that fills frames, or may be waited for by others, and overlaps `span`.
    pub fn flight_over(&self, span: &Span) -> Option<usize> {
        let piece = self.under_way.piece;
        let piece = piece.filter(|(piece, _)| piece.overlap(span).is_some());
        let piece = piece.map(|(_, key)| key);
        piece.or_else(|| self.under_way.flights.over(span))
    }

    /// A write-back begins.
    pub fn add_run(&mut self, run: Run) -> usize {
        let blocks = self.blocks_of_run(&run);
        let key = self.runs.insert(run);
        self.under_way.runs.insert(&blocks, key);
        key
    }

    /// A write-back is over.
    pub fn remove_run(&mut self, key: usize) -> Run {
        let run = self.runs.remove(key);
        let blocks = self.blocks_of_run(&run);
        self.under_way.runs.remove(&blocks, key);
        run
    }

    fn blocks_of_run(&self, run: &Run) -> Span {
        Span {
            volume: run.volume,
            offset: run.first * self.block_bytes,
            length: (run.end - run.first) * self.block_bytes,
        }
    }

    /// A write-back under way of a block that `span` touches.
    pub fn run_over(&self, span: &Span) -> Option<usize> {
        let offset = span.offset / self.block_bytes * self.block_bytes;
        self.under_way.runs.over(&Span {
            volume: span.volume,
            offset,
            length: span.end() - offset,
        })
    }
}
