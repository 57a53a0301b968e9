//! Everything that the cache's lock protects, and what all kinds of requests have in common.

use super::account::Account;
use super::complaints::Complaints;
use super::dirty_total::WriteBack;
use super::effects::{Effects, SentDown};
use super::flights::{Flush, Span, WaitingRead};
use super::frames::{Frame, Frames};
use super::generations::{self, Generations};
use super::keeper::Elsewhere;
use super::kept::Kept;
use super::loads::{Loads, PAGE_BYTES, PIECE_BYTES};
use super::log::DecisionLog;
use super::options::{EngineOptions, OnEviction};
use super::recording::Recording;
use super::rest::{Handing, Waiting};
use super::steps::Steps;
use super::tally::Tally;
use super::under_way::UnderWay;
use super::verify::{HandDownTally, Verifier};
use super::volume::Volume;
use super::world::World;
use crate::arena::Arena;
use crate::request::HandedDown;
use crate::{ClientId, IoBuf, IoError, IoErrorKind, Operation, Request, SetupError, Store};
use futae_policy::{
    Access, AccessKind, BlockId, Class, Departure, HashIndex, Level, Outcome, Policy, PolicySpec,
    Shape, Victim, VolumeId,
};
use slab::Slab;
use std::sync::Arc;
use std::time::Instant;

/// The cache, under its lock.
pub struct State {
    pub block_bytes: u64,
    pub on_eviction: OnEviction,
    /// The string of the policy of the level.
    pub policy: PolicySpec,
    /// What policies that draw lots are built with.
    pub seed: u64,
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
    /// What is loaded in the background.
    pub loads: Loads,
    /// How far the present step is.
    pub steps: Steps,
    /// Bytes of the buffers of what is under way.
    pub account: Arc<Account>,
    pub readers: Slab<WaitingRead>,
    /// Reads from stores, writes and write-backs under way.
    pub under_way: UnderWay,
    pub flushes: Slab<Flush>,
    /// The time.
    pub world: Arc<dyn World>,
    /// When the policy was last told what the stores cost.
    pub weighed: Option<Instant>,
    /// How written blocks are kept, if they are.
    pub write_back: Option<WriteBack>,
    /// What is known of the content of blocks, if what is handed down is verified.
    pub verifier: Option<Box<Verifier>>,
    /// What became of data that was handed down.
    pub handed_down: HandDownTally,
    /// What is known of the memory of this cache, if it outlives the process.
    pub kept: Option<Box<Kept>>,
    /// Changes that wait for write-backs.
    pub changes: Vec<Waiting>,
    /// Errors of stores that were not said one by one.
    pub complaints: Complaints,
    /// Volumes with marks.
    pub guarded: Vec<VolumeId>,
    pub sequence: u64,
    pub next_client: u64,
    pub tally: Tally,
    pub by_class: [Tally; 8],
    pub log: Option<DecisionLog>,
    /// How many of the policy's remarks were logged.
    pub remarks_logged: usize,
    /// What is asked, if it is recorded.
    pub recording: Option<Box<Recording>>,
    /// Who holds the blocks, if it is somebody else.
    pub elsewhere: Option<Elsewhere>,
    /// Whether a policy that decides by the order of hits is told of them in an order that is made up.
    pub approximates_order: bool,
}

impl State {
    /// An empty cache.
    pub fn new(
        options: &EngineOptions,
        account: Arc<Account>,
        world: Arc<dyn World>,
    ) -> Result<Self, SetupError> {
        let shape = Shape {
            slots: options.capacity_blocks,
            seed: options.seed,
        };
        let policy = futae_policy::build(&options.policy, &shape)?;
        if options.policy.needs_future() {
            return Err(SetupError::NeedsFuture(options.policy.to_string()));
        }
        let mut arena = Arena::new(options.block_bytes as usize);
        arena.reserve(options.capacity_blocks)?;
        let write_back = options.write_back;
        let log = options.decision_log.as_deref();
        Ok(Self {
            block_bytes: options.block_bytes,
            on_eviction: options.on_eviction,
            policy: options.policy.clone(),
            seed: options.seed,
            level: Level::new(policy, HashIndex::default(), options.capacity_blocks),
            arena,
            frames: Frames::default(),
            generations: Generations::default(),
            volumes: Vec::new(),
            class_names: Vec::new(),
            free_volumes: Vec::new(),
            loads: Loads::default(),
            steps: Steps::new(options.block_bytes),
            account,
            readers: Slab::new(),
            under_way: UnderWay::new(options.block_bytes),
            flushes: Slab::new(),
            world,
            weighed: None,
            write_back: write_back.map(|how| WriteBack::new(how, options.capacity_blocks)),
            verifier: None,
            handed_down: HandDownTally::default(),
            kept: None,
            changes: Vec::new(),
            complaints: Complaints::default(),
            guarded: Vec::new(),
            sequence: 0,
            next_client: 0,
            tally: Tally::default(),
            by_class: [Tally::default(); 8],
            log: log.map(DecisionLog::create).transpose()?,
            remarks_logged: 0,
            recording: None,
            elsewhere: None,
            approximates_order: false,
        })
    }

