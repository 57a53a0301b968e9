//! What a seed makes of a run: the cache, its stores, and what goes wrong.

use crate::content::SECTOR;
use crate::pages::{PAGE_BYTES, PagesConfig};
use futae_engine::{EngineOptions, OnEviction, Verification, WriteBackOptions};
use futae_policy::Prng;
use std::time::Duration;

/// Slots of a cache that holds equal blocks once, at most: its hints then are one set, so that no key decides on
/// which of them go.
const SHARING_SLOTS_MAX: u32 = 8;

pub const POLICIES: [&str; 20] = [
    "lru",
    "exclusive",
    "arc",
    "random",
    "fix",
    "cost",
    "const(pin=3-9)",
    "fifo",
    "clock",
    "2q",
    "s3-fifo",
    "lirs",
    "auto",
    "lfu-history",
    "w-tinylfu",
    "car",
    "lhd",
    "lecar",
    "sieve",
    "linux",
];

/// One run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Bytes of each volume.
    pub volumes: Vec<u64>,
    /// Slots at first.
    pub slots: u32,
    /// Who chooses victims.
    pub policy: &'static str,
    /// What happens to evicted blocks.
    pub on_eviction: OnEviction,
    /// How written blocks are kept.
    pub write_back: Option<WriteBackOptions>,
    /// Whether what is demoted is verified; then anybody demotes anything.
    pub verifies: bool,
    /// Whether equal blocks are held once.
    pub shares: bool,
    /// Whether volumes have unclean marks.
    pub has_marks: bool,
    /// Whether what the store gets as demotions it serves again.
    pub has_lower_cache: bool,
    /// Blocks of a step at most.
    pub step_blocks: Option<u64>,
    /// One in this many store operations fails; 0 for none.
    pub fails: u64,
    /// Whether stores go away and come back.
    pub goes_away: bool,
    /// One in this many actions is a crash or a restart; 0 for none.
    pub crashes: u64,
    /// Requests under way at most.
    pub pending_max: usize,
    /// One in this many points at which another thread could run, one does; 0 for none.
    pub preempts: u64,
    /// The cache below, if there is one; its volumes and what goes wrong are those of the upper one.
    pub below: Option<Box<Config>>,
    /// The kernel's page cache, if it holds the blocks.
    pub pages: Option<PagesConfig>,
    /// One in this many writes of data is to be stable when it is answered.
    pub fua: u64,
    /// Actions of the run.
    pub actions: u64,
}

impl Config {
    /// That of a run.
    pub fn draw(prng: &mut Prng) -> Self {
        let config = Self::draw_one(prng);
        if prng.below(150) == 0 {
            config.of_large_blocks(prng)
        } else if prng.below(3) == 0 {
            config.over(Self::draw_one(prng))
        } else {
            config
        }
    }

    /// This one with blocks that are loaded in pieces; those are neither kept dirty nor verified.
    fn of_large_blocks(self, prng: &mut Prng) -> Self {
        let block_bytes = 2 << 20;
        let bytes = block_bytes + (1 + prng.below(4 * block_bytes / SECTOR)) * SECTOR;
        Self {
            block_bytes,
            volumes: vec![bytes],
            slots: 1 + prng.below(4) as u32,
            write_back: None,
            verifies: false,
            shares: false,
            has_marks: false,
            has_lower_cache: false,
            pages: None,
            actions: 400,
            ..self
        }
    }

    /// This one above another.
    fn over(self, below: Self) -> Self {
        let below = Self {
            block_bytes: self.block_bytes,
            on_eviction: OnEviction::None,
            pages: None,
            ..below
        };
        Self {
            has_marks: false,
            has_lower_cache: false,
            goes_away: false,
            below: Some(Box::new(below)),
            ..self
        }
    }

    /// Whether one of the caches keeps written blocks.
    pub fn writes_back(&self) -> bool {
        let below = self.below.as_ref().and_then(|below| below.write_back);
        self.write_back.or(below).is_some()
    }

