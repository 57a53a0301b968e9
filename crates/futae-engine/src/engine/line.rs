//! The order of requests that overlap.
//!
//! A request waits for work under way in its range, and is decided again when that has ended. Until then others may have begun
//! elsewhere in its range, and it waits for one of those. If that could happen again and again, a steady stream of requests for
//! parts of its range would hold it up for ever. So a request that has to wait a second time is *first* in its range: until it
//! begins, no other request begins there. Those that overlap it stand behind it. A request that overlaps several first ones can be
//! sent from the queue of one to the end of the queue of another: between crowds, how often that happens is not bounded.

use super::flights::Span;
use super::ranges::Ranges;
use crate::Request;
use hashbrown::HashMap;
use slab::Slab;
use std::collections::VecDeque;

/// Work under way that a request waits for, by its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Awaited {
    Write(usize),
    Flight(usize),
    Run(usize),
}

/// A request that is the first in its range.
pub struct First {
    pub request: Request,
    /// Its range, in whole blocks.
    pub blocks: Span,
    /// Requests that overlap it, in their order.
    pub behind: VecDeque<Request>,
}

/// The requests that are first in their ranges, which do not overlap.
#[derive(Default)]
pub struct Line {
    firsts: Slab<First>,
    ranges: Ranges,
    by_awaited: HashMap<Awaited, Vec<usize>>,
    /// Those whose work has ended.
    due: Vec<usize>,
}

impl Line {
    /// The request that is first in a part of `blocks`, if there is one.
    pub fn over(&self, blocks: &Span) -> Option<usize> {
        self.ranges.over(blocks)
    }

    /// A request becomes the first in its range, which overlaps that of no other one.
    pub fn add(&mut self, awaited: Awaited, blocks: Span, request: Request) -> usize {
        debug_assert!(self.over(&blocks).is_none(), "{blocks:?} has a first");
        let key = self.firsts.insert(First {
            request,
            blocks,
            behind: VecDeque::new(),
        });
        self.ranges.insert(&blocks, key);
        self.by_awaited.entry(awaited).or_default().push(key);
        key
    }

    /// The requests behind a first one.
    pub fn behind(&mut self, key: usize) -> &mut VecDeque<Request> {
        &mut self.firsts[key].behind
    }

    /// Work under way has ended: the requests that are first and waited for it are due.
    pub fn note_end(&mut self, awaited: Awaited) {
        if !self.firsts.is_empty()
            && let Some(mut keys) = self.by_awaited.remove(&awaited)
        {
            self.due.append(&mut keys);
        }
    }

    /// The requests that have become due, by their keys. Each is [taken](Self::take) next.
    pub fn due(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.due)
    }

    /// A request that is due is decided now.
    pub fn take(&mut self, key: usize) -> First {
        let first = self.firsts.remove(key);
        self.ranges.remove(&first.blocks, key);
        first
    }

    /// All requests that are first or stand behind one.
    pub fn requests(&self) -> impl Iterator<Item = &Request> {
        let firsts = self.firsts.iter().map(|(_, first)| first);
        firsts.flat_map(|first| std::iter::once(&first.request).chain(&first.behind))
    }
}
