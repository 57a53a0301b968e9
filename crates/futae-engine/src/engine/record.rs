//! What of the requests to a cache is recorded or sampled, and who begins and ends that.

use super::flights::Span;
use super::front::Engine;
use super::recording::{RecordedPart, Recording};
use super::sampling::{SampledPart, Sampling};
use super::state::State;
use crate::{Operation, Request};

impl State {
    /// Records a request that is answered in place, if there is a recording, or a sample.
    #[inline]
    pub fn record(&mut self, span: &Span, is_write: bool) {
        self.sample(span);
        if self.recording.is_some() {
            self.record_now(span, is_write);
        }
    }

    /// Records a request that begins, if there is a recording or a sample, and it is one for data that are there.
    #[inline]
    pub fn record_request(&mut self, request: &Request) {
        if (self.recording.is_some() || self.sampling.is_some())
            && let Some((span, is_write)) = self.asked(request)
        {
            self.record(&span, is_write);
        }
    }

    /// What of a volume a request reads or writes.
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
            // A read ends where the file does; a write makes it longer.
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
            recording.add(span, is_write, (first..end, self.block_bytes), now);
        }
    }
}

impl Engine {
    /// Begins to record what is asked of the cache, in place of what was recorded so far. `sample` is the part of all
    /// blocks whose requests are recorded, above 0; from 1 on all requests are, whole.
    pub fn begin_recording(&self, sample: f64) {
        let recording = Box::new(Recording::new(sample, self.world.now()));
        let old = self.lock().recording.replace(recording);
        drop(old);
    }

    /// What was recorded since this was last called; none if there is no recording.
    pub fn take_recorded(&self) -> Option<RecordedPart> {
        // Made before the lock is taken.
        let empty = RecordedPart::with_room();
        let mut state = self.lock();
        Some(state.recording.as_mut()?.exchange(empty))
    }

    /// Ends the recording; what is left of it is returned.
    pub fn end_recording(&self) -> Option<RecordedPart> {
        let recording = self.lock().recording.take();
        recording.map(|recording| recording.finish())
    }
}

impl State {
    /// Adds a request for data that are there to the sample, if one is taken.
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
    /// Begins to sample what the cache is asked for, in place of a sample that was taken so far. `share` is the part of all blocks
    /// that is in the sample, above 0 and at most 1.
    pub fn begin_sampling(&self, share: f64) {
        let sampling = Box::new(Sampling::new(share));
        let old = self.lock().sampling.replace(sampling);
        drop(old);
    }

    /// What was sampled since this was last called; none if no sample is taken.
    pub fn take_sampled(&self) -> Option<SampledPart> {
        // Made before the lock is taken.
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
