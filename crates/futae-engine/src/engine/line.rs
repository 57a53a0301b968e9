//! The order of requests that overlap.
//!
//! A request waits for work under way in its range, and is decided again when that has ended. Until then others may have begun
//! elsewhere in its range. If it waited for one of those after the other, a steady stream of requests for parts of its range would
//! hold it up for ever. So a request that has to wait a second time takes a place in the line, and so does each that overlaps one
//! in the line. There it waits until all those that overlap it and took their places before it have begun, and then for work under
//! way in its range. Nothing begins there any more, except write-backs of what is dirty. When it begins it leaves the line.
//!
//! That is a bound. The request with the oldest place waits only for work that was under way and for those write-backs. Each other
//! one waits in addition until those with older places that overlap it have begun, and so on: what comes later does not hold it up.
//!
//! Nothing waits in a circle. Places wait for older places, and the oldest one for work under way, of which no step asks the line:
//! the steps of a write, of a kept write and of a change ([`Rest`](super::rest::Rest)) proceed in the range that they have, and
//! write-backs, which changes, flushes and throttled writes wait for, do not ask it either. What may wait in the line once
//! more is no work that others wait for: the parts of a long read, and a write that was throttled. The latter keeps its place.
//!
//! The range of a request at the end of a file that grows can move. If the file is cut meanwhile, so that the range is not in what
//! the request has claimed, the request takes a new place when its turn comes, as if it came then.

use super::claims::Claims;
use super::flights::Span;
use crate::Request;
use hashbrown::HashMap;
use slab::Slab;
use std::collections::VecDeque;

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Awaited {
    /// Requests in the line.
    Turn,
    /// Work under way, by its key.
    Write(usize),
    Flight(usize),
    Run(usize),
}

/// What the request at a place is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    For(Awaited),
    /// It is decided on next.
    Due,
    /// For fewer dirty blocks, in another queue.
    Elsewhere,
    /// It is being decided on.
    No,
}

struct Place {
    /// The request, unless it is being decided on or waits elsewhere.
    request: Option<Request>,
    waits: Waits,
    /// The range that it has claimed, if it has.
    claim: Option<Span>,
    /// How many others it waits for: those that claimed parts of its range last before it did. Where it overlaps others, these
    /// come before them.
    before: usize,
    /// Those that count it so.
    behind: Vec<usize>,
}

/// The requests that no later one may overtake.
#[derive(Default)]
pub struct Line {
    places: Slab<Place>,
    claims: Claims,
    by_awaited: HashMap<Awaited, Vec<usize>>,
    /// Those that are decided on next.
    due: VecDeque<usize>,
}

impl Line {
    /// Whether nobody is in the line.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether a request in the line has claimed a part of `blocks`.
    pub fn over(&self, blocks: &Span) -> bool {
        self.claims.over(blocks)
    }

    /// A new place, for a request that is being decided on. It claims nothing yet.
    pub fn enter(&mut self) -> usize {
        self.places.insert(Place {
            request: None,
            waits: Waits::No,
            claim: None,
            before: 0,
            behind: Vec::new(),
        })
    }

    /// Whether the request at a place, whose turn it was, has claimed all of `blocks`. If not, it claims nothing any more.
    pub fn keeps(&mut self, place: usize, blocks: &Span) -> bool {
        let claim = self.places[place].claim;
        let is_kept = claim.is_some_and(|claim| claim.overlap(blocks) == Some(*blocks));
        if !is_kept {
            self.release(place);
        }
        is_kept
    }

    /// The request at a place waits. If it claims nothing, it claims `claim`, and what overlaps that comes before it.
    pub fn wait(&mut self, place: usize, awaited: Awaited, claim: Span, request: Request) {
        self.claim(place, claim);
        let known = &mut self.places[place];
        known.request = Some(request);
        if known.before > 0 {
            known.waits = Waits::For(Awaited::Turn);
        } else if awaited == Awaited::Turn {
            known.waits = Waits::Due;
            self.due.push_back(place);
        } else {
            known.waits = Waits::For(awaited);
            self.by_awaited.entry(awaited).or_default().push(place);
        }
    }

    /// The request at a place, whose turn it was, waits in another queue, and keeps its place.
    pub fn wait_elsewhere(&mut self, place: usize, claim: Span) {
        self.claim(place, claim);
        self.places[place].waits = Waits::Elsewhere;
    }

    fn claim(&mut self, place: usize, claim: Span) {
        if self.places[place].claim.is_some() {
            return;
        }
        let before = self.claims.claim(&claim, place);
        for &other in &before {
            self.places[other].behind.push(place);
        }
        let known = &mut self.places[place];
        (known.claim, known.before) = (Some(claim), before.len());
    }

    /// The request at a place claims nothing any more: those behind it do not wait for it.
    pub fn release(&mut self, place: usize) {
        let known = &mut self.places[place];
        let Some(claim) = known.claim.take() else {
            return;
        };
        self.claims.release(claim.volume, place);
        for next in std::mem::take(&mut known.behind) {
            let next_known = &mut self.places[next];
            next_known.before -= 1;
            if next_known.before == 0 && next_known.waits == Waits::For(Awaited::Turn) {
                next_known.waits = Waits::Due;
                self.due.push_back(next);
            }
        }
    }

    /// Work under way has ended: the requests that waited for it are due.
    pub fn note_end(&mut self, awaited: Awaited) {
        if !self.places.is_empty()
            && let Some(places) = self.by_awaited.remove(&awaited)
        {
            for &place in &places {
                self.places[place].waits = Waits::Due;
            }
            self.due.extend(places);
        }
    }

    /// The next request that is due.
    pub fn next_due(&self) -> Option<&Request> {
        let place = self.due.front()?;
        self.places[*place].request.as_ref()
    }

    /// Takes it out, to be decided on.
    pub fn take_due(&mut self) -> Option<(usize, Request)> {
        let place = self.due.pop_front()?;
        Some((place, self.places[place].request.take()?))
    }

    /// The request at a place is being decided on.
    pub fn decide(&mut self, place: usize) {
        self.places[place].waits = Waits::No;
    }

    /// The request at a place has been decided on: if it does not wait again, it leaves the line.
    pub fn decided(&mut self, place: usize) {
        if self.places[place].waits == Waits::No {
            self.release(place);
            self.places.remove(place);
        }
    }

    /// The requests that wait here.
    pub fn requests(&self) -> impl Iterator<Item = &Request> {
        self.places.iter().filter_map(|(_, it)| it.request.as_ref())
    }

    /// Panics unless each request waits for something that wakes it. For tests.
    pub fn audit(&self, is_under_way: impl Fn(Awaited) -> bool, waits_elsewhere: &[usize]) {
        for (place, known) in &self.places {
            let is_behind = |it: &&Place| it.behind.contains(&place);
            let others = self.places.iter().map(|(_, other)| other);
            assert_eq!(others.filter(is_behind).count(), known.before);
            let is_woken = match known.waits {
                Waits::For(Awaited::Turn) => known.before > 0,
                Waits::For(awaited) => {
                    let places = self.by_awaited.get(&awaited);
                    places.is_some_and(|places| places.contains(&place)) && is_under_way(awaited)
                }
                Waits::Due => self.due.contains(&place),
                Waits::Elsewhere => waits_elsewhere.contains(&place),
                Waits::No => false,
            };
            assert!(is_woken, "{:?} waits for {:?}", known.claim, known.waits);
            assert_eq!(known.request.is_none(), known.waits == Waits::Elsewhere);
        }
    }
}
