//! A kill between any two steps. At every store to the memory that outlives the process, and in the
//! middle of every write to the disk, the test copies both and starts another cache with them. That
//! cache must serve what the disk holds.

use super::MemoryTrust;
use crate::engine::verify::Verification;
use crate::engine::world::World;
use crate::memory_file::{MemoryFile, at_every_store};
use crate::{
    Demotion, Engine, EngineOptions, IoBuf, OnEviction, OnRefusal, Operation, Store, StoreDone,
    StoreOperation, WriteBackOptions,
};
use futae_policy::{Class, Prng, VolumeId};
use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 14;
/// The last block of the volume is short.
const SIZE: u64 = BLOCKS * BLOCK - 512;
const SLOTS: u32 = 6;

thread_local! {
    /// The observer, called with the current memory and disk.
    static LOOK: RefCell<Option<Rc<dyn Fn()>>> = const { RefCell::new(None) };
}

/// A point after which a kill may happen.
fn point() {
    // The observer's own accesses are not observed.
    let look = LOOK.with_borrow_mut(Option::take);
    if let Some(look) = look {
        look();
        LOOK.with_borrow_mut(|place| *place = Some(look));
    }
}

/// A disk that writes the first half of the data, then the other half.
struct Disk(Mutex<Vec<u8>>);

impl Disk {
    fn put(&self, offset: u64, data: &[u8]) {
        let half = data.len() / 2;
        for range in [0..half, half..data.len()] {
            let at = offset as usize;
            self.0.lock().expect("bytes")[at + range.start..at + range.end]
                .copy_from_slice(&data[range]);
            point();
        }
    }
}

impl Store for Disk {
    fn size_bytes(&self) -> u64 {
        SIZE
    }

    fn identity(&self) -> Option<[u8; 16]> {
        Some([7; 16])
    }

    fn describe(&self) -> String {
        "a disk".to_owned()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn submit(&self, _sequence: u64, operation: StoreOperation, done: StoreDone) {
        point();
        done(Ok(match operation {
            StoreOperation::Read { offset, mut buffer } => {
                let (from, length) = (offset as usize, buffer.len());
                let bytes = self.0.lock().expect("bytes");
                buffer
                    .as_mut_slice()
                    .copy_from_slice(&bytes[from..from + length]);
                drop(bytes);
                buffer
            }
            StoreOperation::Write { offset, buffer, .. } => {
                self.put(offset, buffer.as_slice());
                buffer
            }
            StoreOperation::Flush => IoBuf::new(0),
            StoreOperation::Trim { offset, length } => {
                self.put(offset, &vec![0xEE; length as usize]);
                IoBuf::new(0)
            }
            StoreOperation::WriteZeroes { offset, length, .. } => {
                self.put(offset, &vec![0; length as usize]);
                IoBuf::new(0)
            }
        }));
    }
}

/// A world with a single thread.
struct Alone;

impl World for Alone {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn apart(&self, _name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        work();
        Ok(())
    }

