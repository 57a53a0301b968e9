//! The policies among which `auto` chooses, as the registry marks them.

use crate::{Argument, Kind, PolicySpec, Trait};

fn marked(wanted: Trait) -> impl Iterator<Item = Kind> {
    let all = Kind::ALL.iter().copied();
    all.filter(move |kind| kind.traits().contains(&wanted))
}

/// All candidates: the policy in force at the start first, those inside another policy last.
#[must_use]
pub fn candidates() -> Vec<PolicySpec> {
    let alone = marked(Trait::Candidate).map(PolicySpec::of);
    alone.chain(below()).collect()
}

/// Orders of demoted blocks, inside the candidate that lives on demotions.
fn below() -> impl Iterator<Item = PolicySpec> {
    let outer = |kind: &Kind| kind.traits().contains(&Trait::LivesOnDemotions);
    let outer = marked(Trait::Candidate).find(outer);
    outer.into_iter().flat_map(|outer| {
        let inner = marked(Trait::FirstBelow).chain(marked(Trait::BelowOneTimers));
        inner.map(move |inner| {
            let mut spec = PolicySpec::of(outer);
            spec.arguments.push(Argument::Inner(PolicySpec::of(inner)));
            spec
        })
    })
}

/// The candidate that is rehearsed from the start.
pub fn rehearsed_first() -> Option<usize> {
    let is_first = |kind: Kind| kind.traits().contains(&Trait::RehearsedFirst);
    marked(Trait::Candidate).position(is_first)
}

/// The candidates that may be in force from the first eviction on, in place of the first one.
pub fn openers() -> impl Iterator<Item = usize> {
    let opens = |(at, kind): (usize, Kind)| kind.traits().contains(&Trait::Opens).then_some(at);
    marked(Trait::Candidate).enumerate().filter_map(opens)
}

/// The candidate that is in force first below a cache that reports its evictions.
pub fn first_below() -> Option<usize> {
    nth_below(0)
}

/// The candidate that is in force next if that cache asks for hardly any block again.
pub fn below_one_timers() -> Option<usize> {
    nth_below(marked(Trait::FirstBelow).count())
}

fn nth_below(at: usize) -> Option<usize> {
    let is_there = below().nth(at).is_some();
    is_there.then(|| marked(Trait::Candidate).count() + at)
}
