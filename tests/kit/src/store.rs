//! A store in memory, with a thread of its own, that fails or stalls on command.

use crate::wait::eventually;
use futae_engine::{
    Extent, IoBuf, IoError, IoErrorKind, Store, StoreDone, StoreOperation, StoreResult,
};
use futae_policy::Prng;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// An operation that reached the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// A read of these bytes.
    Read(Range<u64>),
    /// A write of these bytes, and whether it was to be stable.
    Write(Range<u64>, bool),
    /// A flush.
    Flush,
    /// A trim of these bytes.
    Trim(Range<u64>),
    /// Zeroes in these bytes, whether they must not become a hole, and whether they were to be stable.
    WriteZeroes(Range<u64>, bool, bool),
}

#[derive(Default)]
struct State {
    data: Vec<u8>,
    holes: Vec<bool>,
    events: Vec<StoreEvent>,
    fail_reads: bool,
    fail_writes: bool,
    full: bool,
    hold_reads: Option<Range<u64>>,
    hold_writes: bool,
    hold_flushes: bool,
    questions: usize,
    hold_questions: bool,
    shuffle: bool,
    held: Vec<(StoreOperation, StoreDone)>,
}

/// Bytes in memory as a store.
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    queue: Mutex<Sender<(StoreOperation, StoreDone)>>,
    size: u64,
    read_only: bool,
}

const SECTOR: usize = 4096;

impl MemoryStore {
    /// A store with this content.
    #[must_use]
    pub fn new(content: Vec<u8>) -> Arc<Self> {
        Self::build(content, false)
    }

    /// A store with this content that takes no writes.
    #[must_use]
    pub fn read_only(content: Vec<u8>) -> Arc<Self> {
        Self::build(content, true)
    }

    fn build(content: Vec<u8>, read_only: bool) -> Arc<Self> {
        let size = content.len() as u64;
        let holes = content
            .chunks(SECTOR)
            .map(|sector| sector.iter().all(|&b| b == 0))
            .collect();
        let state = Arc::new(Mutex::new(State {
            data: content,
            holes,
            ..State::default()
        }));
        let (queue, incoming) = channel::<(StoreOperation, StoreDone)>();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || work(&incoming, &shared));
        Arc::new(Self {
            state,
            queue: Mutex::new(queue),
            size,
            read_only,
        })
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().expect("state"))
    }

    /// What it holds.
    #[must_use]
    pub fn content(&self) -> Vec<u8> {
        self.with(|state| state.data.clone())
    }

    /// Changes the content behind the cache's back.
    pub fn overwrite(&self, offset: u64, bytes: &[u8]) {
        let at = offset as usize;
        self.with(|state| state.data[at..at + bytes.len()].copy_from_slice(bytes));
    }

    /// Everything that reached it, in order.
    #[must_use]
    pub fn events(&self) -> Vec<StoreEvent> {
        self.with(|state| state.events.clone())
    }

    /// How many of these reached it.
    pub fn count(&self, wanted: impl Fn(&StoreEvent) -> bool) -> usize {
        self.with(|state| state.events.iter().filter(|event| wanted(event)).count())
    }

    /// Reads that reached it.
    #[must_use]
    pub fn reads(&self) -> usize {
        self.count(|event| matches!(event, StoreEvent::Read(_)))
    }

    /// Changes that reached it after the last flush, but for those that were to be stable.
    #[must_use]
    pub fn unflushed(&self) -> usize {
        let is_unstable = |event: &&StoreEvent| {
            matches!(
                event,
                StoreEvent::Write(_, false) | StoreEvent::WriteZeroes(_, _, false)
            )
        };
        self.with(|state| {
            let after = state.events.rsplit(|event| *event == StoreEvent::Flush);
            after.take(1).flatten().filter(is_unstable).count()
        })
    }

    /// Flushes, and writes that were to be stable.
    #[must_use]
    pub fn stable(&self) -> usize {
        self.count(|event| matches!(event, StoreEvent::Flush | StoreEvent::Write(_, true)))
    }

    /// Whether everything fails from now on.
    pub fn fail(&self, fail: bool) {
        self.fail_reads(fail);
        self.fail_writes(fail);
    }

    /// Whether reads fail from now on.
    pub fn fail_reads(&self, fail: bool) {
        self.with(|state| state.fail_reads = fail);
    }

    /// Whether writes, flushes and other changes fail from now on.
    pub fn fail_writes(&self, fail: bool) {
        self.with(|state| state.fail_writes = fail);
    }

    /// Whether there is no space for any change from now on.
    pub fn fill_up(&self, full: bool) {
        self.with(|state| state.full = full);
    }

    /// Reads that touch the range wait for [`Self::release`].
    pub fn hold_reads(&self, range: Range<u64>) {
        self.with(|state| state.hold_reads = Some(range));
    }

    /// Flushes wait for [`Self::release`].
    pub fn hold_flushes(&self) {
        self.with(|state| state.hold_flushes = true);
    }

    /// Changes wait for [`Self::release`].
    pub fn hold_writes(&self) {
        self.with(|state| state.hold_writes = true);
    }

    /// Carries operations out in any order and after any time, as a disk may.
    pub fn shuffle(&self) {
        self.with(|state| state.shuffle = true);
    }

    /// Questions for extents wait until this is said again with `false`.
    pub fn hold_questions(&self, hold: bool) {
        self.with(|state| state.hold_questions = hold);
    }

    /// Questions for extents that came.
    #[must_use]
    pub fn questions(&self) -> usize {
        self.with(|state| state.questions)
    }

    /// Operations that wait for [`Self::release`].
    #[must_use]
    pub fn held(&self) -> usize {
        self.with(|state| state.held.len())
    }

    /// Lets everything that waits go on.
    pub fn release(&self) {
        let held = self.with(|state| {
            (state.hold_reads, state.hold_writes) = (None, false);
            state.hold_flushes = false;
            std::mem::take(&mut state.held)
        });
        for waiting in held {
            self.queue
                .lock()
                .expect("queue")
                .send(waiting)
                .expect("the thread lives");
        }
    }
}

