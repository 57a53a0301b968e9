//! The thread of one started queue: it passes requests from the available ring to the cache, and results to the used ring.
//!
//! A round puts completed requests into the used ring and passes available ones to the cache, in one batch. When both are empty,
//! the thread polls for a moment if requests have followed closely, and then sleeps.

mod sleep;

use crate::call::Call;
use crate::chain::{Segment, scatter};
use crate::claim::{Claim, RingPlace};
use crate::control::Control;
use crate::device::{Device, REQUEST_BYTES_MAX};
use crate::dirty_log::UsedRingLog;
use crate::inflight::QueueInflight;
use crate::mailbox::Completion;
use crate::memory::Memory;
use crate::request::{self, Action, IO_ERROR, Status};
use crate::room::Room;
use crate::slot::{Slot, asked};
use crate::submit::{Filled, Submitter};
use crate::traffic::Traffic;
use futae_engine::{Asked, Ended, IoBuf, JoinedClient, LatencyNotes, Operation, STATE_BYTES};
use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};
use tracing::warn;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestAddressSpace, GuestMemoryMmap};

/// How long to poll for the next request before sleeping.
const LOOK_BEFORE_SLEEP: Duration = Duration::from_micros(50);
/// If a request comes within this time of the one before it, the next one is expected to do so, too.
const CLOSE: Duration = Duration::from_micros(150);
/// The largest number of requests taken before completed ones are put into the used ring.
const BATCH_MAX: usize = 64;

/// The parameters of a thread.
pub(crate) struct Start {
    pub(crate) index: usize,
    /// The ring that no other thread may serve meanwhile.
    pub(crate) place: Option<RingPlace>,
    pub(crate) device: Device,
    pub(crate) disk: Arc<JoinedClient>,
    pub(crate) memory: Memory,
    pub(crate) queue: Queue,
    pub(crate) inflight: Option<QueueInflight>,
    pub(crate) used_log: UsedRingLog,
    pub(crate) kick: Arc<File>,
    pub(crate) call: Arc<Call>,
    pub(crate) error: Arc<Call>,
    pub(crate) control: Arc<Control>,
    pub(crate) room: Box<dyn Room>,
    /// Whether a change is on stable storage before it is answered: the driver cannot flush.
    pub(crate) writes_through: bool,
    pub(crate) traffic: Arc<Traffic>,
}

/// The queue is broken: the device takes nothing more from it.
#[derive(Debug)]
struct Broken(String);

/// The thread's state.
pub(crate) struct Worker {
    start: Start,
    submitter: Submitter,
    slots: Vec<Slot>,
    /// Requests that an earlier server began.
    again: VecDeque<u16>,
    /// Number of requests in the cache.
    in_flight: usize,
    is_held_back: bool,
    is_broken: bool,
    /// The used ring has new entries, of which the guest is not notified yet.
    must_notify: bool,
    /// Reads that were answered in place.
    filled: Vec<Filled>,
    latencies: LatencyNotes,
    /// The arrival time of the requests that are being taken or answered.
    now: Instant,
}

impl Worker {
    /// A thread that has not begun; `None` if the ring is not in guest memory.
    pub(crate) fn new(start: Start) -> Option<Self> {
        let memory = start.memory.memory();
        if !start.queue.is_valid(&*memory) {
            return None;
        }
        start.queue.used_idx(&*memory, Acquire).ok()?;
        let now = Instant::now();
        let slots = (0..start.queue.size()).map(|_| Slot::new(now)).collect();
        let device = &start.device;
        Some(Self {
            latencies: LatencyNotes::new(device.engine.latencies(device.volume)),
            now,
            submitter: Submitter::new(&start.disk, &start.control.mailbox),
            slots,
            again: VecDeque::new(),
            in_flight: 0,
            is_held_back: false,
            is_broken: false,
            must_notify: false,
            filled: Vec::new(),
            start,
        })
    }

    /// Continues at the index of the used ring, with the requests that an earlier server began.
    pub(crate) fn recover(&mut self) {
        let used = {
            let memory = self.start.memory.memory();
            self.start.queue.used_idx(&*memory, Acquire)
        };
        let used = match used {
            Ok(used) => used.0,
            Err(error) => return self.give_up(&error.to_string()),
        };
        self.start.queue.set_next_used(used);
        // Without a record, the frontend has given the index that the used ring had when it connected. If requests of an
        // earlier connection were answered since then, they are done, and every request before them, too.
        let answered = used.wrapping_sub(self.start.queue.next_avail());
        if (1..=self.start.queue.size()).contains(&answered) {
            self.start.queue.set_next_avail(used);
        }
        if let Some(inflight) = &mut self.start.inflight {
            let recovered = inflight.recover(used);
            self.again = recovered.heads.into();
            if let Some(next) = recovered.next_available {
                self.start.queue.set_next_avail(next);
            }
        }
    }

