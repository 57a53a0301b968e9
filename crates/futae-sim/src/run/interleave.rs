//! The requests of several guests as one stream.

use futae_trace::{BlockRequest, BlockStream};

/// Guests that take turns, request by request, or as often as their rates say. The blocks of guest
/// *g* are numbered from `g * blocks`. A guest without further requests is skipped.
pub struct Interleave<S> {
    guests: Vec<S>,
    blocks: u64,
    turns: Turns,
    /// The next requests of each guest, and how many of them have been used.
    batches: Vec<(Vec<BlockRequest>, usize)>,
}

/// Whose turn it is.
enum Turns {
    /// This guest's, and then the next one's.
    Equal(usize),
    /// That of the guest to which most is owed. With each request all guests earn their rates, and
    /// one pays for it what all have earned.
    Rates { rates: Vec<f64>, owed: Vec<f64> },
}

impl Turns {
    fn take(&mut self, guests: usize) -> usize {
        match self {
            Self::Equal(next) => {
                let turn = *next;
                *next = (turn + 1) % guests;
                turn
            }
            Self::Rates { rates, owed } => {
                let (mut most, mut earned) = (0, 0.0);
                for (guest, rate) in rates.iter().enumerate() {
                    owed[guest] += rate;
                    earned += rate;
                    if owed[guest] > owed[most] {
                        most = guest;
                    }
                }
                owed[most] -= earned;
                most
            }
        }
    }

    /// A guest has no further requests.
    fn leave(&mut self, guest: usize) {
        if let Self::Rates { rates, owed } = self {
            rates[guest] = 0.0;
            owed[guest] = f64::NEG_INFINITY;
        }
    }
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
            turns: Turns::Equal(0),
            batches,
        }
    }

    /// Each guest asks as often as its rate says, beside the others. Rates are above 0, one for each guest.
    #[must_use]
    pub fn at_rates(mut self, rates: Vec<f64>) -> Self {
        debug_assert_eq!(rates.len(), self.guests.len());
        if rates.windows(2).any(|two| two[0] != two[1]) {
            let owed = vec![0.0; rates.len()];
            self.turns = Turns::Rates { rates, owed };
        }
        self
    }

    /// The next request of the guest whose turn it is, or of the next guest that has one.
    fn next(&mut self) -> Option<BlockRequest> {
        for _ in 0..self.guests.len() {
            let turn = self.turns.take(self.guests.len());
            let (batch, used) = &mut self.batches[turn];
            if *used == batch.len() {
                // A short batch is the last one of its stream.
                if *used > 0 && *used < BATCH {
                    self.turns.leave(turn);
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
            self.turns.leave(turn);
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

    #[test]
    fn guests_ask_as_often_as_their_rates_say_until_all_have_ended() {
        let streams = vec![Count(0..600), Count(0..600), Count(0..20)];
        let mut all = Interleave::new(streams, 1000).at_rates(vec![2.0, 0.5, 1.0]);
        let mut out = vec![BlockRequest::default(); 1300];
        assert_eq!(all.fill(&mut out), 1220);
        let guests: Vec<u64> = out[..1220].iter().map(|it| it.block() / 1000).collect();
        assert_eq!(guests[..7], [0, 2, 0, 1, 0, 2, 0]);
        let of = |guest, part: &[u64]| part.iter().filter(|&&it| it == guest).count();
        // Two of seven are the third guest's while it has any, then four of five the first one's.
        assert_eq!(
            [0, 1, 2].map(|guest| of(guest, &guests[..70])),
            [40, 10, 20]
        );
        assert_eq!(
            [0, 1, 2].map(|guest| of(guest, &guests[70..570])),
            [400, 100, 0]
        );
        assert_eq!(guests[1000..1220], [1; 220]);
    }

    #[test]
    fn guests_with_equal_rates_take_turns() {
        let streams = || vec![Count(0..300), Count(0..300)];
        let mut out = [
            vec![BlockRequest::default(); 600],
            vec![BlockRequest::default(); 600],
        ];
        Interleave::new(streams(), 1000).fill(&mut out[0]);
        Interleave::new(streams(), 1000)
            .at_rates(vec![3.0, 3.0])
            .fill(&mut out[1]);
        assert_eq!(out[0], out[1]);
    }
}
