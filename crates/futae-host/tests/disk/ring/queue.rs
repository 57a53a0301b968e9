//! One queue, from the guest's side.

use super::place::{Area, DATA_BYTES, Descriptor, NEXT, SLOTS, WRITE};
use super::{Wish, event};
use futae_testkit::wait::obtain;
use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;

/// The device does not want to be notified, where it does not say at which index.
const NO_NOTIFY: u16 = 1;
/// A status byte before the device has written it.
const UNANSWERED: u8 = 0xFF;

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Of which slot.
    pub slot: u16,
    /// Its status: 0 done, 1 failed, 2 unknown to the device.
    pub status: u8,
    /// Bytes that the device says it wrote, the status among them.
    pub written: u32,
    /// What is in its memory for data.
    pub data: Vec<u8>,
}

/// One queue.
pub struct Queue {
    memory: GuestMemoryMmap,
    area: Area,
    size: u16,
    event_index: bool,
    available: u16,
    /// The index up to which the device has been told.
    told: u16,
    used: u16,
    /// Bytes of data to read back, by slot.
    expected: Vec<u32>,
    pub(super) kick: EventFd,
    /// What the device notifies when it gives the queue up.
    pub(super) error: EventFd,
    /// What the device notifies.
    pub call: EventFd,
}

impl Queue {
    pub(super) fn new(index: u16, wish: &Wish, memory: GuestMemoryMmap) -> io::Result<Self> {
        Ok(Self {
            memory,
            area: Area::of(index),
            size: wish.queue_size,
            event_index: wish.event_index,
            available: 0,
            told: 0,
            used: 0,
            expected: vec![0; usize::from(SLOTS)],
            kick: event()?,
            error: event()?,
            call: event()?,
        })
    }

    /// The same queue in other memory, which nobody has filled yet.
    pub(super) fn moved(&self, memory: GuestMemoryMmap) -> io::Result<Self> {
        Ok(Self {
            memory,
            expected: self.expected.clone(),
            kick: event()?,
            error: event()?,
            call: event()?,
            ..*self
        })
    }

    /// Goes on where another is.
    pub(super) fn go_on_with(&mut self, other: &Self) {
        (self.available, self.told, self.used) = (other.available, other.told, other.used);
        self.expected.clone_from(&other.expected);
    }

    /// Where its parts are.
    #[must_use]
    pub fn area(&self) -> Area {
        self.area
    }

    /// Writes to the guest's memory.
    pub fn put(&self, bytes: &[u8], address: u64) {
        let put = self.memory.write_slice(bytes, GuestAddress(address));
        put.expect("it is in the guest's memory");
    }

    fn load(&self, address: u64) -> u16 {
        let loaded = self.memory.load(GuestAddress(address), Acquire);
        loaded.expect("it is in the guest's memory")
    }

    fn store(&self, value: u16, address: u64) {
        let stored = self.memory.store(value, GuestAddress(address), Release);
        stored.expect("it is in the guest's memory");
    }

    /// The used ring's index.
    pub(super) fn used_index(&self) -> u16 {
        self.load(self.area.used + 2)
    }

    /// Writes descriptor `at` of its table.
    pub fn describe(&self, at: u16, descriptor: Descriptor) {
        self.put(&descriptor.bytes(), self.area.table + 16 * u64::from(at));
    }

    /// Writes descriptor `at` of a table elsewhere.
    pub fn describe_in(&self, table: u64, at: u16, descriptor: Descriptor) {
        self.put(&descriptor.bytes(), table + 16 * u64::from(at));
    }

    /// Makes the chain from `head` on available, without a notification.
    pub fn offer(&mut self, head: u16) {
        let entry = self.area.available + 4 + 2 * u64::from(self.available % self.size);
        self.put(&head.to_le_bytes(), entry);
        self.available = self.available.wrapping_add(1);
    }

    /// Shows the device what was offered, and notifies it if it wants that.
    pub fn publish(&mut self) {
        self.publish_at(self.available);
    }

    /// Shows the device another index than the true one.
    pub fn publish_at(&mut self, index: u16) {
        self.store(index, self.area.available + 2);
        std::sync::atomic::fence(SeqCst);
        let wants = if self.event_index {
            let event = self.load(self.area.used + 4 + 8 * u64::from(self.size));
            // As the specification's vring_need_event has it.
            let passed = index.wrapping_sub(event).wrapping_sub(1);
            passed < index.wrapping_sub(self.told)
        } else {
            self.load(self.area.used) & NO_NOTIFY == 0
        };
        self.told = index;
        if wants {
            self.notify();
        }
    }

