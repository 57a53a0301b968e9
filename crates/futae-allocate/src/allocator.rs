//! The allocator, period by period: it takes observations and returns targets.

use crate::bounds::{Bounds, SettingsError};
use crate::curve::OnlineCurve;
use crate::decision::{Decision, GuestState, Reason};
use crate::guest::{Activity, Observation};
use crate::mrc::Mrc;
use crate::{mrc, paper};

/// The evaluator and its settings.
#[derive(Clone, Debug)]
pub enum Settings {
    /// No evaluator: all guests keep their initial size.
    Static,
    /// By hits minus misses per MiB.
    Paper(paper::Settings),
    /// By miss-ratio curves.
    Mrc(mrc::Settings),
}

/// An evaluator with its state.
#[derive(Debug)]
pub enum Evaluator {
    /// None.
    Static,
    /// Has no state.
    Paper(paper::Settings),
    /// Keeps curves.
    Mrc(Box<Mrc>),
}

/// Decides the size of each guest. See the crate's documentation.
#[derive(Debug)]
pub struct Allocator {
    bounds: Bounds,
    evaluator: Evaluator,
    targets: Vec<u64>,
    /// Periods for which guests have not reached their targets.
    late: u32,
    /// After this many such periods, the achieved sizes are taken for the attainable ones.
    patience: u32,
    /// Bytes by which an achieved size may be off its target.
    slack: u64,
    period: u64,
}

impl Allocator {
    /// An allocator whose guests have their initial sizes.
    ///
    /// # Errors
    ///
    /// The settings of the evaluator are invalid; the error is a sentence.
    pub fn new(bounds: Bounds, settings: Settings) -> Result<Self, SettingsError> {
        let evaluator = match settings {
            Settings::Static => Evaluator::Static,
            Settings::Paper(settings) => {
                if settings.step == 0 || !settings.threshold.is_finite() {
                    return Err(SettingsError(
                        "the paper's evaluator needs a step above 0 and a threshold that is a number"
                            .to_owned(),
                    ));
                }
                Evaluator::Paper(settings)
            }
            Settings::Mrc(settings) => Evaluator::Mrc(Box::new(Mrc::new(settings, &bounds)?)),
        };
        Ok(Self {
            targets: bounds.start(),
            bounds,
            evaluator,
            late: 0,
            patience: 3,
            slack: 1 << 20,
            period: 0,
        })
    }

    /// Goes on with the numbers of periods where `earlier` ends, an allocator of other guests.
    #[must_use]
    pub fn after(mut self, earlier: &Self) -> Self {
        self.period = earlier.period;
        self
    }

    /// The bounds that it keeps to.
    #[must_use]
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// The target of each guest, in bytes.
    #[must_use]
    pub fn targets(&self) -> &[u64] {
        &self.targets
    }

    /// The curve of a guest, which receives the guest's reads; `None` if the evaluator keeps no
    /// curves.
    pub fn curve(&mut self, guest: usize) -> Option<&mut OnlineCurve> {
        match &mut self.evaluator {
            Evaluator::Mrc(mrc) => mrc.curve(guest),
            _ => None,
        }
    }

    /// Ends a period: `seen` has one observation per guest, in the order of the bounds.
    pub fn decide(&mut self, seen: &[Observation]) -> Decision {
        let count = self.targets.len();
        let seen: Vec<Observation> = (0..count)
            .map(|at| seen.get(at).copied().unwrap_or_default())
            .collect();
        // A guest that is silent or whose size is unknown keeps its target.
        let activity: Vec<Option<Activity>> =
            seen.iter().map(|one| one.believed().activity).collect();
        let before = self.targets.clone();
        let reason = self.wish(&seen, &activity);
        let guests = (0..count).map(|at| GuestState {
            name: self.bounds.guests()[at].name.clone(),
            before: before[at],
            achieved: seen[at].achieved,
            target: self.targets[at],
            activity: activity[at],
        });
        let decision = Decision {
            period: self.period,
            reason,
            guests: guests.collect(),
            given: Vec::new(),
        };
        self.period += 1;
        decision
    }

    /// Reverts the last decision, because no guest was informed of it.
    pub fn undo(&mut self, decision: &Decision) {
        for (target, guest) in self.targets.iter_mut().zip(&decision.guests) {
            *target = guest.before;
        }
    }

    fn wish(&mut self, seen: &[Observation], activity: &[Option<Activity>]) -> Reason {
        if activity.iter().all(Option::is_none) {
            return Reason::Silence;
        }
        let free: Vec<bool> = activity.iter().map(Option::is_some).collect();
        let arrived = self.arrived(seen, &free);
        let now = &self.targets;
        let limits = self.bounds.guests();
        let (wished, reason) = match &mut self.evaluator {
            Evaluator::Static => return Reason::NobodyCan { values: Vec::new() },
            Evaluator::Paper(_) if !arrived => return Reason::Waiting,
            Evaluator::Paper(settings) => paper::wish(settings, limits, now, activity),
            Evaluator::Mrc(mrc) => mrc.wish(&self.bounds, now, seen, activity, arrived),
        };
        self.targets = self.bounds.within(&self.targets, &wished, &free);
        reason
    }

    /// Whether the guests have reached their targets. A guest that after a while still has more
    /// than its target is considered unable to give it: its achieved size becomes its target, if
    /// the bounds allow it.
    fn arrived(&mut self, seen: &[Observation], free: &[bool]) -> bool {
        let slack = self.slack;
        let off = |at: usize, targets: &[u64]| {
            free[at]
                && seen[at]
                    .achieved
                    .is_some_and(|has| has.abs_diff(targets[at]) > slack)
        };
        if !(0..seen.len()).any(|at| off(at, &self.targets)) {
            self.late = 0;
            return true;
        }
        self.late += 1;
        if self.late <= self.patience {
            return false;
        }
        self.late = 0;
        // First those that have less than they may, which makes room for those that have more.
        let mut order: Vec<usize> = (0..seen.len())
            .filter(|&at| off(at, &self.targets))
            .collect();
        order.sort_by_key(|&at| {
            seen[at]
                .achieved
                .unwrap_or(0)
                .saturating_sub(self.targets[at])
        });
        for at in order {
            let mut wished = self.targets.clone();
            wished[at] = seen[at].achieved.unwrap_or(wished[at]);
            self.targets = self.bounds.within(&self.targets, &wished, free);
        }
        false
    }
}