    /// Serves until asked to stop and no request is under way. Returns the index in the available ring.
    pub(crate) fn run(mut self) -> u16 {
        // The session of an earlier connection may still have requests of this ring under way.
        let control = Arc::clone(&self.start.control);
        let claim = self
            .start
            .place
            .map(|place| Claim::obtain(place, || control.must_stop()));
        if matches!(claim, Some(None)) {
            return self.start.queue.next_avail();
        }
        self.recover();
        let (mut idle_since, mut follows_closely) = (None::<Instant>, false);
        // An earlier server may have died between a write to the used ring and its mark, or before the notification.
        self.start.used_log.mark_all();
        self.start.call.ring();
        loop {
            let has_worked = self.round();
            if has_worked {
                if let Some(since) = idle_since.take() {
                    follows_closely = since.elapsed() < CLOSE;
                }
                continue;
            }
            let is_done = self.in_flight == 0 && (self.again.is_empty() || self.is_broken);
            if is_done && self.start.control.must_stop() {
                return self.start.queue.next_avail();
            }
            let since = *idle_since.get_or_insert_with(Instant::now);
            if follows_closely && since.elapsed() < LOOK_BEFORE_SLEEP {
                std::thread::yield_now();
            } else {
                self.sleep();
            }
        }
    }

    /// Runs one round. Returns whether it did anything.
    pub(crate) fn round(&mut self) -> bool {
        let memory = self.start.memory.clone();
        let memory = memory.memory();
        let collected = self.collect(&memory);
        let taken = self.take(&memory).unwrap_or_else(|broken| {
            self.give_up(&broken.0);
            true
        });
        self.submit(&memory);
        self.latencies.hand_on();
        self.notify(&memory);
        collected || taken
    }

    /// Passes the taken requests to the cache, and answers those that it completes in place.
    fn submit(&mut self, memory: &GuestMemoryMmap) {
        let mut filled = std::mem::take(&mut self.filled);
        let slots = &self.slots;
        let copy = |head: u16, from: usize, bytes: &[u8]| {
            let segments = &slots[usize::from(head)].chain.writable;
            scatter(memory, segments, from as u64, bytes)
        };
        if self.submitter.submit(copy, &mut filled) {
            self.start.traffic.batches.fetch_add(1, Relaxed);
        }
        if !filled.is_empty() {
            self.now = Instant::now();
        }
        for read in filled.drain(..) {
            self.slots[usize::from(read.head)].is_hit = true;
            let segments = &self.slots[usize::from(read.head)].chain.writable;
            let length = self.mark_written(segments);
            let outcome = if read.is_whole {
                Ok(length)
            } else {
                Err(IO_ERROR)
            };
            if let Err(broken) = self.end_part(memory, read.head, outcome) {
                self.give_up(&broken.0);
            }
        }
        self.filled = filled;
    }

    /// The number of requests under way, and whether the queue is broken by a violation of the guest.
    #[cfg(feature = "fuzz")]
    pub(crate) fn under_way(&self) -> (usize, bool) {
        (self.in_flight, self.is_broken)
    }

    fn give_up(&mut self, why: &str) {
        if !std::mem::replace(&mut self.is_broken, true) {
            let index = self.start.index;
            warn!(queue = index, "a guest's queue {index} is stopped: {why}");
            self.start.error.ring();
        }
    }

    fn notify(&mut self, memory: &GuestMemoryMmap) {
        if !std::mem::take(&mut self.must_notify) {
            return;
        }
        // If the guest's setting cannot be read, an unnecessary notification is harmless.
        if self.start.queue.needs_notification(memory).unwrap_or(true) {
            self.start.traffic.notifications.fetch_add(1, Relaxed);
            self.start.call.ring();
        }
    }

