//! One run: everything that a seed decides on, and what all parts of it share.

use crate::client::{Client, Pending};
use crate::config::Config;
use crate::cover::Cover;
use crate::front::{Around, Front, Held, Mark};
use crate::link::{Letter, Link};
use crate::lower::Lower;
use crate::options::Options;
use crate::pages::{Kept, Pages};
use crate::register::Register;
use crate::{content::SECTOR, disk::Disk};
use futae_engine::{ClientId, Engine, SetupError, Store, UncleanMark, World};
use futae_policy::{Class, Prng, VolumeId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How an engine ends without being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Its process dies; disks keep what they have.
    Process,
    /// Disks lose what is not stable, too.
    Power,
}

/// One volume: its disk, and what is known of it.
pub struct Volume {
    pub disk: Disk,
    pub registers: Vec<Register>,
    /// The level below, if it keeps what is demoted to it.
    pub lower: Lower,
    pub is_away: bool,
    pub generation: u64,
    /// Whether its unclean mark is there.
    pub is_marked: bool,
    /// Whether a client has still to be told that writes were lost.
    pub owes_loss: bool,
    /// The clients that have been told.
    pub told: HashSet<ClientId>,
    /// The clients that were connected when the first was told, and have yet to be told: a FLUSH that they begin after this time
    /// fails.
    pub untold: HashMap<ClientId, u64>,
}

/// Something that runs apart.
pub type Job = Box<dyn FnOnce() + Send>;

/// What all parts share.
pub struct Inside {
    pub config: Config,
    pub prng: Prng,
    /// Events so far; the time of the checker.
    pub events: u64,
    pub clock: Duration,
    pub volumes: Vec<Volume>,
    pub held: Vec<Held>,
    pub jobs: Vec<Job>,
    /// What is on its way between two caches.
    pub letters: Vec<Letter>,
    pub clients: Vec<Client>,
    pub pending: BTreeMap<u64, Pending>,
    pub engine: Option<Arc<Engine>>,
    /// The cache below it, if there is one.
    pub below: Option<Arc<Engine>>,
    /// The kernel's page cache, if it holds the blocks of the upper cache.
    pub pages: Option<Pages>,
    /// Engines so far.
    pub incarnation: u64,
    pub crashing: Option<Crash>,
    /// The kind of run, to count states by.
    pub kind: u64,
    /// How deep actions are nested.
    pub depth: u32,
    /// How often a disk, or what a client was told, has changed.
    pub changes: u64,
    /// Nothing may run beside what runs now.
    pub quiet: u32,
    /// When the outermost action began.
    pub action_began: u64,
    pub next_id: u64,
    pub next_version: u64,
    pub cover: Cover,
    /// Nothing fails and nothing crashes any more.
    pub is_calm: bool,
    pub options: Options,
    pub failure: Option<String>,
}

/// One run.
pub struct Sim {
    inside: Mutex<Inside>,
}

/// The number of what disks hold at first.
pub const FIRST_VERSION: u64 = 1;

impl Sim {
    /// The run of `seed`; its engine has not been started.
    pub fn new(seed: u64) -> Arc<Self> {
        let mut prng = Prng::new(seed);
        let config = Config::draw(&mut prng);
        let mut inside = Inside {
            volumes: Vec::new(),
            config,
            prng,
            events: 1,
            clock: Duration::ZERO,
            held: Vec::new(),
            jobs: Vec::new(),
            letters: Vec::new(),
            clients: Vec::new(),
            pending: BTreeMap::new(),
            engine: None,
            below: None,
            pages: None,
            incarnation: 0,
            crashing: None,
            kind: 0,
            depth: 0,
            changes: 0,
            quiet: 0,
            action_began: 0,
            next_id: 1,
            next_version: FIRST_VERSION + 1,
            cover: Cover::default(),
            is_calm: false,
            options: Options::default(),
            failure: None,
        };
        inside.lay_out();
        Arc::new(Self {
            inside: Mutex::new(inside),
        })
    }

