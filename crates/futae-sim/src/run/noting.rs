//! Reads a trace, and records what a simulation needs beside its blocks.

use super::order::Times;
use futae_trace::{DenseTrace, Request, RequestReader, TraceError, TraceReader, View};
use std::path::Path;

/// Lengths of requests, stored only once they differ.
#[derive(Default)]
pub(super) struct Lengths {
    pub(super) all: Vec<u32>,
    equal: usize,
    pub(super) first: u32,
}

impl Lengths {
    /// Lengths that are all equal to this.
    pub(super) fn all_equal(bytes: u64) -> Self {
        Self {
            first: u32::try_from(bytes).unwrap_or(u32::MAX),
            ..Self::default()
        }
    }

    /// Whether any two accesses of any guests differ.
    pub(super) fn differ(all: &[Self]) -> bool {
        let first = all.first().map_or(0, |lengths| lengths.first);
        all.iter()
            .any(|one| !one.all.is_empty() || one.first != first)
    }

    /// Whether any access of any guest has a length.
    pub(super) fn are_known(all: &[Self]) -> bool {
        all.iter().any(|one| !one.all.is_empty() || one.first > 0)
    }

    fn add(&mut self, length: u64) {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        if self.all.is_empty() {
            if self.equal == 0 {
                self.first = length;
            }
            if length == self.first {
                self.equal += 1;
                return;
            }
            self.all = vec![self.first; self.equal];
        }
        self.all.push(length);
    }

    /// As [`add`](Self::add) this many times.
    fn add_equal(&mut self, length: u64, count: usize) {
        if count > 0 {
            self.add(length);
            if self.all.is_empty() {
                self.equal += count - 1;
            } else {
                let last = self.all[self.all.len() - 1];
                self.all.resize(self.all.len() + count - 1, last);
            }
        }
    }

    /// As [`add`](Self::add) for each, but fast while all are equal.
    fn add_all(&mut self, requests: &[Request]) {
        let is_same = |request: &Request| request.length_bytes == u64::from(self.first);
        if self.equal > 0 && self.all.is_empty() && requests.iter().all(is_same) {
            self.equal += requests.len();
        } else {
            requests.iter().for_each(|r| self.add(r.length_bytes));
        }
    }

    pub(super) fn get(&self, at: usize) -> u32 {
        self.all.get(at).copied().unwrap_or(self.first)
    }
}

/// A reader that records lengths and times, and reports progress.
pub(super) struct Noting<'a> {
    pub(super) reader: TraceReader,
    pub(super) lengths: Option<Lengths>,
    pub(super) times: Option<Times>,
    whole: u64,
    progress: &'a mut (dyn FnMut(f64) + Send),
}

impl<'a> Noting<'a> {
    /// A reader that only reports progress.
    pub(super) fn progress_of(
        reader: TraceReader,
        progress: &'a mut (dyn FnMut(f64) + Send),
    ) -> Self {
        Self {
            whole: reader.file_bytes().unwrap_or(0),
            reader,
            lengths: None,
            times: None,
            progress,
        }
    }

    /// Also records the times of requests, which become blocks by this view.
    pub(super) fn note_times(&mut self, view: View) {
        self.times = Some(Times::new(view));
    }

    /// The same, and keeps the requests although some have no times.
    pub(super) fn note_requests(&mut self, view: View) {
        self.times = Some(Times::new(view).keeping_untimed());
    }

    fn tell_progress(&mut self) {
        (self.progress)(self.reader.file_bytes_read() as f64 / self.whole.max(1) as f64);
    }
}

impl Iterator for Noting<'_> {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.reader.next();
        if let (Some(lengths), Some(Ok(request))) = (&mut self.lengths, &next) {
            lengths.add(request.length_bytes);
        }
        if let (Some(times), Some(Ok(request))) = (&mut self.times, &next) {
            times.add(request);
        }
        next
    }
}

impl RequestReader for Noting<'_> {
    fn path(&self) -> &Path {
        self.reader.path()
    }

    fn read_batch(&mut self, batch: &mut Vec<Request>, limit: usize) -> Result<(), TraceError> {
        let before = batch.len();
        let outcome = self.reader.read_batch(batch, limit);
        if let Some(lengths) = &mut self.lengths {
            lengths.add_all(&batch[before..]);
        }
        if let Some(times) = &mut self.times {
            batch[before..]
                .iter()
                .for_each(|request| times.add(request));
        }
        self.tell_progress();
        outcome
    }

    fn read_starts(&mut self, starts: &mut Vec<u64>, limit: usize) -> Option<u64> {
        // Accesses in this form have no times.
        if self.times.is_some() {
            return None;
        }
        let before = starts.len();
        let length = self.reader.read_starts(starts, limit)?;
        if let Some(lengths) = &mut self.lengths {
            lengths.add_equal(length, starts.len() - before);
        }
        self.tell_progress();
        Some(length)
    }
}

/// The lengths of all guests' accesses in order, in turns without a schedule; a single one if all are
/// equal; none if they are not known.
pub(super) fn in_order(
    guests: &[DenseTrace],
    schedule: &[u16],
    mut lengths: Vec<Lengths>,
) -> Vec<u32> {
    if !Lengths::differ(&lengths) {
        let known = lengths.first().filter(|_| Lengths::are_known(&lengths));
        return known.map(|lengths| lengths.first).into_iter().collect();
    }
    if let [only] = &mut lengths[..] {
        return std::mem::take(&mut only.all);
    }
    if !schedule.is_empty() {
        let mut next = vec![0; guests.len()];
        let length = |&guest: &u16| {
            let at = &mut next[usize::from(guest)];
            *at += 1;
            lengths[usize::from(guest)].get(*at - 1)
        };
        return schedule.iter().map(length).collect();
    }
    let counts: Vec<usize> = guests.iter().map(|guest| guest.ids().len()).collect();
    let longest = counts.iter().copied().max().unwrap_or(0);
    let of_turn = |at| {
        let pairs = counts.iter().zip(&lengths);
        let left = pairs.filter(move |&(&count, _)| at < count);
        left.map(move |(_, lengths)| lengths.get(at))
    };
    (0..longest).flat_map(of_turn).collect()
}
