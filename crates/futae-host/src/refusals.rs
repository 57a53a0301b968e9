//! Log lines about refused clients: each reason at once, but only a few times per minute, since a
//! refused client tries again.

use crate::peer::Peer;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::info;

/// Lines of one reason within [`PERIOD`].
const LINES_MAX: u32 = 5;
const PERIOD: Duration = Duration::from_secs(60);

/// Why a client was refused, or a connection ended by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// There are as many connections as there may be.
    Full,
    /// It made room for another.
    Dismissed,
    /// Its handshake took too long.
    Slow,
    /// It broke the protocol.
    Protocol,
    /// It did not begin TLS, or could not agree on it.
    Insecure,
    /// There is no descriptor or thread left for it.
    Shortage,
}

/// The lines logged for one reason.
#[derive(Default)]
struct Said {
    since: Option<Instant>,
    lines: u32,
    unsaid: u64,
}

impl Said {
    /// Whether another line may be logged now, and how many were suppressed before it.
    fn one_more(&mut self, now: Instant) -> Option<u64> {
        let is_over = |since: Instant| now.saturating_duration_since(since) >= PERIOD;
        if self.since.is_none_or(is_over) {
            (self.since, self.lines) = (Some(now), 0);
        }
        if self.lines == LINES_MAX {
            self.unsaid += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.unsaid))
    }
}

/// The refusals of a server.
#[derive(Default)]
pub(crate) struct Refusals(Mutex<BTreeMap<Reason, Said>>);

impl Refusals {
    /// A client was refused; `text` gives the reason, and what to do.
    pub(crate) fn note(&self, reason: Reason, peer: &Peer, text: &str) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let unsaid = said.entry(reason).or_default().one_more(Instant::now());
        drop(said);
        match unsaid {
            None => {}
            Some(0) => info!(%peer, "client {peer}: {text}"),
            Some(more) => info!(%peer, more, "client {peer}: {text} ({more} more like it before)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_said_a_few_times_a_minute() {
        let (mut said, start) = (Said::default(), Instant::now());
        let lines = (0..100).filter_map(|_| said.one_more(start));
        assert_eq!(lines.collect::<Vec<_>>(), [0; LINES_MAX as usize]);
        assert_eq!(said.one_more(start + PERIOD / 2), None);
        let unsaid = 100 - u64::from(LINES_MAX) + 1;
        assert_eq!(said.one_more(start + PERIOD), Some(unsaid));
        assert_eq!(said.one_more(start + PERIOD), Some(0));
    }
}
