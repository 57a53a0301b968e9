//! Everything that the cache's lock protects, and what all kinds of requests have in common.

use super::account::Account;
use super::change::Waiting;
use super::complaints::Complaints;
use super::cost::Costs;
use super::demotion_guard::DemotionGuard;
use super::dirt::Dirt;
use super::effects::{Effects, SentDown, Ticket};
use super::flights::{Flight, Span, WaitingRead, Write};
use super::frames::{Frame, Frames};
use super::generations::{self, Generations};
use super::loads::{Loads, PAGE_BYTES};
use super::log::DecisionLog;
use super::notices::Notices;
use super::residents::Residents;
use super::status::Tally;
use super::steps::Steps;
use super::unclean::Guard;
use super::under_way::UnderWay;
use super::write_back::{Run, WriteBack};
use crate::StoreOperation;
use crate::arena::Arena;
use crate::{ClientId, Done, IoBuf, IoError, IoErrorKind, OnEviction, Operation, Request, Store};
use futae_policy::{
    Access, AccessKind, BlockId, Class, Departure, Level, Outcome, Policy, Victim, VolumeId,
};
use hashbrown::HashMap;
use slab::Slab;
use std::sync::Arc;
use std::time::Instant;

/// A volume of the cache.
pub struct Volume {
    pub name: String,
    pub store: Arc<dyn Store>,
    pub size_bytes: u64,
    pub class: Class,
    pub demotion_guard: DemotionGuard,
    pub tally: Tally,
    /// Whether its size changes while it is in use; see [`super::growing`].
    pub grows: bool,
    /// What its clients have told of.
    pub notices: Notices,
    /// What its store does not have yet.
    pub dirt: Dirt,
    /// Its mark while the store lacks data, if it has one.
    pub guard: Option<Box<Guard>>,
    /// Which of its blocks are resident.
    pub residents: Residents,
    /// What its store's operations take; not measured of volumes that come and go.
    pub costs: Option<Box<Costs>>,
}

/// A flush under way.
pub struct Flush {
    pub volume: VolumeId,
    pub done: Done,
    /// The newest write that it covers.
    pub stamp: u64,
    /// Dirty blocks that it waits for.
    pub left: u64,
    /// The first failure that it has to tell of.
    pub error: Option<IoError>,
    /// Whether the store is to make it stable.
    pub is_stable: bool,
}

/// The cache, under its lock.
pub struct State {
    pub block_bytes: u64,
    pub on_eviction: OnEviction,
    pub level: Level<Box<dyn Policy>>,
    pub arena: Arena,
    pub frames: Frames,
    /// Where evicted blocks are demoted: under which generation of its store each
    /// frame's block came.
    pub generations: Generations,
    pub volumes: Vec<Volume>,
    /// Names of the classes of their own that stores are in, from number 1 on.
    pub class_names: Vec<String>,
    /// Numbers of volumes that were removed.
    pub free_volumes: Vec<VolumeId>,
    pub flights: Slab<Flight>,
    pub flight_of: HashMap<BlockId, usize>,
    /// What is loaded in the background.
    pub loads: Loads,
    /// How far the present step is.
    pub steps: Steps,
    /// Bytes of the buffers of what is under way.
    pub account: Arc<Account>,
    pub readers: Slab<WaitingRead>,
    pub writes: Slab<Write>,
    /// Where work is under way.
    pub under_way: UnderWay,
    pub flushes: Slab<Flush>,
    /// When the policy was last told what the stores cost.
    pub weighed: Option<Instant>,
    /// How written blocks are kept, if they are.
    pub write_back: Option<WriteBack>,
    /// Write-backs under way.
    pub runs: Slab<Run>,
    /// Changes that wait for write-backs.
    pub changes: Vec<Waiting>,
    /// What the log has not said of errors of stores.
    pub complaints: Complaints,
    /// Volumes with marks.
    pub guarded: Vec<VolumeId>,
    pub sequence: u64,
    pub next_client: u64,
    pub tally: Tally,
    pub by_class: [Tally; 8],
    pub log: Option<DecisionLog>,
}

