//! Volumes whose size changes while they are in use: the files of a tree. They come and go, they
//! grow by writes at or beyond their end, and their store may be changed past the cache while
//! nothing else is under way there.
//!
//! The size is raised when a growing write is decided, and everything between the old end and the
//! end of that write waits until it is over. What a frame holds behind the end of its volume is
//! any bytes; they become zeroes when the volume grows over them.

use super::Engine;
use super::dirt::Dirt;
use super::effects::{Effects, Ticket};
use super::flights::{Content, Span, Write};
use super::state::{State, Volume};
use super::{belief, status};
use crate::request::Change;
use crate::{
    ClientId, IoBuf, IoError, IoErrorKind, Operation, Request, SetupError, Store, StoreDone,
    StoreOperation,
};
use futae_policy::{BlockId, Class, VolumeId};
use hashbrown::HashMap;
use std::sync::{Arc, mpsc};

/// Whose requests these are: nobody hands blocks of growing volumes down.
const NOBODY: ClientId = ClientId(0);

impl Engine {
    /// Adds a volume whose size may change: reads end at its end, writes beyond it make it grow,
    /// and [`change`](Self::change) may do anything. Its store tells its present size at any time.
    /// It is left out of [`status`](Self::status), which has no room for thousands.
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
        let size_bytes = store.size_bytes();
        let volume = Volume {
            name: name.to_owned(),
            store,
            size_bytes,
            class,
            belief: belief::Belief::default(),
            tally: status::Tally::default(),
            grows: true,
            dirt: Dirt::default(),
            costs: None,
        };
        let mut state = self.lock();
        if let Some(free) = state.free_volumes.pop() {
            state.volumes[usize::from(free.0)] = volume;
            return Ok(free);
        }
        let next = u16::try_from(state.volumes.len()).ok();
        let next = next.filter(|&id| id < u16::MAX);
        let next = next.ok_or(SetupError::TooManyVolumes)?;
        state.volumes.push(volume);
        Ok(VolumeId(next))
    }

    /// Forgets a growing volume and its blocks. Nobody may ask for anything of it any more; its
    /// number is given to another.
    pub fn remove_volume(self: &Arc<Self>, volume: VolumeId) {
        loop {
            self.change(volume, 0, u64::MAX, || ());
            let mut state = self.lock();
            let all = whole(volume);
            // The policy may have had a block loaded meanwhile.
            if state.flight_over(&all).is_some() || state.write_over(&all).is_some() {
                continue;
            }
            let size = state.volumes[usize::from(volume.0)].size_bytes;
            let blocks = Span {
                length: size,
                ..all
            };
            state.invalidate_range(&blocks);
            let gone = &mut state.volumes[usize::from(volume.0)];
            gone.size_bytes = 0;
            gone.store = Arc::new(Gone);
            state.free_volumes.push(volume);
            return;
        }
    }

    /// Runs `work`, which changes bytes `offset..offset + length` of a growing volume's store
    /// past the cache, or finds out how they have changed. Meanwhile nothing else is under way in
    /// the range; afterwards its blocks are forgotten and the size is asked for anew. Waits, so it
    /// must not be called by a store.
    pub fn change<T>(
        self: &Arc<Self>,
        volume: VolumeId,
        offset: u64,
        length: u64,
        work: impl FnOnce() -> T,
    ) -> T {
        self.exclusively(volume, (offset, length), None, work)
    }

    /// As [`change`](Self::change), for work that gives the volume's store another size.
    pub fn change_size<T>(
        self: &Arc<Self>,
        volume: VolumeId,
        size_bytes: u64,
        work: impl FnOnce() -> T,
    ) -> T {
        self.exclusively(volume, (size_bytes, u64::MAX), Some(size_bytes), work)
    }

    fn exclusively<T>(
        self: &Arc<Self>,
        volume: VolumeId,
        (offset, length): (u64, u64),
        size_bytes: Option<u64>,
        work: impl FnOnce() -> T,
    ) -> T {
        let (sender, receiver) = mpsc::sync_channel(1);
        let granted = Box::new(move |key| {
            // Somebody waits below.
            let _ = sender.send(key);
        });
        let change = Change {
            offset,
            length,
            size_bytes,
            granted,
        };
        self.submit(Request {
            volume,
            client: NOBODY,
            sequence: 0,
            operation: Operation::Change(change),
            done: Box::new(drop),
        });
        // Without a key there is no such volume, and nothing to keep apart.
        let _changing = receiver.recv().ok().map(|key| Changing {
            engine: Arc::clone(self),
            key,
        });
        work()
    }

    /// Gives volumes other classes. Blocks that are not protected any more are told so at once;
    /// those that are now, when they are next used, or at once if `at_once`.
    pub fn set_classes(&self, classes: &[(VolumeId, Class)], at_once: bool) {
        let mut state = self.lock();
        let mut changed = HashMap::new();
        for &(volume, class) in classes {
            let Some(known) = state.volumes.get_mut(usize::from(volume.0)) else {
                continue;
            };
            let before = std::mem::replace(&mut known.class, class);
            if before != class && (at_once || !class.has(Class::PROTECTED)) {
                changed.insert(volume, class);
            }
        }
        if changed.is_empty() {
            return;
        }
        // Those used last come last, so that they keep their order where they move to.
        for block in state.level.order().into_iter().rev() {
            if let Some(&class) = changed.get(&block.volume()) {
                let is_dirty = state.is_dirty(block);
                let class = if is_dirty {
                    class.with(Class::DIRTY)
                } else {
                    class
                };
                state.level.reclass_at_once(block, class);
            }
        }
    }
}

