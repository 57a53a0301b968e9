//! What an allocator would have done in recorded periods, and what that would have been worth.
//!
//! The allocator is the same that moves memory between running guests. In place of guests it is given what was recorded of them: what each asked
//! for in a period, and its miss-ratio curve then. At the size that the allocator gave a guest, the guest is taken to have missed as
//! its curve says, and to have had that size at the end of the period. What it asked for is taken to be what was recorded,
//! although a guest that misses less may ask for more.

use crate::allocator::{Allocator, Settings};
use crate::bounds::{Bounds, SettingsError};
use crate::curve::Told;
use crate::decision::Decision;
use crate::guest::{Activity, Observation};
use crate::mrc::{self, divide::divide, model::ACCESSES_MIN};
use serde::Serialize;

/// Cells of the best fixed division.
const CELLS: u64 = 256;

/// What was recorded of a guest in a period.
#[derive(Clone, Debug, PartialEq)]
pub struct Past {
    /// Bytes that it had.
    pub has: u64,
    /// What it did.
    pub activity: Activity,
    /// Bytes between the sizes of the curve, of which the first is 0. Sizes are of its page cache.
    pub curve_step: u64,
    /// Its miss ratios at these sizes; empty if no curve was known.
    pub curve: Vec<f64>,
}

impl Past {
    /// Whether something can be said of the guest at other sizes: by its curve, or since it did next to nothing.
    #[must_use]
    pub fn is_known(&self) -> bool {
        let is_said = !self.curve.is_empty() || self.activity.accesses() < ACCESSES_MIN;
        is_said && self.activity.is_credible()
    }
}

/// What came of it, for one guest. Sizes are means by period, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GuestOutcome {
    /// Its name.
    pub name: String,
    /// Pages that it asked for.
    pub accesses: u64,
    /// What it had.
    pub had_bytes: f64,
    /// What it would have had.
    pub balanced_bytes: f64,
    /// What it has in the best division that never changes.
    pub fixed_bytes: u64,
    /// The share of its accesses that missed, as measured.
    pub measured_miss_ratio: f64,
    /// The same, as the curves say for what it had.
    pub had_miss_ratio: f64,
    /// For what it would have had.
    pub balanced_miss_ratio: f64,
    /// In the best division that never changes.
    pub fixed_miss_ratio: f64,
}

/// What came of it. Times are means of an access, in hits.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Periods.
    pub periods: u64,
    /// Periods in which some target changed.
    pub moves: u64,
    /// What an access took, as measured.
    pub measured_time: f64,
    /// What it took as the curves say for the sizes that the guests had.
    pub had_time: f64,
    /// What it would have taken at the sizes that the allocator would have given.
    pub balanced_time: f64,
    /// In the best division that never changes, which is known only afterwards.
    pub fixed_time: f64,
    /// The share of all access time that balancing would have saved, by the curves.
    pub balanced_gain: f64,
    /// The same of the best division that never changes.
    pub fixed_gain: f64,
    /// The guests.
    pub guests: Vec<GuestOutcome>,
}

/// Sums of one guest.
#[derive(Debug)]
struct Sums {
    periods: u64,
    /// Those in which nothing could be said of other sizes.
    unknown: u64,
    accesses: u64,
    misses: u64,
    had: f64,
    had_misses: f64,
    balanced: f64,
    balanced_misses: f64,
    /// Misses at each size of the fixed division, from the least on.
    fixed: Vec<f64>,
}

/// An allocator that decides on recorded periods, one after the other.
#[derive(Debug)]
pub struct Replay {
    allocator: Allocator,
    unit: u64,
    miss_cost: f64,
    grain: u64,
    moves: u64,
    periods: u64,
    sums: Vec<Sums>,
}

impl Replay {
    /// Begins at the bounds' start.
    ///
    /// # Errors
    ///
    /// Settings that make no sense, in a sentence.
    pub fn new(bounds: Bounds, settings: Settings) -> Result<Self, SettingsError> {
        let (unit, miss_cost) = match &settings {
            Settings::Mrc(settings) => (settings.unit, settings.miss_cost),
            _ => (
                mrc::Settings::default().unit,
                mrc::Settings::default().miss_cost,
            ),
        };
        let grain = (bounds.total() / CELLS).max(unit);
        let sums = bounds.guests().iter().map(|limits| {
            let cells = (limits.most - limits.least) / grain;
            Sums {
                periods: 0,
                unknown: 0,
                accesses: 0,
                misses: 0,
                had: 0.0,
                had_misses: 0.0,
                balanced: 0.0,
                balanced_misses: 0.0,
                fixed: vec![0.0; usize::try_from(cells).map_or(1, |cells| cells + 1)],
            }
        });
        Ok(Self {
            sums: sums.collect(),
            allocator: Allocator::new(bounds, settings)?,
            unit,
            miss_cost,
            grain,
            moves: 0,
            periods: 0,
        })
    }