impl State {
    /// Decides on one request; what is left to do goes into `effects`.
    pub fn begin(&mut self, request: Request, effects: &mut Effects) {
        let volume = request.volume;
        let grows = |volume: &Volume| volume.grows;
        if self.volumes.get(usize::from(volume.0)).is_some_and(grows) {
            return self.begin_growing(request, effects);
        }
        let span = match self.checked_span(&request) {
            Ok(span) => span,
            Err(error) => {
                self.note_error(volume);
                return effects.answer(request.done, Err(error));
            }
        };
        match request.operation {
            Operation::Read { .. } => self.read(request, span, false, effects),
            Operation::ReadOn { .. } => self.read(request, span, true, effects),
            Operation::Write { .. } | Operation::Trim { .. } | Operation::WriteZeroes { .. } => {
                self.write(request, span, effects);
            }
            // Their spans were refused: they are for volumes that grow.
            Operation::Append { .. } | Operation::Change(_) => {}
            Operation::Flush => match self.take_loss(request.client, volume, effects) {
                Some(error) => effects.answer(request.done, Err(error)),
                None => self.flush(volume, request.done, true, effects),
            },
            Operation::Settle => self.flush(volume, request.done, false, effects),
            Operation::Notice { .. } => {
                self.notice(span, effects);
                effects.answer(request.done, Ok(IoBuf::new(0)));
            }
            Operation::Demote { data, .. } => {
                self.demotion(request.client, request.sequence, span, data, effects);
                effects.answer(request.done, Ok(IoBuf::new(0)));
            }
        }
    }

    pub fn checked_span(&self, request: &Request) -> Result<Span, IoError> {
        let (offset, length, writes) = match &request.operation {
            Operation::Read { offset, length }
            | Operation::ReadOn { offset, length }
            | Operation::Notice { offset, length } => (*offset, *length, false),
            Operation::Write { offset, data, .. } => (*offset, data.len() as u64, true),
            Operation::Append { .. } | Operation::Change(_) => (u64::MAX, 1, true),
            Operation::Demote { offset, data } => (*offset, data.len() as u64, false),
            Operation::Flush | Operation::Settle => (0, 0, false),
            Operation::Trim { offset, length } | Operation::WriteZeroes { offset, length, .. } => {
                (*offset, *length, true)
            }
        };
        let Some(volume) = self.volumes.get(usize::from(request.volume.0)) else {
            return Err(IoError::new(IoErrorKind::OutOfRange, "no such volume"));
        };
        if offset
            .checked_add(length)
            .is_none_or(|end| end > volume.size_bytes)
        {
            let (name, size) = (&volume.name, volume.size_bytes);
            let message = format!("{name}: {length} bytes at {offset} are beyond its {size} bytes");
            return Err(IoError::new(IoErrorKind::OutOfRange, message));
        }
        if writes && volume.store.is_read_only() {
            let message = format!("{}: read-only", volume.name);
            return Err(IoError::new(IoErrorKind::ReadOnly, message));
        }
        Ok(Span {
            volume: request.volume,
            offset,
            length,
        })
    }

    pub fn flush(&mut self, volume: VolumeId, done: Done, stable: bool, effects: &mut Effects) {
        if self.writes_back() {
            return self.flush_dirty(volume, done, stable, effects);
        }
        let key = self.flushes.insert(Flush {
            volume,
            done,
            stamp: 0,
            left: 0,
            error: None,
            is_stable: stable,
        });
        self.go_on_with_flush(key, effects);
    }

    /// The store has all that a flush covers, or has refused some of it.
    pub fn go_on_with_flush(&mut self, key: usize, effects: &mut Effects) {
        let Flush {
            volume, is_stable, ..
        } = self.flushes[key];
        if !is_stable {
            return self.finish_flush(key, Ok(IoBuf::new(0)), effects);
        }
        let sequence = self.next_sequence();
        effects.start(
            self.store(volume),
            sequence,
            StoreOperation::Flush,
            Ticket::Flush(key),
        );
    }

