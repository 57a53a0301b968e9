//! Simulated guests that read files, under an allocator.

use crate::report::PaperError;
use futae_allocate::{
    Activity, Allocator, Bounds, GuestLimits, Observation, Settings, mrc, paper, paper::MoveWhen,
};
use futae_policy::{
    Access, BlockId, DenseIndex, Level, Outcome, Policy, PolicySpec, Prng, Shape, build,
};
use futae_trace::{Generator, WorkloadSpec};

/// Page reads of a unit.
pub const UNIT_PAGES: u64 = 256;
/// Units of a GiB.
pub const GIB: u64 = 1024;
/// Units that a guest which always hits reads in a trial.
pub const TRIAL_UNITS: u64 = 2_400_000 / UNIT_PAGES;
/// What a miss takes, in hits.
pub const MISS_COST: u64 = 8;
/// Units that are read of a file before the next.
pub const PHASE_UNITS: u64 = 11 * TRIAL_UNITS;
/// What both guests begin with, in units.
pub const STATIC_MIB: u64 = 3 * GIB;
/// What a guest has at least, in units.
pub const LEAST_MIB: u64 = GIB;
/// Bytes of a unit.
const MIB: u64 = 1 << 20;
const TRIALS_LIMIT: usize = 120;

/// Who moves memory, and by which rule.
pub const MOVERS: [&str; 5] = ["static", "lt (as printed)", "ge", "always", "mrc"];

/// The allocator's settings under a name of [`MOVERS`].
pub fn mover(name: &str, seed: u64) -> Settings {
    let paper = |move_when| {
        Settings::Paper(paper::Settings {
            move_when,
            ..paper::Settings::default()
        })
    };
    match name {
        "lt (as printed)" => paper(MoveWhen::Lt),
        "ge" => paper(MoveWhen::Ge),
        "always" => paper(MoveWhen::Always),
        "mrc" => Settings::Mrc(mrc::Settings {
            unit: MIB,
            miss_cost: MISS_COST as f64,
            seed,
            ..mrc::Settings::default()
        }),
        _ => Settings::Static,
    }
}

/// How files are read, and what of a guest's memory is no cache.
pub struct Setting {
    /// For people.
    pub name: &'static str,
    /// Family and parameters of the workload.
    pub access: &'static str,
    /// Units of each guest's memory that are no cache.
    pub overhead_mib: u64,
    /// Units more of each guest's memory that are no cache: what the guest has beside the paper's sizes.
    pub extra_mib: u64,
}

/// The first is the one nearest to the published run.
pub const SETTINGS: [Setting; 6] = [
    Setting {
        name: "normal S/6, 0.4 GiB",
        access: "normal(0.1666667)",
        overhead_mib: 410,
        extra_mib: 0,
    },
    Setting {
        name: "normal S/6, 0",
        access: "normal(0.1666667)",
        overhead_mib: 0,
        extra_mib: 0,
    },
    Setting {
        name: "normal S/4, 0.4 GiB",
        access: "normal(0.25)",
        overhead_mib: 410,
        extra_mib: 0,
    },
    Setting {
        name: "normal S/4, 0",
        access: "normal(0.25)",
        overhead_mib: 0,
        extra_mib: 0,
    },
    Setting {
        name: "uniform, 0.4 GiB",
        access: "uniform",
        overhead_mib: 410,
        extra_mib: 0,
    },
    Setting {
        name: "uniform, 0",
        access: "uniform",
        overhead_mib: 0,
        extra_mib: 0,
    },
];

/// The requests for a file of this many units.
pub fn reader(access: &str, size: u64, seed: u64) -> Result<Generator, PaperError> {
    let workload = format!("{access}:{size}blocks").parse::<WorkloadSpec>()?;
    Ok(workload.generator(MIB, seed)?)
}

/// When files are changed for the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phases {
    /// When a file has been read for [`PHASE_UNITS`].
    Work,
    /// Both guests' after this many trials; the run ends after this many more.
    Trials(usize, usize),
}

/// One guest: its cache, and what is left of its files.
struct Guest {
    cache: Level<Box<dyn Policy>, DenseIndex>,
    memory: u64,
    overhead: u64,
    /// Generators and the first unit of each file, the last file first.
    files: Vec<(Generator, u64)>,
    left: u64,
    /// Time of the last trial that was used too much.
    debt: u64,
    hits: u64,
    misses: u64,
    /// When each file ended, in trials.
    ends: Vec<f64>,
}

impl Guest {
    fn new(setting: &Setting, sizes: &[u64], seed: u64) -> Result<Self, PaperError> {
        let slots = slots(STATIC_MIB, setting.overhead_mib);
        let policy = build(&PolicySpec::plain("lru"), &Shape { slots, seed })?;
        let (mut seeds, mut first, mut files) = (Prng::new(seed), 0, Vec::new());
        for &size in sizes {
            files.push((reader(setting.access, size, seeds.bits())?, first));
            first += size;
        }
        files.reverse();
        Ok(Self {
            cache: Level::new(policy, DenseIndex::new(first as usize), slots),
            memory: STATIC_MIB + setting.extra_mib,
            overhead: setting.overhead_mib + setting.extra_mib,
            files,
            left: PHASE_UNITS,
            debt: 0,
            hits: 0,
            misses: 0,
            ends: Vec::new(),
        })
    }

