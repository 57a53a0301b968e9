//! The cache's public interface: one lock around the state, and all I/O outside of it.

use super::account::Account;
use super::extents;
use super::loads::{PAGE_BYTES, PIECE_BYTES};
use super::lock_turns::LockTurns;
use super::options::{EngineOptions, WriteBackOptions};
use super::questions::Questions;
use super::sizing::{Sizing, check_sizes};
use super::state::State;
use super::status::EngineStatus;
use super::verify::Keys;
use super::volume::{Volume, name_in};
use super::world::{Machine, World};
use crate::arena::give_long_pieces_back;
use crate::{
    ClientId, Extent, IoBuf, IoError, IoErrorKind, Latencies, Operation, Request, SetupError, Store,
};
use futae_policy::{Class, VolumeId};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// The shortest interval of the clock thread.
const TICK_MIN: Duration = Duration::from_millis(5);
const TICK_MAX: Duration = Duration::from_millis(500);
/// The longest interval if the memory outlives the process: a server that writes must record that
/// it is alive.
const TICK_KEPT_MAX: Duration = Duration::from_millis(50);

/// One cache over any number of volumes.
pub struct Engine {
    pub(super) block_bytes: u64,
    pub(super) state: LockTurns<State>,
    account: Arc<Account>,
    pub(super) sizing: Mutex<Sizing>,
    pub(super) questions: Mutex<Questions>,
    /// The keys that hash the content of blocks, if demotions are verified or the memory outlives
    /// the process.
    pub(super) keys: OnceLock<Keys>,
    /// Whether demotions are verified.
    pub(super) verifies: AtomicBool,
    /// The source of time and threads.
    pub(super) world: Arc<dyn World>,
    write_back: Option<WriteBackOptions>,
    /// Dropping this sender ends the clock thread.
    _alive: mpsc::Sender<()>,
    /// The receiver that the clock thread waits on; the thread takes it when it starts.
    clock: Mutex<Option<mpsc::Receiver<()>>>,
}

impl Engine {
    /// Creates an empty cache.
    pub fn new(options: &EngineOptions) -> Result<Arc<Self>, SetupError> {
        Self::in_world(options, Arc::new(Machine))
    }

