//! Files that several requests at a time read, write and make longer, that are cut and changed past the cache meanwhile, and
//! whose disk may be full.

use crate::asked::{Answer, Order, POLICIES, release_one, request};
use crate::disk::{Disk, End, SECTOR};
use crate::model::Model;
use futae_engine::{
    ClientId, Engine, EngineOptions, IoBuf, OnEviction, Operation, Store, WriteBackOptions,
};
use futae_policy::{Class, Prng, VolumeId};
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

const BLOCK: u64 = 4096;
const OF_BLOCK: u64 = BLOCK / SECTOR;
/// Sectors of a file at most.
const SECTORS: u64 = 14 * OF_BLOCK;

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// The length of the file in sectors, while it is known.
    Read(Option<u64>),
    /// Whether it is in the file once it is answered, and whether it makes the file longer.
    Write(bool, bool),
    Flush,
}

struct Pending {
    answer: Answer,
    file: usize,
    first: u64,
    sectors: u64,
    begun: u64,
    what: What,
}

struct File {
    disk: Arc<Disk>,
    model: Model,
    volume: VolumeId,
    /// Requests under way that change its length.
    changing: u32,
    /// Its length in sectors, if none are.
    length: Option<u64>,
}

impl File {
    fn new(engine: &Engine, number: u8) -> Self {
        let disk = Disk::file(number);
        let store: Arc<dyn Store> = Arc::clone(&disk) as _;
        let volume = engine.add_growing_volume("file", store, Class::NORMAL);
        let mut model = Model::new(u64::from(number), BLOCK);
        model.settle(&vec![0; (SECTORS * SECTOR) as usize]);
        Self {
            disk,
            model,
            volume: volume.expect("a volume"),
            changing: 0,
            length: Some(0),
        }
    }

    fn length_now(&self) -> u64 {
        self.disk.size_bytes() / SECTOR
    }
}

struct Run {
    engine: Arc<Engine>,
    files: Vec<File>,
    pending: Vec<Pending>,
    prng: Prng,
    event: u64,
    fails: u64,
    writes_back: bool,
}

/// Sees to it that a thread ends which waits for disks, also where the test has failed.
struct Ends<'a, 'b, T>(&'a ScopedJoinHandle<'b, T>, Vec<Arc<Disk>>);

