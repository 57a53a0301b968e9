//! What a balancer of memory between guests did lately, for its page.

use crate::page::{PAGE_TYPE, balance};
use crate::reply::Reply;
use crate::watch::{locked, nonce};
use futae_allocate::Decision;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Moves that are shown.
const MOVES_MAX: usize = 50;

/// A period of a balancer.
#[derive(Clone, Debug)]
pub struct Period {
    /// When it ended, as people write it.
    pub time: String,
    /// What was decided.
    pub decision: Decision,
    /// Bytes that the host could give, its reserve left out; none if it does not tell.
    pub host_free: Option<u64>,
    /// The host's memory pressure: the share of time in which programs waited for memory; none if it does not tell.
    pub host_pressure: Option<f64>,
    /// Whether nobody was told anything.
    pub dry_run: bool,
    /// What could not be seen or told, and what guests lack, in sentences.
    pub problems: Vec<String>,
}

/// What was done so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Done {
    /// The last period.
    pub(crate) last: Option<Period>,
    /// The last periods in which something moved, the newest first.
    pub(crate) moves: VecDeque<Period>,
    /// All periods, those in which something moved, and the bytes that guests gave in them.
    pub(crate) periods: u64,
    pub(crate) moved: u64,
    pub(crate) moved_bytes: u64,
}

/// What a balancer did, kept for its page.
pub struct Moves {
    version: String,
    begun: Instant,
    done: Mutex<Done>,
}

impl Moves {
    /// Nothing yet, of a program of this version.
    #[must_use]
    pub fn new(version: &str) -> Self {
        Self {
            version: version.to_owned(),
            begun: Instant::now(),
            done: Mutex::default(),
        }
    }

    /// A period is over.
    pub fn note(&self, period: Period) {
        let mut done = locked(&self.done);
        done.periods += 1;
        if period.decision.moves() {
            done.moved += 1;
            done.moved_bytes += given(&period.decision);
            done.moves.push_front(period.clone());
            done.moves.truncate(MOVES_MAX);
        }
        done.last = Some(period);
    }

    /// Makes the page, whenever it is called.
    pub fn painter(self: &Arc<Self>) -> impl Fn() -> Reply + Send + Sync + 'static + use<> {
        let moves = Arc::clone(self);
        move || {
            let done = locked(&moves.done).clone();
            let nonce = nonce();
            let shown = nonce.as_deref().unwrap_or_default();
            let seconds = moves.begun.elapsed().as_secs_f64();
            Reply {
                content_type: PAGE_TYPE,
                body: balance(&moves.version, seconds, &done, shown),
                nonce,
            }
        }
    }
}

/// Bytes that guests give by a decision.
pub(crate) fn given(decision: &Decision) -> u64 {
    let guests = decision.guests.iter();
    guests
        .map(|guest| guest.before.saturating_sub(guest.target))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futae_allocate::{Activity, GuestState, Reason};

    const MIB: u64 = 1 << 20;

    fn period(number: u64, moved: u64) -> Period {
        let guest = |name: &str, before: u64, target: u64| GuestState {
            name: name.to_owned(),
            before,
            achieved: Some(before),
            target,
            activity: Some(Activity {
                hits: 75,
                misses: 25,
                ..Activity::default()
            }),
        };
        Period {
            time: format!("2026-11-24T10:00:{:02}Z", number % 60),
            decision: Decision {
                period: number,
                reason: Reason::Better {
                    now: 3.436,
                    best: 2.299,
                    wished: Vec::new(),
                    more: true,
                },
                given: Vec::new(),
                guests: vec![
                    guest("<b>", 256 * MIB, 256 * MIB - moved),
                    guest("web", 64 * MIB, 64 * MIB + moved),
                ],
            },
            host_free: Some(512 * MIB),
            host_pressure: Some(0.125),
            dry_run: false,
            problems: vec!["web: its agent has been silent for 20 s".to_owned()],
        }
    }

    #[test]
    fn a_move_is_shown_with_its_guests_its_bytes_and_its_reason() {
        let moves = Arc::new(Moves::new("1.2.3"));
        let page = moves.painter();
        assert!(!page().body.contains("id=\"moves\""), "nothing has moved");
        moves.note(period(7, 64 * MIB));
        moves.note(period(8, 0));
        let Reply { body, nonce, .. } = page();
        for words in [
            "<tr data-name=\"7\">",
            "2026-11-24T10:00:07Z",
            "data-key=\"from\" data-value=\"&lt;b&gt;\"",
            "data-key=\"to\" data-value=\"web\"",
            "data-key=\"bytes\" data-value=\"67108864\">64.0 MiB",
            "an access takes 3.436 hits, 2.299 at best",
            "256.0 \u{2192} 192.0 MiB",
            "data-key=\"target_bytes\" data-value=\"67108864\"",
            "data-key=\"missed\" data-value=\"0.25\">25.0 %",
            "silent for 20 s",
            "12.5 %",
        ] {
            assert!(body.contains(words), "{words}\n{body}");
        }
        assert!(!body.contains("<b>&") && !body.contains("<tr data-name=\"8\">"));
        assert!(nonce.is_some_and(|nonce| body.contains(&nonce)));
    }

    #[test]
    fn the_newest_moves_are_kept_and_all_are_counted() {
        let moves = Arc::new(Moves::new("1.2.3"));
        for number in 0..MOVES_MAX as u64 + 9 {
            moves.note(period(number, MIB));
        }
        let body = moves.painter()().body;
        let at = |number: u64| body.find(&format!("<tr data-name=\"{number}\">"));
        let (first, last) = (at(9), at(MOVES_MAX as u64 + 8));
        assert!(last.is_some() && last < first && at(8).is_none(), "{body}");
        assert!(body.contains("59 of 59 periods"), "{body}");
    }
}