    /// Creates an empty cache that takes time and threads from `world`. For simulations.
    pub fn in_world(
        options: &EngineOptions,
        world: Arc<dyn World>,
    ) -> Result<Arc<Self>, SetupError> {
        check_sizes(options, &*world)?;
        if !world.has_many_caches() {
            give_long_pieces_back();
        }
        let account = Arc::<Account>::default();
        let state = State::new(options, Arc::clone(&account), Arc::clone(&world))?;
        let (alive, is_gone) = mpsc::channel();
        let engine = Arc::new(Self {
            block_bytes: options.block_bytes,
            state: LockTurns::new(state),
            account: Arc::clone(&account),
            sizing: Mutex::new(Sizing {
                capacity_blocks: options.capacity_blocks,
                aside_blocks: 0,
                keeper_blocks: 0,
            }),
            questions: Mutex::default(),
            keys: OnceLock::new(),
            verifies: AtomicBool::new(false),
            world,
            write_back: options.write_back,
            _alive: alive,
            clock: Mutex::new(Some(is_gone)),
        });
        engine.see_to_clock()?;
        Ok(engine)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Adds a volume. Its blocks get the class `class` (e.g. [`Class::REMOTE`]).
    pub fn add_volume(
        &self,
        name: &str,
        store: Arc<dyn Store>,
        class: Class,
    ) -> Result<VolumeId, SetupError> {
        let mut state = self.lock();
        Self::check_size(name, store.size_bytes(), state.block_bytes)?;
        let id = state.place_volume(Volume {
            costs: Some(Box::default()),
            latencies: Some(Arc::default()),
            store_latencies: Some(Arc::default()),
            ..Volume::new(name, store, class)
        })?;
        state.keep_volume(id);
        Ok(id)
    }

    /// Names the classes that stores can belong to, from number 1 on ([`Class::of_store`]). Reports
    /// then use these names.
    pub fn name_classes(&self, names: &[String]) {
        self.lock().class_names = names.to_vec();
    }

    /// The names given to [`name_classes`](Self::name_classes).
    pub fn class_names(&self) -> Vec<String> {
        self.lock().class_names.clone()
    }

    /// The number of volumes.
    pub fn volume_count(&self) -> usize {
        let state = self.lock();
        state.volumes.len() - state.free_volumes.len()
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Bytes of memory that a read of these bytes may take until it is answered. Missing blocks are read whole, unless they are
    /// large. If every second one is resident, each of the others is read into a buffer of its own. The answer is assembled
    /// beside them; a long one takes memory only as it is filled. No more than `most` bytes count, unless the range itself
    /// is longer.
    pub fn memory_of_read(&self, offset: u64, length: u64, most: u64) -> u64 {
        let is_small = self.block_bytes <= PIECE_BYTES;
        let unit = if is_small { self.block_bytes } else { 1 };
        let end = offset.saturating_add(length).div_ceil(unit);
        let blocks_bytes = end.saturating_mul(unit) - offset / unit * unit;
        let answer_bytes = IoBuf::memory_bytes(length);
        let read_bytes = IoBuf::memory_bytes(blocks_bytes);
        let beside_bytes = if blocks_bytes <= self.block_bytes {
            0
        } else if IoBuf::is_on_heap(length) {
            answer_bytes
        } else {
            let gap_bytes = IoBuf::memory_bytes(unit) - unit.next_multiple_of(PAGE_BYTES);
            blocks_bytes / unit / 2 * gap_bytes
        };
        (read_bytes + beside_bytes).min(answer_bytes.max(most))
    }

    /// The name of a volume; empty if no volume has this number.
    pub fn volume_name(&self, volume: VolumeId) -> String {
        name_in(&self.lock().volumes, volume)
    }

    /// The histogram in which front ends record the latencies of requests for a volume; reports
    /// include it. Growing volumes have one together ([`tree_latencies`](Self::tree_latencies)).
    pub fn latencies(&self, volume: VolumeId) -> Arc<Latencies> {
        let state = self.lock();
        let known = state.volumes.get(usize::from(volume.0));
        known
            .and_then(|known| known.latencies.clone())
            .unwrap_or_default()
    }

    /// The histogram of the latencies of requests for all growing volumes.
    pub fn tree_latencies(&self) -> Arc<Latencies> {
        Arc::clone(&self.lock().tree_latencies.requests)
    }

    /// Size of a volume in bytes.
    pub fn volume_bytes(&self, volume: VolumeId) -> u64 {
        self.lock().volumes[usize::from(volume.0)].size_bytes
    }

    /// The identity of a volume, constant over restarts, if its store can tell
    /// ([`Store::identity`]).
    pub fn volume_identity(&self, volume: VolumeId) -> Option<[u8; 16]> {
        let store = self.lock().store(volume);
        store.identity()
    }

    /// Whether writes to a volume are refused.
    pub fn is_read_only(&self, volume: VolumeId) -> bool {
        self.lock().volumes[usize::from(volume.0)]
            .store
            .is_read_only()
    }

    /// Whether a volume's store can carry out TRIM.
    pub fn takes_trims(&self, volume: VolumeId) -> bool {
        let store = self.lock().store(volume);
        store.takes_trims()
    }

    /// Registers a client and returns its identity. The caller calls [`leave`](Self::leave) when
    /// the client disconnects.
    pub fn join(&self, volume: VolumeId) -> ClientId {
        self.look_before_joining(volume);
        self.lock().join(volume)
    }

    /// An identity for a client that never demotes. It does not register, so no write is remembered for its sake.
    pub fn identify(&self) -> ClientId {
        self.lock().new_client()
    }

    /// Unregisters a client.
    pub fn leave(&self, volume: VolumeId, client: ClientId) {
        let mut state = self.lock();
        let known = &mut state.volumes[usize::from(volume.0)];
        known.demotion_guard.leave(client);
        known.losses.leave(client);
        drop(state);
        self.note_unused(volume);
    }

    /// Starts a request.
    pub fn submit(self: &Arc<Self>, mut request: Request) {
        request.operation = self.hashed(request.operation);
        self.act(|state, effects| state.begin(request, effects));
    }

    /// Starts several requests, decided in their order under one acquisition of the lock.
    pub fn submit_batch(self: &Arc<Self>, requests: &mut Vec<Request>) {
        if self.verifies_demotions() {
            for request in requests.iter_mut() {
                let operation = std::mem::replace(&mut request.operation, Operation::Flush);
                request.operation = self.hashed(operation);
            }
        }
        self.act(|state, effects| {
            for request in requests.drain(..) {
                state.begin_in_turn(request, effects);
            }
        });
    }

    /// The extents of a range: data and holes. Blocks until the store answers;
    /// [`extents_later`](Self::extents_later) does not.
    pub fn extents(
        &self,
        volume: VolumeId,
        offset: u64,
        length: u64,
    ) -> Result<Vec<Extent>, IoError> {
        // Dirty blocks count as data, whatever the store reports. The store is asked afterwards, so
        // blocks that it receives meanwhile are in its own answer.
        let store = self.lock().store(volume);
        let end = offset.saturating_add(length).div_ceil(self.block_bytes);
        let (mut next, mut dirty) = (Some(offset / self.block_bytes), Vec::new());
        while let Some(from) = next {
            next =
                self.quiet_step(|state| state.note_dirty_ranges(volume, (from, end), &mut dirty));
            self.state.give_way();
        }
        let extents = store.extents(offset, length)?;
        Ok(extents::with_data(&extents, offset, &dirty))
    }

    /// Number of dirty blocks.
    pub fn dirty_blocks(&self) -> u64 {
        let state = self.lock();
        state
            .write_back
            .as_ref()
            .map_or(0, |known| known.dirty_blocks)
    }

    /// Whether the cache is in write-back mode.
    pub fn writes_back(&self) -> bool {
        self.lock().writes_back()
    }

    /// Whether a volume has dirty blocks, or had a failed write-back that no flush has reported.
    pub fn has_dirty(&self, volume: VolumeId) -> bool {
        let state = self.lock();
        let known = state.volumes.get(usize::from(volume.0));
        known.is_some_and(|known| known.dirt.len() > 0 || known.dirt.error.is_some())
    }

    /// Reads the clock, and starts write-backs of blocks that have been dirty for too long.
    pub fn tick(self: &Arc<Self>) {
        let now = self.world.now();
        self.act(|state, effects| {
            state.age_marks(now, effects);
            state.weigh(now);
        });
        while !self.act(|state, _| state.age_dirty(now)) {
            self.state.give_way();
        }
        self.tick_memory(now);
        self.note_all_unused();
    }

    /// Starts the clock thread, which runs until the engine is dropped, if anything depends on the
    /// time and the thread does not run yet.
    pub(super) fn see_to_clock(self: &Arc<Self>) -> Result<(), SetupError> {
        let (is_weighed, is_kept) = {
            let state = self.lock();
            (!state.level.weights().is_empty(), state.kept.is_some())
        };
        let is_timed = self.write_back.is_some() || is_weighed || is_kept || self.has_unnoted();
        if !is_timed || !self.world.has_clock_threads() {
            return Ok(());
        }
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(is_gone) = clock.take() else {
            return Ok(());
        };
        let mut pause = self.tick_pause();
        let engine = Arc::downgrade(self);
        let work = move || {
            while let Err(mpsc::RecvTimeoutError::Timeout) = is_gone.recv_timeout(pause) {
                if let Some(engine) = engine.upgrade() {
                    engine.tick();
                    pause = engine.tick_pause();
                }
            }
        };
        let thread = std::thread::Builder::new().name("futae-clock".into());
        thread.spawn(work).map(drop).map_err(SetupError::Thread)
    }

    fn tick_pause(&self) -> Duration {
        let how = self.write_back.as_ref();
        let pause = how.map_or(TICK_MAX, |how| how.dirty_age_max / 4);
        let most = if self.lock().kept.is_some() {
            TICK_KEPT_MAX
        } else {
            TICK_MAX
        };
        pause.clamp(TICK_MIN, most)
    }

    /// Prepares a shrink to `capacity_blocks`: writes back until the number of dirty blocks is
    /// within the limit of the smaller cache, so that evicted blocks need not be kept beside the
    /// cache. Returns early when no progress has been made for `timeout`.
    pub fn prepare_shrink(self: &Arc<Self>, capacity_blocks: u32, timeout: Duration) {
        let (mut dirty, mut moved) = (u64::MAX, Instant::now());
        loop {
            let left = self.act(|state, _| state.shrink_dirty(capacity_blocks));
            if left == 0 || left == dirty && moved.elapsed() > timeout {
                return;
            }
            if left != dirty {
                (dirty, moved) = (left, Instant::now());
            }
            std::thread::sleep(TICK_MIN);
        }
    }

    /// Number of store reads under way, for any purpose. A reader that reads ahead of demand stays
    /// within it.
    pub fn reads_under_way(&self) -> usize {
        self.lock().under_way.flights.len()
    }

    /// Bytes of the buffers that the engine holds for work under way: reads from stores (for
    /// notices too), requests that wait for several of them, and write-backs. Does not take the
    /// lock.
    pub fn buffer_bytes(&self) -> u64 {
        self.account.held()
    }

    /// Begins the loads that the policy wants before the first request.
    pub fn begin_loading(self: &Arc<Self>) {
        self.act(|_, _| ());
    }

    /// A snapshot of the counters.
    pub fn status(&self) -> EngineStatus {
        self.lock().status()
    }

    /// Submits any operation and waits for its result. For tests and tools.
    pub fn wait(
        self: &Arc<Self>,
        volume: VolumeId,
        client: ClientId,
        operation: Operation,
    ) -> Result<IoBuf, IoError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let done = Box::new(move |result| drop(sender.send(result)));
        self.submit(Request {
            volume,
            client,
            sequence: 0,
            operation,
            done,
        });
        let lost = || IoError::new(IoErrorKind::Shutdown, "the store went away unanswered");
        receiver.recv().unwrap_or_else(|_| Err(lost()))
    }

    /// Reads and waits. For tests and tools.
    pub fn read_blocking(
        self: &Arc<Self>,
        volume: VolumeId,
        client: ClientId,
        offset: u64,
        length: u64,
    ) -> Result<IoBuf, IoError> {
        self.wait(volume, client, Operation::Read { offset, length })
    }

    /// Flushes the decision log to its file.
    pub fn sync_log(&self) {
        if let Some(log) = &mut self.lock().log {
            log.sync();
        }
    }

    /// Panics unless the level, the frames and the work under way are consistent. For tests.
    pub fn audit(&self) {
        self.lock().audit();
    }
}
