//! A store in memory without a thread: an operation ends on the thread that submits it, or when the test says so. It notes
//! what the cache above gave it, and fails on command.

use futae_engine::{Extent, IoBuf, IoError, IoErrorKind, Store, StoreDone, StoreOperation};
use futae_policy::Prng;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Bytes of a block of [`ManualStore::new`].
pub const BLOCK: u64 = 4096;

/// What the store holds, what it was given, and what it is to do.
#[derive(Default)]
pub struct Inside {
    /// The content.
    pub bytes: Vec<u8>,
    /// Operations that have not ended.
    pub held: Vec<(StoreOperation, StoreDone)>,
    /// Whether operations wait for [`ManualStore::release`].
    pub hold: bool,
    /// Whether reads fail.
    pub fail_reads: bool,
    /// Whether writes fail.
    pub fail_writes: bool,
    /// Reads that were carried out, by offset and length in bytes.
    pub reads: Vec<(u64, usize)>,
    /// Writes by offset, length in bytes, and whether they were to be stable.
    pub writes: Vec<(u64, usize, bool)>,
    /// Whether all of it is a hole, if asked for extents.
    pub is_hole: bool,
    /// Whether it has no TRIM.
    pub has_no_trim: bool,
    /// The identity of the volume.
    pub identity: Option<[u8; 16]>,
    /// How many flushes came.
    pub flushes: u32,
    /// As a store with connections has it; demotions of another generation are dropped.
    pub generation: u64,
    /// Demotions by sequence number, offset in bytes and data.
    pub demotions: Vec<(u64, u64, Vec<u8>)>,
    /// Notices by offset and length in bytes.
    pub notices: Vec<(u64, u64)>,
    /// Operations and demotions that came outside of [`Store::together`].
    pub alone: Vec<&'static str>,
    is_together: bool,
    grows: bool,
}

/// Bytes in memory as a store whose operations end when the test says so.
pub struct ManualStore(Mutex<Inside>);

impl ManualStore {
    /// A store of blocks of [`BLOCK`] bytes, filled by [`initial`].
    #[must_use]
    pub fn new(blocks: u64) -> Arc<Self> {
        Self::build((0..blocks * BLOCK).map(initial).collect(), false)
    }

    /// A file in memory: writes beyond its end make it grow, and reads beyond it fail.
    #[must_use]
    pub fn growing(bytes: Vec<u8>) -> Arc<Self> {
        Self::build(bytes, true)
    }

    fn build(bytes: Vec<u8>, grows: bool) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Inside {
            bytes,
            grows,
            ..Inside::default()
        })))
    }

    /// Changes it.
    pub fn set<T>(&self, change: impl FnOnce(&mut Inside) -> T) -> T {
        change(&mut self.0.lock().expect("the store"))
    }

    /// Looks at it.
    pub fn get<T>(&self, look: impl FnOnce(&Inside) -> T) -> T {
        look(&self.0.lock().expect("the store"))
    }

    /// Its content.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.get(|inside| inside.bytes.clone())
    }

    /// Whether operations wait from now on.
    pub fn hold(&self, hold: bool) {
        self.set(|inside| inside.hold = hold);
    }

    /// Operations that wait.
    #[must_use]
    pub fn held(&self) -> usize {
        self.get(|inside| inside.held.len())
    }

    /// Ends the waiting operation number `which`, well or badly.
    pub fn release(&self, which: usize, fail: bool) {
        let (operation, done) = self.set(|inside| inside.held.remove(which));
        done(if fail {
            Err(broken())
        } else {
            self.perform(operation)
        });
    }

    /// Ends one of the operations that wait, if there is any.
    pub fn release_any(&self, dice: &mut Prng) -> bool {
        let held = self.held() as u64;
        if held > 0 {
            self.release(dice.below(held) as usize, false);
        }
        held > 0
    }

    /// Ends all operations that wait.
    pub fn release_all(&self) {
        while self.held() > 0 {
            self.release(0, false);
        }
    }

    fn perform(&self, operation: StoreOperation) -> Result<IoBuf, IoError> {
        self.set(|inside| inside.perform(operation))
    }
}