impl<T> Drop for Ends<'_, '_, T> {
    fn drop(&mut self) {
        while !self.0.is_finished() {
            for disk in self.1.iter().filter(|disk| disk.held() > 0) {
                disk.release(0, End::Good, &mut Prng::new(0));
            }
            thread::yield_now();
        }
    }
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let writes_back = prng.below(4) > 0;
        let options = EngineOptions {
            block_bytes: BLOCK,
            capacity_blocks: 1 + prng.below(16) as u32,
            policy: POLICIES[prng.below(6) as usize].parse().expect("a policy"),
            seed: 1,
            on_eviction: OnEviction::None,
            decision_log: None,
            write_back: writes_back.then(|| WriteBackOptions {
                dirty_max: [0.3, 1.0][prng.below(2) as usize],
                dirty_age_max: Duration::from_millis([0, 5, 5000][prng.below(3) as usize]),
            }),
        };
        let engine = Engine::new(&options).expect("a cache");
        if prng.below(2) == 0 {
            engine.set_step_blocks(1 + prng.below(3));
        }
        let files = (0..3).map(|number| File::new(&engine, number)).collect();
        Self {
            engine,
            files,
            pending: Vec::new(),
            prng,
            event: 1,
            fails: [0, 5, 30][seed as usize % 3],
            writes_back,
        }
    }

    fn now(&mut self) -> u64 {
        self.event += 1;
        self.event
    }

    /// Nothing is known of a file's length from now on, until what changes it has ended.
    fn begin_change(&mut self, file: usize) {
        let known = &mut self.files[file];
        known.changing += 1;
        known.length = None;
        for pending in self.pending.iter_mut().filter(|it| it.file == file) {
            match &mut pending.what {
                What::Read(length) => *length = None,
                // It may come after a cut.
                What::Write(_, grows) if !*grows => {
                    *grows = true;
                    known.changing += 1;
                }
                What::Write(..) | What::Flush => {}
            }
        }
    }

    fn end_change(&mut self, file: usize) {
        let known = &mut self.files[file];
        known.changing -= 1;
        if known.changing == 0 {
            known.length = Some(known.length_now());
        }
    }

    fn start(&mut self) {
        let file = self.prng.below(3) as usize;
        let about = self.files[file].length_now() + 2 * OF_BLOCK;
        let mut first = self.prng.below(about.min(SECTORS));
        if self.prng.below(2) == 0 {
            first = first / OF_BLOCK * OF_BLOCK;
        }
        let sectors = [OF_BLOCK, 1 + self.prng.below(3 * OF_BLOCK)][self.prng.below(2) as usize];
        let sectors = sectors.min(SECTORS - first);
        let (offset, length) = (first * SECTOR, sectors * SECTOR);
        let (operation, what) = match self.prng.below(12) {
            0 => (Operation::Flush, What::Flush),
            1 => (Operation::Settle, What::Flush),
            2..=6 => {
                let value = 100 + self.event;
                let data = self.files[file].model.data(value, first, sectors);
                let (data, fua) = (IoBuf::copy_of(&data), self.prng.below(5) == 0);
                let known = self.files[file].length;
                let grows = known.is_none_or(|length| first + sectors > length);
                let is_through = fua || !self.writes_back;
                let write = Operation::Write { offset, data, fua };
                if grows {
                    self.begin_change(file);
                }
                let begun = self.event + 1;
                self.files[file].model.begin(value, (first, sectors), begun);
                (write, What::Write(is_through, grows))
            }
            _ => {
                let read = Operation::Read { offset, length };
                (read, What::Read(self.files[file].length))
            }
        };
        let begun = self.now();
        let volume = self.files[file].volume;
        let (request, answer) = request(volume, ClientId(1), begun, operation);
        self.pending.push(Pending {
            answer,
            file,
            first,
            sectors,
            begun,
            what,
        });
        self.engine.submit(request);
    }

    fn collect(&mut self) {
        let mut at = 0;
        while at < self.pending.len() {
            let Some(result) = self.pending[at].answer.take() else {
                at += 1;
                continue;
            };
            let Pending {
                file,
                first,
                sectors,
                begun,
                what,
                ..
            } = self.pending.swap_remove(at);
            let now = self.now();
            let model = &mut self.files[file].model;
            match (what, result) {
                (What::Read(length), Ok(bytes)) => {
                    let got = bytes.len() as u64 / SECTOR;
                    if let Some(length) = length {
                        let wanted = length.saturating_sub(first).min(sectors);
                        assert_eq!(got, wanted, "sectors of a file of {length}");
                    }
                    model.check(first, &bytes, Some(begun), "a read");
                }
                (What::Write(is_through, grows), result) => {
                    let is_good = result.is_ok();
                    model.end((first, sectors), begun, now, (is_good, is_through));
                    if grows {
                        self.end_change(file);
                    }
                }
                (What::Flush, Ok(_)) => model.flushed(begun),
                // It may reach the file after a cut.
                (What::Read(None), Err(_)) => {}
                (What::Read(_) | What::Flush, Err(_)) => assert!(self.fails > 0, "a good disk"),
            }
        }
    }

    fn check(&mut self) {
        self.engine.audit();
        for known in &self.files {
            let bytes = known.disk.with(|inside| inside.bytes.clone());
            known.model.check(0, &bytes, None, "the file");
        }
        let oldest = self.pending.iter().map(|it| it.begun).min();
        let oldest = oldest.unwrap_or(self.event);
        for known in &mut self.files {
            known.model.forget(oldest);
        }
    }

    fn release_one(&mut self, may_fail: bool) -> bool {
        let disks: Vec<_> = self.files.iter().map(|it| Arc::clone(&it.disk)).collect();
        let fails = if may_fail { self.fails } else { 0 };
        release_one(&disks, fails, Order::Any, &mut self.prng).is_some()
    }

    /// Does what waits for others, while they go on; other requests begin beside it, unless it is to be alone.
    fn beside<T: Send>(
        &mut self,
        is_alone: bool,
        work: impl FnOnce(&Arc<Engine>) -> T + Send,
    ) -> T {
        let engine = Arc::clone(&self.engine);
        let disks = self.files.iter().map(|it| Arc::clone(&it.disk)).collect();
        thread::scope(|scope| {
            let thread = scope.spawn(move || work(&engine));
            let ends = Ends(&thread, disks);
            while !thread.is_finished() {
                thread::yield_now();
                if is_alone {
                    self.release_one(false);
                    continue;
                }
                // What the work need not wait for is still under way when it is over.
                if self.prng.below(12) == 0 && !self.release_one(true) {
                    self.engine.tick();
                }
                if self.pending.len() < 12 && self.prng.below(4) == 0 {
                    self.start();
                }
                self.collect();
            }
            drop(ends);
            thread.join().expect("it ends")
        })
    }

    /// A file is cut, or made longer, or somebody else writes to it.
    fn change(&mut self) {
        let at = self.prng.below(3) as usize;
        self.begin_change(at);
        let (disk, volume) = (Arc::clone(&self.files[at].disk), self.files[at].volume);
        let first = self.prng.below(SECTORS - 1);
        let begun = self.now();
        let is_cut = self.prng.below(3) > 0;
        let (range, value) = match is_cut {
            true => ((first, SECTORS - first), 0),
            false => ((first, 1), 100 + begun),
        };
        let model = &mut self.files[at].model;
        model.begin(value, range, begun);
        let data = model.data(value, first, 1);
        let bytes = (first * SECTOR) as usize;
        let result = self.beside(false, |engine| match is_cut {
            true => engine.change_size(volume, bytes as u64, || {
                disk.change(|content| content.resize(bytes, 0));
            }),
            false => engine.change(volume, bytes as u64, SECTOR, || {
                disk.change(|content| {
                    let end = bytes + SECTOR as usize;
                    content.resize(content.len().max(end), 0);
                    content[bytes..end].copy_from_slice(&data);
                });
            }),
        });
        let (now, is_good) = (self.now(), result.is_ok());
        assert!(is_good || self.fails > 0, "a good disk");
        self.files[at].model.end(range, begun, now, (is_good, true));
        self.end_change(at);
    }

    /// A file is removed, and another one gets its number.
    fn replace(&mut self) {
        let at = self.prng.below(3) as usize;
        self.drain();
        let volume = self.files[at].volume;
        self.beside(true, |engine| engine.remove_volume(volume));
        self.files[at] = File::new(&self.engine, at as u8);
    }

    /// Everything under way ends.
    fn drain(&mut self) {
        for _ in 0..200_000 {
            if self.pending.is_empty() {
                return;
            }
            if !self.release_one(false) {
                self.engine.tick();
                thread::yield_now();
            }
            self.collect();
        }
        panic!("{} requests are never answered", self.pending.len());
    }

    fn step(&mut self) {
        match self.prng.below(100) {
            0..45 if self.pending.len() < 12 => self.start(),
            0..90 => drop(self.release_one(true)),
            90 | 91 => {
                let slots = 1 + self.prng.below(20) as u32;
                self.engine.resize(slots).expect("another size");
            }
            92 => {
                let other = POLICIES[self.prng.below(6) as usize].parse();
                let other = other.expect("a policy");
                self.engine.change_policy(&other).expect("a change");
            }
            93..=97 => self.change(),
            98 if self.prng.below(3) == 0 => self.replace(),
            _ => self.engine.tick(),
        }
        self.collect();
        self.check();
    }

    /// The files are what the cache says.
    fn end(&mut self) {
        self.drain();
        for at in 0..3 {
            let volume = self.files[at].volume;
            let ask = |run: &mut Self, operation: fn() -> Operation| {
                run.beside(true, |engine| engine.wait(volume, ClientId(1), operation()))
            };
            let flushed = ask(self, || Operation::Flush);
            let flushed = flushed.or_else(|_| ask(self, || Operation::Flush));
            flushed.expect("a flush of a good disk");
            let read = ask(self, || Operation::Read {
                offset: 0,
                length: SECTORS * SECTOR,
            });
            let bytes = self.files[at].disk.with(|inside| inside.bytes.clone());
            assert!(
                read.expect("a read").as_slice() == bytes,
                "file {at} differs"
            );
            let now = self.now();
            self.files[at].model.check(0, &bytes, Some(now), "the end");
        }
        assert_eq!(self.engine.dirty_blocks(), 0);
    }
}

#[test]
fn files_are_what_was_written_to_them() {
    for seed in crate::seeds(16) {
        println!("seed {seed}");
        let mut run = Run::new(seed);
        for _ in 0..800 {
            run.step();
        }
        run.end();
    }
}
