use super::{Auto, Change};
use crate::{
    Access, Arguments, BlockId, HashIndex, Level, Outcome, PolicySpec, Prng, Shape, SpecError,
};

fn auto(text: &str, slots: u32) -> Result<Auto, SpecError> {
    let spec: PolicySpec = text.parse().expect("valid");
    super::build(&mut Arguments::new(&spec), &Shape { slots, seed: 1 })
}

/// Hit ratio of `text` over the part of `reads` from `from` on.
fn ratio(text: &str, slots: u32, reads: &[u64], from: usize) -> f64 {
    let mut level = crate::contract::level_of(text, slots, 1);
    let mut hits = 0;
    for (at, &index) in reads.iter().enumerate() {
        let outcome = level.access(&Access::read(BlockId::on_first(index)));
        hits += usize::from(at >= from && matches!(outcome, Outcome::Hit(_)));
    }
    level.audit();
    hits as f64 / (reads.len() - from) as f64
}

fn looping(requests: u64, blocks: u64) -> impl Iterator<Item = u64> {
    (0..requests).map(move |at| at % blocks)
}

fn skewed(requests: u64, blocks: u64) -> impl Iterator<Item = u64> {
    let mut prng = Prng::new(7);
    (0..requests).map(move |_| {
        let limit = 1 + prng.below(blocks);
        prng.below(limit)
    })
}

/// Against LRU that begins, a loop is for MRU; the change names both with what they hit.
#[test]
fn worked_example() {
    let policy = auto("auto(lru,mru)", 100).expect("valid");
    let mut level = Level::new(policy, HashIndex::default(), 100);
    for index in looping(1000, 200) {
        level.access(&Access::read(BlockId::on_first(index)));
    }
    let changes: Vec<Change> = level.policy().changes().cloned().collect();
    let [change] = &changes[..] else {
        panic!("{changes:?}");
    };
    assert_eq!((&*change.from, &*change.to), ("lru", "mru"));
    assert_eq!(change.from_ratio, 0.0);
    assert!(change.to_ratio > 0.01 && change.tick < 400, "{change:?}");
    assert_eq!(level.resident(), 100);
}

/// A hand-over empties nothing: what is resident stays, and the next access evicts one block at most.
#[test]
fn a_change_evicts_nothing() {
    let policy = auto("auto(lru,mru)", 100).expect("valid");
    let mut level = Level::new(policy, HashIndex::default(), 100);
    let (mut held, mut changes) = (0, 0);
    for index in looping(1000, 200).chain(skewed(3000, 200)) {
        level.access(&Access::read(BlockId::on_first(index)));
        assert!(level.resident() >= held, "a change lost blocks");
        held = level.resident();
        changes = level.policy().changes().count();
        level.audit();
    }
    assert!(changes >= 2, "{changes} changes");
}

/// The share of the blocks that shadows name, and that a small cache has them whole.
#[test]
fn shadows_are_small_where_the_cache_is_large() {
    let each = |slots| {
        let sampling = super::Sampling {
            share: 0.01,
            least: 1024,
        };
        sampling.slots_of_each(9, slots)
    };
    assert_eq!(each(500), 500);
    assert_eq!(each(100_000), 1024);
    assert_eq!(9 * (each(9_000_000)), 90_000);
}

/// After each change of load `auto` has the hit ratio of the new best within two turnovers.
#[test]
fn a_change_of_load_costs_two_turnovers() {
    const SLOTS: u32 = 400;
    let first: Vec<u64> = skewed(20_000, 4000).collect();
    let second = looping(40_000, 800).map(|block| 10_000 + block);
    let reads: Vec<u64> = first.iter().copied().chain(second).collect();
    // In a loop that the cache does not hold, a turnover is as many misses as slots; two of them
    // are at most 1,600 requests at a half of hits.
    let from = first.len() + 1600;
    let ratios = super::CANDIDATES.map(|name| ratio(name, SLOTS, &reads, from));
    let best = ratios.into_iter().fold(0.0, f64::max);
    let chosen = ratio("auto", SLOTS, &reads, from);
    assert!(best > 0.4, "{ratios:?}");
    assert!(chosen > best - 0.01, "{chosen} of {ratios:?}");
}

#[test]
fn what_loads_unasked_is_refused() {
    let error = auto("auto(lru,const(pin=3))", 16).map(|_| ());
    let error = error.expect_err("loads").to_string();
    assert!(error.contains("loads nothing unasked"), "{error}");
    assert!(auto("auto(lru,nonesuch)", 16).is_err());
}