impl Inside {
    fn range(&self, offset: u64, length: u64) -> Result<Range<usize>, IoError> {
        let range = offset as usize..(offset + length) as usize;
        let is_inside = range.end <= self.bytes.len();
        is_inside.then_some(range).ok_or_else(broken)
    }

    fn perform(&mut self, operation: StoreOperation) -> Result<IoBuf, IoError> {
        match operation {
            StoreOperation::Read { offset, mut buffer } => {
                self.reads.push((offset, buffer.len()));
                if self.fail_reads {
                    return Err(broken());
                }
                let range = self.range(offset, buffer.len() as u64)?;
                buffer.as_mut_slice().copy_from_slice(&self.bytes[range]);
                Ok(buffer)
            }
            StoreOperation::Write {
                offset,
                buffer,
                fua,
            } => {
                self.writes.push((offset, buffer.len(), fua));
                if self.fail_writes {
                    return Err(broken());
                }
                let end = offset as usize + buffer.len();
                if self.grows && self.bytes.len() < end {
                    self.bytes.resize(end, 0);
                }
                let range = self.range(offset, buffer.len() as u64)?;
                self.bytes[range].copy_from_slice(buffer.as_slice());
                Ok(buffer)
            }
            StoreOperation::Flush => {
                self.flushes += 1;
                Ok(IoBuf::new(0))
            }
            StoreOperation::Trim { offset, length }
            | StoreOperation::WriteZeroes { offset, length, .. } => {
                let range = self.range(offset, length)?;
                self.bytes[range].fill(0);
                Ok(IoBuf::new(0))
            }
        }
    }

    fn note(&mut self, what: &'static str) {
        if !self.is_together {
            self.alone.push(what);
        }
    }
}

impl Store for ManualStore {
    fn size_bytes(&self) -> u64 {
        self.get(|inside| inside.bytes.len() as u64)
    }

    fn describe(&self) -> String {
        "a test's store".to_owned()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn takes_trims(&self) -> bool {
        self.get(|inside| !inside.has_no_trim)
    }

    fn identity(&self) -> Option<[u8; 16]> {
        self.get(|inside| inside.identity)
    }

    fn submit(&self, _sequence: u64, operation: StoreOperation, done: StoreDone) {
        let now = self.set(|inside| {
            inside.note("operation");
            if !inside.hold {
                return Some((operation, done));
            }
            inside.held.push((operation, done));
            None
        });
        if let Some((operation, done)) = now {
            done(self.perform(operation));
        }
    }

    fn takes_demotions(&self) -> bool {
        self.get(|inside| !inside.grows)
    }

    fn extents(&self, _offset: u64, length: u64) -> Result<Vec<Extent>, IoError> {
        let hole = self.get(|inside| inside.is_hole);
        Ok(vec![Extent { length, hole }])
    }

    fn generation(&self) -> u64 {
        self.get(|inside| inside.generation)
    }

    fn demote(&self, sequence: u64, generation: u64, offset: u64, data: IoBuf) {
        self.set(|inside| {
            inside.note("demotion");
            if generation == inside.generation {
                let data = data.as_slice().to_vec();
                inside.demotions.push((sequence, offset, data));
            }
        });
    }

    fn notice(&self, _sequence: u64, offset: u64, length: u64) {
        self.set(|inside| inside.notices.push((offset, length)));
    }

    fn together(&self, submit: &mut dyn FnMut()) {
        self.set(|inside| inside.is_together = true);
        submit();
        self.set(|inside| inside.is_together = false);
    }
}

/// What byte `at` of a fresh store of [`ManualStore::new`] is.
#[must_use]
pub fn initial(at: u64) -> u8 {
    (at / BLOCK * 31 + at % 251) as u8
}

/// The error of an operation that the store was told to fail.
#[must_use]
pub fn broken() -> IoError {
    IoError::new(IoErrorKind::Store, "the test store was told to fail")
}
