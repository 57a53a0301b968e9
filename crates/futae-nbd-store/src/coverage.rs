//! The bytes of a READ's buffer that the server has sent.
//!
//! The buffer may have held another volume's data before, so a READ succeeds only if every byte of
//! it was sent exactly once. A count of bytes is not enough: two chunks over the same half add up
//! to both halves.

/// The largest number of separate runs in one partial reply. Servers send chunks mostly in
/// ascending order, which leaves a single run.
const RUNS_MAX: usize = 1024;

/// Why a chunk cannot be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Part of it was sent before.
    Overlap,
    /// The reply is in too many separate runs.
    Fragments,
}

/// The bytes of a buffer that were sent, as separate runs in ascending order.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    runs: Vec<(usize, usize)>,
}

impl Coverage {
    /// Adds `start..end` for one chunk. None of it may have been added before.
    pub(super) fn take(&mut self, start: usize, end: usize) -> Result<(), Fault> {
        if start == end {
            return Ok(());
        }
        let at = self.runs.partition_point(|&(_, run_end)| run_end < start);
        // The run at `at` ends at or behind `start`; earlier runs do not touch the chunk.
        let touches_left = self.runs.get(at).is_some_and(|run| run.1 == start);
        let next = at + usize::from(touches_left);
        if self.runs.get(next).is_some_and(|run| run.0 < end) {
            return Err(Fault::Overlap);
        }
        let touches_right = self.runs.get(next).is_some_and(|run| run.0 == end);
        match (touches_left, touches_right) {
            (true, true) => self.runs[at].1 = self.runs.remove(next).1,
            (true, false) => self.runs[at].1 = end,
            (false, true) => self.runs[next].0 = start,
            (false, false) if self.runs.len() == RUNS_MAX => return Err(Fault::Fragments),
            (false, false) => self.runs.insert(at, (start, end)),
        }
        Ok(())
    }

    /// Whether all of a buffer of `length` bytes was sent.
    pub(super) fn is_whole(&self, length: usize) -> bool {
        length == 0 || self.runs == [(0, length)]
    }

    /// Bytes sent.
    pub(super) fn bytes(&self) -> usize {
        self.runs.iter().map(|(start, end)| end - start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn halves_in_any_order_are_whole_and_the_same_half_twice_is_not() {
        let mut coverage = Coverage::default();
        assert_eq!(coverage.take(50, 100), Ok(()));
        assert!(!coverage.is_whole(100));
        assert_eq!(coverage.take(50, 100), Err(Fault::Overlap));
        assert_eq!(coverage.take(0, 51), Err(Fault::Overlap));
        assert_eq!(coverage.take(0, 50), Ok(()));
        assert!(coverage.is_whole(100));
        assert!(Coverage::default().is_whole(0));
    }

    #[test]
    fn a_reply_in_too_many_pieces_is_refused() {
        let mut coverage = Coverage::default();
        for piece in 0..RUNS_MAX {
            assert_eq!(coverage.take(2 * piece, 2 * piece + 1), Ok(()));
        }
        let beyond = 2 * RUNS_MAX;
        assert_eq!(coverage.take(beyond, beyond + 1), Err(Fault::Fragments));
    }

    proptest! {
        #[test]
        fn equal_to_a_mark_on_every_byte(chunks in prop::collection::vec((0usize..64, 0usize..16), 0..40)) {
            let mut coverage = Coverage::default();
            let mut marks = [false; 80];
            for (start, length) in chunks {
                let range = start..start + length;
                let overlaps = marks[range.clone()].iter().any(|&mark| mark);
                prop_assert_eq!(coverage.take(range.start, range.end).is_err(), overlaps);
                if !overlaps {
                    marks[range].fill(true);
                }
                prop_assert_eq!(coverage.bytes(), marks.iter().filter(|&&mark| mark).count());
                prop_assert_eq!(coverage.is_whole(80), marks.iter().all(|&mark| mark));
            }
        }
    }
}