    /// Notifies the device.
    pub fn notify(&self) {
        self.kick.write(1).expect("an event can be counted");
    }

    /// Says at which index of the used ring it wants to be notified.
    pub fn wish_event(&self, index: u16) {
        self.store(index, self.area.available + 4 + 2 * u64::from(self.size));
    }

    /// Asks for one thing in a slot: `data` goes to the device, `room` bytes come back. [`publish`](Self::publish) shows it.
    pub fn ask(&mut self, slot: u16, kind: u32, sector: u64, data: &[u8], room: u32) {
        assert!(slot < SLOTS && data.len() as u64 <= DATA_BYTES && u64::from(room) <= DATA_BYTES);
        let (number, first) = (u64::from(slot), 3 * slot);
        let header = u128::from(kind) | u128::from(sector) << 64;
        let (header_at, data_at) = (
            self.area.headers + 16 * number,
            self.area.data + DATA_BYTES * number,
        );
        let status_at = self.area.statuses + number;
        self.put(&header.to_le_bytes(), header_at);
        self.put(data, data_at);
        self.put(&[UNANSWERED], status_at);
        self.expected[usize::from(slot)] = room;
        let mut parts = vec![(header_at, 16, 0)];
        match (data.len() as u32, room) {
            (0, 0) => {}
            (0, room) => parts.push((data_at, room, WRITE)),
            (length, _) => parts.push((data_at, length, 0)),
        }
        parts.push((status_at, 1, WRITE));
        let last = parts.len() - 1;
        for (part, (address, length, flags)) in parts.into_iter().enumerate() {
            let at = first + part as u16;
            let (flags, next) = if part < last {
                (flags | NEXT, at + 1)
            } else {
                (flags, 0)
            };
            let descriptor = Descriptor {
                address,
                length,
                flags,
                next,
            };
            self.describe(at, descriptor);
        }
        self.offer(first);
    }

    /// Asks for one thing, and waits for its answer.
    pub fn request(&mut self, kind: u32, sector: u64, data: &[u8], room: u32) -> Answer {
        self.ask(0, kind, sector, data, room);
        self.publish();
        self.answer()
    }

    /// The next entry of the used ring, if there is one: the first descriptor and the bytes written.
    pub fn next_used(&mut self) -> Option<(u32, u32)> {
        if self.used_index() == self.used {
            return None;
        }
        let entry = self.area.used + 4 + 8 * u64::from(self.used % self.size);
        let read = |at| self.memory.load::<u32>(GuestAddress(at), Relaxed);
        let pair = (read(entry), read(entry + 4));
        self.used = self.used.wrapping_add(1);
        Some((pair.0.expect("memory"), pair.1.expect("memory")))
    }

    /// Whether the device has answered anything that nobody has looked at.
    #[must_use]
    pub fn has_answered(&self) -> bool {
        self.used_index() != self.used
    }

    /// Whether the device has given the queue up, since this was asked last.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.error.read().is_ok()
    }

    /// Bytes of the guest's memory.
    #[must_use]
    pub fn bytes(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let read = self.memory.read_slice(&mut bytes, GuestAddress(address));
        read.expect("it is in the guest's memory");
        bytes
    }

    /// One byte of the guest's memory.
    #[must_use]
    pub fn byte(&self, address: u64) -> u8 {
        self.bytes(address, 1)[0]
    }

    /// How many requests of it have been answered, modulo 65,536.
    #[must_use]
    pub fn answered(&self) -> u16 {
        self.used
    }

    /// The answer to a request of [`ask`](Self::ask), if there is one.
    pub fn try_answer(&mut self) -> Option<Answer> {
        let (head, written) = self.next_used()?;
        let slot = u16::try_from(head / 3).expect("a descriptor's number");
        let room = self.expected[usize::from(slot)];
        let number = u64::from(slot);
        Some(Answer {
            slot,
            status: self.byte(self.area.statuses + number),
            written,
            data: self.bytes(self.area.data + DATA_BYTES * number, room as usize),
        })
    }

    /// The next answer, for which it waits.
    pub fn answer(&mut self) -> Answer {
        obtain("an answer of the device", || {
            self.try_answer().ok_or("none yet")
        })
    }
}
