//! The state that the cache's lock protects, and the code common to all kinds of requests.

use super::account::Account;
use super::complaints::Complaints;
use super::dirty_total::WriteBack;
use super::effects::{Effects, SentDown};
use super::flights::{Flush, Span, WaitingRead};
use super::frames::{Frame, Frames};
use super::generations::{self, Generations};
use super::keeper::Elsewhere;
use super::kept::Kept;
use super::loads::{Loads, PIECE_BYTES};
use super::log::DecisionLog;
use super::options::{EngineOptions, OnEviction};
use super::recording::Recording;
use super::rest::Waiting;
use super::steps::Steps;
use super::tally::Tally;
use super::under_way::{Turn, UnderWay};
use super::verify::{DemotionTally, Verifier};
use super::volume::{TreeLatencies, Volume};
use super::world::World;
use crate::arena::Arena;
use crate::request::Demotion;
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
    /// The policy string of the level.
    pub policy: PolicySpec,
    /// The seed of randomised policies.
    pub seed: u64,
    pub level: Level<Box<dyn Policy>>,
    pub arena: Arena,
    pub frames: Frames,
    /// If evicted blocks are demoted: the generation of the store under which each frame's data
    /// came.
    pub generations: Generations,
    pub volumes: Vec<Volume>,
    /// Latencies of growing volumes.
    pub tree_latencies: TreeLatencies,
    /// Names of the classes that stores can belong to, from number 1 on.
    pub class_names: Vec<String>,
    /// Free numbers of removed volumes.
    pub free_volumes: Vec<VolumeId>,
    /// Background loads.
    pub loads: Loads,
    /// Progress of the current step.
    pub steps: Steps,
    /// Bytes of the buffers of work under way.
    pub account: Arc<Account>,
    pub readers: Slab<WaitingRead>,
    /// Reads from stores, writes and write-backs under way.
    pub under_way: UnderWay,
    pub flushes: Slab<Flush>,
    /// The source of time and threads.
    pub world: Arc<dyn World>,
    /// When the policy last got the costs of the stores.
    pub weighed: Option<Instant>,
    /// Write-back mode, if enabled.
    pub write_back: Option<WriteBack>,
    /// The known hashes of blocks, if demotions are verified.
    pub verifier: Option<Box<Verifier>>,
    /// Counts of accepted and refused demotions.
    pub demotions: DemotionTally,
    /// The state of the memory file, if the memory outlives the process.
    pub kept: Option<Box<Kept>>,
    /// Changes that wait for write-backs.
    pub changes: Vec<Waiting>,
    /// Store errors that were not logged individually.
    pub complaints: Complaints,
    /// Volumes with unclean marks.
    pub guarded: Vec<VolumeId>,
    pub sequence: u64,
    pub next_client: u64,
    pub tally: Tally,
    pub by_class: [Tally; 8],
    pub log: Option<DecisionLog>,
    /// Number of the policy's remarks that were logged.
    pub remarks_logged: usize,
    /// The recording of requests, and the sample of them, if they are being taken.
    pub recording: Option<Box<Recording>>,
    pub sampling: Option<Box<super::sampling::Sampling>>,
    /// The keeper of the blocks, if the engine does not hold them itself.
    pub elsewhere: Option<Elsewhere>,
    /// Whether a policy that depends on the order of hits gets them in an approximate order.
    pub approximates_order: bool,
}

