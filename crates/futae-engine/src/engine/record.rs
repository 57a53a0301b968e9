//! Which requests are recorded or sampled, and how recording and sampling begin and end.

use super::flights::Span;
use super::front::Engine;
use super::recording::{RecordedPart, Recording};
use super::sampling::{SampledPart, Sampling};
use super::state::State;
use super::volume::name_in;
use crate::{Operation, Request};
use std::sync::atomic::{AtomicU64, Ordering};

/// How many recordings have begun, of all caches of the process: no two have the same number, so a reader that is led to another cache takes
/// nothing of a recording that is not its own.
static RECORDINGS: AtomicU64 = AtomicU64::new(0);

impl State {
    /// Records a request that is answered in place, if a recording or a sample is being taken.
    #[inline]
    pub fn record(&mut self, span: &Span, is_write: bool) {
        self.sample(span);
        if self.recording.is_some() {
            self.record_now(span, is_write);
        }
    }

    /// Records a request that begins, if a recording or a sample is being taken and the request is
    /// for existing data.
    #[inline]
    pub fn record_request(&mut self, request: &Request) {
        if (self.recording.is_some() || self.sampling.is_some())
            && let Some((span, is_write)) = self.asked(request)
        {
            self.record(&span, is_write);
        }
    }

    /// The range of a volume that a request reads or writes.
    fn asked(&self, request: &Request) -> Option<(Span, bool)> {
        let volume = self.volumes.get(usize::from(request.volume.0))?;
        let (offset, length, is_write) = match &request.operation {
            Operation::Read { offset, length } | Operation::ReadOn { offset, length } => {
                (*offset, *length, false)
            }
            Operation::Write { offset, data, .. } => (*offset, data.len() as u64, true),
            Operation::Append { data, .. } => (volume.size_bytes, data.len() as u64, true),
            _ => return None,
        };
        let end = offset.checked_add(length)?;
        let is_there = end <= volume.size_bytes;
        let length = match volume.grows {
            // A read ends at the end of the file; a write extends the file.
            true if !is_write => length.min(volume.size_bytes.saturating_sub(offset)),
            true => length,
            false if is_there => length,
            false => return None,
        };
        let span = Span {
            volume: request.volume,
            offset,
            length,
        };
        (length > 0).then_some((span, is_write))
    }

    #[cold]
    fn record_now(&mut self, span: &Span, is_write: bool) {
        let now = self.world.now();
        let (first, end) = self.block_range(span);
        if let Some(recording) = &mut self.recording {
            let name = &self.volumes[usize::from(span.volume.0)].name;
            let blocks = (first..end, self.block_bytes);
            recording.add((span, name), is_write, blocks, now);
        }
    }
}

impl Engine {
    /// Begins to record the requests to the cache, and discards an earlier recording. `sample` is
    /// the fraction of all blocks whose requests are recorded, above 0; from 1 on every request is
    /// recorded whole. Returns the number of the recording, which no other recording of this process has.
    pub fn begin_recording(&self, sample: f64) -> u64 {
        let now = self.world.now();
        let number = RECORDINGS.fetch_add(1, Ordering::Relaxed) + 1;
        let mut state = self.lock();
        let recording = Box::new(Recording::new(number, sample, now));
        let old = state.recording.replace(recording);
        drop(state);
        drop(old);
        number
    }

    /// The requests recorded since the last call; `None` if this recording has ended, or another
    /// one has begun since.
    pub fn take_recorded(&self, number: u64) -> Option<RecordedPart> {
        // Allocated before the lock is taken.
        let empty = RecordedPart::with_room();
        let mut state = self.lock();
        let State {
            recording, volumes, ..
        } = &mut *state;
        let recording = recording.as_mut()?;
        let name_of = |volume| name_in(volumes, volume);
        (recording.number == number).then(|| recording.exchange(empty, name_of))
    }

    /// Ends this recording and returns the rest of it; `None` as for [`take_recorded`](Self::take_recorded).
    pub fn end_recording(&self, number: u64) -> Option<RecordedPart> {
        let mut state = self.lock();
        let mut recording = state.recording.take_if(|it| it.number == number)?;
        let name_of = |volume| name_in(&state.volumes, volume);
        Some(recording.exchange(RecordedPart::default(), name_of))
    }
}

impl State {
    /// Adds a request for existing data to the sample, if one is being taken.
    #[inline]
    pub fn sample(&mut self, span: &Span) {
        if self.sampling.is_some() {
            let (first, end) = self.block_range(span);
            if let Some(sampling) = &mut self.sampling {
                sampling.add(span.volume, first..end);
            }
        }
    }
}

impl Engine {
    /// Begins to sample the requests to the cache, and discards an earlier sample. `share` is the
    /// fraction of all blocks that is in the sample, above 0 and at most 1.
    pub fn begin_sampling(&self, share: f64) {
        let sampling = Box::new(Sampling::new(share));
        let old = self.lock().sampling.replace(sampling);
        drop(old);
    }

    /// The blocks sampled since the last call; `None` if no sample is being taken.
    pub fn take_sampled(&self) -> Option<SampledPart> {
        // Allocated before the lock is taken.
        let empty = SampledPart::with_room();
        let mut state = self.lock();
        Some(state.sampling.as_mut()?.exchange(empty))
    }

    /// Ends the sample.
    pub fn end_sampling(&self) {
        let old = self.lock().sampling.take();
        drop(old);
    }
}