    /// Takes available requests. Returns whether there were any.
    fn take(&mut self, memory: &GuestMemoryMmap) -> Result<bool, Broken> {
        self.is_held_back = false;
        let mut taken = 0;
        while taken < BATCH_MAX && !self.is_broken {
            let (head, is_again) = match self.again.front() {
                Some(&head) => (head, true),
                None if self.start.control.must_stop() => break,
                None => match self.next(memory)? {
                    Some(head) => (head, false),
                    None => break,
                },
            };
            if taken == 0 {
                self.now = Instant::now();
            }
            if !self.begin(memory, head)? {
                if !is_again {
                    self.start.queue.go_to_previous_position();
                }
                self.is_held_back = true;
                break;
            }
            if is_again {
                self.again.pop_front();
            }
            taken += 1;
        }
        if !self.is_held_back {
            self.start.room.withdraw();
        }
        self.start.traffic.requests.fetch_add(taken as u64, Relaxed);
        Ok(taken > 0)
    }

    fn next(&mut self, memory: &GuestMemoryMmap) -> Result<Option<u16>, Broken> {
        let available = self.start.queue.iter(memory);
        let mut available = available.map_err(|error| Broken(error.to_string()))?;
        Ok(available.next().map(|chain| chain.head_index()))
    }

    /// Begins one request; `false` if there is no room for it now.
    fn begin(&mut self, memory: &GuestMemoryMmap, head: u16) -> Result<bool, Broken> {
        let table = GuestAddress(self.start.queue.desc_table());
        let size = self.start.queue.size();
        let Some(slot) = self.slots.get_mut(usize::from(head)) else {
            return Err(Broken(format!("descriptor {head} of {size} is available")));
        };
        if slot.parts > 0 {
            return Err(Broken(format!("descriptor {head} is available twice")));
        }
        let read = slot.chain.read(memory, table, size, head);
        read.map_err(|error| Broken(error.to_string()))?;
        let Some(status_at) = request::split_status(&mut slot.chain) else {
            return Err(Broken("a request has no byte for its status".to_owned()));
        };
        let action = request::read(memory, &slot.chain, &self.start.device);
        let engine = &self.start.device.engine;
        (slot.carried_bytes, slot.held_bytes) = match action {
            Ok(Action::Read { offset, length }) => (
                length,
                engine.memory_of_read(offset, length, REQUEST_BYTES_MAX),
            ),
            Ok(Action::Write { length, .. }) => (length, IoBuf::memory_bytes(length)),
            _ => (0, 0),
        };
        let operations = match action {
            Ok(Action::Ranges { count, .. }) => u64::from(count),
            _ => 1,
        };
        slot.held_bytes += operations * STATE_BYTES + slot.chain.long_bytes();
        let room = &mut self.start.room;
        if !room.take(slot.carried_bytes, slot.held_bytes) {
            return Ok(false);
        }
        (slot.status_at, slot.error, slot.is_hit) = (status_at, None, false);
        slot.then_flush = false;
        (slot.asked, slot.taken) = (asked(action.as_ref()), self.now);
        if let Some(inflight) = &mut self.start.inflight {
            inflight.begin(head);
        }
        match action.and_then(|action| self.carry_out(memory, head, action)) {
            Ok(parts) if parts > 0 => {
                self.slots[usize::from(head)].parts = parts;
                self.in_flight += 1;
            }
            Ok(_) => self.finish(memory, head, Ok(0))?,
            Err(status) => {
                self.start.traffic.refused.fetch_add(1, Relaxed);
                self.finish(memory, head, Err(status))?;
            }
        }
        Ok(true)
    }

    /// Passes a request's operations to the cache. Returns their number.
    fn carry_out(
        &mut self,
        memory: &GuestMemoryMmap,
        head: u16,
        action: Action,
    ) -> Result<u32, Status> {
        let chain = &self.slots[usize::from(head)].chain;
        let operation = match action {
            Action::Read { offset, length } => Operation::Read { offset, length },
            Action::Write { offset, length } => Operation::Write {
                offset,
                data: request::payload(memory, &chain.readable, length)?,
                fua: self.start.writes_through,
            },
            Action::Flush => Operation::Flush,
            Action::Ranges { count, discards } => {
                let device = &self.start.device;
                let readable = &chain.readable;
                let fua = self.start.writes_through;
                let operations = request::ranges(memory, readable, device, (count, discards), fua)?;
                // A discard cannot be told to be durable by itself.
                self.slots[usize::from(head)].then_flush = fua && discards;
                let count = operations.len() as u32;
                for operation in operations {
                    self.submitter.add(head, operation);
                }
                return Ok(count);
            }
            Action::Id => {
                let id = self.start.device.id();
                return self.hand_over(memory, head, &id).map(|()| 0);
            }
        };
        self.submitter.add(head, operation);
        Ok(1)
    }

