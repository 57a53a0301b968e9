//! Many requests at a time for the same few blocks: each is answered once, and what is there is of some order of them.

use crate::disk::{Clock, Disk, End, SECTOR};
use crate::model::Model;
use futae_engine::{
    ClientId, Engine, EngineOptions, IoBuf, IoError, OnEviction, Operation, Request, Store, World,
    WriteBackOptions,
};
use futae_policy::{Class, Prng, VolumeId};
use std::io;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;
const OF_BLOCK: u64 = BLOCK / SECTOR;
const SECTORS: u64 = 10 * OF_BLOCK;
const POLICIES: [&str; 6] = ["lru", "fix", "arc", "cost", "s3-fifo", "sieve"];
/// A fixed disk, a file with registers, and a file that is appended to.
const FIXED: usize = 0;
const APPENDED: usize = 2;

type Answer = Arc<Mutex<Option<Result<Vec<u8>, IoError>>>>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Read,
    Write(bool),
    Flush,
    Any,
}

struct Pending {
    answer: Answer,
    at: usize,
    first: u64,
    sectors: u64,
    begun: u64,
    what: What,
}

struct Place {
    disk: Arc<Disk>,
    model: Model,
    volume: VolumeId,
}

struct Run {
    engine: Arc<Engine>,
    places: Vec<Place>,
    pending: Vec<Pending>,
    prng: Prng,
    event: u64,
    fails: u64,
    depth: usize,
    writes_back: bool,
    long: u64,
    fixed_order: bool,
    clock: Arc<Clock>,
}

/// A world with the test's clock and no threads.
struct Alone {
    clock: Arc<Clock>,
    start: Instant,
}

impl World for Alone {
    fn now(&self) -> Instant {
        self.start + Duration::from_nanos(self.clock.ns())
    }

    fn apart(&self, _name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        work();
        Ok(())
    }

