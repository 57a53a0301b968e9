//! Many requests at a time for the same few blocks: each is answered once, and what is there is of some order of them. None is
//! overtaken by one that comes after it has waited for the first time.

use crate::asked::{Alone, Answer, Order, POLICIES, release_one, request};
use crate::disk::{Clock, Disk, SECTOR};
use crate::model::Model;
use futae_engine::{
    ClientId, Engine, EngineOptions, IoBuf, IoError, OnEviction, Operation, Store, WriteBackOptions,
};
use futae_policy::{Class, Prng, VolumeId};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const BLOCK: u64 = 4096;
const OF_BLOCK: u64 = BLOCK / SECTOR;
const SECTORS: u64 = 10 * OF_BLOCK;
/// A fixed disk, a file with registers, and a file that is appended to.
const FIXED: usize = 0;
const APPENDED: usize = 2;

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
    is_write: bool,
    /// If it is watched: when its first wait has ended, see [`Run::watch`].
    waits_until: Option<u64>,
    /// Since when that has been.
    since: Option<u64>,
}

struct Place {
    disk: Arc<Disk>,
    model: Model,
    volume: VolumeId,
    /// How many operations have ended, of those that did not end at once.
    released: u64,
}

/// How many blocks requests have.
#[derive(Clone, Copy)]
enum Long {
    UpTo(u64),
    /// One or two, and now and then nearly all.
    Crowds,
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
    long: Long,
    order: Order,
    clock: Arc<Clock>,
    /// Whether another thread changes something: one may have decided on an answer that is not there yet.
    is_beside: bool,
    /// How often a request was watched while another one was answered.
    turns: u64,
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
        let world = Alone::new(&clock, Vec::new(), Prng::new(0));
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
                released: 0,
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
            long: [Long::UpTo(1), Long::UpTo(3), Long::UpTo(9), Long::Crowds]
                [prng.below(4) as usize],
            order: [Order::OfArrival, Order::Any][prng.below(2) as usize],
            prng,
            writes_back,
            clock,
            is_beside: false,
            turns: 0,
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
        let blocks = match self.long {
            Long::UpTo(most) => 1 + self.prng.below(most),
            Long::Crowds if self.prng.below(12) > 0 => 1 + self.prng.below(2),
            Long::Crowds => {
                first %= 2 * OF_BLOCK;
                8 + self.prng.below(3)
            }
        };
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
        let is_write = !matches!(what, What::Read | What::Flush);
        let waits_until = self.watch(at, &operation);
        let volume = self.places[at].volume;
        let (request, answer) = request(volume, ClientId(1), begun, operation);
        self.pending.push(Pending {
            answer,
            at,
            first,
            sectors,
            begun,
            what,
            is_write,
            waits_until,
            since: None,
        });
        self.engine.submit(request);
    }

    fn collect(&mut self) {
        self.watch_turns();
        let mut at = 0;
        while at < self.pending.len() {
            let Some(result) = self.pending[at].answer.take() else {
                at += 1;
                continue;
            };
            let answered = self.pending.swap_remove(at);
            self.check_turn(&answered);
            let Pending {
                at: place,
                first,
                sectors,
                begun,
                what,
                ..
            } = answered;
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
        let disks: Vec<_> = self.places.iter().map(|it| Arc::clone(&it.disk)).collect();
        let fails = if may_fail { self.fails } else { 0 };
        let released = release_one(&disks, fails, self.order, &mut self.prng);
        if let Some(at) = released {
            self.places[at].released += 1;
        }
        released.is_some()
    }

    /// If a request that is about to begin is watched: how many operations of its disk have ended once all those that are under
    /// way now have, if they end in their order. Until then it waits for one of them, and no longer than that without a place in
    /// the line. Not watched are requests whose first wait may be for something else (fewer dirty blocks, another thread),
    /// or whose range may move, and reads: once one has begun, not all that it reads keeps writes away.
    fn watch(&self, at: usize, operation: &Operation) -> Option<u64> {
        let is_known = match at {
            FIXED => true,
            APPENDED => false,
            _ => self.fails == 0,
        };
        let may_be_watched = match operation {
            Operation::Trim { .. } | Operation::WriteZeroes { .. } => true,
            Operation::Write { fua, .. } => *fua || !self.writes_back,
            _ => false,
        };
        let known = &self.places[at];
        let is_alone = self.order == Order::OfArrival && !self.is_beside;
        let is_watched = is_known && may_be_watched && is_alone;
        is_watched.then(|| known.released + known.disk.held() as u64)
    }

    /// The first wait of some requests has ended.
    fn watch_turns(&mut self) {
        for it in &mut self.pending {
            let released = self.places[it.at].released;
            let has_waited = it.waits_until.is_some_and(|until| until <= released);
            if has_waited && it.since.is_none() {
                it.since = Some(self.event);
            }
        }
    }

    /// A request has been answered: it has overtaken none that overlaps it and whose first wait had ended before it came.
    fn check_turn(&mut self, by: &Pending) {
        let is_behind = |it: &Pending| it.since.is_some_and(|since| since < by.begun);
        let overlaps = |it: &Pending| {
            let is_met = it.first < by.first + by.sectors && by.first < it.first + it.sectors;
            is_met && it.at == by.at
        };
        // A read of a file that grows may end before the range.
        if by.what == What::Flush || by.at == 1 && !by.is_write {
            return;
        }
        let mut those = self.pending.iter();
        let overtaken = those.find(|it| is_behind(it) && overlaps(it) && !it.answer.is_there());
        assert!(
            overtaken.is_none(),
            "{} sectors at {} of {}, overtaken by {} at {}",
            overtaken.map_or(0, |it| it.sectors),
            overtaken.map_or(0, |it| it.first),
            by.at,
            by.sectors,
            by.first
        );
        self.turns += self.pending.iter().filter(|it| it.since.is_some()).count() as u64;
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
        self.is_beside = true;
        for it in &mut self.pending {
            (it.waits_until, it.since) = (None, None);
        }
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
        self.is_beside = false;
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
            982..984 => {
                let other = POLICIES[self.prng.below(6) as usize].parse();
                let other = other.expect("a policy");
                self.engine.change_policy(&other).expect("a change");
            }
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
        let begun = self.now();
        let (request, answer) = request(volume, ClientId(1), begun, operation);
        self.engine.submit(request);
        for _ in 0..20_000 {
            if let Some(result) = answer.take() {
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
    let (mut turns, seeds) = (0, crate::seeds(24));
    for seed in seeds.clone() {
        println!("seed {seed}");
        let mut run = Run::new(seed);
        for _ in 0..1500 {
            run.step();
        }
        run.end();
        turns += run.turns;
    }
    assert!(turns > 0 || seeds.count() < 24, "none was watched");
}
