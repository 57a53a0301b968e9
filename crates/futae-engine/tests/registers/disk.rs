//! Disks that end operations when the test says so, and whose content the caches of several lives have one after the other.

use futae_engine::{IoBuf, IoError, IoErrorKind, Store, StoreDone, StoreOperation, StoreStamp};
use futae_policy::Prng;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The part of a sector's content that says which write it is of.
pub const SECTOR: u64 = 512;

/// The clock of the test, in nanoseconds.
#[derive(Default)]
pub struct Clock(AtomicU64);

impl Clock {
    pub fn ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn pass(&self, milliseconds: u64) {
        self.0
            .fetch_add(milliseconds * 1_000_000, Ordering::Relaxed);
    }
}

pub struct Held {
    operation: StoreOperation,
    done: StoreDone,
}

#[derive(Default)]
pub struct Inside {
    pub bytes: Vec<u8>,
    /// Operations that have not ended.
    pub held: Vec<Held>,
    /// What was demoted, by first byte.
    pub demoted: Vec<(u64, Vec<u8>)>,
    modified_ns: u64,
    /// The length that the cache knows, if it does not change by writes.
    known_bytes: Option<u64>,
    /// How many operations came.
    came: u64,
}

/// How an operation ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    Good,
    /// It fails after any part of it was carried out.
    Bad,
}

pub struct Disk {
    pub number: u8,
    /// Whether it can say when it was changed.
    has_stamps: bool,
    clock: Arc<Clock>,
    inside: Mutex<Inside>,
}

impl Disk {
    pub fn new(number: u8, bytes: Vec<u8>, has_stamps: bool, clock: &Arc<Clock>) -> Arc<Self> {
        let known_bytes = Some(bytes.len() as u64);
        Arc::new(Self {
            number,
            has_stamps,
            clock: Arc::clone(clock),
            inside: Mutex::new(Inside {
                bytes,
                known_bytes,
                ..Inside::default()
            }),
        })
    }

    /// A file, which writes behind its end make longer.
    pub fn file(number: u8) -> Arc<Self> {
        let file = Self::new(number, Vec::new(), false, &Arc::default());
        file.with(|inside| inside.known_bytes = None);
        file
    }

    pub fn with<T>(&self, work: impl FnOnce(&mut Inside) -> T) -> T {
        work(&mut self.inside.lock().expect("the disk"))
    }

    pub fn held(&self) -> usize {
        self.with(|inside| inside.held.len())
    }

    /// Somebody else changes it.
    pub fn change(&self, work: impl FnOnce(&mut Vec<u8>)) {
        let now = self.clock.ns();
        self.with(|inside| {
            work(&mut inside.bytes);
            inside.modified_ns = now;
        });
    }

    /// A new cache sees all of it.
    pub fn open(&self) {
        self.with(|inside| inside.known_bytes = Some(inside.bytes.len() as u64));
    }

    /// Ends one of its operations.
    pub fn release(&self, which: usize, end: End, prng: &mut Prng) {
        let Held { operation, done } = self.with(|inside| inside.held.remove(which));
        let now = self.clock.ns();
        if end == End::Bad {
            let part = prng.below(3);
            self.with(|inside| inside.begin(&operation, part, now));
            return done(Err(IoError::new(IoErrorKind::Store, "a bad sector")));
        }
        done(self.with(|inside| inside.perform(operation, now)));
    }

    /// The server was killed: of what it had under way anything may still be carried out.
    pub fn abandon(&self, prng: &mut Prng) {
        let now = self.clock.ns();
        let held = self.with(|inside| std::mem::take(&mut inside.held));
        for Held { operation, done } in held {
            let part = prng.below(3);
            self.with(|inside| inside.begin(&operation, part, now));
            drop(done);
        }
    }
}

