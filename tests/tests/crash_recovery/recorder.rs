//! A disk in memory, shown as a file, that records every write and every flush: so it can be told what it could hold after a loss of power.

use futae_engine::{Engine, EngineOptions, IoBuf, OnEviction, Store, StoreDone, StoreOperation};
use futae_guest::{Mount, MountOptions, ShownFile, TransportChoice};
use futae_policy::{Class, Prng};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a disk writes whole or not at all.
const SECTOR: usize = 512;

/// A point in time: the number of events before it.
pub type Moment = u64;

struct Write {
    offset: u64,
    data: Vec<u8>,
    begun: Moment,
    /// The last moment, until it is answered.
    answered: Moment,
    forced: bool,
}

struct Flush {
    begun: Moment,
    answered: Moment,
}

#[derive(Default)]
struct Record {
    now: Moment,
    content: Vec<u8>,
    /// In the order in which they began.
    writes: Vec<Write>,
    flushes: Vec<Flush>,
}

impl Record {
    fn next(&mut self) -> Moment {
        self.now += 1;
        self.now
    }

    fn begin(&mut self, offset: u64, data: Vec<u8>, forced: bool) {
        let begun = self.next();
        let answered = Moment::MAX;
        self.writes.push(Write {
            offset,
            data,
            begun,
            answered,
            forced,
        });
    }

    /// Whether a write outlives a loss of power at this moment, on a disk that flushes until `honest`.
    fn is_stable(&self, write: &Write, then: Moment, honest: Moment) -> bool {
        let then = then.min(honest);
        if write.answered > then {
            return false;
        }
        let covers = |flush: &Flush| flush.begun > write.answered && flush.answered <= then;
        write.forced || self.flushes.iter().any(covers)
    }
}

