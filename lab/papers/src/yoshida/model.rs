//! A guest's cache of large blocks above a host's cache of small units, made of levels.

use super::policies::is_ordinary;
use crate::report::PaperError;
use futae_policy::{
    Access, AccessKind, BlockId, Decision, DenseIndex, Level, Outcome, Policy, PolicySpec, Shape,
    Verdict, build,
};

/// The sizes of the experiment, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The file that is read.
    pub file: u64,
    /// A block of the guest's file system.
    pub block: u64,
    /// What one request reads.
    pub request: u64,
    /// What the host's cache, and an ordinary guest's, keep or give up at a time.
    pub unit: u64,
    /// Blocks that the guest's file system keeps.
    pub slots: u32,
    /// The host's cache.
    pub host: u64,
    /// The cache of an ordinary guest.
    pub ordinary: u64,
}

impl Sizes {
    /// As printed, and as read above where nothing is.
    pub const PRINTED: Self = Self {
        file: 4 << 30,
        block: 128 << 20,
        request: 1 << 20,
        unit: 64 << 10,
        slots: 21,
        host: (HOST_GIB * GIB) as u64,
        ordinary: (ORDINARY_GIB * GIB) as u64,
    };

    /// Every size a sixteenth: 256 MiB in blocks of 8 MiB, read by 64 KiB.
    pub const SIXTEENTH: Self = Self {
        file: Self::PRINTED.file / 16,
        block: Self::PRINTED.block / 16,
        request: Self::PRINTED.request / 16,
        unit: Self::PRINTED.unit / 16,
        slots: Self::PRINTED.slots,
        host: Self::PRINTED.host / 16,
        ordinary: Self::PRINTED.ordinary / 16,
    };
}

const GIB: f64 = (1u64 << 30) as f64;
pub(super) const HOST_GIB: f64 = 1.45;
pub(super) const ORDINARY_GIB: f64 = 2.59;

pub(super) fn level(policy: &str, slots: u64, blocks: u64, seed: u64) -> Result<Upper, PaperError> {
    let policy = policy.parse::<PolicySpec>()?;
    // No cache of the paper has more slots than its file has units.
    let slots = slots.min(blocks) as u32;
    let policy = build(&policy, &Shape { slots, seed })?;
    Ok(Level::new(policy, DenseIndex::new(blocks as usize), slots))
}

type Upper = Level<Box<dyn Policy>, DenseIndex>;

/// What the host's cache was asked for, in units.
#[derive(Clone, Copy, Default)]
struct Asked {
    all: u64,
    /// Of these, for whole blocks that the guest loaded.
    loads: u64,
    /// Of these, read from the disk.
    disk: u64,
}

/// The host's cache and its disk.
struct Host {
    cache: Upper,
    asked: Asked,
}

impl Host {
    fn new(sizes: &Sizes) -> Result<Self, PaperError> {
        Ok(Self {
            cache: level("lru", sizes.host / sizes.unit, sizes.file / sizes.unit, 0)?,
            asked: Asked::default(),
        })
    }

    fn read(&mut self, units: std::ops::Range<u64>) {
        self.asked.all += units.end - units.start;
        for unit in units {
            let access = Access::read(BlockId::on_first(unit));
            self.asked.disk += u64::from(!matches!(self.cache.access(&access), Outcome::Hit(_)));
        }
    }

    /// Of a block that the guest loads, some of its units.
    fn load(&mut self, units: std::ops::Range<u64>) {
        self.asked.loads += units.end - units.start;
        self.read(units);
    }

    /// What came of it since `then`, for an application that asked for this many units.
    fn measured(&self, then: Asked, units: f64, guest_hit: f64) -> Measured {
        let all = match self.asked.all - then.all {
            0 => f64::NAN,
            all => all as f64,
        };
        let disk = (self.asked.disk - then.disk) as f64;
        Measured {
            guest_hit,
            host_hit: 1.0 - disk / all,
            disk: disk / units,
            loads: (self.asked.loads - then.loads) as f64 / all,
        }
    }
}