/// Carries out what comes, in order, or with [`MemoryStore::shuffle`] in any order.
fn work(incoming: &Receiver<(StoreOperation, StoreDone)>, shared: &Mutex<State>) {
    let mut waiting = Vec::new();
    let mut prng = Prng::new(1);
    while let Ok(first) = incoming.recv() {
        waiting.push(first);
        while !waiting.is_empty() {
            waiting.extend(incoming.try_iter());
            let mut state = shared.lock().expect("state");
            let among = if state.shuffle {
                waiting.len() as u64
            } else {
                1
            };
            let (operation, done) = waiting.remove(prng.below(among) as usize);
            let ready = state.carry_out(operation, done);
            let slow = state.shuffle && prng.below(4) == 0;
            drop(state);
            if slow {
                std::thread::sleep(Duration::from_micros(prng.below(300)));
            }
            if let Some((result, done)) = ready {
                done(result);
            }
        }
    }
}

fn failed(kind: IoErrorKind, what: &str) -> StoreResult {
    Err(IoError::new(
        kind,
        format!("the test's store: {what} fails as told"),
    ))
}

impl State {
    fn carry_out(
        &mut self,
        operation: StoreOperation,
        done: StoreDone,
    ) -> Option<(StoreResult, StoreDone)> {
        if self.holds(&operation) {
            self.held.push((operation, done));
            return None;
        }
        Some((self.result(operation), done))
    }

    fn holds(&self, operation: &StoreOperation) -> bool {
        match operation {
            StoreOperation::Read { offset, buffer } => {
                self.hold_reads.as_ref().is_some_and(|held| {
                    *offset < held.end && held.start < offset + buffer.len() as u64
                })
            }
            StoreOperation::Flush => self.hold_flushes,
            _ => self.hold_writes,
        }
    }

    fn result(&mut self, operation: StoreOperation) -> StoreResult {
        match operation {
            StoreOperation::Read { offset, mut buffer } => {
                let range = offset..offset + buffer.len() as u64;
                self.events.push(StoreEvent::Read(range.clone()));
                if self.fail_reads {
                    return failed(IoErrorKind::Store, "a read");
                }
                let from = &self.data[range.start as usize..range.end as usize];
                buffer.as_mut_slice().copy_from_slice(from);
                Ok(buffer)
            }
            StoreOperation::Write {
                offset,
                buffer,
                fua,
            } => {
                let range = offset..offset + buffer.len() as u64;
                self.events.push(StoreEvent::Write(range.clone(), fua));
                self.change(range, |to| to.copy_from_slice(buffer.as_slice()), false)?;
                Ok(buffer)
            }
            StoreOperation::Flush => {
                self.events.push(StoreEvent::Flush);
                if self.fail_writes {
                    return failed(IoErrorKind::Store, "a flush");
                }
                Ok(IoBuf::new(0))
            }
            StoreOperation::Trim { offset, length } => {
                self.events.push(StoreEvent::Trim(offset..offset + length));
                self.change(offset..offset + length, |to| to.fill(0), true)
            }
            StoreOperation::WriteZeroes {
                offset,
                length,
                no_hole,
                fua,
            } => {
                let range = offset..offset + length;
                self.events
                    .push(StoreEvent::WriteZeroes(range, no_hole, fua));
                self.change(offset..offset + length, |to| to.fill(0), !no_hole)
            }
        }
    }

    fn change(
        &mut self,
        range: Range<u64>,
        apply: impl FnOnce(&mut [u8]),
        hole: bool,
    ) -> StoreResult {
        if self.full {
            return failed(IoErrorKind::NoSpace, "a write without space left");
        }
        if self.fail_writes {
            return failed(IoErrorKind::Store, "a write");
        }
        let (start, end) = (range.start as usize, range.end as usize);
        apply(&mut self.data[start..end]);
        if hole {
            self.holes[start.div_ceil(SECTOR)..(end / SECTOR).max(start.div_ceil(SECTOR))]
                .fill(true);
        } else {
            self.holes[start / SECTOR..end.div_ceil(SECTOR)].fill(false);
        }
        Ok(IoBuf::new(0))
    }
}

impl Store for MemoryStore {
    fn size_bytes(&self) -> u64 {
        self.size
    }

    fn describe(&self) -> String {
        "memory of a test".into()
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn submit(&self, _sequence: u64, operation: StoreOperation, done: StoreDone) {
        self.queue
            .lock()
            .expect("queue")
            .send((operation, done))
            .expect("the thread lives");
    }

    fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>, IoError> {
        self.with(|state| state.questions += 1);
        eventually("questions are no longer held", || {
            self.with(|state| !state.hold_questions)
        });
        let end = offset + length;
        let (mut at, mut extents) = (offset, Vec::new());
        self.with(|state| {
            while at < end {
                let sector = at as usize / SECTOR;
                let next = ((sector as u64 + 1) * SECTOR as u64).min(end);
                extents.push(Extent {
                    length: next - at,
                    hole: state.holes[sector],
                });
                at = next;
            }
        });
        Ok(extents)
    }
}