    /// Reads for the time of one trial.
    fn trial(&mut self, number: usize, phases: Phases, mut read: impl FnMut(u64)) {
        (self.hits, self.misses) = (0, 0);
        if matches!(phases, Phases::Trials(trials, _) if trials == number) {
            self.files.pop();
        }
        let mut used = self.debt;
        while used < TRIAL_UNITS
            && let Some((generator, first)) = self.files.last_mut()
        {
            let unit = *first + generator.next_block().0;
            read(unit);
            let hit = matches!(
                self.cache.access(&Access::read(BlockId::on_first(unit))),
                Outcome::Hit(_)
            );
            if hit {
                self.hits += 1;
                used += 1;
            } else {
                self.misses += 1;
                used += MISS_COST;
            }
            self.left = self.left.saturating_sub(1);
            if self.left == 0 && phases == Phases::Work {
                self.files.pop();
                self.left = PHASE_UNITS;
                self.ends
                    .push(number as f64 + used as f64 / TRIAL_UNITS as f64);
            }
        }
        self.debt = used.saturating_sub(TRIAL_UNITS);
    }

    /// What an agent would tell.
    fn observation(&self) -> Observation {
        Observation {
            achieved: Some(self.memory * MIB),
            activity: Some(Activity {
                hits: self.hits * UNIT_PAGES,
                misses: self.misses * UNIT_PAGES,
                cache: Some((self.memory - self.overhead) * MIB),
                pressure: None,
            }),
        }
    }

    fn set_memory(&mut self, bytes: u64) {
        self.memory = bytes / MIB;
        self.cache.resize(slots(self.memory, self.overhead));
    }

    fn end(&self, file: usize) -> f64 {
        self.ends.get(file).copied().unwrap_or(f64::NAN)
    }
}

/// Units of cache in so much memory, which is never more than a few thousand.
fn slots(memory: u64, overhead: u64) -> u32 {
    u32::try_from(memory - overhead).unwrap_or(u32::MAX)
}

/// One run: the hits of every trial in page reads, and when each guest's files ended.
#[derive(Clone)]
pub struct Trials {
    /// Of both guests together.
    pub hits: Vec<u64>,
    /// G1's memory after each trial, in MiB.
    pub memory: Vec<u64>,
    /// By guest and file, in trials.
    pub ends: [[f64; 2]; 2],
}

/// Runs both guests.
pub fn simulate(
    setting: &Setting,
    mover: Settings,
    phases: Phases,
    seed: u64,
) -> Result<Trials, PaperError> {
    let sizes = [[2 * GIB, 4 * GIB], [4 * GIB, 2 * GIB]];
    let mut guests = [
        Guest::new(setting, &sizes[0], seed.wrapping_mul(2))?,
        Guest::new(setting, &sizes[1], seed.wrapping_mul(2).wrapping_add(1))?,
    ];
    let limits = ["G1", "G2"].map(|name| GuestLimits {
        name: name.to_owned(),
        least: (LEAST_MIB + setting.extra_mib) * MIB,
        most: (2 * STATIC_MIB - LEAST_MIB + setting.extra_mib) * MIB,
        start: (STATIC_MIB + setting.extra_mib) * MIB,
        weight: 1.0,
        overhead: 0,
    });
    let total = 2 * (STATIC_MIB + setting.extra_mib) * MIB;
    let bounds = Bounds::new(limits.into(), total)?;
    let mut allocator = Allocator::new(bounds, mover)?;
    let (mut hits, mut memory) = (Vec::new(), Vec::new());
    let limit = match phases {
        Phases::Work => TRIALS_LIMIT,
        Phases::Trials(first, second) => first + second,
    };
    while hits.len() < limit && guests.iter().any(|guest| !guest.files.is_empty()) {
        for (at, guest) in guests.iter_mut().enumerate() {
            let mut curve = allocator.curve(at);
            guest.trial(hits.len(), phases, |unit| {
                if let Some(curve) = &mut curve {
                    curve.access(unit);
                }
            });
        }
        hits.push(guests.iter().map(|guest| guest.hits * UNIT_PAGES).sum());
        allocator.decide(&guests.each_ref().map(Guest::observation));
        for (guest, &target) in guests.iter_mut().zip(allocator.targets()) {
            guest.set_memory(target);
        }
        memory.push(guests[0].memory);
    }
    let ends = [0, 1].map(|guest: usize| [0, 1].map(|file| guests[guest].end(file)));
    Ok(Trials { hits, memory, ends })
}