/// The guest's cache, above the host's.
struct Guest<'a> {
    cache: Upper,
    /// Units of a block.
    unit: u64,
    host: Host,
    /// Blocks that were asked for.
    asked: u64,
    /// What `asked` was when the loads that the cache began were over, one after the other.
    arrivals: &'a mut dyn Iterator<Item = u64>,
    loading: Option<Load>,
}

/// A block that is on its way into the guest's cache.
struct Load {
    block: u64,
    begun: u64,
    over: u64,
    /// Units that have come so far.
    here: u64,
}

impl Guest<'_> {
    /// Puts the units of one request before the guest's cache, and what is not there before the host's.
    fn request(&mut self, units: std::ops::Range<u64>) {
        let mut at = units.start;
        while at < units.end {
            let block = at / self.unit;
            let next = units.end.min((block + 1) * self.unit);
            let access = Access::read(BlockId::on_first(block));
            let is_hit = matches!(self.cache.access(&access), Outcome::Hit(_));
            // What is not whole yet is read past.
            let is_here = self.loading.as_ref().is_none_or(|load| load.block != block);
            if !is_hit || !is_here {
                self.host.read(at..next);
            }
            self.asked += 1;
            at = next;
        }
        self.load_on();
    }

    /// Goes on with the load under way, evenly from its beginning to its end. The next one is decided on when that
    /// is over.
    fn load_on(&mut self) {
        loop {
            if let Some(load) = &mut self.loading {
                let (gone, all) = (self.asked - load.begun, load.over - load.begun);
                let due = (self.unit * gone).checked_div(all).unwrap_or(self.unit);
                let (first, due) = (load.block * self.unit, due.min(self.unit));
                self.host.load(first + load.here..first + due);
                load.here = due;
                if self.asked < load.over {
                    return;
                }
                self.loading = None;
            }
            let Some(block) = self.cache.review() else {
                return;
            };
            let access = Access::of(block, AccessKind::Preload);
            if matches!(self.cache.access(&access), Outcome::Admitted { .. }) {
                let over = self.arrivals.next().unwrap_or(self.asked);
                self.loading = Some(Load {
                    block: block.index(),
                    begun: self.asked,
                    over: over.max(self.asked),
                    here: 0,
                });
            }
        }
    }
}

/// What came of one policy in the guest.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Hit ratio of the guest's cache; NaN if it was not asked.
    pub guest_hit: f64,
    /// Hit ratio of the host's cache, by volume; NaN if it was not asked.
    pub host_hit: f64,
    /// Bytes that the disk reads for each byte asked for.
    pub disk: f64,
    /// Whole blocks loaded, as a share of the volume to the host.
    pub loads: f64,
}

/// Simulates one policy in the guest (an ordinary guest's cache works in units, see
/// [`is_ordinary`]) above the host's LRU. `requests` are the numbers of requests within the file; those after the
/// first `warmup` are counted. What the guest loads is there at once.
pub fn simulate(
    sizes: &Sizes,
    policy: &str,
    seed: u64,
    warmup: u64,
    requests: impl IntoIterator<Item = u64>,
) -> Result<Measured, PaperError> {
    simulate_loading(sizes, policy, seed, warmup, requests, [])
}

