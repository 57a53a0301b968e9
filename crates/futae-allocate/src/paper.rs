//! The evaluator of Aoki and Shiba (IPSJ 86th national convention, 2024, 6J-02).
//!
//! e = (hits − misses) ÷ memory, in page accesses a MiB and period. If the difference between the
//! highest and the lowest is as [`MoveWhen`] asks, one step goes from the guest with the highest to
//! the one with the lowest. The paper's step is 100 MB and its condition "less than 500"; read
//! literally, which is the default, that is a stop: nothing moves once the values are far apart.
//! A guest that cannot give (or take) a whole step is passed over for the next.
//!
//! Equal e is not the division with the most hits: see `docs/explanation/papers.md`.

use crate::decision::Reason;
use crate::guest::{Activity, GuestLimits};
use serde::{Deserialize, Serialize};

const MIB: f64 = (1u64 << 20) as f64;

/// When memory moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MoveWhen {
    /// While the difference is less than the threshold, as the paper prints it.
    #[default]
    Lt,
    /// While the difference is the threshold or more.
    Ge,
    /// Whatever the difference is.
    Always,
}

/// What the evaluator is given.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Settings {
    /// When memory moves.
    pub move_when: MoveWhen,
    /// Of the difference, in page accesses a MiB and period: it means nothing without the period.
    pub threshold: f64,
    /// Bytes that move at once.
    pub step: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            move_when: MoveWhen::Lt,
            threshold: 500.0,
            step: 100 << 20,
        }
    }
}

/// e of a guest that has so many bytes.
#[must_use]
pub fn evaluation(activity: &Activity, memory: u64) -> f64 {
    (activity.hits as f64 - activity.misses as f64) / (memory.max(1) as f64 / MIB)
}

/// The sizes that the evaluator wishes for, and why. `seen` has none for guests that are to stay as
/// they are; `now` is what each has.
pub(crate) fn wish(
    settings: &Settings,
    limits: &[GuestLimits],
    now: &[u64],
    seen: &[Option<Activity>],
) -> (Vec<u64>, Reason) {
    let value = |at: usize| seen[at].map(|activity| evaluation(&activity, now[at]));
    let values: Vec<Option<f64>> = (0..now.len()).map(value).collect();
    let mut order: Vec<(usize, f64)> = values
        .iter()
        .enumerate()
        .filter_map(|(at, value)| Some((at, (*value)?)))
        .collect();
    // Highest first; the first of equals gives.
    order.sort_by(|a, b| b.1.total_cmp(&a.1));
    let gives = |at: usize| now[at] >= limits[at].least.saturating_add(settings.step);
    let takes = |at: usize| now[at].saturating_add(settings.step) <= limits[at].most;
    let from = order.iter().position(|&(at, _)| gives(at));
    let to = order.iter().rposition(|&(at, _)| takes(at));
    let (Some(from), Some(to)) = (from, to) else {
        return (now.to_vec(), Reason::NobodyCan { values });
    };
    if from >= to {
        return (now.to_vec(), Reason::NobodyCan { values });
    }
    let ((from, high), (to, low)) = (order[from], order[to]);
    let difference = high - low;
    let moves = match settings.move_when {
        MoveWhen::Lt => difference < settings.threshold,
        MoveWhen::Ge => difference >= settings.threshold,
        MoveWhen::Always => true,
    };
    let threshold = settings.threshold;
    if !moves {
        let reason = Reason::Condition {
            values,
            difference,
            threshold,
        };
        return (now.to_vec(), reason);
    }
    let mut wished = now.to_vec();
    wished[from] -= settings.step;
    wished[to] += settings.step;
    let reason = Reason::Step {
        values,
        difference,
        threshold,
        from,
        to,
        bytes: settings.step,
    };
    (wished, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: u64 = 100 << 20;

    fn limits(count: usize) -> Vec<GuestLimits> {
        let guest = |at: usize| GuestLimits {
            name: format!("g{at}"),
            least: 1000 << 20,
            most: 4000 << 20,
            start: 2000 << 20,
            weight: 1.0,
            overhead: 0,
        };
        (0..count).map(guest).collect()
    }

    fn did(hits: u64, misses: u64) -> Option<Activity> {
        Some(Activity {
            hits,
            misses,
            ..Activity::default()
        })
    }

    fn wished(when: MoveWhen, now_mib: &[u64], seen: &[Option<Activity>]) -> Vec<u64> {
        let settings = Settings {
            move_when: when,
            ..Settings::default()
        };
        let now: Vec<u64> = now_mib.iter().map(|mib| mib << 20).collect();
        let (wished, _) = wish(&settings, &limits(now.len()), &now, seen);
        wished.iter().map(|bytes| bytes >> 20).collect()
    }

    #[test]
    fn the_value_is_in_accesses_a_mib() {
        let activity = did(900_000, 100_000).expect("some");
        assert_eq!(evaluation(&activity, 1000 << 20), 800.0);
        let activity = did(0, 500).expect("some");
        assert_eq!(evaluation(&activity, 100 << 20), -5.0);
        assert_eq!(STEP, Settings::default().step);
    }

    #[test]
    fn a_step_goes_from_high_to_low_when_the_condition_holds() {
        // e is 300 and 100.
        let near = [did(600_000, 0), did(300_000, 100_000)];
        assert_eq!(wished(MoveWhen::Lt, &[2000, 2000], &near), [1900, 2100]);
        assert_eq!(wished(MoveWhen::Ge, &[2000, 2000], &near), [2000, 2000]);
        // 1000 and 100.
        let far = [did(200_000, 0), did(2_000_000, 0)];
        assert_eq!(wished(MoveWhen::Lt, &[2000, 2000], &far), [2000, 2000]);
        assert_eq!(wished(MoveWhen::Ge, &[2000, 2000], &far), [2100, 1900]);
        assert_eq!(wished(MoveWhen::Always, &[2000, 2000], &far), [2100, 1900]);
    }

    #[test]
    fn who_cannot_give_or_take_a_step_is_passed_over() {
        let three = [did(900_000, 0), did(500_000, 0), did(100_000, 0)];
        let always = |now: &[u64]| wished(MoveWhen::Always, now, &three);
        assert_eq!(always(&[2000, 2000, 2000]), [1900, 2000, 2100]);
        assert_eq!(always(&[1099, 2000, 2000]), [1099, 1900, 2100]);
        assert_eq!(always(&[2000, 2000, 3901]), [1900, 2100, 3901]);
        // What could give is not above what could take.
        assert_eq!(always(&[1000, 1000, 4000]), [1000, 1000, 4000]);
    }

    #[test]
    fn who_is_silent_neither_gives_nor_takes() {
        let seen = [did(900_000, 0), None, did(100_000, 0)];
        let made = wished(MoveWhen::Always, &[2000, 2000, 2000], &seen);
        assert_eq!(made, [1900, 2000, 2100]);
        let alone = wished(MoveWhen::Always, &[2000, 2000], &[did(9, 0), None]);
        assert_eq!(alone, [2000, 2000]);
    }
}
