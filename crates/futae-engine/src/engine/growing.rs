//! Volumes whose size changes while they are in use: the files of a tree. They are added and
//! removed, they grow by writes at or beyond their end, and changes may bypass the cache while
//! nothing else is under way in their range.
//!
//! The size is raised when a growing write is decided. Requests between the old end and the end of
//! that write wait until it has ended. The bytes of a frame behind the end of its volume are
//! undefined; they become zeroes when the volume grows over them.

use super::dirty_total::Room;
use super::effects::Effects;
use super::flights::{Content, Span, Write};
use super::front::Engine;
use super::line::Awaited;
use super::rest::Deciding;
use super::state::State;
use super::volume::Volume;
use crate::{
    IoBuf, IoError, IoErrorKind, Operation, Request, SetupError, Store, StoreDone, StoreOperation,
};
use futae_policy::{BlockId, Class, VolumeId};
use std::sync::Arc;

impl Engine {
    /// Adds a volume whose size may change. Reads end at its end, writes beyond it extend it, and
    /// [`change`](Self::change) may do anything. Its store can report its current size at any time.
    /// [`status`](Self::status) leaves it out, since it has no room for thousands, but has the latencies of all together.
    ///
    /// # Errors
    ///
    /// [`SetupError::TooManyVolumes`]; [`remove_volume`](Self::remove_volume) makes room.
    pub fn add_growing_volume(
        &self,
        name: &str,
        store: Arc<dyn Store>,
        class: Class,
    ) -> Result<VolumeId, SetupError> {
        let mut state = self.lock();
        let volume = Volume {
            grows: true,
            latencies: Some(Arc::clone(&state.tree_latencies.requests)),
            store_latencies: Some(Arc::clone(&state.tree_latencies.store)),
            ..Volume::new(name, store, class)
        };
        state.place_volume(volume)
    }

    /// Removes a growing volume and its blocks. Dirty blocks are dropped; call
    /// [`Operation::Settle`] first to keep them. No further request may name the volume; its number
    /// is reused.
    pub fn remove_volume(self: &Arc<Self>, volume: VolumeId) {
        loop {
            // Dirty blocks are dropped, so nothing can fail.
            let _ = self.change_size(volume, 0, || ());
            if self.act(|state, effects| state.give_up(volume, effects)) {
                return;
            }
        }
    }
}

impl State {
    /// Whether a read, a write, a write-back or a flush is under way in a volume.
    pub fn has_under_way(&self, volume: VolumeId) -> bool {
        let all = Span::all_of(volume);
        let flushes = &self.volumes[usize::from(volume.0)].flush_turns;
        !flushes.is_idle()
            || self.under_way.flight_over(&all).is_some()
            || self.under_way.write_over(&all).is_some()
            || self.under_way.run_over(&all).is_some()
            || self.under_way.line.over(&all)
    }

    /// Frees the number of a volume for reuse. Does nothing while work is under way there, such as
    /// a load that the policy started.
    pub fn give_up(&mut self, volume: VolumeId, effects: &mut Effects) -> bool {
        if self.has_under_way(volume) {
            return false;
        }
        let all = Span::all_of(volume);
        if self.invalidate_some(&all, 0).is_some() || !self.discard_beyond(volume, 0, effects) {
            return false;
        }
        let gone = &mut self.volumes[usize::from(volume.0)];
        let era = gone.era;
        if let Some(recording) = &mut self.recording {
            recording.keep_name(volume, &gone.name);
        }
        if let (Some(of), Some(file)) = (gone.kept, self.arena.file()) {
            // No frame holds a block of it any more.
            file.rows().clear(of.row);
        }
        *gone = Volume {
            is_gone: true,
            era,
            ..Volume::new("", Arc::new(Gone), Class::NORMAL)
        };
        self.guarded.retain(|&guarded| guarded != volume);
        self.free_volumes.push(volume);
        true
    }

    /// Decides on a request to a growing volume.
    pub fn begin_growing(&mut self, request: Request, effects: &mut Effects) {
        let volume = request.volume;
        let size = self.volumes[usize::from(volume.0)].size_bytes;
        let at = |offset, length| Span {
            volume,
            offset,
            length,
        };
        match &request.operation {
            Operation::Read { offset, length } | Operation::ReadOn { offset, length } => {
                let span = at(*offset, (*length).min(size.saturating_sub(*offset)));
                if span.length > 0 && span.end() > self.reach() {
                    return effects.answer(request.done, Err(too_far(&span)));
                }
                let goes_on = matches!(request.operation, Operation::ReadOn { .. });
                self.read(request, span, goes_on, effects);
            }
            Operation::Write { offset, data, .. } => {
                let span = at(*offset, data.len() as u64);
                self.write_growing(request, span, effects);
            }
            Operation::Append { data, .. } => {
                let span = at(size, data.len() as u64);
                self.write_growing(request, span, effects);
            }
            Operation::Flush => self.flush(volume, request.client, request.done, effects),
            Operation::Settle => self.settle(volume, request.done, effects),
            Operation::Change(_) => self.begin_change(request, effects),
            Operation::Trim { .. }
            | Operation::WriteZeroes { .. }
            | Operation::Notice { .. }
            | Operation::Demote(_) => {
                self.note_error(volume);
                let message = "not for a volume that may grow";
                let error = IoError::new(IoErrorKind::Unsupported, message);
                effects.answer(request.done, Err(error));
            }
        }
    }