    fn has_clock_threads(&self) -> bool {
        false
    }
}

/// A cache over a disk, with its memory in a file.
fn cache(file: &Path, disk: &Arc<Disk>, writes_back: bool, verifies: bool) -> (Arc<Engine>, u64) {
    let options = EngineOptions {
        block_bytes: BLOCK,
        capacity_blocks: SLOTS,
        policy: "lru".parse().expect("a policy"),
        seed: 1,
        on_eviction: OnEviction::None,
        decision_log: None,
        write_back: writes_back.then(|| WriteBackOptions {
            dirty_max: 0.5,
            dirty_age_max: Duration::from_secs(3600),
        }),
    };
    let engine = Engine::in_world(&options, Arc::new(Alone)).expect("a cache");
    let memory = MemoryFile::open(file, BLOCK, SLOTS, None).expect("memory");
    let trust = MemoryTrust::Devices;
    engine.keep_memory(memory, trust).expect("memory");
    if verifies {
        let how = Verification {
            memory_bytes: 1 << 12,
            on_refusal: OnRefusal::Notice,
            compare_with_store: false,
        };
        engine.verify_demotions(how).expect("keys");
    }
    let below: Arc<dyn Store> = Arc::clone(disk) as _;
    let volume = engine.add_volume("disk", below, Class::NORMAL);
    assert_eq!(volume.expect("a volume"), VolumeId(0));
    let found = engine.recall_memory();
    (engine, found)
}

fn read(engine: &Arc<Engine>, offset: u64, length: u64) -> Vec<u8> {
    let client = engine.join(VolumeId(0));
    let read = engine.read_blocking(VolumeId(0), client, offset, length);
    read.expect("read").as_slice().to_vec()
}

/// What the observers saw.
#[derive(Default)]
struct Seen {
    kills: u64,
    found: u64,
    refused: u64,
}

/// Starts another cache with the state that a kill would leave now.
fn look(memory: &Path, copy: &Path, disk: &Disk, seen: &RefCell<Seen>, flips: bool) {
    let mut bytes = fs::read(memory).expect("memory");
    let content = disk.0.lock().expect("bytes").clone();
    if flips {
        // Some position in the frames, which are at the end.
        let frames = (u64::from(SLOTS) * BLOCK) as usize;
        let at = (seen.borrow().kills as usize * 613) % frames;
        let from = bytes.len() - frames;
        bytes[from + at] ^= 0x10;
    }
    // Into the existing file: creating a new one each time would take as long as the rest of the
    // test.
    fs::write(copy, &bytes).expect("a copy");
    let disk = Arc::new(Disk(Mutex::new(content.clone())));
    let (engine, found) = cache(copy, &disk, false, false);
    engine.audit();
    for block in (0..BLOCKS).rev() {
        let (from, to) = (block * BLOCK, ((block + 1) * BLOCK).min(SIZE));
        let got = read(&engine, from, to - from);
        assert_eq!(got, content[from as usize..to as usize], "block {block}");
    }
    let refused = engine.memory_status().memory_refused_blocks;
    let mut seen = seen.borrow_mut();
    seen.kills += 1;
    seen.found += found;
    seen.refused += refused;
}

fn operation(prng: &mut Prng, disk: &Disk) -> Operation {
    let block = prng.below(BLOCKS);
    let fill = prng.below(256) as u8;
    let within = |offset: u64, length: u64| (offset, length.min(SIZE - offset));
    let whole = within(block * BLOCK, BLOCK);
    let part = within(
        block * BLOCK + 512 * prng.below(7),
        512 * (1 + prng.below(2)),
    );
    let long = within(block * BLOCK, (1 + prng.below(4)) * BLOCK);
    let write = |(offset, length): (u64, u64), fua| Operation::Write {
        offset,
        data: IoBuf::copy_of(&vec![fill; length as usize]),
        fua,
    };
    let kind = prng.below(12);
    match kind {
        0..=2 => {
            let (offset, length) = long;
            Operation::Read { offset, length }
        }
        3 | 4 => write(whole, kind == 4),
        5 | 6 => write(part, kind == 6),
        7 => write(long, false),
        8 => Operation::Flush,
        9 => {
            let (offset, length) = if fill < 128 { part } else { long };
            Operation::Trim { offset, length }
        }
        10 => {
            let (offset, length) = if fill < 128 { whole } else { part };
            Operation::WriteZeroes {
                offset,
                length,
                fua: false,
                no_hole: false,
            }
        }
        _ => {
            let (offset, length) = whole;
            let bytes = disk.0.lock().expect("bytes");
            let data = &bytes[offset as usize..][..length as usize];
            Operation::Demote(Demotion::by_agent(offset, IoBuf::copy_of(data)))
        }
    }
}

fn killed_everywhere(seed: u64, writes_back: bool, flips: bool) -> Seen {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    let (memory, copy) = (path("memory"), path("copy"));
    fs::write(&copy, "").expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&copy, mode).expect("its mode");
    let disk = Arc::new(Disk(Mutex::new(vec![1; SIZE as usize])));
    let (mut prng, seen) = (Prng::new(seed), Rc::new(RefCell::new(Seen::default())));
    let looking: Rc<dyn Fn()> = {
        let (disk, seen, memory) = (Arc::clone(&disk), Rc::clone(&seen), memory.clone());
        Rc::new(move || look(&memory, &copy, &disk, &seen, flips))
    };
    for life in 0..3 {
        let (engine, found) = cache(&memory, &disk, writes_back, life % 2 == 0);
        assert!(
            life == 0 || found > 0 || flips,
            "life {life} begins with nothing"
        );
        LOOK.with_borrow_mut(|place| *place = Some(Rc::clone(&looking)));
        at_every_store(Some(point));
        for _ in 0..12 {
            let operation = operation(&mut prng, &disk);
            let client = engine.join(VolumeId(0));
            engine.wait(VolumeId(0), client, operation).expect("done");
            engine.tick();
            engine.audit();
        }
        engine.save_memory_order();
        at_every_store(None);
        LOOK.with_borrow_mut(|place| *place = None);
        // This life ends without further steps: a kill.
    }
    drop(looking);
    Rc::into_inner(seen).expect("nobody looks").into_inner()
}

#[test]
fn a_kill_between_any_two_steps_leaves_nothing_that_is_wrong() {
    for seed in 1..=2 {
        for writes_back in [false, true] {
            let seen = killed_everywhere(seed, writes_back, false);
            assert_eq!(seen.refused, 0, "what is sealed is what it says");
            assert!(seen.kills > 100, "{} kills", seen.kills);
            assert!(seen.found > seen.kills, "{} blocks found", seen.found);
        }
    }
}

#[test]
fn a_kill_and_a_wrong_bit_in_the_memory_leave_nothing_that_is_wrong() {
    let seen = killed_everywhere(4, false, true);
    assert!(seen.refused > 5, "{} refused", seen.refused);
}