    fn draw_one(prng: &mut Prng) -> Self {
        let has_pages = prng.below(4) == 0;
        let block_bytes = if !has_pages && prng.below(8) == 0 {
            2 * PAGE_BYTES
        } else {
            PAGE_BYTES
        };
        let volume = |prng: &mut Prng| {
            let short = prng.below(2) * prng.below(block_bytes / SECTOR) * SECTOR;
            (4 + prng.below(14)) * block_bytes + short
        };
        let volumes = (0..1 + prng.below(2)).map(|_| volume(prng)).collect();
        let writes_back = prng.below(5) < 3;
        let dirty_max = [0.1, 0.4, 0.7, 1.0][prng.below(4) as usize];
        let age = [0, 1, 40, 5000][prng.below(4) as usize];
        let write_back = writes_back.then_some(WriteBackOptions {
            dirty_max,
            dirty_age_max: Duration::from_millis(age),
        });
        let on_eviction = match prng.below(4) {
            0 => OnEviction::None,
            1 => OnEviction::Notice,
            _ => OnEviction::Demote,
        };
        let is_faulty = prng.below(3) > 0;
        let verifies = prng.below(3) == 0;
        // Pages are demoted only where what they hold is verified.
        let on_eviction = match on_eviction {
            OnEviction::Demote if has_pages && !verifies => OnEviction::Notice,
            other => other,
        };
        let copies = on_eviction == OnEviction::Demote;
        Self {
            block_bytes,
            volumes,
            slots: 1 + prng.below(16) as u32,
            policy: POLICIES[prng.below(POLICIES.len() as u64) as usize],
            on_eviction,
            write_back,
            verifies,
            shares: verifies && prng.below(2) == 0,
            has_marks: writes_back && prng.below(2) == 0,
            has_lower_cache: on_eviction == OnEviction::Demote && prng.below(2) == 0,
            step_blocks: (prng.below(2) == 0).then(|| 1 + prng.below(4)),
            fails: if is_faulty { 8 + prng.below(60) } else { 0 },
            goes_away: is_faulty && prng.below(3) == 0,
            crashes: [0, 100, 400][prng.below(3) as usize],
            pending_max: 1 + prng.below(12) as usize,
            preempts: [0, 4, 12][prng.below(3) as usize],
            below: None,
            pages: has_pages.then(|| PagesConfig::draw(prng, copies)),
            fua: [2, 6, 30][prng.below(3) as usize],
            actions: 1500,
        }
    }

    /// That of a run of which every crash state is judged: short or long, and of each three one writes
    /// through, one writes back, and one has every write stable when it is answered.
    pub fn of_crash_states(prng: &mut Prng) -> Self {
        let mut config = Self::draw_one(prng);
        let is_short = prng.below(2) == 0;
        let mode = prng.below(3);
        config.write_back = match mode {
            0 => None,
            1 => Some(config.write_back.unwrap_or_default()),
            _ => config.write_back,
        };
        config.has_marks &= config.write_back.is_some();
        config.fua = if mode == 2 { 1 } else { 6 };
        config.crashes = 0;
        config.goes_away = false;
        config.fails = if is_short { 0 } else { config.fails };
        config.actions = if is_short { 60 } else { 300 };
        if is_short {
            config.volumes.truncate(1);
        }
        config
    }

    /// Whether a store may refuse anything.
    pub fn is_faulty(&self) -> bool {
        self.fails > 0 || self.goes_away
    }

    /// Slots that a cache gets that is to have so many.
    pub fn slots(&self, wanted: u32) -> u32 {
        match self.shares {
            true => wanted.min(SHARING_SLOTS_MAX),
            false => wanted,
        }
    }

    /// Of the engine.
    pub fn options(&self, slots: u32, seed: u64) -> Result<EngineOptions, String> {
        let policy = self.policy.parse();
        Ok(EngineOptions {
            block_bytes: self.block_bytes,
            capacity_blocks: self.slots(slots),
            policy: policy.map_err(|error| format!("{}: {error}", self.policy))?,
            seed,
            on_eviction: self.on_eviction,
            decision_log: None,
            write_back: self.write_back,
        })
    }

    /// How what is demoted is verified: by one set of hashes, since the sets of a larger table
    /// are chosen by keys that no seed decides on.
    pub fn verification(&self) -> Verification {
        Verification {
            memory_bytes: 0,
            on_refusal: futae_engine::OnRefusal::Notice,
            compare_with_store: false,
        }
    }

    /// A number for the kind of run, to count states by.
    pub fn kind(&self) -> u64 {
        let back = self
            .write_back
            .map_or(0, |how| 1 + (how.dirty_max * 4.0) as u64);
        let on_eviction = self.on_eviction as u64;
        let flags = [
            self.verifies,
            self.shares,
            self.has_marks,
            self.has_lower_cache,
            self.fails > 0,
            self.below.is_some(),
            self.pages.is_some(),
            self.pages.is_some_and(|how| how.takes),
        ];
        let flags = flags
            .iter()
            .fold(0, |all, &flag| all << 1 | u64::from(flag));
        let policy = POLICIES.iter().position(|name| *name == self.policy);
        let parts = [back, on_eviction, flags, policy.unwrap_or(0) as u64];
        parts.iter().fold(0, |all, part| all << 8 | part)
    }
}