    /// Copies data to the writable memory of a request.
    fn hand_over(&self, memory: &GuestMemoryMmap, head: u16, data: &[u8]) -> Result<(), Status> {
        let segments = &self.slots[usize::from(head)].chain.writable;
        let is_whole = scatter(memory, segments, 0, data);
        self.mark_written(segments);
        if is_whole { Ok(()) } else { Err(IO_ERROR) }
    }

    /// Marks written segments in the dirty log. Returns their bytes.
    fn mark_written(&self, segments: &[Segment]) -> u32 {
        let mut bytes = 0u32;
        for segment in segments {
            let length = u64::from(segment.length);
            self.start.used_log.log.mark(segment.address.0, length);
            bytes = bytes.saturating_add(segment.length);
        }
        bytes
    }

    /// Answers completed requests. Returns whether there were any.
    fn collect(&mut self, memory: &GuestMemoryMmap) -> bool {
        if self.in_flight == 0 {
            return false;
        }
        let mut completions = self.submitter.completions();
        let any = !completions.is_empty();
        if any {
            self.now = Instant::now();
        }
        for completion in completions.drain(..) {
            if let Err(broken) = self.complete(memory, completion) {
                self.give_up(&broken.0);
            }
        }
        self.submitter.recycle(completions);
        any
    }

    fn complete(&mut self, memory: &GuestMemoryMmap, done: Completion) -> Result<(), Broken> {
        let slot = &self.slots[usize::from(done.head)];
        let outcome = match done.result {
            Ok(data) if slot.asked == Asked::Read => {
                let length = data.as_slice().len();
                let handed = self.hand_over(memory, done.head, data.as_slice());
                handed.map(|()| length as u32)
            }
            Ok(_) => Ok(0),
            Err(error) => Err(error.kind.into()),
        };
        self.end_part(memory, done.head, outcome)
    }

    /// An operation of a request has ended; after the last one the request is answered.
    fn end_part(
        &mut self,
        memory: &GuestMemoryMmap,
        head: u16,
        outcome: Result<u32, Status>,
    ) -> Result<(), Broken> {
        let slot = &mut self.slots[usize::from(head)];
        slot.parts = slot.parts.saturating_sub(1);
        if let Err(status) = outcome {
            slot.error.get_or_insert(status);
        }
        if slot.parts > 0 {
            return Ok(());
        }
        if std::mem::take(&mut slot.then_flush) && slot.error.is_none() {
            slot.parts = 1;
            self.submitter.add(head, Operation::Flush);
            return Ok(());
        }
        self.in_flight -= 1;
        let outcome = slot.error.map_or(outcome, Err);
        self.finish(memory, head, outcome)
    }

    /// Answers a request, for which this many bytes of guest memory were written beside the status.
    fn finish(
        &mut self,
        memory: &GuestMemoryMmap,
        head: u16,
        outcome: Result<u32, Status>,
    ) -> Result<(), Broken> {
        let slot = &mut self.slots[usize::from(head)];
        slot.chain.free_long();
        let took = self.now.saturating_duration_since(slot.taken);
        self.latencies.note(slot.asked, took, 1);
        if let Some(watcher) = self.latencies.watcher() {
            watcher.ended(&Ended {
                kind: slot.asked.name(),
                requests: 1,
                bytes: slot.carried_bytes,
                hit: (slot.asked == Asked::Read).then_some(slot.is_hit),
                failed: outcome.is_err(),
                took,
            });
        }
        let status = outcome.err().map_or(0, |status| status.0);
        let wrote_status = memory.write_slice(&[status], slot.status_at);
        self.start.used_log.log.mark(slot.status_at.0, 1);
        if let Some(inflight) = &self.start.inflight {
            inflight.end(head);
        }
        let written = outcome.unwrap_or(0).saturating_add(1);
        let added = self.start.queue.add_used(memory, head, written);
        if let Some(inflight) = &self.start.inflight {
            inflight.ended(head, self.start.queue.next_used());
        }
        self.start.used_log.mark_entry(self.start.queue.next_used());
        self.start.room.give_back(slot.held_bytes);
        self.start.traffic.replies.fetch_add(1, Relaxed);
        self.must_notify = true;
        wrote_status.map_err(|error| Broken(error.to_string()))?;
        added.map_err(|error| Broken(error.to_string()))
    }
}
