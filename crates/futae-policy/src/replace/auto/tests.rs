use crate::contract::level_of;
use crate::{Access, BlockId, Kind, Outcome, Prng, Trait};

/// Hit ratio of `text` over the part of `reads` from `from` on.
fn ratio(text: &str, slots: u32, reads: &[u64], from: usize) -> f64 {
    let mut level = level_of(text, slots, 1);
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

/// The best candidate after a change of load, as it does when it goes through the change itself.
fn best(slots: u32, reads: &[u64], from: usize) -> f64 {
    let marked = |kind: &&Kind| kind.traits().contains(&Trait::Candidate);
    let candidates = Kind::ALL.iter().filter(marked);
    candidates
        .map(|kind| ratio(kind.name(), slots, reads, from))
        .fold(0.0, f64::max)
}

/// From a skew to a loop that the cache cannot hold: a turnover is as many misses as slots, so two are
/// at least 1,600 requests where a half hits.
#[test]
fn a_loop_after_a_skew_costs_two_turnovers() {
    const SLOTS: u32 = 400;
    let first: Vec<u64> = skewed(20_000, 4000).collect();
    let second = looping(40_000, 800).map(|block| 10_000 + block);
    let reads: Vec<u64> = first.iter().copied().chain(second).collect();
    let from = first.len() + 1600;
    let (best, chosen) = (
        best(SLOTS, &reads, from),
        ratio("auto", SLOTS, &reads, from),
    );
    assert!(best > 0.3, "{best}");
    assert!(chosen > best - 0.01, "{chosen} below {best}");
}

/// From a loop to a skew.
#[test]
fn a_skew_after_a_loop_costs_two_turnovers() {
    const SLOTS: u32 = 400;
    let first: Vec<u64> = looping(20_000, 800).collect();
    let second = skewed(40_000, 4000).map(|block| 10_000 + block);
    let reads: Vec<u64> = first.iter().copied().chain(second).collect();
    let from = first.len() + 1000;
    let (best, chosen) = (
        best(SLOTS, &reads, from),
        ratio("auto", SLOTS, &reads, from),
    );
    assert!(best > 0.1, "{best}");
    assert!(chosen > best - 0.01, "{chosen} below {best}");
}
