//! One run: everything that a seed decides on, and what all parts of it share.

use crate::client::{Client, Pending};
use crate::config::Config;
use crate::cover::Cover;
use crate::held::Held;
use crate::letter::Letter;
use crate::lower::Lower;
use crate::options::Options;
use crate::pages::Pages;
use crate::register::Register;
use crate::{content::SECTOR, disk::Disk};
use futae_engine::{ClientId, Engine};
use futae_policy::Prng;
use std::collections::{BTreeMap, HashMap};
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
    /// The clients that have been told, and when.
    pub told: HashMap<ClientId, u64>,
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
            told: HashMap::new(),
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
