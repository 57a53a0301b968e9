//! Miss-ratio curves: the division with the least total access time.
//!
//! Every guest's curve is kept online ([`crate::OnlineCurve`]). An access takes one hit's time, and a
//! miss [`Settings::miss_cost`] times as long; so the curve says how long an access takes on average
//! at each size. What is minimised is the sum over all guests of weight × busy time × logarithm of
//! that mean, by dynamic programming over sizes in steps of [`Settings::grain`]. The busy time of a
//! period is its accesses times their measured mean: a guest that is kept from its work by misses is
//! judged by the work it would do, not by the little that it does.
//!
//! The logarithm of that mean is taken: then the best division is one from which no small move would
//! shorten all accesses of the last period together, whatever share of them each guest had.
//!
//! Memory moves in bounded steps, and only if it is worth it ([`Settings::gain`]), and never back in the
//! period after it moved. [`Settings::cool_down`] periods after the last step what was measured is
//! held against what was measured before and what the curves promised. If it is worse than both, everything goes back
//! and stays for a while, each time longer. A guest does not give memory while it is under pressure or
//! misses more than its curve says.
//!
//! | file | holds |
//! | --- | --- |
//! | `model` | what is known of one guest |
//! | `divide` | the best division |
//! | `settings` | what the evaluator is given |
//! | `phase` | moving, waiting for the result, taking it back |

pub(crate) mod divide;
pub(crate) mod model;
mod phase;
mod settings;

use crate::bounds::{Bounds, SettingsError};
use crate::curve::OnlineCurve;
use crate::decision::Reason;
use crate::guest::{Activity, Observation};
use divide::divide;
use model::Model;
use phase::{Phase, Trial, Verdict};
use settings::PAGE_BYTES;
pub use settings::Settings;

/// Cells of a division, about; the grain follows.
const CELLS: u64 = 512;
/// What moving everything costs, as a share of all access time: between equally good divisions the
/// nearest is taken.
const INERTIA: f64 = 1e-4;
/// Periods in which a curve that began anew is still filling.
const LEARNING: u32 = 8;

/// The evaluator and what it has learnt.
#[derive(Debug)]
pub struct Mrc {
    settings: Settings,
    guests: Vec<Model>,
    phase: Phase,
    /// Moves that were taken back one after the other.
    failures: u32,
    /// Periods since some workload changed.
    calm: u32,
}

impl Mrc {
    pub(crate) fn new(settings: Settings, bounds: &Bounds) -> Result<Self, SettingsError> {
        let total = bounds.total();
        settings.check(total)?;
        let or = |set: u64, otherwise: u64| if set == 0 { otherwise } else { set };
        let settings = Settings {
            grain: or(settings.grain, total / CELLS)
                .max(total / (8 * CELLS))
                .max(PAGE_BYTES),
            step: or(settings.step, total / 8).max(PAGE_BYTES),
            ..settings
        };
        let guests = bounds.guests().iter().zip(settings.seed..);
        let guests = guests.map(|(limits, seed)| {
            Model::new(OnlineCurve::new(limits.most.div_ceil(settings.unit), seed))
        });
        Ok(Self {
            guests: guests.collect(),
            settings,
            phase: Phase::Resting { periods: 1 },
            failures: 0,
            calm: 0,
        })
    }

    /// The curve of a guest.
    pub(crate) fn curve(&mut self, guest: usize) -> Option<&mut OnlineCurve> {
        self.guests.get_mut(guest).map(|guest| &mut guest.curve)
    }