    /// What all parts share. Nobody may call the engine while this is held.
    pub fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts an engine over the disks.
    pub fn start(self: &Arc<Self>) -> Result<(), String> {
        let (config, slots, seed, incarnation) = {
            let mut inside = self.lock();
            inside.incarnation += 1;
            let slots = inside.config.slots;
            let slots = if inside.prng.below(3) == 0 {
                1 + inside.prng.below(20) as u32
            } else {
                slots
            };
            let seed = inside.prng.bits();
            (inside.config.clone(), slots, seed, inside.incarnation)
        };
        let around = Arc::new(Around {
            sim: Arc::clone(self),
            incarnation,
        });
        let below = match &config.below {
            Some(below) => {
                let seed = self.lock().prng.bits();
                let below = self.make(below, below.slots, seed, &around)?;
                self.add_disks(&below, incarnation)?;
                self.lock().below = Some(Arc::clone(&below));
                Some(below)
            }
            None => None,
        };
        let engine = self.make(&config, slots, seed, &around)?;
        match &below {
            Some(below) => self.add_links(&engine, below, incarnation)?,
            None => self.add_disks(&engine, incarnation)?,
        }
        self.mount(&engine, incarnation);
        let mut clients = Vec::new();
        for _ in 0..2 {
            let volume = self.lock().prng.below(config.volumes.len() as u64) as usize;
            let id = engine.join(VolumeId(volume as u16));
            let joined = self.lock().event();
            clients.push(Client::new(id, volume, joined));
        }
        let mut inside = self.lock();
        inside.clients = clients;
        inside.engine = Some(engine);
        Ok(())
    }

    /// Has the kernel's page cache hold the blocks, if it is to.
    fn mount(self: &Arc<Self>, engine: &Arc<Engine>, incarnation: u64) {
        {
            let mut inside = self.lock();
            if inside.config.pages.is_none() {
                return;
            }
            let is_watching = inside.prng.below(4) > 0;
            inside.pages = Some(Pages::new(is_watching));
        }
        engine.approximate_hit_order();
        engine.keep_elsewhere(Arc::new(Kept {
            sim: Arc::clone(self),
            incarnation,
        }));
    }

    fn make(
        self: &Arc<Self>,
        config: &Config,
        slots: u32,
        seed: u64,
        around: &Arc<Around>,
    ) -> Result<Arc<Engine>, String> {
        let text = |error: SetupError| error.to_string();
        let options = config.options(slots, seed)?;
        let world: Arc<dyn World> = Arc::clone(around) as _;
        let engine = Engine::in_world(&options, world).map_err(text)?;
        if config.verifies {
            let how = config.verification();
            engine.verify_demotions(how).map_err(text)?;
        }
        if config.shares {
            engine.share_equal().map_err(text)?;
        }
        if let Some(blocks) = config.step_blocks {
            engine.set_step_blocks(blocks);
        }
        Ok(engine)
    }

    /// Adds the disks as volumes, with their marks.
    fn add_disks(self: &Arc<Self>, engine: &Arc<Engine>, incarnation: u64) -> Result<(), String> {
        let (volumes, has_marks) = {
            let inside = self.lock();
            (inside.config.volumes.clone(), inside.config.has_marks)
        };
        for (number, bytes) in volumes.into_iter().enumerate() {
            let front: Arc<dyn Store> = Arc::new(Front {
                sim: Arc::clone(self),
                volume: number,
                incarnation,
                bytes,
            });
            let id = add(engine, number, front)?;
            if has_marks {
                let mark: Arc<dyn UncleanMark> = Arc::new(Mark {
                    sim: Arc::clone(self),
                    volume: number,
                    incarnation,
                });
                let mut inside = self.lock();
                let known = &mut inside.volumes[number];
                known.owes_loss = known.is_marked;
                known.told.clear();
                known.untold.clear();
                let loss = known.is_marked.then(|| "writes were lost".to_owned());
                drop(inside);
                engine.guard(id, mark, loss);
            }
        }
        Ok(())
    }

    /// Adds the volumes of the cache below.
    fn add_links(
        self: &Arc<Self>,
        engine: &Arc<Engine>,
        below: &Arc<Engine>,
        incarnation: u64,
    ) -> Result<(), String> {
        let volumes = self.lock().config.volumes.clone();
        for (number, bytes) in volumes.into_iter().enumerate() {
            let link: Arc<dyn Store> = Arc::new(Link {
                sim: Arc::clone(self),
                volume: number,
                client: below.join(VolumeId(number as u16)),
                incarnation,
                bytes,
            });
            add(engine, number, link)?;
        }
        Ok(())
    }

    /// Runs `work` where another thread could run now, unless nothing may.
    pub fn preempt(self: &Arc<Self>) {
        {
            let mut inside = self.lock();
            let odds = inside.config.preempts;
            let is_quiet = inside.depth == 0 || inside.depth > 3 || inside.quiet > 0;
            if odds == 0 || is_quiet || inside.crashing.is_some() || inside.prng.below(odds) > 0 {
                return;
            }
            inside.depth += 1;
        }
        self.act();
        self.lock().depth -= 1;
    }