fn locked(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An operation, the number of the write or the flush that it is, and its answer.
type Queued = (StoreOperation, usize, StoreDone);

/// The disk as a store.
struct Disk {
    record: Arc<Mutex<Record>>,
    queue: Mutex<Sender<Queued>>,
    size_bytes: u64,
}

impl Store for Disk {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn describe(&self) -> String {
        "a disk that records".to_owned()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn submit(&self, _sequence: u64, operation: StoreOperation, done: StoreDone) {
        let mut record = locked(&self.record);
        let number = match &operation {
            StoreOperation::Write {
                offset,
                buffer,
                fua,
            } => {
                record.begin(*offset, buffer.as_slice().to_vec(), *fua);
                record.writes.len() - 1
            }
            StoreOperation::WriteZeroes {
                offset,
                length,
                fua,
                ..
            } => {
                record.begin(*offset, vec![0; *length as usize], *fua);
                record.writes.len() - 1
            }
            StoreOperation::Flush => {
                let begun = record.next();
                let answered = Moment::MAX;
                record.flushes.push(Flush { begun, answered });
                record.flushes.len() - 1
            }
            // What was trimmed is undefined: here it stays as it was.
            StoreOperation::Read { .. } | StoreOperation::Trim { .. } => 0,
        };
        drop(record);
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.send((operation, number, done)).expect("it runs");
    }
}

/// Carries an operation out; its buffer.
fn carry_out(record: &Mutex<Record>, operation: StoreOperation, number: usize) -> IoBuf {
    let mut record = locked(record);
    match operation {
        StoreOperation::Read { offset, mut buffer } => {
            let at = offset as usize;
            let length = buffer.len();
            buffer
                .as_mut_slice()
                .copy_from_slice(&record.content[at..at + length]);
            buffer
        }
        StoreOperation::Write { .. } | StoreOperation::WriteZeroes { .. } => {
            let record = &mut *record;
            let write = &record.writes[number];
            let at = write.offset as usize;
            record.content[at..at + write.data.len()].copy_from_slice(&write.data);
            record.writes[number].answered = record.next();
            match operation {
                StoreOperation::Write { buffer, .. } => buffer,
                _ => IoBuf::zeroed(0),
            }
        }
        StoreOperation::Flush => {
            let now = record.next();
            record.flushes[number].answered = now;
            IoBuf::zeroed(0)
        }
        StoreOperation::Trim { .. } => IoBuf::zeroed(0),
    }
}

/// The disk, mounted.
pub struct Recorder {
    record: Arc<Mutex<Record>>,
    size_bytes: u64,
    mount: Option<Mount>,
}

impl Recorder {
    /// An empty disk of this size, as a file in an empty directory.
    pub fn start(size_bytes: u64, mountpoint: &Path) -> Self {
        let record = Arc::new(Mutex::new(Record {
            content: vec![0; size_bytes as usize],
            ..Record::default()
        }));
        let (queue, incoming) = channel::<Queued>();
        let its = Arc::clone(&record);
        std::thread::spawn(move || {
            for (operation, number, done) in incoming {
                done(Ok(carry_out(&its, operation, number)));
            }
        });
        let disk = Disk {
            record: Arc::clone(&record),
            queue: Mutex::new(queue),
            size_bytes,
        };
        // A cache of one block: what is read and written is the disk's.
        let engine = Engine::new(&EngineOptions {
            block_bytes: 4096,
            capacity_blocks: 1,
            policy: "lru".parse().expect("a policy"),
            seed: 1,
            on_eviction: OnEviction::None,
            decision_log: None,
            write_back: None,
        });
        let engine = engine.expect("an engine");
        let volume = engine.add_volume("disk", Arc::new(disk), Class::default());
        let shown = ShownFile {
            volume: volume.expect("a volume"),
            name: "disk.img".to_owned(),
        };
        let options = MountOptions {
            mountpoint: mountpoint.to_owned(),
            source: "a disk that records".to_owned(),
            kernel_cache: false,
            join_reads_bytes: 0,
            threads: None,
            transport: TransportChoice::Device,
            access: None,
        };
        let mount = Mount::start(&engine, &[shown], &options).expect("mounted");
        Self {
            record,
            size_bytes,
            mount: Some(mount),
        }
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        let mount = self.mount.as_ref().expect("it is mounted");
        mount.paths()[0].clone()
    }

    /// Now, which comes after all that has been answered.
    pub fn now(&self) -> Moment {
        locked(&self.record).next()
    }

    /// The disk is not used any more.
    pub fn unmount(&mut self) {
        let mount = self.mount.take().expect("it is mounted");
        mount.unmount().expect("unmounted");
    }

    /// How many writes and flushes there were.
    pub fn counts(&self) -> (usize, usize) {
        let record = locked(&self.record);
        (record.writes.len(), record.flushes.len())
    }
}

/// States that a loss of power can leave, at later and later moments.
pub struct CrashStates<'a> {
    recorder: &'a Recorder,
    /// What had been promised at the last moment.
    base: PathBuf,
    is_in_base: Vec<bool>,
    /// Flushes after this do nothing.
    honest: Moment,
}

impl<'a> CrashStates<'a> {
    /// Those of a disk, with a file for what is common to them.
    pub fn new(recorder: &'a Recorder, base: PathBuf) -> Self {
        let file = File::create(&base).expect("a file");
        file.set_len(recorder.size_bytes).expect("room");
        Self {
            recorder,
            base,
            is_in_base: vec![false; recorder.counts().0],
            honest: Moment::MAX,
        }
    }

    /// Of a disk that flushes nothing from this moment on.
    pub fn lying_from(mut self, honest: Moment) -> Self {
        self.honest = honest;
        self
    }

    /// Writes one state to `image`: what was promised by then, and of all other writes that had begun any, whole or torn.
    /// Moments may not go back. Returns how many writes could be lost, and how many were, in part or whole.
    pub fn write(&mut self, then: Moment, prng: &mut Prng, image: &Path) -> (usize, usize) {
        let record = locked(&self.recorder.record);
        let base = File::options().write(true).open(&self.base);
        let base = base.expect("the base");
        let mut open = Vec::new();
        for (number, write) in record.writes.iter().enumerate() {
            if self.is_in_base[number] || write.begun > then {
                continue;
            }
            if record.is_stable(write, then, self.honest) {
                // Overlapping writes follow each other, so no earlier one is still open.
                base.write_all_at(&write.data, write.offset).expect("room");
                self.is_in_base[number] = true;
            } else {
                open.push(write);
            }
        }
        let (from, to) = (self.base.to_str(), image.to_str());
        let words = ["--sparse=always", from.expect("UTF-8"), to.expect("UTF-8")];
        futae_tests::tools::run("cp", &words);
        let state = File::options().write(true).open(image).expect("the copy");
        let mut lost = 0;
        for write in &open {
            let sectors = write.data.len().div_ceil(SECTOR) as u64;
            let kept = match prng.below(8) {
                0..3 => 0..0,
                3 => 0..prng.below(sectors + 1),
                4 => prng.below(sectors + 1)..sectors,
                _ => 0..sectors,
            };
            lost += usize::from(kept != (0..sectors));
            let bytes = kept.start as usize * SECTOR..kept.end as usize * SECTOR;
            let bytes = bytes.start..bytes.end.min(write.data.len());
            let at = write.offset + bytes.start as u64;
            state.write_all_at(&write.data[bytes], at).expect("room");
        }
        (open.len(), lost)
    }
}
