//! The requests of several guests as one stream.

use futae_trace::{BlockRequest, BlockStream};

/// Guests that take turns, request by request. The blocks of guest *g* are numbered from `g *
/// blocks`. A guest without further requests is skipped.
pub struct Interleave<S> {
    guests: Vec<S>,
    blocks: u64,
    turn: usize,
    /// The next requests of each guest, and how many of them have been used.
    batches: Vec<(Vec<BlockRequest>, usize)>,
}

/// Requests drawn from a guest at a time.
const BATCH: usize = 256;

impl<S: BlockStream> Interleave<S> {
    /// The streams of guests with `blocks` blocks each.
    #[must_use]
    pub fn new(guests: Vec<S>, blocks: u64) -> Self {
        let batches = vec![(Vec::new(), 0); guests.len()];
        Self {
            guests,
            blocks,
            turn: 0,
            batches,
        }
    }

    /// The next request of guest `turn`, or of the next guest that has one.
    fn next(&mut self) -> Option<BlockRequest> {
        for _ in 0..self.guests.len() {
            let turn = self.turn;
            self.turn = (turn + 1) % self.guests.len();
            let (batch, used) = &mut self.batches[turn];
            if *used == batch.len() {
                // A short batch is the last one of its stream.
                if *used > 0 && *used < BATCH {
                    continue;
                }
                batch.resize(BATCH, BlockRequest::default());
                let got = self.guests[turn].fill(batch);
                batch.truncate(got);
                *used = 0;
            }
            if let Some(request) = batch.get(*used) {
                *used += 1;
                return Some(request.at(turn as u64 * self.blocks + request.block()));
            }
        }
        None
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
    fn guests_take_turns_until_all_have_ended() {
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
        assert_eq!(all.len(), 300 + 297);
        assert_eq!(all[..3], [0, 1005, 1].map(BlockRequest::write));
        let end = [296, 1301, 297, 298, 299].map(BlockRequest::write);
        assert_eq!(all[2 * 296..], end);
    }
}