    /// Whether blocks are too large to be fetched while somebody waits.
    pub fn in_pieces(&self) -> bool {
        self.block_bytes > PIECE_BYTES
    }

    /// Decides on one request; what is left to do goes into `effects`.
    pub fn begin(&mut self, request: Request, effects: &mut Effects) {
        self.record_request(&request);
        self.decide(request, effects);
    }

    /// As [`begin`](Self::begin), of a request that has begun before and had to wait.
    pub fn decide(&mut self, request: Request, effects: &mut Effects) {
        let volume = request.volume;
        let grows = |volume: &Volume| volume.grows;
        if self.volumes.get(usize::from(volume.0)).is_some_and(grows) {
            return self.begin_growing(request, effects);
        }
        if let Operation::Change(_) = request.operation {
            return self.begin_change(request, effects);
        }
        let request = self.hashed(request);
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
            // The one's span was refused, since it is for volumes that grow; the other has begun.
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
            Operation::HandDown(handed) => {
                let handing = Handing {
                    span,
                    data: handed.data,
                    macs: handed.macs.unwrap_or_default(),
                    is_demotion: handed.is_demotion,
                    next: self.block_range(&span).0,
                };
                self.hand_on(handing, effects);
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
            Operation::Demote { offset, data }
            | Operation::HandDown(HandedDown { offset, data, .. }) => {
                (*offset, data.len() as u64, false)
            }
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
        self.offer_counted(block, kind, marks, block.volume(), effects)
    }

    /// As [`offer_marked`](Self::offer_marked), counted as an access to the volume `counted`.
    pub fn offer_counted(
        &mut self,
        block: BlockId,
        kind: AccessKind,
        marks: Class,
        counted: VolumeId,
        effects: &mut Effects,
    ) -> Outcome {
        let mut class = self.volumes[usize::from(block.volume().0)].class;
        if self.is_dirty(block) {
            class = class.with(Class::DIRTY);
        }
        // Made for each who needs it: one that both looked at would be written in parts and read as a whole, for which
        // the processor waits until all that was copied before is in its cache.
        let access = || Access::of(block, kind).classed(class.with(marks));
        let outcome = self.level.access(&access());
        self.steps.count(1);
        let hit = matches!(outcome, Outcome::Hit(_));
        if let Outcome::Hit(slot) = outcome {
            self.frames.touch(slot);
            self.note_holder(slot, block, kind);
        }
        self.tally.count(kind, hit);
        self.volumes[usize::from(counted.0)].tally.count(kind, hit);
        self.by_class[class.number()].count(kind, hit);
        if let Some(log) = &mut self.log {
            log.write(&access(), &outcome);
        }
        if let Outcome::Admitted { slot, evicted } = outcome {
            if let Some(victim) = evicted {
                self.release(slot, victim.block);
            }
            self.frames.place(slot);
            self.note_holder(slot, block, kind);
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
        self.let_go(victim.block);
        let frame = self.frames.set(victim.slot, Frame::Ready);
        if let Some(key) = frame.flight() {
            let flight = &mut self.under_way.flights[key];
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
            return self.evict(victim.block, victim.slot);
        }
        if self.elsewhere.is_some() {
            // What nobody has read yet the cache below still has.
            if frame == Frame::Ready {
                self.see_off_elsewhere(victim.block, effects);
            }
            return;
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
        if self.under_way.write_over(&span).is_some() {
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
    pub fn note_resident(&mut self, block: BlockId, is_resident: bool) {
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
            self.let_go(block);
            self.release(victim.slot, block);
            self.note_resident(block, false);
            let frame = self.frames.set(victim.slot, Frame::Ready);
            if let Some(key) = frame.flight() {
                self.under_way.flights[key].forget(victim.slot);
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
        Span::of_block(block, self.block_bytes, size)
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
}
