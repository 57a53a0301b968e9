//! A guest that does as the input says with the queue of a vhost-user-blk device: descriptors in loops, tables in
//! tables, lengths and addresses beyond its memory, requests of any kind, memory that changes while the device reads
//! it, queues that start again over what it wrote into the frontend's file. Whatever it does: another volume of the
//! same cache keeps its content and is not seen in the guest's memory, no buffer arrives that nobody filled, every
//! request ends, what was taken of the room is given back, and the cache's books are in order.

use crate::hostile::{Script, eventually, stamped};
use futae_engine::{Engine, EngineOptions, OnEviction, Operation, POISON};
use futae_policy::{Class, VolumeId};
use futae_testkit::store::MemoryStore;
use futae_vhost::{Device, LoneQueue, QueueShape, Room};
use rustix::fd::BorrowedFd;
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock, Mutex};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

const BLOCK: u64 = 4096;
const SLOTS: u32 = 12;
/// Bytes of the guest's disk, not whole blocks; and of the other volume.
const DISK: usize = (64 << 10) + 512;
const OTHER: usize = 64 << 10;
const GUEST: u8 = 0;
const HONEST: u8 = 1;

/// The guest's memory: where its regions begin and how long they are.
const REGIONS: [(u64, usize); 3] = [
    (0, 6 << 12),
    (1 << 20, 1 << 12),
    (u64::MAX - 0x1fff, 1 << 12),
];
const DESCRIPTORS: u64 = 0;
const AVAILABLE: u64 = 0x400;
const USED: u64 = 0x600;
const TABLE: u64 = 0x800;
const HEADERS: u64 = 0xc00;
const DATA: u64 = 0x1000;
const QUEUE: u16 = 16;

const F_NEXT: u16 = 1;
const F_WRITE: u16 = 2;
const F_INDIRECT: u16 = 4;

/// A window of the other volume's content; its bytes begin with the honest owner's two bits.
const WINDOW: usize = 24;
static WINDOWS: LazyLock<HashSet<Vec<u8>>> = LazyLock::new(|| {
    let content = stamped(HONEST, 0, OTHER);
    content.windows(WINDOW).map(<[u8]>::to_vec).collect()
});

/// One input.
pub fn run(input: &[u8]) {
    let mut script = Script::new(input);
    let mut rig = Rig::new(script.byte());
    let mut steps = 0;
    while !script.is_over() && steps < 300 {
        rig.step(&mut script);
        steps += 1;
    }
    rig.check_and_stop();
}

/// Inputs to begin with: whole requests of each kind, through a table as well, and a queue that starts again.
pub fn seeds() -> Vec<Vec<u8>> {
    let request = |kind: u8, sectors: u8, shape: u8| vec![7, kind, 0, 2, sectors, shape];
    let mut seeds = Vec::new();
    for kind in 0..6 {
        for shape in 0..4 {
            let mut seed = vec![shape];
            seed.extend(request(kind, 8, shape));
            seed.push(0);
            seed.extend(request(kind, 1, shape));
            seed.extend([0, 11, 0, 0]);
            seeds.push(seed);
        }
    }
    seeds
}

/// Room for so many requests at a time.
struct Narrow {
    most: usize,
    taken: Arc<Mutex<(usize, u64)>>,
}

impl Room for Narrow {
    fn take(&mut self, _carried_bytes: u64, bytes: u64) -> bool {
        let mut taken = self.taken.lock().expect("one thread");
        let has_room = taken.0 < self.most;
        if has_room {
            *taken = (taken.0 + 1, taken.1 + bytes);
        }
        has_room
    }

    fn give_back(&mut self, bytes: u64) {
        let mut taken = self.taken.lock().expect("one thread");
        taken.0 = taken
            .0
            .checked_sub(1)
            .expect("nobody gives back more requests than it took");
        taken.1 = taken.1.checked_sub(bytes).expect("nor more bytes");
    }

    fn rest(&mut self) {}

