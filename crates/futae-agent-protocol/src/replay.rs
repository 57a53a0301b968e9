//! Frames are believed once: which run of an agent speaks, and what it has said already.

use crate::{Frame, Message};
use std::collections::VecDeque;

/// Runs that are remembered at most.
const RUNS_MAX: usize = 64;

/// Tells frames that are new from those that were received before.
///
/// The number of a run is drawn anew whenever an agent starts. A run that another has followed is over: what
/// it said cannot be played again, its hello included, as long as it is among the last 64.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// The run that speaks is the last.
    runs: VecDeque<u64>,
    next_sequence: u64,
    /// A run that is over was the last to introduce itself.
    is_stale: bool,
}

impl Replay {
    /// Whether the frame is to be believed: it is of the run that introduced itself last and is not over,
    /// and has a higher number than those before it. Nothing counts before the first hello.
    pub fn is_new(&mut self, frame: &Frame) -> bool {
        if let Message::Hello(hello) = &frame.message {
            if !self.runs.contains(&hello.run) {
                if self.runs.len() == RUNS_MAX {
                    self.runs.pop_front();
                }
                self.runs.push_back(hello.run);
                self.next_sequence = 0;
            }
            self.is_stale = self.runs.back() != Some(&hello.run);
        }
        if self.runs.is_empty() || self.is_stale || frame.sequence < self.next_sequence {
            return false;
        }
        self.next_sequence = frame.sequence.saturating_add(1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hello, Sample};

    fn hello(run: u64, sequence: u64) -> Frame {
        let hello = Hello {
            run,
            ..Hello::default()
        };
        Frame {
            sequence,
            message: Message::Hello(hello),
        }
    }

    fn sample(sequence: u64) -> Frame {
        Frame {
            sequence,
            message: Message::Sample(Sample::default()),
        }
    }

    #[test]
    fn a_frame_is_believed_once_and_in_order() {
        let mut replay = Replay::default();
        assert!(!replay.is_new(&sample(0)), "nobody has said who speaks");
        assert!(replay.is_new(&hello(1, 0)) && replay.is_new(&sample(1)));
        assert!(!replay.is_new(&sample(1)) && !replay.is_new(&hello(1, 0)));
        assert!(replay.is_new(&sample(7)) && !replay.is_new(&sample(6)));
    }

    #[test]
    fn a_run_that_is_over_stays_over() {
        let mut replay = Replay::default();
        for run in 1..=RUNS_MAX as u64 {
            assert!(replay.is_new(&hello(run, 0)));
        }
        assert!(!replay.is_new(&hello(1, 9)));
        assert!(!replay.is_new(&sample(10)), "it is the old run that speaks");
        assert!(replay.is_new(&hello(RUNS_MAX as u64, 1)) && replay.is_new(&sample(2)));
    }

    #[test]
    fn the_last_number_is_no_way_back() {
        let mut replay = Replay::default();
        assert!(replay.is_new(&hello(1, u64::MAX)));
        assert!(!replay.is_new(&sample(0)));
    }
}
