//! Half an hour of periods in a second: loads that change, agents that crash or lie, guests that are
//! started again, hypervisors that stall, balloons that are slow.

use futae_allocate::{Activity, Allocator, Bounds, GuestLimits, Observation, Settings, mrc};
use futae_policy::{
    Access, BlockId, DenseIndex, Level, Outcome, Policy, PolicySpec, Prng, Shape, build,
};

const MIB: u64 = 1 << 20;
const GUESTS: usize = 4;
const TOTAL_MIB: u64 = 1024;
const LEAST_MIB: u64 = 64;
const MOST_MIB: u64 = 700;
/// Half an hour of ten seconds each.
const PERIODS: u64 = 180;
const READS: u64 = 3000;

type Cache = Level<Box<dyn Policy>, DenseIndex>;

fn cache(mib: u64) -> Cache {
    let slots = u32::try_from(mib).expect("few");
    let policy = build(&PolicySpec::plain("lru"), &Shape { slots, seed: 1 }).expect("lru");
    Level::new(policy, DenseIndex::new(2000), slots)
}

struct Guest {
    cache: Cache,
    /// The same guest where nothing moves.
    fixed: Cache,
    has: u64,
    told: u64,
    /// MiB that it reads evenly.
    set: u64,
    silent: u64,
    stalled: u64,
}

/// Whether something of this probability in 1000 happens.
fn happens(random: &mut Prng, in_a_thousand: u64) -> bool {
    random.bits() % 1000 < in_a_thousand
}

fn soak(seed: u64) -> (u64, u64) {
    let random = &mut Prng::new(seed);
    let start = TOTAL_MIB / GUESTS as u64;
    let limits = (0..GUESTS).map(|at| GuestLimits {
        name: format!("g{at}"),
        least: LEAST_MIB * MIB,
        most: MOST_MIB * MIB,
        start: start * MIB,
        weight: 1.0,
        overhead: 0,
    });
    let bounds = Bounds::new(limits.collect(), TOTAL_MIB * MIB).expect("good bounds");
    let settings = mrc::Settings {
        unit: MIB,
        ..mrc::Settings::default()
    };
    let mut allocator = Allocator::new(bounds.clone(), Settings::Mrc(settings)).expect("good");
    let guest = |set| Guest {
        cache: cache(start),
        fixed: cache(start),
        has: start * MIB,
        told: start * MIB,
        set,
        silent: 0,
        stalled: 0,
    };
    let mut guests: Vec<Guest> = [60, 150, 300, 500].map(guest).into();
    let (mut hits_moved, mut hits_fixed) = (0, 0);
    for _ in 0..PERIODS {
        let mut seen = Vec::new();
        for (at, guest) in guests.iter_mut().enumerate() {
            if happens(random, 15) {
                guest.set = 32 + random.bits() % 600;
            }
            if happens(random, 10) {
                // It is started again: all of its memory, and nothing in its cache.
                guest.has = MOST_MIB * MIB;
                guest.cache = cache(MOST_MIB);
                guest.fixed = cache(start);
            }
            if happens(random, 20) {
                guest.silent = 1 + random.bits() % 10;
            }
            if happens(random, 20) {
                guest.stalled = 1 + random.bits() % 4;
            }
            let (mut hits, mut curve) = (0, allocator.curve(at));
            for _ in 0..READS {
                let unit = random.bits() % guest.set;
                if let Some(curve) = curve.as_mut().filter(|_| guest.silent == 0) {
                    curve.access(unit);
                }
                let read = Access::read(BlockId::on_first(unit));
                hits += u64::from(matches!(guest.cache.access(&read), Outcome::Hit(_)));
                hits_fixed += u64::from(matches!(guest.fixed.access(&read), Outcome::Hit(_)));
            }
            hits_moved += hits;
            let honest = Activity {
                hits,
                misses: READS - hits,
                cache: Some(guest.has),
                pressure: Some(0.0),
            };
            let told = if happens(random, 20) {
                Activity {
                    hits: random.bits(),
                    misses: random.bits() >> (random.bits() % 64),
                    cache: Some(random.bits()),
                    pressure: Some(f64::from_bits(random.bits())),
                }
            } else {
                honest
            };
            seen.push(Observation {
                achieved: (guest.stalled == 0).then_some(guest.has),
                activity: (guest.silent == 0).then_some(told),
            });
            guest.silent = guest.silent.saturating_sub(1);
        }
        let decision = allocator.decide(&seen);
        let targets = allocator.targets();
        assert!(targets.iter().sum::<u64>() <= TOTAL_MIB * MIB, "{decision}");
        let mut achieved: Vec<_> = seen.iter().map(|one| one.achieved).collect();
        // Twice: those that shrink make room for the others.
        for _ in 0..2 {
            let last: Vec<u64> = guests.iter().map(|guest| guest.told).collect();
            let orders = bounds.orders(targets, &last, &achieved, None);
            for (at, (guest, order)) in guests.iter_mut().zip(&orders).enumerate() {
                let Some(order) = *order else { continue };
                assert!(
                    (LEAST_MIB * MIB..=MOST_MIB * MIB).contains(&order),
                    "{decision}"
                );
                guest.told = order;
                let is_slow = happens(random, 200);
                let reached = if is_slow {
                    (guest.has + order) / 2
                } else {
                    order
                };
                guest.has = reached / MIB * MIB;
                guest
                    .cache
                    .resize(u32::try_from(guest.has / MIB).expect("few"));
                achieved[at] = Some(guest.has);
            }
        }
        for guest in &mut guests {
            guest.stalled = guest.stalled.saturating_sub(1);
            // Below this a guest would have to kill something.
            assert!(guest.has >= LEAST_MIB * MIB, "{decision}");
        }
    }
    (hits_moved, hits_fixed)
}

#[test]
fn nobody_starves_and_all_gain_in_half_an_hour_of_trouble() {
    for seed in 1..=3 {
        let (moved, fixed) = soak(seed);
        assert!(
            moved > fixed,
            "seed {seed}: {moved} hits, {fixed} if nothing moves"
        );
    }
}