    /// The sizes wished for, and why. `now` are the targets; `arrived` says whether they are reached.
    pub(crate) fn wish(
        &mut self,
        bounds: &Bounds,
        now: &[u64],
        seen: &[Observation],
        activity: &[Option<Activity>],
        arrived: bool,
    ) -> (Vec<u64>, Reason) {
        let mut changed = false;
        self.calm += 1;
        for (at, guest) in self.guests.iter_mut().enumerate() {
            if let (Some(did), Some(has)) = (activity[at], seen[at].achieved) {
                let limits = &bounds.guests()[at];
                guest.end_period(&did, has, limits.overhead, self.settings.miss_cost);
                changed |= guest.curve.has_changed();
            }
        }
        // What is learnt after a change is no other change.
        changed &= self.calm > LEARNING;
        if changed {
            (self.failures, self.calm) = (0, 0);
        }
        if !arrived {
            self.phase.forget(changed);
            return (now.to_vec(), Reason::Waiting);
        }
        let miss_cost = self.settings.miss_cost;
        let measured = |trial: &Trial| measured(trial, activity, miss_cost);
        match self
            .phase
            .next(now, changed, self.settings.cool_down, measured)
        {
            Verdict::Free => {}
            Verdict::Wait { periods } => return (now.to_vec(), Reason::Settling { periods }),
            Verdict::Back { trial, measured } => return self.take_back(now, &trial, measured),
            Verdict::Further { target } => {
                let (wished, _) = self.stepped(now, &target);
                return (wished, Reason::Waiting);
            }
        }
        self.improve(bounds, now, seen, activity)
    }

    fn take_back(&mut self, now: &[u64], trial: &Trial, measured: f64) -> (Vec<u64>, Reason) {
        self.failures = (self.failures + 1).min(5);
        let periods = 5 << self.failures;
        let target = trial.base.clone();
        let (wished, _) = self.stepped(now, &target);
        self.phase = Phase::Back { target, periods };
        let reason = Reason::TakenBack {
            before: trial.before,
            promised: trial.promised,
            measured,
            periods,
        };
        (wished, reason)
    }

    /// Looks for a better division and takes a step towards it.
    fn improve(
        &mut self,
        bounds: &Bounds,
        now: &[u64],
        seen: &[Observation],
        activity: &[Option<Activity>],
    ) -> (Vec<u64>, Reason) {
        let pool = self.pool(bounds, now, seen, activity);
        if pool.members.is_empty() || pool.busy <= 0.0 {
            self.phase.settle(self.settings.cool_down);
            return (now.to_vec(), Reason::Silence);
        }
        let cells = divide(&pool.costs, pool.cells);
        let mut wished = now.to_vec();
        let mut best = 0.0;
        for ((&at, costs), cells) in pool.members.iter().zip(&pool.costs).zip(cells) {
            wished[at] = pool.least[at] + cells as u64 * self.settings.grain;
            best += costs[cells];
        }
        let time = (pool.cost_now / pool.busy).exp();
        let best = (best / pool.busy).exp();
        if best > time * (1.0 - self.settings.gain) {
            let reason = match self.phase.settle(self.settings.cool_down) {
                Some(periods) => Reason::Settling { periods },
                None => Reason::GoodEnough { now: time, best },
            };
            return (now.to_vec(), reason);
        }
        if self.phase.turns_back(now, &wished) {
            if matches!(self.phase, Phase::Moving { .. }) {
                self.phase.settle(self.settings.cool_down);
                return (now.to_vec(), Reason::Settling { periods: 1 });
            }
            let miss_cost = self.settings.miss_cost;
            let verdict = self
                .phase
                .judge(|trial| measured(trial, activity, miss_cost));
            if let Verdict::Back { trial, measured } = verdict {
                return self.take_back(now, &trial, measured);
            }
        }
        let (stepped, more) = self.stepped(now, &wished);
        let weights: Vec<f64> = (0..now.len())
            .map(|at| bounds.guests()[at].weight * self.guests[at].busy())
            .collect();
        let trial = Trial {
            base: now.to_vec(),
            before: 0.0,
            promised: best,
            weights,
            periods: 0,
        };
        let before = measured(&trial, activity, self.settings.miss_cost);
        self.phase.moved(Trial { before, ..trial });
        let reason = Reason::Better {
            now: time,
            best,
            wished,
            more,
        };
        (stepped, reason)
    }