    fn bell(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn heard(&self) {}
}

struct Rig {
    engine: Arc<Engine>,
    stores: [Arc<MemoryStore>; 2],
    device: Device,
    other: VolumeId,
    memory: GuestMemoryMmap,
    queue: Option<LoneQueue>,
    inflight: Option<File>,
    taken: Arc<Mutex<(usize, u64)>>,
    most: usize,
    has_event_index: bool,
    is_changing: bool,
    /// The next entry of the available ring.
    next: u16,
}

impl Rig {
    fn new(shape: u8) -> Self {
        let options = EngineOptions {
            block_bytes: BLOCK,
            capacity_blocks: SLOTS,
            policy: ["lru", "exclusive(keep_served=true)"][usize::from(shape & 1)]
                .parse()
                .expect("a policy"),
            seed: 1,
            on_eviction: OnEviction::None,
            decision_log: None,
            write_back: None,
        };
        let engine = Engine::new(&options).expect("a cache");
        let stores = [(GUEST, DISK), (HONEST, OTHER)]
            .map(|(owner, bytes)| MemoryStore::new(stamped(owner, 0, bytes)));
        let volume = |at: usize| {
            let store = Arc::clone(&stores[at]) as Arc<dyn futae_engine::Store>;
            engine
                .add_volume("v", store, Class::NORMAL)
                .expect("a volume")
        };
        let (volume, other) = (volume(0), volume(1));
        read_honest(&engine, other);
        let device = Device {
            engine: Arc::clone(&engine),
            volume,
            read_only: shape & 2 != 0 && shape & 64 != 0,
            serial: "a disk".into(),
        };
        let ranges = REGIONS.map(|(at, bytes)| (GuestAddress(at), bytes));
        let memory = GuestMemoryMmap::from_ranges(&ranges).expect("memory");
        let inflight = (shape & 4 != 0).then(|| {
            let file = tempfile::tempfile().expect("a file");
            let bytes = LoneQueue::inflight_bytes(QUEUE).expect("memory");
            file.set_len(bytes).expect("room");
            file
        });
        let mut rig = Self {
            engine,
            stores,
            device,
            other,
            memory,
            queue: None,
            inflight,
            taken: Arc::default(),
            most: if shape & 8 != 0 { 2 } else { 64 },
            has_event_index: shape & 16 != 0,
            is_changing: shape & 32 != 0,
            next: 0,
        };
        rig.start(0);
        rig
    }

    fn start(&mut self, next_available: u16) {
        let shape = QueueShape {
            size: QUEUE,
            descriptors: DESCRIPTORS,
            available: AVAILABLE,
            used: USED,
            next_available,
            has_event_index: self.has_event_index,
        };
        let room = Box::new(Narrow {
            most: self.most,
            taken: Arc::clone(&self.taken),
        });
        let (device, memory) = (self.device.clone(), self.memory.clone());
        let queue = LoneQueue::start(device, memory, &shape, room, self.inflight.as_ref());
        self.queue = queue.expect("descriptors");
    }

    fn step(&mut self, script: &mut Script<'_>) {
        match script.byte() % 13 {
            0 | 12 => self.round(script),
            1 => {
                let at = script.below(u64::from(QUEUE) + 2);
                let entry = descriptor(script);
                self.put(DESCRIPTORS + at * 16, &entry);
            }
            2 => {
                let head = script.below(u64::from(QUEUE) + 1) as u16;
                self.offer(head);
            }
            3 => {
                let index = script.word() as u16;
                self.put(AVAILABLE + 2, &index.to_le_bytes());
            }
            4 => {
                let at = place(script);
                let header = header(script);
                self.put(at, &header);
            }
            5 => {
                let at = place(script);
                let length = usize::from(script.byte() % 16);
                let bytes = script.bytes(length);
                self.put(at, bytes);
            }
            6 => {
                let at = script.below(40);
                let entry = descriptor(script);
                self.put(TABLE + at * 16, &entry);
            }
            7 => self.request(script),
            8 => {
                // When the guest wants to be notified, by either means.
                let value = script.word() as u16;
                self.put(AVAILABLE + 4 + 2 * u64::from(QUEUE), &value.to_le_bytes());
                self.put(AVAILABLE, &(value & 1).to_le_bytes());
            }
            9 => match script.byte() % 5 {
                0 => self.stores[0].fail(true),
                1 => self.stores[0].fail(false),
                2 => self.stores[0].hold_reads(0..DISK as u64),
                3 => self.stores[0].hold_writes(),
                _ => self.stores[0].release(),
            },
            10 => {
                // A range of a discard.
                let (sector, sectors, flags) =
                    (number(script), script.word() as u32, script.byte());
                let raw =
                    u128::from(sector) | u128::from(sectors) << 64 | u128::from(flags % 4) << 96;
                let at = HEADERS + 16 + 16 * script.below(40);
                self.put(at, &raw.to_le_bytes());
            }
            _ => {
                if let Some(file) = &self.inflight {
                    let bytes = file.metadata().expect("a file").len();
                    let (at, value) = (script.below(bytes), script.byte());
                    file.write_all_at(&[value], at).expect("room");
                }
                self.end();
                let next = script.word() as u16;
                // Most begin where the one before ended.
                self.start(if next.is_multiple_of(4) {
                    self.next
                } else {
                    next
                });
            }
        }
    }