    /// The next period: what was recorded of each guest, in the order of the bounds; none if nothing was.
    pub fn period(&mut self, past: &[Option<Past>]) -> Decision {
        let sizes = self.allocator.targets().to_vec();
        let mut seen = Vec::new();
        for (at, &size) in sizes.iter().enumerate() {
            let past = past.get(at).and_then(Option::as_ref);
            // A file may be damaged.
            let past = past.filter(|past| past.activity.is_credible());
            let activity = past.map(|past| self.live(at, past, size));
            seen.push(Observation {
                achieved: Some(size),
                activity,
            });
        }
        let decision = self.allocator.decide(&seen);
        self.periods += 1;
        self.moves += u64::from(decision.moves());
        decision
    }

    /// What a guest does at a size. Without a curve it misses as it did.
    fn live(&mut self, at: usize, past: &Past, size: u64) -> Activity {
        let ratios: Vec<f64> = past
            .curve
            .iter()
            .map(|ratio| ratio.clamp(0.0, 1.0))
            .collect();
        let curve = Told::new(past.curve_step as f64, &ratios);
        let limits = &self.allocator.bounds().guests()[at];
        let overhead = past
            .activity
            .cache
            .map_or(limits.overhead, |cache| past.has.saturating_sub(cache));
        let least = limits.least;
        let cache = |size: u64| size.saturating_sub(overhead) as f64;
        let accesses = past.activity.accesses();
        let as_it_was = past.activity.miss_ratio();
        let misses = |size: u64| {
            let ratio = curve
                .as_ref()
                .map_or(as_it_was, |curve| curve.at(cache(size)));
            accesses as f64 * ratio
        };
        let sums = &mut self.sums[at];
        sums.periods += 1;
        sums.unknown += u64::from(!past.is_known());
        sums.accesses += accesses;
        sums.misses += past.activity.misses;
        sums.had += past.has as f64;
        sums.had_misses += misses(past.has);
        sums.balanced += size as f64;
        sums.balanced_misses += misses(size);
        for (size, sum) in (least..).step_by(self.grain as usize).zip(&mut sums.fixed) {
            *sum += misses(size);
        }
        let missed = (misses(size).round() as u64).min(accesses);
        if let Some(known) = self.allocator.curve(at) {
            known.tell(past.curve_step as f64 / self.unit as f64, &ratios);
        }
        // A guest under pressure is under pressure with no more than it had, too.
        let pressure = past.activity.pressure;
        let is_eased = size > past.has;
        Activity {
            hits: accesses - missed,
            misses: missed,
            cache: Some(size.saturating_sub(overhead)),
            pressure: pressure.map(|share| if is_eased { 0.0 } else { share }),
        }
    }

