//! The end: guests get back what they had.

use super::at_once::at_once;
use super::guest::Guest;
use super::kept::Before;
use super::state::Controller;
use std::time::{Duration, Instant};

/// How long guests may take to give back what others had.
const RETURN_MAX: Duration = Duration::from_secs(15);

impl Controller {
    /// Gives every guest back what it had, if that was asked for. Returns what could not be done.
    pub fn end(self) -> Vec<String> {
        let (mut problems, mut left) = (Vec::new(), Vec::new());
        if !self.gives_back() {
            return problems;
        }
        let end = Instant::now() + RETURN_MAX;
        let achieved = self.achieved(&mut Vec::new());
        let shrinks = |(guest, has): &(&Guest, Option<u64>)| {
            guest
                .wanted()
                .is_some_and(|wanted| wanted <= has.unwrap_or(0))
        };
        let (shrinking, growing): (Vec<_>, Vec<_>) =
            self.guests.iter().zip(achieved).partition(shrinks);
        // Those that shrink first, so that the others find what they had. All of them at once, so that those that do not answer
        // cost their time limit only once.
        for group in [shrinking, growing] {
            let all = group.iter().map(|(guest, _)| || guest.give_back(end));
            for ((guest, _), answer) in group.iter().zip(at_once(all.collect())) {
                if let Err(why) = answer {
                    problems.push(format!("{}: {why}", guest.name));
                    left.extend(Before::of(guest));
                }
            }
        }
        if let Some(kept) = &self.kept
            && let Err(error) = kept.end(left)
        {
            problems.push(kept.problem(&error));
        }
        problems
    }
}