    /// The device has a turn, while the guest's memory may change.
    fn round(&mut self, script: &mut Script<'_>) {
        let Some(queue) = &mut self.queue else {
            return;
        };
        if !self.is_changing {
            queue.round();
            return;
        }
        let (over, seed) = (AtomicBool::new(false), script.word());
        let memory = &self.memory;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut number = seed;
                while !over.load(Relaxed) {
                    number = number.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                    let at = GuestAddress((number >> 33) % DATA);
                    // Behind the other's back.
                    let _ = memory.write_slice(&[(number >> 56) as u8], at);
                }
            });
            queue.round();
            over.store(true, Relaxed);
        });
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        // A guest cannot write where it has no memory.
        let _ = self.memory.write_slice(bytes, GuestAddress(at));
    }

    fn offer(&mut self, head: u16) {
        let slot = u64::from(self.next % QUEUE);
        self.put(AVAILABLE + 4 + 2 * slot, &head.to_le_bytes());
        self.next = self.next.wrapping_add(1);
        self.put(AVAILABLE + 2, &self.next.to_le_bytes());
    }

    /// A request as it should be, whose parts are in as many descriptors as its shape says.
    fn request(&mut self, script: &mut Script<'_>) {
        let kind = KINDS[usize::from(script.byte()) % 6];
        let (sector, sectors) = (script.below(130), u64::from(script.byte() % 24));
        let (shape, head) = (script.byte(), (self.next * 4) % QUEUE);
        let raw = u128::from(kind) | u128::from(sector) << 64;
        self.put(HEADERS, &raw.to_le_bytes());
        let bytes = match kind {
            11 | 13 => 16 * sectors as u32,
            4 => 0,
            8 => 20,
            _ => 512 * sectors as u32,
        };
        let writes = if kind == 0 || kind == 8 { F_WRITE } else { 0 };
        let data = if shape & 4 == 0 { DATA } else { HEADERS + 16 };
        let mut parts = vec![(HEADERS, 16, 0)];
        let middle = if shape & 2 == 0 { bytes } else { bytes / 3 };
        parts.push((data, middle, writes));
        parts.push((data + u64::from(middle), bytes - middle, writes));
        parts.push((DATA - 1, 1, F_WRITE));
        let (table, first) = match shape & 1 {
            0 => (DESCRIPTORS, head),
            _ => (TABLE, 0),
        };
        let last = parts.len() - 1;
        for (at, (address, length, flags)) in parts.into_iter().enumerate() {
            let next = first + at as u16 + 1;
            let flags = if at < last { flags | F_NEXT } else { flags };
            let to = table + u64::from(next - 1) % 64 * 16;
            self.put(to, &entry(address, length, flags, next));
        }
        if shape & 1 == 1 {
            let indirect = entry(TABLE, 64, F_INDIRECT, 0);
            self.put(DESCRIPTORS + u64::from(head) * 16, &indirect);
        }
        self.offer(head);
    }

    /// Has everything end that is under way.
    fn end(&mut self) {
        self.stores[0].release();
        let Some(mut queue) = self.queue.take() else {
            return;
        };
        queue.stop();
        eventually("every request ends", || {
            queue.round();
            queue.in_flight() == 0
        });
        drop(queue);
        let taken = *self.taken.lock().expect("one thread");
        assert_eq!(
            taken,
            (0, 0),
            "all that was taken of the room is given back"
        );
    }

    fn check_and_stop(mut self) {
        self.end();
        self.stores[0].fail(false);
        eventually("no read is under way", || {
            self.engine.reads_under_way() == 0
        });
        self.engine.audit();
        for (at, bytes) in REGIONS {
            let mut content = vec![0; bytes];
            let read = self.memory.read_slice(&mut content, GuestAddress(at));
            read.expect("it is the guest's");
            assert_clean(&content);
        }
        read_honest(&self.engine, self.other);
        assert!(
            self.stores[1].content() == stamped(HONEST, 0, OTHER),
            "another volume's store has changed"
        );
    }
}