    fn write_growing(&mut self, request: Request, span: Span, effects: &mut Effects) {
        let end = span.offset.checked_add(span.length);
        let Some(end) = end.filter(|&end| end <= self.reach()) else {
            return effects.answer(request.done, Err(too_far(&span)));
        };
        let volume = usize::from(span.volume.0);
        if self.volumes[volume].store.is_read_only() {
            self.note_error(span.volume);
            let message = format!("{}: read-only", self.volumes[volume].name);
            return effects.answer(
                request.done,
                Err(IoError::new(IoErrorKind::ReadOnly, message)),
            );
        }
        if span.length == 0 {
            return effects.answer(request.done, Ok(IoBuf::new(0)));
        }
        let size = self.volumes[volume].size_bytes;
        let blocks = self.in_blocks(span.volume, span.offset.min(size), span.offset, end);
        // The end of the volume may move until the request has its turn.
        let claim = match end > size {
            true => Span {
                length: u64::MAX - blocks.offset,
                ..blocks
            },
            false => blocks,
        };
        if let Some(awaited) = self.under_way.before_writing(&blocks) {
            return self.wait(awaited, claim, request);
        }
        if let Operation::Write { fua: false, .. } = request.operation
            && end <= size
        {
            match self.room_for(&span) {
                Room::Enough => return self.keep_write(request, span, effects),
                Room::Later => return self.throttle(request, claim),
                Room::None => {}
            }
        }
        if let Some(key) = self.under_way.run_over(&blocks) {
            return self.wait(Awaited::Run(key), claim, request);
        }
        let (Operation::Write { data, fua, .. } | Operation::Append { data, fua }) =
            request.operation
        else {
            return;
        };
        self.raise_size(span.volume, end);
        let write = Write {
            span,
            blocks,
            content: Content::Data,
            has_begun: true,
            done: request.done,
            parked: Vec::new(),
        };
        let key = self.under_way.add_write(write);
        let operation = StoreOperation::Write {
            offset: span.offset,
            buffer: data,
            fua,
        };
        let next = self.block_range(&span).0;
        let deciding = Deciding {
            key,
            operation,
            next,
        };
        self.decide_write(deciding, effects);
    }

    /// The whole blocks from the one that holds `old_end`, or `offset` if that is smaller, to
    /// `end`.
    pub fn in_blocks(&self, volume: VolumeId, old_end: u64, offset: u64, end: u64) -> Span {
        let start = old_end.min(offset) / self.block_bytes * self.block_bytes;
        let last = end - (end - start) % self.block_bytes;
        let end = if last == end {
            end
        } else {
            last.saturating_add(self.block_bytes)
        };
        Span {
            volume,
            offset: start,
            length: end - start,
        }
    }

    /// Raises the size of a volume that may grow. Behind its old end the frame of its last block has bytes of other
    /// blocks, or that were cut off; they are zeroes from now on, as in the store, also if the write that makes the
    /// volume grow fails.
    pub fn raise_size(&mut self, volume: VolumeId, size: u64) {
        let known = &mut self.volumes[usize::from(volume.0)];
        let old = known.size_bytes;
        if !known.grows || size <= old {
            return;
        }
        known.size_bytes = size;
        let inside = (old % self.block_bytes) as usize;
        if inside == 0 || old >= self.reach() {
            return;
        }
        let block = BlockId::new(volume, old / self.block_bytes);
        let slot = self.level.find(block);
        // Where a keeper holds the block, the keeper zeroes these bytes.
        if let Some(slot) = slot.filter(|_| self.elsewhere.is_none()) {
            self.arena.frame_mut(slot)[inside..].fill(0);
        } else if let Some(unframed) = self.dirt_mut(block.volume()).unframed_mut(block.index()) {
            unframed.as_mut_slice()[inside..].fill(0);
        }
    }

    /// A write to a growing volume failed, or a change bypassed the cache: only the store knows
    /// where the volume ends. Blocks beyond that end are dropped, dirty ones and those that a keeper
    /// told of while the volume was cut. Returns false if this step is full and some is left.
    pub fn settle_failure(&mut self, volume: VolumeId, effects: &mut Effects) -> bool {
        let known = &mut self.volumes[usize::from(volume.0)];
        if !known.grows {
            return true;
        }
        let size = known.store.size_bytes();
        known.size_bytes = size.min(known.size_bytes);
        self.raise_size(volume, size);
        let beyond = size.div_ceil(self.block_bytes);
        self.discard_beyond(volume, size, effects)
            && self
                .invalidate_some(&Span::all_of(volume), beyond)
                .is_none()
    }

    fn discard_beyond(&mut self, volume: VolumeId, size: u64, effects: &mut Effects) -> bool {
        if !self.writes_back() {
            return true;
        }
        let beyond = size.div_ceil(self.block_bytes)..BlockId::INDEX_LIMIT;
        let left = self.steps.left();
        let found = self.dirt(volume).within(beyond.clone(), left);
        self.steps.count(found.len() as u64);
        for index in found {
            self.discard(BlockId::new(volume, index), effects);
        }
        self.dirt(volume).within(beyond, 1).is_empty()
    }
}

/// The error for a range of a file whose blocks have no numbers.
fn too_far(span: &Span) -> IoError {
    let message = format!("no file has {} bytes at {}", span.length, span.offset);
    IoError::new(IoErrorKind::OutOfRange, message)
}

/// Takes the place of a removed volume's store.
struct Gone;

impl Store for Gone {
    fn size_bytes(&self) -> u64 {
        0
    }

    fn describe(&self) -> String {
        "removed".to_owned()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn submit(&self, _sequence: u64, _operation: StoreOperation, done: StoreDone) {
        done(Err(IoError::new(
            IoErrorKind::Shutdown,
            "the volume was removed",
        )));
    }
}