/// As [`simulate`], of a guest whose loads take time: `arrivals` tells of each, in their order, how many blocks had been
/// asked for when it was over. Until then reads of the block go to the host, and the policy is not asked what to
/// load next. Loads that are not told of take no time, nor does a block that is admitted when it is missed, which of
/// these policies Const Cache FS does until it has all of its blocks.
pub fn simulate_loading(
    sizes: &Sizes,
    policy: &str,
    seed: u64,
    warmup: u64,
    requests: impl IntoIterator<Item = u64>,
    arrivals: impl IntoIterator<Item = u64>,
) -> Result<Measured, PaperError> {
    let units = sizes.file / sizes.unit;
    let (unit, slots) = if is_ordinary(policy) {
        (1, sizes.ordinary / sizes.unit)
    } else {
        (sizes.block / sizes.unit, sizes.slots.into())
    };
    let mut guest = Guest {
        cache: level(policy, slots, units / unit, seed)?,
        unit,
        host: Host::new(sizes)?,
        asked: 0,
        arrivals: &mut arrivals.into_iter(),
        loading: None,
    };
    guest.load_on();
    let counted = |guest: &Guest<'_>| (guest.cache.counters(), guest.host.asked);
    let mut then = counted(&guest);
    let units_a_request = sizes.request / sizes.unit;
    let mut number = 0;
    for at in requests {
        if number == warmup {
            then = counted(&guest);
        }
        let first = at * units_a_request;
        guest.request(first..first + units_a_request);
        number += 1;
    }
    let guest_hit = guest.cache.counters().since(&then.0).hit_ratio();
    let counted = number.saturating_sub(warmup) * units_a_request;
    let guest_hit = guest_hit.unwrap_or(f64::NAN);
    Ok(guest.host.measured(then.1, counted as f64, guest_hit))
}

/// The host's part of a run whose guest has decided as recorded: `decisions` is the log of the
/// guest's cache, whose blocks have `block` bytes, of the same requests. What the guest loads by itself counts
/// where the log has it, which is when it arrived.
pub fn simulate_host(
    sizes: &Sizes,
    block: u64,
    warmup: u64,
    requests: impl IntoIterator<Item = u64>,
    decisions: impl IntoIterator<Item = Decision>,
) -> Result<Measured, PaperError> {
    let mut host = Host::new(sizes)?;
    let mut decisions = decisions.into_iter();
    let (mut hits, mut number) = ((0u64, 0u64), 0);
    let mut then = (host.asked, hits);
    let unit = block / sizes.unit;
    for at in requests {
        if number == warmup {
            then = (host.asked, hits);
        }
        let (mut from, end) = (
            at * sizes.request / sizes.unit,
            (at + 1) * sizes.request / sizes.unit,
        );
        while from < end {
            let decision = decisions.next().ok_or(PaperError::Record(number))?;
            let decided = decision.block.index();
            if decision.kind == AccessKind::Preload {
                host.load(decided * unit..(decided + 1) * unit);
                continue;
            }
            if decided != from / unit {
                return Err(PaperError::Record(number));
            }
            let next = end.min((decided + 1) * unit);
            let is_hit = decision.verdict == Verdict::Hit;
            hits = (hits.0 + u64::from(is_hit), hits.1 + 1);
            if !is_hit {
                host.read(from..next);
            }
            from = next;
        }
        number += 1;
    }
    let guest_hit = (hits.0 - then.1.0) as f64 / (hits.1 - then.1.1) as f64;
    let counted = number.saturating_sub(warmup) * (sizes.request / sizes.unit);
    Ok(host.measured(then.0, counted as f64, guest_hit))
}

/// The host's part of a run, from what it was asked for: `units` are the units that came to its
/// cache, in their order, of which those after the first `before` are counted; they were asked on behalf
/// of `counted` bytes.
pub fn simulate_asked(
    sizes: &Sizes,
    before: u64,
    counted: u64,
    units: impl IntoIterator<Item = u64>,
) -> Result<Measured, PaperError> {
    let mut host = Host::new(sizes)?;
    let mut then = None;
    for unit in units {
        if host.asked.all == before {
            then = Some(host.asked);
        }
        host.read(unit..unit + 1);
    }
    let then = then.unwrap_or(host.asked);
    let units = counted as f64 / sizes.unit as f64;
    // What was loaded for a block cannot be told from the rest.
    Ok(Measured {
        loads: f64::NAN,
        ..host.measured(then, units, f64::NAN)
    })
}
