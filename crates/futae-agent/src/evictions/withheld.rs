//! Evicted pages that went without their data, for the log of the guest's administrator: counted by reason.

use std::time::{Duration, Instant};

/// How long pages are counted before the first line, and before each further one.
const FIRST: Duration = Duration::from_secs(10);
const FURTHER: Duration = Duration::from_secs(600);

/// Why pages are not copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Copies have taken more processor time than they may.
    Budget,
    /// The channel disk has failed.
    ChannelFailed,
    /// There is no way for them.
    NoWay,
}

/// What was counted since the last line.
pub struct Withheld {
    /// What copies may take, as a share of all processors.
    share: f64,
    /// All that were ever counted.
    seen: u64,
    for_budget: u64,
    for_room: u64,
    since: Option<Instant>,
    delay: Duration,
}

impl Withheld {
    /// Of copies that may take this share of all processors.
    #[must_use]
    pub fn new(share: f64) -> Self {
        Self {
            share,
            seen: 0,
            for_budget: 0,
            for_room: 0,
            since: None,
            delay: FIRST,
        }
    }

    /// Takes how many pages have gone without data so far, and why none were copied since the last call; none if the
    /// ring had no room for those that are new. A line for the log, if it is time for one.
    pub fn note(&mut self, all: u64, reason: Option<Reason>, now: Instant) -> Option<String> {
        let new = all.saturating_sub(self.seen);
        self.seen = all;
        match reason {
            None => self.for_room += new,
            Some(Reason::Budget) => self.for_budget += new,
            // They are logged when they begin.
            Some(Reason::ChannelFailed | Reason::NoWay) => {}
        }
        if self.for_room + self.for_budget == 0 {
            return None;
        }
        let time = now.duration_since(*self.since.get_or_insert(now));
        if time < self.delay {
            return None;
        }
        let line = format!(
            "evicted pages that were sent without their data in the last {} s: {} because their copies may take {} % of the processors (--evictions-cpu), {} because the ring was full",
            time.as_secs(),
            self.for_budget,
            (self.share * 1e8).round() / 1e6,
            self.for_room,
        );
        (self.for_budget, self.for_room, self.since) = (0, 0, None);
        self.delay = FURTHER;
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_both_reasons_and_comes_seldom() {
        let mut withheld = Withheld::new(0.03);
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let budget = Some(Reason::Budget);
        assert_eq!(withheld.note(0, None, at(0)), None);
        assert_eq!(withheld.note(0, None, at(100)), None, "none went without");
        assert_eq!(withheld.note(5, budget, at(200)), None);
        assert_eq!(withheld.note(7, None, at(209)), None);
        assert_eq!(withheld.note(1007, Some(Reason::NoWay), at(209)), None);
        let line = withheld.note(1007, None, at(210)).expect("it is time");
        for words in ["last 10 s", " 5 because", " 3 % ", " 2 because"] {
            assert!(line.contains(words), "{line}");
        }
        assert_eq!(withheld.note(1008, budget, at(211)), None);
        assert_eq!(withheld.note(1008, None, at(810)), None);
        let line = withheld.note(1008, None, at(811)).expect("it is time");
        assert!(line.contains(" 1 because") && line.contains(" 0 because"));
    }
}