impl State {
    /// Creates an empty cache.
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
        if world.has_many_caches() {
            arena.take_over();
        }
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
            tree_latencies: TreeLatencies::default(),
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
            demotions: DemotionTally::default(),
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
            sampling: None,
            elsewhere: None,
            approximates_order: false,
        })
    }

    /// Whether blocks are too large to be fetched while a request waits.
    pub fn in_pieces(&self) -> bool {
        self.block_bytes > PIECE_BYTES
    }

    /// Decides on one request; the work that follows goes into `effects`.
    pub fn begin(&mut self, request: Request, effects: &mut Effects) {
        self.record_request(&request);
        self.decide(request, Turn::New, effects);
    }

    /// As [`begin`](Self::begin), for any request.
    pub fn decide(&mut self, request: Request, turn: Turn, effects: &mut Effects) {
        let outer = std::mem::replace(&mut self.under_way.turn, turn);
        self.decide_in_turn(request, effects);
        self.under_way.turn = outer;
    }

    fn decide_in_turn(&mut self, request: Request, effects: &mut Effects) {
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
            // Append: its span was refused, since only growing volumes accept it. Change: it has
            // begun already.
            Operation::Append { .. } | Operation::Change(_) => {}
            Operation::Flush => match self.take_loss(request.client, volume, effects) {
                Some(error) => effects.answer(request.done, Err(error)),
                None => self.flush(volume, request.client, request.done, effects),
            },
            Operation::Settle => self.settle(volume, request.done, effects),
            Operation::Notice { .. } => {
                self.notice(span, effects);
                effects.answer(request.done, Ok(IoBuf::new(0)));
            }
            Operation::Demote(demotion) => {
                if demotion.is_by_agent || self.verifier.is_some() {
                    self.verify_demotion(span, demotion, effects);
                } else {
                    let (client, sequence) = (request.client, request.sequence);
                    self.demotion(client, sequence, span, demotion.data, effects);
                }
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
            Operation::Demote(Demotion { offset, data, .. }) => (*offset, data.len() as u64, false),
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

    /// Offers a block to the level; counts, logs, and handles the block that it evicts. A block
    /// whose data was beside the cache is a hit: there is nothing to load.
    pub fn offer(&mut self, block: BlockId, kind: AccessKind, effects: &mut Effects) -> Outcome {
        self.offer_marked(block, kind, Class::NORMAL, effects)
    }

    /// As [`offer`](Self::offer), for a block that gets some marks if it is placed.
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
        // Built anew for each user. A shared value would be written in parts and read as a whole;
        // the processor would then wait until all data copied before is in its cache.
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

    /// The generation under which the data of a block arrive that gets a slot now. Data demoted to
    /// this cache may have been read long before, so it is not demoted further.
    fn generation_for(&self, block: BlockId, kind: AccessKind) -> u64 {
        if kind == AccessKind::Demotion {
            return generations::UNKNOWN;
        }
        self.volumes[usize::from(block.volume().0)]
            .store
            .generation()
    }

    /// Handles an evicted block: demotes it if the lower cache is to have it.
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
            // If the frame was never ready, the lower cache still has the block.
            if frame == Frame::Ready {
                self.see_off_elsewhere(victim.block, effects);
            }
            return;
        }
        let has_data = frame == Frame::Ready || self.on_eviction == OnEviction::Notice;
        if !has_data || self.on_eviction == OnEviction::None {
            return;
        }
        // Decided before anything is copied.
        let store = &self.volumes[usize::from(victim.block.volume().0)].store;
        if self.on_eviction == OnEviction::Demote && !store.takes_demotions() {
            return;
        }
        let span = self.block_span(victim.block);
        if self.under_way.write_over(&span).is_some() {
            return; // The frame's content is being replaced below.
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

    /// Sends a block to the lower level: as a notice, or with its data and the generation of its
    /// store under which the data came.
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

    /// A block got a slot or lost it.
    pub fn note_resident(&mut self, block: BlockId, is_resident: bool) {
        let residents = &mut self.volumes[usize::from(block.volume().0)].residents;
        if is_resident {
            residents.insert(block.index());
        } else {
            residents.remove(block.index());
        }
    }

    /// Drops a block whose content is no longer valid.
    pub fn invalidate(&mut self, block: BlockId) {
        if let Some(victim) = self.level.remove(block, Departure::Invalidated) {
            if let Some(log) = &mut self.log {
                log.note_dropped(block);
            }
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

    /// The indexes of the blocks that `span` touches: the first, and one past the last.
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

    /// The next identity.
    pub fn new_client(&mut self) -> ClientId {
        self.next_client += 1;
        ClientId(self.next_client)
    }

    /// A client of a volume has connected.
    pub fn join(&mut self, volume: VolumeId) -> ClientId {
        let client = self.new_client();
        let known = &mut self.volumes[usize::from(volume.0)];
        known.demotion_guard.join(client);
        known.losses.join(client);
        client
    }
}
