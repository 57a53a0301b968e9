//! What of the requests to a cache is recorded, and who begins and ends that.

use super::flights::Span;
use super::front::Engine;
use super::recording::{RecordedPart, Recording};
use super::state::State;
use crate::{Operation, Request};

impl State {
    /// Records a request that is answered in place, if there is a recording.
    #[inline]
    pub fn record(&mut self, span: &Span, is_write: bool) {
        if self.recording.is_some() {
            self.record_now(span, is_write);
        }
    }

    /// Records a request that begins, if there is a recording and it is one for data that are there.
    #[inline]
    pub fn record_request(&mut self, request: &Request) {
        if self.recording.is_some()
            && let Some((span, is_write)) = self.asked(request)
        {
            self.record_now(&span, is_write);
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