fn read_honest(engine: &Arc<Engine>, volume: VolumeId) {
    let client = engine.join(volume);
    let operation = Operation::Read {
        offset: 8 * BLOCK,
        length: 6 * BLOCK,
    };
    let data = engine.wait(volume, client, operation).expect("a read");
    let expected = stamped(HONEST, 8 * BLOCK, 6 * BLOCK as usize);
    assert!(data.as_slice() == expected, "another volume's content");
    engine.leave(volume, client);
}

/// Nothing of the other volume, and nothing that nobody filled.
fn assert_clean(content: &[u8]) {
    let (mut of_honest, mut poisoned) = (0, 0);
    for (at, byte) in content.iter().enumerate() {
        of_honest = if byte >> 6 == HONEST {
            of_honest + 1
        } else {
            0
        };
        poisoned = if *byte == POISON { poisoned + 1 } else { 0 };
        assert!(poisoned < 256, "a buffer that nobody filled, at {at}");
        if of_honest >= WINDOW {
            let window = &content[at + 1 - WINDOW..=at];
            assert!(!WINDOWS.contains(window), "another volume's data, at {at}");
        }
    }
}

/// IN, OUT, FLUSH, GET_ID, DISCARD, WRITE_ZEROES.
const KINDS: [u32; 6] = [0, 1, 4, 8, 11, 13];

fn entry(address: u64, length: u32, flags: u16, next: u16) -> [u8; 16] {
    let raw = u128::from(address)
        | u128::from(length) << 64
        | u128::from(flags) << 96
        | u128::from(next) << 112;
    raw.to_le_bytes()
}

fn descriptor(script: &mut Script<'_>) -> [u8; 16] {
    let (address, length) = (place(script), number(script) as u32);
    let (flags, next) = (u16::from(script.byte()), script.below(20) as u16);
    entry(address, length, flags & 7, next)
}

fn header(script: &mut Script<'_>) -> [u8; 16] {
    let kind = match script.byte() {
        at @ 0..6 => KINDS[usize::from(at)],
        other => u32::from(other),
    };
    (u128::from(kind) | u128::from(number(script)) << 64).to_le_bytes()
}

/// Small numbers mostly, and those at which sums overflow.
fn number(script: &mut Script<'_>) -> u64 {
    let (kind, low) = (script.byte(), script.word());
    match kind % 6 {
        0 => low % 256,
        1 => low,
        2 => low % 20 * 512,
        3 => u64::MAX - low,
        4 => 1 << (low % 64),
        _ => (u64::MAX / 512).wrapping_add(low),
    }
}

/// A place in the guest's memory, or at its edges.
fn place(script: &mut Script<'_>) -> u64 {
    let (kind, low) = (script.byte(), script.word());
    match kind % 8 {
        0 => HEADERS + low % 64,
        1 => TABLE + low % 1024,
        2 => DATA + low % (DATA * 4),
        3 => low % 0x7000,
        4 => REGIONS[1].0 + low % 0x1100,
        5 => REGIONS[2].0.wrapping_add(low % 0x3000),
        6 => REGIONS[0].1 as u64 - low % 64,
        _ => low << 48 | low,
    }
}
