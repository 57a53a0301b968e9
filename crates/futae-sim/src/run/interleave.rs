//! The requests of several guests as one stream.

use futae_trace::{BlockRequest, BlockStream};

/// Guests that take turns, request by request. The blocks of guest *g* are numbered from
/// `g * blocks`. Ends when one of the guests does.
pub struct Interleave<S> {
    guests: Vec<S>,
    blocks: u64,
    turn: usize,
    /// What each guest asks for next, a batch at a time.
    batches: Vec<Vec<BlockRequest>>,
    /// Requests of the current batches, and how many of them have been used.
    filled: usize,
    used: usize,
}

/// Requests drawn from a guest at a time.
const BATCH: usize = 256;

impl<S: BlockStream> Interleave<S> {
    /// The streams of guests with `blocks` blocks each.
    #[must_use]
    pub fn new(guests: Vec<S>, blocks: u64) -> Self {
        let batches = vec![vec![BlockRequest::default(); BATCH]; guests.len()];
        Self {
            guests,
            blocks,
            turn: 0,
            batches,
            filled: 0,
            used: 0,
        }
    }

    /// The next request, when it is the turn of guest `turn`.
    fn next(&mut self) -> Option<BlockRequest> {
        if self.used == self.filled {
            let pairs = self.guests.iter_mut().zip(&mut self.batches);
            self.filled = pairs
                .map(|(guest, batch)| guest.fill(batch))
                .min()
                .unwrap_or(0);
            self.used = 0;
            if self.filled == 0 {
                return None;
            }
        }
        let request = self.batches[self.turn][self.used];
        let block = self.turn as u64 * self.blocks + request.block();
        self.turn += 1;
        if self.turn == self.guests.len() {
            self.turn = 0;
            self.used += 1;
        }
        Some(request.at(block))
    }
}

impl<S: BlockStream> BlockStream for Interleave<S> {
    fn fill(&mut self, out: &mut [BlockRequest]) -> usize {
        if let [only] = &mut self.guests[..] {
            return only.fill(out);
        }
        for (at, place) in out.iter_mut().enumerate() {
            match self.next() {
                Some(request) => *place = request,
                None => return at,
            }
        }
        out.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Count(std::ops::Range<u64>);

    impl BlockStream for Count {
        fn fill(&mut self, out: &mut [BlockRequest]) -> usize {
            let pairs = out.iter_mut().zip(&mut self.0);
            pairs
                .map(|(place, block)| *place = BlockRequest::write(block))
                .count()
        }
    }

    #[test]
    fn guests_take_turns_and_the_shortest_ends_it() {
        let mut both = Interleave::new(vec![Count(0..300), Count(5..302)], 1000);
        let mut out = vec![BlockRequest::default(); 7];
        let mut all = Vec::new();
        loop {
            let got = both.fill(&mut out);
            all.extend_from_slice(&out[..got]);
            if got < out.len() {
                break;
            }
        }
        assert_eq!(all.len(), 2 * 297);
        assert_eq!(all[..3], [0, 1005, 1].map(BlockRequest::write));
        assert_eq!(all[2 * 296..], [296, 1301].map(BlockRequest::write));
    }
}