/// Ends a change, even one whose work panics.
struct Changing {
    engine: Arc<Engine>,
    key: usize,
}

impl Drop for Changing {
    fn drop(&mut self) {
        let key = self.key;
        self.engine
            .act(|state, effects| state.end_change(key, effects));
    }
}

fn whole(volume: VolumeId) -> Span {
    Span {
        volume,
        offset: 0,
        length: u64::MAX,
    }
}

impl State {
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
            Operation::Flush => self.flush(volume, request.done, effects),
            Operation::Change(_) => self.begin_change(request, effects),
            Operation::Trim { .. }
            | Operation::WriteZeroes { .. }
            | Operation::Notice { .. }
            | Operation::Demote { .. } => {
                self.note_error(volume);
                let message = "not for a volume that may grow";
                let error = IoError::new(IoErrorKind::Unsupported, message);
                effects.answer(request.done, Err(error));
            }
        }
    }

    fn write_growing(&mut self, request: Request, span: Span, effects: &mut Effects) {
        let limit = BlockId::INDEX_LIMIT.saturating_mul(self.block_bytes);
        let end = span.offset.checked_add(span.length);
        let Some(end) = end.filter(|&end| end <= limit) else {
            self.note_error(span.volume);
            let message = format!("no file has {} bytes at {}", span.length, span.offset);
            let error = IoError::new(IoErrorKind::OutOfRange, message);
            return effects.answer(request.done, Err(error));
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
        if let Some(key) = self.write_over(&blocks) {
            return self.writes[key].parked.push(request);
        }
        if let Some(key) = self.flight_over(&blocks) {
            return self.flights[key].parked.push(request);
        }
        let (Operation::Write { data, fua, .. } | Operation::Append { data, fua }) =
            request.operation
        else {
            return;
        };
        self.volumes[volume].size_bytes = size.max(end);
        let write = Write {
            span,
            blocks,
            content: Content::Data,
            grown_from: (end > size).then_some(size),
            done: request.done,
            parked: Vec::new(),
        };
        let key = self.writes.insert(write);
        self.place_written(&span, effects);
        self.tally.bytes_written += span.length;
        self.tally.store_writes += 1;
        self.tally.bytes_store_written += span.length;
        let sequence = self.next_sequence();
        let operation = StoreOperation::Write {
            offset: span.offset,
            buffer: data,
            fua,
        };
        effects.start(
            self.store(span.volume),
            sequence,
            operation,
            Ticket::Write(key),
        );
    }

    /// Whole blocks from the one that holds `old_end`, or `offset` if that is before it, to `end`.
    fn in_blocks(&self, volume: VolumeId, old_end: u64, offset: u64, end: u64) -> Span {
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

    /// A growing write is over: what lies between the old end and the data reads as zeroes, in
    /// the frame as in the store.
    pub fn settle_growth(&mut self, write: &Write) {
        let volume = &mut self.volumes[usize::from(write.span.volume.0)];
        if volume.grows {
            volume.size_bytes = volume.size_bytes.max(write.span.end());
        }
        let Some(old) = write.grown_from else { return };
        let inside = (old % self.block_bytes) as usize;
        if inside == 0 {
            return;
        }
        let block = BlockId::new(write.span.volume, old / self.block_bytes);
        if let Some(slot) = self.level.find(block) {
            self.arena.frame_mut(slot)[inside..].fill(0);
        }
    }

    /// A write to a growing volume failed: nobody but the store knows how far it came.
    pub fn settle_failure(&mut self, volume: VolumeId) {
        let volume = &mut self.volumes[usize::from(volume.0)];
        if volume.grows {
            volume.size_bytes = volume.store.size_bytes();
        }
    }

    fn begin_change(&mut self, request: Request, effects: &mut Effects) {
        let volume = request.volume;
        let Operation::Change(change) = &request.operation else {
            return;
        };
        let size = self.volumes[usize::from(volume.0)].size_bytes;
        let (offset, end) = match change.size_bytes {
            Some(new) => (new.min(size), u64::MAX),
            None => (change.offset, change.offset.saturating_add(change.length)),
        };
        let blocks = self.in_blocks(volume, offset, offset, end);
        if let Some(key) = self.write_over(&blocks) {
            return self.writes[key].parked.push(request);
        }
        if let Some(key) = self.flight_over(&blocks) {
            return self.flights[key].parked.push(request);
        }
        let Operation::Change(change) = request.operation else {
            return;
        };
        let known = Span {
            length: size.saturating_sub(blocks.offset).min(blocks.length),
            ..blocks
        };
        let write = Write {
            span: blocks,
            blocks,
            content: Content::Anything,
            grown_from: None,
            done: request.done,
            parked: Vec::new(),
        };
        let key = self.writes.insert(write);
        self.invalidate_range(&known);
        let granted: StoreDone = Box::new(move |_| (change.granted)(key));
        effects.answer(granted, Ok(IoBuf::new(0)));
    }

    fn end_change(&mut self, key: usize, effects: &mut Effects) {
        let write = self.writes.remove(key);
        self.settle_failure(write.span.volume);
        effects.answer(write.done, Ok(IoBuf::new(0)));
        for request in write.parked {
            self.begin(request, effects);
        }
    }
}

/// Stands where the store of a removed volume was.
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