    /// A flush is over.
    pub fn finish_flush(
        &mut self,
        key: usize,
        result: Result<IoBuf, IoError>,
        effects: &mut Effects,
    ) {
        let flush = self.flushes.remove(key);
        let result = flush.error.map_or(result, Err);
        if result.is_err() {
            self.note_error(flush.volume);
        }
        effects.answer(flush.done, result);
    }

    /// Puts a block before the level, counts, logs, and sees to the block that it evicts.
    /// A block whose data was beside the cache comes back as a hit: there is nothing to load.
    pub fn offer(&mut self, block: BlockId, kind: AccessKind, effects: &mut Effects) -> Outcome {
        self.offer_marked(block, kind, Class::NORMAL, effects)
    }

    /// As [`offer`](Self::offer), of a block that has some marks if it is placed.
    pub fn offer_marked(
        &mut self,
        block: BlockId,
        kind: AccessKind,
        marks: Class,
        effects: &mut Effects,
    ) -> Outcome {
        let mut class = self.volumes[usize::from(block.volume().0)].class;
        if self.is_dirty(block) {
            class = class.with(Class::DIRTY);
        }
        let access = Access::of(block, kind).classed(class.with(marks));
        let outcome = self.level.access(&access);
        self.steps.count(1);
        let hit = matches!(outcome, Outcome::Hit(_));
        if let Outcome::Hit(slot) = outcome {
            self.frames.touch(slot);
        }
        self.tally.count(kind, hit);
        self.volumes[usize::from(block.volume().0)]
            .tally
            .count(kind, hit);
        self.by_class[class.number()].count(kind, hit);
        if let Some(log) = &mut self.log {
            log.write(&access, &outcome);
        }
        if let Outcome::Admitted { slot, evicted } = outcome {
            self.frames.place(slot);
            self.note_resident(block, true);
            if let Some(victim) = evicted {
                self.note_resident(victim.block, false);
                self.see_off(&victim, effects);
            }
            if self.on_eviction == OnEviction::Demote {
                self.generations
                    .came(slot, self.generation_for(block, kind));
            }
            if self.adopt(block, slot) {
                return Outcome::Hit(slot);
            }
        }
        outcome
    }

    /// The generation under which the data of a block come that gets a slot now. What was
    /// demoted to this cache may have been read long before, so it goes no further down.
    fn generation_for(&self, block: BlockId, kind: AccessKind) -> u64 {
        if kind == AccessKind::Demotion {
            return generations::UNKNOWN;
        }
        self.volumes[usize::from(block.volume().0)]
            .store
            .generation()
    }

    /// An evicted block: hands it down if there is a cache below that should have it.
    pub fn see_off(&mut self, victim: &Victim, effects: &mut Effects) {
        let frame = self.frames.set(victim.slot, Frame::Ready);
        if let Some(key) = frame.flight() {
            let flight = &mut self.flights[key];
            flight.forget(victim.slot);
            if self.on_eviction != OnEviction::None {
                flight.evicted.push(victim.block);
            }
            return;
        }
        if frame == Frame::Loading {
            self.loads.give_up(victim.block);
        }
        if self.is_dirty(victim.block) {
            return self.evict(victim);
        }
        let has_data = frame == Frame::Ready || self.on_eviction == OnEviction::Notice;
        if !has_data || self.on_eviction == OnEviction::None {
            return;
        }
        // Before anything is copied.
        let store = &self.volumes[usize::from(victim.block.volume().0)].store;
        if self.on_eviction == OnEviction::Demote && !store.takes_demotions() {
            return;
        }
        let span = self.block_span(victim.block);
        if self.write_over(&span).is_some() {
            return; // What the frame holds is being replaced below.
        }
        let data = match self.on_eviction {
            OnEviction::Demote => {
                let frame = self.arena.frame(victim.slot);
                let data = IoBuf::copy_of(&frame[..span.length as usize]);
                Some((data, self.generations.of(victim.slot)))
            }
            OnEviction::Notice | OnEviction::None => None,
        };
        self.send_down(span, data, effects);
    }

