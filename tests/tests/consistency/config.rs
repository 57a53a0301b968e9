//! What a round is played with, drawn by its seed.

use crate::sector::SECTOR;
use futae_policy::Prng;
use std::fmt;

/// Where a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// In a file.
    File,
    /// In a file, and nobody may write to it.
    ReadOnly,
    /// Behind nbdkit, which fails, is slow and goes away.
    Remote,
}

/// How a client behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// A plain client.
    Plain,
    /// It demotes, and keeps what it promises.
    Demoting,
    /// It demotes forged bytes wherever it has no right to.
    Hostile,
}

/// What a round is played with.
#[derive(Clone, Debug)]
pub struct Config {
    pub policy: &'static str,
    pub block_bytes: usize,
    pub cache_blocks: u64,
    pub share_blocks: Option<u64>,
    pub writes_back: bool,
    pub dirty: [&'static str; 2],
    pub store_timeout: &'static str,
    pub kinds: Vec<Kind>,
    pub sizes: Vec<u64>,
    pub manners: Vec<Manner>,
    /// Requests that a client has under way at most.
    pub depth: usize,
    /// Memory for the hashes by which what is demoted is verified, or `off`.
    pub evictions_memory: &'static str,
    /// Equal blocks are held once.
    pub shares_equal: bool,
    /// The cache is in a file that outlives the server.
    pub keeps_memory: bool,
}

pub const POLICIES: [&str; 15] = [
    "exclusive",
    "exclusive",
    "exclusive",
    "exclusive(keep_served=true)",
    "exclusive(lfu)",
    "lru",
    "lru",
    "arc",
    "s3-fifo",
    "sieve",
    "2q",
    "lirs",
    "random",
    "w-tinylfu",
    "auto",
];

pub fn pick<T: Copy>(random: &mut Prng, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize]
}

impl Config {
    pub fn draw(random: &mut Prng, has_nbdkit: bool) -> Self {
        let block_bytes = pick(random, &[4096, 4096, 8192, 16384, 65536]);
        let most = pick(random, &[16, 128, 512]);
        let cache_blocks = 4 + random.below(most);
        let mut kinds = vec![Kind::File];
        if random.below(3) > 0 {
            let others = [Kind::File, Kind::ReadOnly, Kind::Remote, Kind::Remote];
            let kind = pick(random, &others);
            kinds.push(if kind == Kind::Remote && !has_nbdkit {
                Kind::File
            } else {
                kind
            });
        }
        let share_blocks = (kinds.len() == 2 && random.below(3) == 0).then(|| 1 + cache_blocks / 3);
        let size = |random: &mut Prng| {
            let whole = (8 + random.below(24)) * 65536;
            whole + random.below(2) * random.below(128) * SECTOR as u64
        };
        let sizes = kinds.iter().map(|_| size(random)).collect();
        let mut manners = Vec::new();
        for _ in 0..1 + random.below(4) {
            let all = [
                Manner::Plain,
                Manner::Plain,
                Manner::Demoting,
                Manner::Demoting,
                Manner::Hostile,
            ];
            manners.push(pick(random, &all));
        }
        if kinds.contains(&Kind::ReadOnly) && random.below(2) == 0 {
            manners.push(Manner::Hostile);
        }
        manners[0] = pick(random, &[Manner::Plain, Manner::Demoting]);
        // The last one has room for a few blocks only.
        let evictions_memory = pick(random, &["off", "auto", "auto", "640"]);
        Self {
            policy: pick(random, &POLICIES),
            block_bytes,
            cache_blocks,
            share_blocks,
            writes_back: random.below(2) == 0,
            dirty: [
                pick(random, &["20%", "50%", "100%"]),
                pick(random, &["20ms", "1h"]),
            ],
            store_timeout: pick(random, &["0", "60s"]),
            kinds,
            sizes,
            manners,
            depth: pick(random, &[1, 4, 12]),
            evictions_memory,
            shares_equal: evictions_memory != "off" && random.below(2) == 0,
            keeps_memory: random.below(2) == 0,
        }
    }

    /// Two exports, the second read-only, under a policy that lives on demotions, with a forger among the clients.
    pub fn forged(random: &mut Prng) -> Self {
        let mut config = Self::draw(random, false);
        config.policy = "exclusive";
        config.kinds = vec![Kind::File, Kind::ReadOnly];
        config.sizes = vec![1 << 20; 2];
        config.share_blocks = None;
        config.manners = vec![Manner::Plain, Manner::Hostile, Manner::Plain];
        config
    }

    /// One volume that several clients write to and demote to, honest ones and forgers, under a policy that keeps
    /// what they demote.
    pub fn shared(random: &mut Prng) -> Self {
        let mut config = Self::draw(random, false);
        config.policy = "exclusive";
        config.block_bytes = 4096;
        config.kinds = vec![Kind::File];
        config.sizes = vec![1 << 20];
        config.share_blocks = None;
        config.evictions_memory = "auto";
        config.manners = vec![
            Manner::Demoting,
            Manner::Demoting,
            Manner::Hostile,
            Manner::Demoting,
        ];
        config
    }

    /// Whether what is demoted is verified.
    pub fn verifies(&self) -> bool {
        self.evictions_memory != "off"
    }

    /// Of `futae serve`.
    pub fn arguments(&self) -> Vec<String> {
        let mut all = vec![
            "--policy".to_owned(),
            self.policy.to_owned(),
            "--block".to_owned(),
            self.block_bytes.to_string(),
            "--cache".to_owned(),
            format!("{}blocks", self.cache_blocks),
            "--demotion".to_owned(),
            "on".to_owned(),
            "--store-timeout".to_owned(),
            self.store_timeout.to_owned(),
            "--evictions-memory".to_owned(),
            self.evictions_memory.to_owned(),
        ];
        if self.verifies() {
            all.push("--verify-evictions".to_owned());
        }
        if self.shares_equal {
            all.push("--share-equal".to_owned());
        }
        if self.writes_back {
            let words = [
                "--write-mode",
                "write-back",
                "--dirty-max",
                self.dirty[0],
                "--dirty-age-max",
                self.dirty[1],
            ];
            all.extend(words.map(str::to_owned));
        }
        all
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = if self.writes_back {
            "write-back"
        } else {
            "write-through"
        };
        write!(
            f,
            "{} {mode}, {} blocks of {} bytes",
            self.policy, self.cache_blocks, self.block_bytes
        )?;
        write!(
            f,
            ", {:?}, {:?}, depth {}, hashes {}",
            self.kinds, self.manners, self.depth, self.evictions_memory
        )?;
        let or_not = |is_so: bool, what: &'static str| if is_so { what } else { "" };
        write!(
            f,
            "{}{}",
            or_not(self.shares_equal, ", equal blocks once"),
            or_not(self.keeps_memory, ", memory kept")
        )
    }
}