fn range_of(operation: &StoreOperation) -> Option<(u64, u64)> {
    match operation {
        StoreOperation::Write { offset, buffer, .. } => Some((*offset, buffer.len() as u64)),
        StoreOperation::Trim { offset, length }
        | StoreOperation::WriteZeroes { offset, length, .. } => Some((*offset, *length)),
        StoreOperation::Read { .. } | StoreOperation::Flush => None,
    }
}

fn bytes(range: (u64, u64)) -> Range<usize> {
    range.0 as usize..(range.0 + range.1) as usize
}

impl Inside {
    /// Nothing of a write (`part` 0), its first half, or all.
    fn begin(&mut self, operation: &StoreOperation, part: u64, now_ns: u64) {
        let Some((offset, length)) = range_of(operation) else {
            return;
        };
        let length = [0, length / SECTOR / 2 * SECTOR, length][part as usize];
        if length == 0 {
            return;
        }
        self.modified_ns = now_ns;
        if self.known_bytes.is_none() {
            let end = (offset + length) as usize;
            self.bytes.resize(self.bytes.len().max(end), 0);
        }
        let to = &mut self.bytes[bytes((offset, length))];
        match operation {
            StoreOperation::Write { buffer, .. } => {
                to.copy_from_slice(&buffer.as_slice()[..length as usize]);
            }
            _ => to.fill(0),
        }
    }

    fn perform(&mut self, operation: StoreOperation, now_ns: u64) -> Result<IoBuf, IoError> {
        self.begin(&operation, 2, now_ns);
        Ok(match operation {
            StoreOperation::Read { offset, mut buffer } => {
                let range = bytes((offset, buffer.len() as u64));
                let content = self.bytes.get(range);
                let content = content.ok_or_else(|| IoError::new(IoErrorKind::Store, "cut"))?;
                buffer.as_mut_slice().copy_from_slice(content);
                buffer
            }
            StoreOperation::Write { buffer, .. } => buffer,
            _ => IoBuf::new(0),
        })
    }
}

impl Store for Disk {
    fn size_bytes(&self) -> u64 {
        self.with(|inside| inside.known_bytes.unwrap_or(inside.bytes.len() as u64))
    }

    fn look_again(&self) -> Result<u64, IoError> {
        self.open();
        Ok(self.size_bytes())
    }

    fn identity(&self) -> Option<[u8; 16]> {
        Some([self.number + 1; 16])
    }

    fn stamp(&self) -> Option<StoreStamp> {
        let stamp = self.with(|inside| StoreStamp {
            size_bytes: inside.bytes.len() as u64,
            modified_ns: inside.modified_ns,
            changed_ns: inside.modified_ns,
        });
        self.has_stamps.then_some(stamp)
    }

    fn describe(&self) -> String {
        "a disk".to_owned()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn takes_demotions(&self) -> bool {
        self.with(|inside| inside.known_bytes.is_some())
    }

    fn demote(&self, _sequence: u64, generation: u64, offset: u64, data: IoBuf) {
        if generation == self.generation() {
            let data = data.as_slice().to_vec();
            self.with(|inside| inside.demoted.push((offset, data)));
        }
    }

    fn submit(&self, _sequence: u64, operation: StoreOperation, done: StoreDone) {
        let now = self.clock.ns();
        let result = self.with(|inside| {
            if let Some((offset, length)) = range_of(&operation) {
                let end = offset + length;
                let known = inside.known_bytes.unwrap_or(u64::MAX);
                assert!(length > 0 && end <= known, "{operation:?}");
                let mut others = inside.held.iter().filter_map(|it| range_of(&it.operation));
                let other = others.find(|it| it.0 < end && offset < it.0 + it.1);
                assert_eq!(other, None, "two writes at once: {offset}+{length}");
            }
            inside.came += 1;
            // Now and then one ends before the call returns.
            if inside.came.is_multiple_of(7) {
                return Some((inside.perform(operation, now), done));
            }
            inside.held.push(Held { operation, done });
            None
        });
        if let Some((result, done)) = result {
            done(result);
        }
    }
}