    /// Sends a block to the level below, by name or with its data and the generation of its store
    /// under which they came.
    pub fn send_down(&mut self, span: Span, data: Option<(IoBuf, u64)>, effects: &mut Effects) {
        let store = self.store(span.volume);
        if data.is_some() && !store.takes_demotions() {
            return;
        }
        let (kind, what) = match data {
            Some((data, generation)) => {
                self.tally.bytes_demoted_out += span.length;
                (AccessKind::Demotion, SentDown::Demote(data, generation))
            }
            None => (AccessKind::Notice, SentDown::Notice(span.length)),
        };
        self.level.note_sent_down(kind);
        let sequence = self.next_sequence();
        effects.send_down(store, sequence, span.offset, what);
    }

    /// A block has got a slot, or has lost it.
    fn note_resident(&mut self, block: BlockId, is_resident: bool) {
        let residents = &mut self.volumes[usize::from(block.volume().0)].residents;
        if is_resident {
            residents.insert(block.index());
        } else {
            residents.remove(block.index());
        }
    }

    /// Drops a block whose content is no longer true.
    pub fn invalidate(&mut self, block: BlockId) {
        if let Some(victim) = self.level.remove(block, Departure::Invalidated) {
            self.note_resident(block, false);
            let frame = self.frames.set(victim.slot, Frame::Ready);
            if let Some(key) = frame.flight() {
                self.flights[key].forget(victim.slot);
            }
            if frame == Frame::Loading {
                self.loads.give_up(block);
            }
        }
    }

    /// The indexes of the blocks that `span` touches: first, and one past the last.
    pub fn block_range(&self, span: &Span) -> (u64, u64) {
        (
            span.offset / self.block_bytes,
            span.end().div_ceil(self.block_bytes),
        )
    }

    /// The bytes of a block; the last one of a volume may be short.
    pub fn block_span(&self, block: BlockId) -> Span {
        let size = self.volumes[usize::from(block.volume().0)].size_bytes;
        let offset = block.index() * self.block_bytes;
        let length = self.block_bytes.min(size.saturating_sub(offset));
        Span {
            volume: block.volume(),
            offset,
            length,
        }
    }

    /// `span` widened to what a write keeps others away from, within the volume: whole blocks; for
    /// blocks that are loaded in pieces, pages.
    pub fn widened(&self, span: &Span) -> Span {
        let size = self.volumes[usize::from(span.volume.0)].size_bytes;
        let unit = if self.in_pieces() {
            PAGE_BYTES
        } else {
            self.block_bytes
        };
        let offset = span.offset / unit * unit;
        Span {
            volume: span.volume,
            offset,
            length: span.end().next_multiple_of(unit).min(size) - offset,
        }
    }

    pub fn store(&self, volume: VolumeId) -> Arc<dyn Store> {
        Arc::clone(&self.volumes[usize::from(volume.0)].store)
    }

    pub fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    pub fn note_error(&mut self, volume: VolumeId) {
        self.tally.errors += 1;
        if let Some(volume) = self.volumes.get_mut(usize::from(volume.0)) {
            volume.tally.errors += 1;
        }
    }

    /// A client of a volume has come.
    pub fn join(&mut self, volume: VolumeId) -> ClientId {
        self.next_client += 1;
        let client = ClientId(self.next_client);
        self.volumes[usize::from(volume.0)]
            .demotion_guard
            .join(client);
        client
    }

    /// Lets up to `surplus_max` blocks go on the way to `capacity_blocks` slots; whether it got
    /// there.
    pub fn resize_step(
        &mut self,
        capacity_blocks: u32,
        surplus_max: u32,
        effects: &mut Effects,
    ) -> bool {
        let bounded = self.level.resident().saturating_sub(surplus_max);
        let capacity = capacity_blocks.max(bounded);
        for victim in self.level.resize(capacity) {
            self.steps.count(1);
            self.note_resident(victim.block, false);
            self.see_off(&victim, effects);
            self.arena.release(victim.slot);
        }
        if let Some(write_back) = &mut self.write_back {
            write_back.resize(capacity_blocks);
        }
        capacity == capacity_blocks
    }
}