    /// What came of it so far.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let bounds = self.allocator.bounds();
        let known: Vec<usize> = (0..self.sums.len())
            .filter(|&at| self.sums[at].periods > 0 && self.sums[at].unknown == 0)
            .collect();
        let least = known.iter().map(|&at| bounds.guests()[at].least);
        let unknown = (0..self.sums.len()).filter(|at| !known.contains(at));
        let kept: u64 = unknown.map(|at| bounds.guests()[at].start).sum();
        let left = bounds.total().saturating_sub(kept + least.sum::<u64>());
        let costs: Vec<Vec<f64>> = known
            .iter()
            .map(|&at| self.sums[at].fixed.clone())
            .collect();
        let cells = usize::try_from(left / self.grain).unwrap_or(usize::MAX);
        let shares = divide(&costs, cells);
        let mut guests: Vec<GuestOutcome> = bounds
            .guests()
            .iter()
            .map(|limits| GuestOutcome {
                name: limits.name.clone(),
                fixed_bytes: limits.start,
                ..GuestOutcome::default()
            })
            .collect();
        let mut fixed_misses = 0.0;
        for (at, guest) in guests.iter_mut().enumerate() {
            let sums = &self.sums[at];
            let by_access = |misses: f64| misses / (sums.accesses as f64).max(1.0);
            let by_period = |size: f64| size / (sums.periods as f64).max(1.0);
            guest.accesses = sums.accesses;
            guest.had_bytes = by_period(sums.had);
            guest.balanced_bytes = by_period(sums.balanced);
            guest.measured_miss_ratio = by_access(sums.misses as f64);
            guest.had_miss_ratio = by_access(sums.had_misses);
            guest.balanced_miss_ratio = by_access(sums.balanced_misses);
            let mut misses = sums.had_misses;
            if let Some(of) = known.iter().position(|&one| one == at) {
                guest.fixed_bytes = bounds.guests()[at].least + shares[of] as u64 * self.grain;
                misses = sums.fixed[shares[of]];
            }
            guest.fixed_miss_ratio = by_access(misses);
            fixed_misses += misses;
        }
        let accesses: u64 = self.sums.iter().map(|sums| sums.accesses).sum();
        let time = |misses: f64| 1.0 + (self.miss_cost - 1.0) * misses / (accesses as f64).max(1.0);
        let sum = |of: fn(&Sums) -> f64| self.sums.iter().map(of).sum::<f64>();
        let had_time = time(sum(|sums| sums.had_misses));
        let balanced_time = time(sum(|sums| sums.balanced_misses));
        Outcome {
            periods: self.periods,
            moves: self.moves,
            measured_time: time(sum(|sums| sums.misses as f64)),
            had_time,
            balanced_time,
            fixed_time: time(fixed_misses),
            balanced_gain: 1.0 - balanced_time / had_time,
            fixed_gain: 1.0 - time(fixed_misses) / had_time,
            guests,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::GuestLimits;

    const MIB: u64 = 1 << 20;

    fn replay(settings: Settings) -> Replay {
        let guest = |name: &str| GuestLimits {
            name: name.to_owned(),
            least: 64 * MIB,
            most: 448 * MIB,
            start: 256 * MIB,
            weight: 1.0,
            overhead: 0,
        };
        let bounds = Bounds::new(vec![guest("idle"), guest("loop")], 512 * MIB).expect("bounds");
        Replay::new(bounds, settings).expect("settings")
    }

    /// A guest that asked for so many pages, with misses at each 32 MiB of cache up to 448.
    fn past(accesses: u64, misses: impl Fn(u64) -> f64) -> Option<Past> {
        let curve: Vec<f64> = (0..=14).map(|at| misses(at * 32)).collect();
        let missed = (accesses as f64 * curve[8]) as u64;
        Some(Past {
            has: 256 * MIB,
            activity: Activity {
                hits: accesses - missed,
                misses: missed,
                cache: Some(256 * MIB),
                pressure: Some(0.0),
            },
            curve_step: 32 * MIB,
            curve,
        })
    }

    #[test]
    fn counts_that_no_guest_reaches_are_as_if_nothing_was_recorded() {
        let mut replay = replay(Settings::Mrc(mrc::Settings::default()));
        let good = || past(10_000, |_| 0.5);
        for (hits, misses) in [(u64::MAX, 1), (1, u64::MAX), (1 << 63, 1 << 63)] {
            let mut bad = past(10_000, |_| 0.5).expect("a guest");
            (bad.activity.hits, bad.activity.misses) = (hits, misses);
            assert!(!bad.is_known());
            for _ in 0..2 {
                replay.period(&[good(), Some(bad.clone())]);
            }
        }
        let guests = replay.outcome().guests;
        assert_eq!((guests[0].accesses, guests[1].accesses), (60_000, 0));
    }

    #[test]
    fn memory_goes_where_a_curve_falls_and_the_gain_is_what_the_curves_say() {
        let mut replay = replay(Settings::Mrc(mrc::Settings::default()));
        // One needs 64 MiB and no more; the other misses all until it has 384 MiB.
        let one = || past(10_000, |mib| if mib >= 64 { 0.0 } else { 1.0 });
        let other = || past(90_000, |mib| if mib >= 384 { 0.0 } else { 1.0 });
        let decisions: Vec<_> = (0..200).map(|_| replay.period(&[one(), other()])).collect();
        let last = decisions.last().expect("a decision");
        assert!(last.guests[1].target >= 384 * MIB, "{last}");
        let outcome = replay.outcome();
        assert_eq!(outcome.periods, 200);
        assert!((1..=20).contains(&outcome.moves), "{outcome:?}");
        // 90 % of accesses missed, at 8 hits each: 7.3. Nothing misses in the best division.
        assert!((outcome.had_time - 7.3).abs() < 1e-9, "{outcome:?}");
        assert!((outcome.measured_time - 7.3).abs() < 1e-9, "{outcome:?}");
        assert!((outcome.fixed_time - 1.0).abs() < 1e-9, "{outcome:?}");
        assert!((outcome.fixed_gain - 6.3 / 7.3).abs() < 1e-9, "{outcome:?}");
        assert!(outcome.balanced_gain > 0.7, "{outcome:?}");
        assert!(outcome.balanced_gain <= outcome.fixed_gain, "{outcome:?}");
        let [idle, busy] = &outcome.guests[..] else {
            panic!("two guests")
        };
        assert!(busy.fixed_bytes >= 384 * MIB && idle.fixed_bytes >= 64 * MIB);
        assert!(busy.balanced_bytes > busy.had_bytes && idle.balanced_bytes < idle.had_bytes);
        assert_eq!((busy.had_miss_ratio, busy.fixed_miss_ratio), (1.0, 0.0));
    }

    #[test]
    fn nothing_moves_where_nothing_is_gained_or_known() {
        for guest in [past(50_000, |_| 0.3), None] {
            let mut replay = replay(Settings::Mrc(mrc::Settings::default()));
            for _ in 0..50 {
                let decision = replay.period(&[guest.clone(), guest.clone()]);
                assert!(!decision.moves(), "{decision}");
            }
            let outcome = replay.outcome();
            assert_eq!(
                (outcome.moves, outcome.balanced_gain),
                (0, 0.0),
                "{outcome:?}"
            );
        }
        let mut replay = replay(Settings::Static);
        let (one, other) = (
            past(100, |_| 0.0),
            past(90_000, |mib| f64::from(u8::from(mib < 300))),
        );
        replay.period(&[one, other]);
        let outcome = replay.outcome();
        assert_eq!((outcome.moves, outcome.balanced_gain), (0, 0.0));
        assert!(outcome.fixed_gain > 0.5, "{outcome:?}");
    }
}