    /// Who can be moved, by how much, and what each size costs.
    fn pool(
        &self,
        bounds: &Bounds,
        now: &[u64],
        seen: &[Observation],
        activity: &[Option<Activity>],
    ) -> Pool {
        let grain = self.settings.grain;
        let mut pool = Pool::default();
        let mut left = bounds.total();
        for (at, limits) in bounds.guests().iter().enumerate() {
            pool.least.push(limits.least);
            let model = &self.guests[at];
            let (Some(did), Some(has)) = (activity[at], seen[at].achieved) else {
                left = left.saturating_sub(now[at]);
                continue;
            };
            if !model.is_known(&did) {
                left = left.saturating_sub(now[at]);
                continue;
            }
            let pressed = did
                .pressure
                .is_some_and(|share| share > self.settings.pressure);
            if pressed || model.surprise(&did, has, self.settings.unit) > self.settings.surprise {
                // It may still grow.
                pool.least[at] = now[at];
            }
            left = left.saturating_sub(pool.least[at]);
            pool.members.push(at);
        }
        pool.cells = usize::try_from(left / grain).unwrap_or(usize::MAX);
        let demand = |at: usize| bounds.guests()[at].weight * self.guests[at].busy();
        pool.busy = pool.members.iter().map(|&at| demand(at)).sum();
        for &at in &pool.members {
            let limits = &bounds.guests()[at];
            let (model, least) = (&self.guests[at], pool.least[at]);
            let room = usize::try_from((limits.most - least) / grain).unwrap_or(usize::MAX);
            let sizes: Vec<u64> = (0..=room.min(pool.cells) as u64)
                .map(|cell| least + cell * grain)
                .collect();
            let demand = demand(at);
            pool.cost_now += demand * model.times(&[now[at]], &self.settings)[0].ln();
            let mut costs = model.times(&sizes, &self.settings);
            for (cost, size) in costs.iter_mut().zip(&sizes) {
                let moved = size.abs_diff(now[at]) as f64 / bounds.total() as f64;
                *cost = demand * cost.ln() + INERTIA * pool.busy * moved;
            }
            pool.costs.push(costs);
        }
        pool
    }

    /// From `now` towards `target`, no further than a step; and whether more is left.
    fn stepped(&self, now: &[u64], target: &[u64]) -> (Vec<u64>, bool) {
        let sum = |from: &[u64], to: &[u64]| -> u128 {
            let pairs = from.iter().zip(to);
            pairs
                .map(|(from, to)| u128::from(to.saturating_sub(*from)))
                .sum()
        };
        let most = sum(now, target).max(sum(target, now));
        let step = u128::from(self.settings.step);
        if most <= step {
            return (target.to_vec(), false);
        }
        let part = |delta: u64| {
            let bytes = u128::from(delta) * step / most;
            u64::try_from(bytes).unwrap_or(u64::MAX) / PAGE_BYTES * PAGE_BYTES
        };
        let towards = |(&now, &target): (&u64, &u64)| {
            if target > now {
                now + part(target - now)
            } else {
                now - part(now - target)
            }
        };
        (now.iter().zip(target).map(towards).collect(), true)
    }
}

/// The mean access time of the last period in hits, with the weights of a trial.
fn measured(trial: &Trial, activity: &[Option<Activity>], miss_cost: f64) -> f64 {
    let (mut sum, mut weights) = (0.0, 0.0);
    for (weight, did) in trial.weights.iter().zip(activity) {
        if let Some(did) = did.filter(|did| did.accesses() > 0) {
            sum += weight * (1.0 + (miss_cost - 1.0) * did.miss_ratio());
            weights += weight;
        }
    }
    if weights > 0.0 { sum / weights } else { 1.0 }
}

/// The guests among which memory can be divided.
#[derive(Default)]
struct Pool {
    /// Their numbers.
    members: Vec<usize>,
    /// The least that each guest, member or not, can have.
    least: Vec<u64>,
    /// Cells above what they have at least.
    cells: usize,
    /// By member: what each number of cells costs.
    costs: Vec<Vec<f64>>,
    /// Their weights times busy times.
    busy: f64,
    /// What the sizes of now cost.
    cost_now: f64,
}