    fn has_clock_threads(&self) -> bool {
        false
    }
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let writes_back = prng.below(3) > 0;
        let options = EngineOptions {
            block_bytes: BLOCK,
            capacity_blocks: 1 + prng.below(14) as u32,
            policy: POLICIES[prng.below(6) as usize].parse().expect("a policy"),
            seed: 1,
            on_eviction: OnEviction::None,
            decision_log: None,
            write_back: writes_back.then(|| WriteBackOptions {
                dirty_max: [0.1, 0.3, 1.0][prng.below(3) as usize],
                dirty_age_max: Duration::from_millis([0, 5, 5000][prng.below(3) as usize]),
            }),
        };
        let clock = Arc::<Clock>::default();
        let world = Alone {
            clock: Arc::clone(&clock),
            start: Instant::now(),
        };
        let engine = Engine::in_world(&options, Arc::new(world)).expect("a cache");
        if prng.below(3) > 0 {
            engine.set_step_blocks(1 + prng.below(5));
        }
        let places = (0..3).map(|number| {
            let mut model = Model::new(number as u64, BLOCK);
            model.settle(&vec![0; (SECTORS * SECTOR) as usize]);
            let disk = match number {
                FIXED => {
                    let odd = prng.below(2) * 3 * SECTOR;
                    Disk::new(0, vec![0; (SECTORS * SECTOR - odd) as usize], false, &clock)
                }
                _ => Disk::file(number as u8),
            };
            let store: Arc<dyn Store> = Arc::clone(&disk) as _;
            let volume = match number {
                FIXED => engine.add_volume("disk", store, Class::NORMAL),
                _ => engine.add_growing_volume("file", store, Class::NORMAL),
            };
            let volume = volume.expect("a volume");
            Place {
                disk,
                model,
                volume,
            }
        });
        let places = places.collect();
        Self {
            engine,
            places,
            pending: Vec::new(),
            event: 1,
            fails: [0, 0, 5, 30][prng.below(4) as usize],
            depth: [6, 20, 60, 150][prng.below(4) as usize],
            long: [1, 3, 9][prng.below(3) as usize],
            fixed_order: prng.below(2) == 0,
            prng,
            writes_back,
            clock,
        }
    }

    fn now(&mut self) -> u64 {
        self.event += 1;
        self.event
    }

    fn start(&mut self) {
        let at = [FIXED, FIXED, 1, 1, APPENDED][self.prng.below(5) as usize];
        let all = match at {
            FIXED => {
                self.places[at]
                    .disk
                    .with(|inside| inside.bytes.len() as u64)
                    / SECTOR
            }
            _ => SECTORS,
        };
        let mut first = self.prng.below(all);
        if self.prng.below(2) == 0 {
            first = first / OF_BLOCK * OF_BLOCK;
        }
        let blocks = 1 + self.prng.below(self.long);
        let sectors = [blocks * OF_BLOCK, 1 + self.prng.below(blocks * OF_BLOCK)];
        let sectors = sectors[self.prng.below(2) as usize].min(all - first);
        let (offset, length) = (first * SECTOR, sectors * SECTOR);
        let fua = self.prng.below(5) == 0;
        let begun = self.now();
        let (operation, what, value) = match (self.prng.below(14), at) {
            (0, _) => (Operation::Flush, What::Flush, None),
            (1, _) => (Operation::Settle, What::Flush, None),
            (2..=6, APPENDED) => {
                let data = IoBuf::copy_of(&vec![begun as u8; length as usize]);
                (Operation::Append { data, fua }, What::Any, None)
            }
            (7..=8, APPENDED) => {
                let data = IoBuf::copy_of(&vec![begun as u8; length as usize]);
                (Operation::Write { offset, data, fua }, What::Any, None)
            }
            (2, FIXED) => {
                let through = What::Write(!self.writes_back);
                (Operation::Trim { offset, length }, through, Some(0))
            }
            (3, FIXED) => {
                let zeroes = Operation::WriteZeroes {
                    offset,
                    length,
                    fua,
                    no_hole: false,
                };
                (zeroes, What::Write(fua), Some(0))
            }
            (2..=9, 0 | 1) => {
                let value = 100 + begun;
                let data = self.places[at].model.data(value, first, sectors);
                let data = IoBuf::copy_of(&data);
                let write = Operation::Write { offset, data, fua };
                (write, What::Write(fua), Some(value))
            }
            (_, APPENDED) => (Operation::Read { offset, length }, What::Any, None),
            _ => (Operation::Read { offset, length }, What::Read, None),
        };
        if let Some(value) = value {
            self.places[at].model.begin(value, (first, sectors), begun);
        }
        let answer = Answer::default();
        let slot = Arc::clone(&answer);
        self.pending.push(Pending {
            answer,
            at,
            first,
            sectors,
            begun,
            what,
        });
        self.engine.submit(Request {
            volume: self.places[at].volume,
            client: ClientId(1),
            sequence: begun,
            operation,
            done: Box::new(move |result: Result<IoBuf, IoError>| {
                let result = result.map(|data| data.as_slice().to_vec());
                let before = slot.lock().expect("whole").replace(result);
                assert!(before.is_none(), "answered twice");
            }),
        });
    }

    fn collect(&mut self) {
        let mut at = 0;
        while at < self.pending.len() {
            let result = self.pending[at].answer.lock().expect("whole").take();
            let Some(result) = result else {
                at += 1;
                continue;
            };
            let Pending {
                at: place,
                first,
                sectors,
                begun,
                what,
                ..
            } = self.pending.swap_remove(at);
            let now = self.now();
            let model = &mut self.places[place].model;
            match (what, result) {
                (What::Read, Ok(bytes)) => model.check(first, &bytes, Some(begun), "a read"),
                (What::Write(is_through), result) => {
                    let is_good = result.is_ok();
                    assert!(is_good || self.fails > 0, "a good disk");
                    model.end((first, sectors), begun, now, (is_good, is_through));
                }
                (What::Flush, Ok(_)) => model.flushed(begun),
                (What::Any, _) => {}
                (What::Read | What::Flush, Err(error)) => {
                    assert!(self.fails > 0, "a good disk: {error}");
                }
            }
        }
    }

    fn check(&mut self) {
        self.engine.audit();
        for known in &self.places[..APPENDED] {
            let bytes = known.disk.with(|inside| inside.bytes.clone());
            known.model.check(0, &bytes, None, "the disk");
        }
        let oldest = self.pending.iter().map(|it| it.begun).min();
        let oldest = oldest.unwrap_or(self.event);
        for known in &mut self.places {
            known.model.forget(oldest);
        }
    }

    fn release_one(&mut self, may_fail: bool) -> bool {
        let from = self.prng.below(3) as usize;
        for at in (from..3).chain(0..from) {
            let disk = Arc::clone(&self.places[at].disk);
            let held = disk.held() as u64;
            if held > 0 {
                let fails = may_fail && self.fails > 0 && self.prng.below(self.fails) == 0;
                let end = if fails { End::Bad } else { End::Good };
                let which = match self.fixed_order {
                    true => 0,
                    false => self.prng.below(held) as usize,
                };
                disk.release(which, end, &mut self.prng);
                return true;
            }
        }
        false
    }

    /// The appended file is changed or cut, while requests go on; or the disk is looked at again.
    fn change(&mut self) {
        let engine = Arc::clone(&self.engine);
        let (disk, volume) = (
            Arc::clone(&self.places[APPENDED].disk),
            self.places[APPENDED].volume,
        );
        let fixed = self.places[FIXED].volume;
        let which = self.prng.below(3);
        let at = self.prng.below(SECTORS) * SECTOR;
        let thread = thread::spawn(move || match which {
            0 => drop(engine.lengthen_volume(fixed, Duration::ZERO)),
            1 => drop(engine.change_size(volume, at, || {
                disk.change(|content| content.resize(at as usize, 0));
            })),
            _ => drop(engine.change(volume, at, BLOCK, || {
                disk.change(|content| {
                    let end = (at + BLOCK) as usize;
                    content.resize(content.len().max(end), 0);
                    content[at as usize..end].fill(77);
                });
            })),
        });
        let mut turns = 0;
        while !thread.is_finished() {
            thread::yield_now();
            if turns % 5 == 0 && !self.release_one(true) {
                self.clock.pass(600);
                self.engine.tick();
            }
            turns += 1;
            if self.pending.len() < self.depth && turns % 3 == 0 {
                self.start();
            }
            self.collect();
            assert!(turns < 5_000_000, "a change waits for ever");
        }
        thread.join().expect("it ends");
    }

    fn drain(&mut self) {
        for _ in 0..20_000 {
            if self.pending.is_empty() {
                return;
            }
            if !self.release_one(false) {
                self.clock.pass(600);
                self.engine.tick();
                thread::yield_now();
            }
            self.collect();
        }
        panic!("{} requests are never answered", self.pending.len());
    }

    fn step(&mut self) {
        match self.prng.below(1000) {
            0..500 => {
                if self.pending.len() < self.depth {
                    self.start();
                }
            }
            500..970 => drop(self.release_one(true)),
            970..975 => self.change(),
            975..980 => {
                let slots = 1 + self.prng.below(16) as u32;
                self.engine.resize(slots).expect("another size");
            }
            980..982 => self.drain(),
            _ => {
                self.clock.pass([1, 20, 600][self.prng.below(3) as usize]);
                self.engine.tick();
            }
        }
        self.collect();
        self.check();
    }

    fn end(&mut self) {
        self.drain();
        for at in 0..3 {
            let volume = self.places[at].volume;
            let answers = [Operation::Flush, Operation::Flush].map(|operation| {
                let answer = self.ask(volume, operation);
                answer.is_ok()
            });
            assert!(answers[1], "a flush of a good disk");
            let bytes = self.places[at].disk.with(|inside| inside.bytes.clone());
            let length = bytes.len() as u64;
            let read = self.ask(volume, Operation::Read { offset: 0, length });
            assert!(read.expect("a read") == bytes, "{at} differs");
            if at != APPENDED {
                let now = self.now();
                self.places[at].model.check(0, &bytes, Some(now), "the end");
            }
        }
        assert_eq!(self.engine.dirty_blocks(), 0);
        let volumes = [1, APPENDED].map(|at| self.places[at].volume);
        for volume in volumes {
            let engine = Arc::clone(&self.engine);
            let thread = thread::spawn(move || engine.remove_volume(volume));
            while !thread.is_finished() {
                self.release_one(false);
                thread::yield_now();
            }
            thread.join().expect("it ends");
        }
    }

    fn ask(&mut self, volume: VolumeId, operation: Operation) -> Result<Vec<u8>, IoError> {
        let answer = Answer::default();
        let slot = Arc::clone(&answer);
        let begun = self.now();
        self.engine.submit(Request {
            volume,
            client: ClientId(1),
            sequence: begun,
            operation,
            done: Box::new(move |result: Result<IoBuf, IoError>| {
                let result = result.map(|data| data.as_slice().to_vec());
                *slot.lock().expect("whole") = Some(result);
            }),
        });
        for _ in 0..20_000 {
            if let Some(result) = answer.lock().expect("whole").take() {
                return result;
            }
            if !self.release_one(false) {
                self.clock.pass(600);
                self.engine.tick();
                thread::yield_now();
            }
        }
        panic!("never answered");
    }
}

#[test]
fn what_overlaps_is_answered_once_and_in_some_order() {
    for seed in crate::seeds(24) {
        println!("seed {seed}");
        let mut run = Run::new(seed);
        for _ in 0..1500 {
            run.step();
        }
        run.end();
    }
}
