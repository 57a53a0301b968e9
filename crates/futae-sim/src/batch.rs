//! Requests as the inner loop of a simulation takes them.

use futae_policy::{Access, AccessKind, BlockId};
use futae_trace::{BlockRequest, InMemory};
use std::ops::Range;

/// Write marks in a word.
const MARKS: usize = u64::BITS as usize;

/// The next requests, with additional facts about them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Batch<'a> {
    /// The requested blocks, numbered in the whole hierarchy; below guests × blocks.
    pub blocks: &'a [u32],
    /// One bit per request, from the lowest: whether it is a write. Requests without a bit are
    /// reads.
    pub writes: &'a [u64],
    /// For each request the number of the next one for the same block, counted from the first of
    /// all, or [`NEVER`]; empty if unknown.
    pub next_uses: &'a [u32],
    /// For each request its length in bytes; empty if all are equal.
    pub bytes: &'a [u32],
}

/// Requests that come in batches.
pub trait Batches {
    /// Passes all of them in order, until `take` returns false.
    fn each(&mut self, take: &mut dyn FnMut(&Batch<'_>) -> bool);
}

/// The next use of a block that is not requested again.
pub const NEVER: u32 = u32::MAX;

/// For each request, the number of the next one for the same block of `0..blocks`.
pub(crate) fn next_uses<T>(requests: &[T], blocks: u64, block: impl Fn(&T) -> u64) -> Vec<u32> {
    let mut seen = vec![NEVER; blocks as usize];
    let mut next_uses = vec![NEVER; requests.len()];
    for (at, request) in requests.iter().enumerate().rev() {
        next_uses[at] = std::mem::replace(&mut seen[block(request) as usize], at as u32);
    }
    next_uses
}

impl<'a> Batch<'a> {
    /// Whether request `at` is a write.
    #[inline(always)]
    pub(crate) fn is_write(&self, at: usize) -> bool {
        let marks = self.writes.get(at / MARKS);
        marks.is_some_and(|marks| marks >> (at % MARKS) & 1 == 1)
    }

    /// Whether none of the requests is a write.
    #[inline]
    pub(crate) fn only_reads(&self) -> bool {
        self.writes.iter().all(|&marks| marks == 0)
    }

    /// A write or a read.
    #[inline(always)]
    pub(crate) fn kind_of(&self, at: usize) -> AccessKind {
        match self.is_write(at) {
            true => AccessKind::Write,
            false => AccessKind::Read,
        }
    }

    /// Request `at` as an access.
    #[inline(always)]
    pub(crate) fn access(&self, at: usize) -> Access {
        let mut access = Access::of(block(self.blocks[at]), self.kind_of(at));
        if let Some(&next) = self.next_uses.get(at)
            && next != NEVER
        {
            access.next_use = u64::from(next);
        }
        access
    }

    #[inline(always)]
    pub(crate) fn bytes_of(&self, at: usize) -> u32 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    /// Passes each request as a batch of its own.
    pub(crate) fn each_one(&self, mut act: impl FnMut(&Batch<'_>)) {
        fn of<T>(all: &[T], at: usize) -> &[T] {
            all.get(at..=at).unwrap_or_default()
        }
        for at in 0..self.blocks.len() {
            act(&Batch {
                blocks: of(self.blocks, at),
                writes: &[u64::from(self.is_write(at))],
                next_uses: of(self.next_uses, at),
                bytes: of(self.bytes, at),
            });
        }
    }

    /// The part of the batch with these requests, as far as it exists; the first must be a multiple
    /// of 64.
    pub(crate) fn part(&self, range: Range<usize>) -> Batch<'a> {
        fn of<T>(all: &[T], range: Range<usize>) -> &[T] {
            &all[range.start.min(all.len())..range.end.min(all.len())]
        }
        debug_assert_eq!(
            range.start % MARKS,
            0,
            "marks of writes are cut between words"
        );
        Batch {
            blocks: of(self.blocks, range.clone()),
            writes: of(self.writes, range.start / MARKS..range.end.div_ceil(MARKS)),
            next_uses: of(self.next_uses, range.clone()),
            bytes: of(self.bytes, range),
        }
    }
}

impl<'a> From<InMemory<'a>> for Batch<'a> {
    fn from(requests: InMemory<'a>) -> Self {
        Self {
            blocks: requests.blocks,
            writes: requests.writes,
            ..Self::default()
        }
    }
}

/// The block of a number.
#[inline(always)]
pub(crate) fn block(number: u32) -> BlockId {
    BlockId::on_first(u64::from(number))
}

/// Converts the requests of a stream into a [`Batch`].
#[derive(Clone, Debug, Default)]
pub struct Asked {
    blocks: Vec<u32>,
    writes: Vec<u64>,
}

impl Asked {
    /// Stores these requests, replacing earlier ones, and returns them as a batch. Their blocks
    /// must be below 2^32.
    pub fn put_down(&mut self, requests: &[BlockRequest]) -> Batch<'_> {
        self.blocks.clear();
        self.blocks
            .extend(requests.iter().map(|request| request.block() as u32));
        self.writes.clear();
        self.writes.extend(requests.chunks(MARKS).map(|requests| {
            let marks = requests.iter().zip(0..);
            marks.fold(0, |marks, (request, at)| {
                marks | u64::from(request.is_write()) << at
            })
        }));
        Batch {
            blocks: &self.blocks,
            writes: &self.writes,
            ..Batch::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_what_they_were() {
        let all: Vec<_> = (0..200)
            .map(|at| BlockRequest::new(at * 7, at % 5 == 0 || at > 150))
            .collect();
        let mut asked = Asked::default();
        let whole = asked.put_down(&all);
        for begin in [0, 64, 128] {
            let part = whole.part(begin..begin + 64);
            let wanted = &all[begin..all.len().min(begin + 64)];
            assert_eq!(part.blocks.len(), wanted.len().min(64));
            for (at, request) in wanted.iter().enumerate() {
                let access = part.access(at);
                assert_eq!(
                    (access.block.index(), access.kind, part.is_write(at)),
                    (request.block(), request.kind(), request.is_write())
                );
            }
        }
        assert!(!whole.only_reads() && !whole.is_write(1000));
        assert!(asked.put_down(&all[1..5]).only_reads());
    }
}