    /// Runs to the end: every action, and then until nothing is under way.
    ///
    /// # Errors
    ///
    /// What went wrong.
    pub fn run(self: &Arc<Self>) -> Result<(), String> {
        self.start()?;
        let actions = self.lock().config.actions;
        for action in 0..actions {
            self.turn();
            if action % 64 == 0 {
                self.engines().iter().for_each(|engine| engine.audit());
            }
            self.verdict()?;
        }
        self.end()?;
        self.verdict()
    }

    /// One action of the outermost level, and the crash that it may have ended in.
    pub fn turn(self: &Arc<Self>) {
        {
            let mut inside = self.lock();
            inside.depth = 1;
            inside.events += 1;
            inside.action_began = inside.events;
        }
        self.act();
        let crash = {
            let mut inside = self.lock();
            inside.depth = 0;
            inside.note_state();
            inside.crashing
        };
        if let Some(crash) = crash {
            self.crash(crash);
        }
    }

    /// The engine that runs now.
    pub fn engine(&self) -> Option<Arc<Engine>> {
        self.lock().engine.clone()
    }

    /// Both caches, the upper one first.
    pub fn engines(&self) -> Vec<Arc<Engine>> {
        let inside = self.lock();
        inside.engine.iter().chain(&inside.below).cloned().collect()
    }

    /// What has gone wrong so far.
    pub fn verdict(&self) -> Result<(), String> {
        match self.lock().failure.take() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}

fn add(engine: &Engine, number: usize, store: Arc<dyn Store>) -> Result<VolumeId, String> {
    let name = ["a", "b"][number % 2];
    let id = engine.add_volume(name, store, Class::NORMAL);
    let id = id.map_err(|error| error.to_string())?;
    if usize::from(id.0) == number {
        Ok(id)
    } else {
        Err(format!("volume {number} is number {}", id.0))
    }
}

impl Inside {
    /// Lays out the volumes that the configuration has.
    pub fn lay_out(&mut self) {
        self.kind = self.config.kind();
        let volume = |(number, bytes): (usize, &u64)| Volume {
            disk: Disk::new(*bytes, number, FIRST_VERSION),
            registers: vec![Register::new(FIRST_VERSION); (bytes / SECTOR) as usize],
            lower: Lower::default(),
            is_away: false,
            generation: 1,
            is_marked: false,
            owes_loss: false,
            told: HashSet::new(),
            untold: HashMap::new(),
        };
        self.volumes = self.config.volumes.iter().enumerate().map(volume).collect();
    }

    /// The time of an event.
    pub fn event(&mut self) -> u64 {
        self.events += 1;
        self.events
    }

    /// Something is wrong; the first counts.
    pub fn fail(&mut self, what: impl FnOnce() -> String) {
        if self.failure.is_none() {
            self.failure = Some(what());
        }
    }

    /// Prints an event, if asked to.
    pub fn trace(&self, what: impl FnOnce() -> String) {
        if self.options.traces {
            println!("{:>6} {}", self.events, what());
        }
    }

    /// When the oldest read under way began.
    pub fn oldest_read(&self) -> u64 {
        let pending = self.pending.values().map(|pending| pending.invoked);
        pending.min().unwrap_or(u64::MAX).min(self.action_began)
    }

    fn note_state(&mut self) {
        let held = |kind: fn(&Held) -> bool| self.held.iter().filter(|held| kind(held)).count();
        let (reads, writes, flushes) = (
            held(|held| held.is_read()),
            held(|held| held.is_write()),
            held(|held| held.is_flush()),
        );
        let volatile: usize = self.volumes.iter().map(|known| known.disk.volatile()).sum();
        let away = self.volumes.iter().filter(|known| known.is_away).count();
        let marked = self.volumes.iter().filter(|known| known.is_marked).count();
        let by_kind = self.pending.values().fold(0, |all, pending| {
            let shift = pending.kind.number() * 4;
            if all >> shift & 15 < 3 {
                all + (1 << shift)
            } else {
                all
            }
        });
        let few = |count: usize| count.min(3) as u64;
        let parts = [
            self.kind,
            few(reads),
            few(writes),
            few(flushes),
            few(volatile),
            few(away) << 4 | few(marked),
            few(self.jobs.len()) << 2 | few(self.letters.len()),
            by_kind,
        ];
        self.cover.note_state(&parts);
    }
}
