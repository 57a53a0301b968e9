//! What guests give back to the host: the cache of idle guests, and, while the host lacks memory, that of all.
//!
//! The evaluator's targets stay as they are meanwhile, so that a guest that wakes has at once what it had.

use crate::guest::{GuestLimits, Observation};
use serde::Serialize;

/// Pages a second that a guest may read and still be idle: what its services do by themselves.
pub const IDLE_PAGES_A_SECOND: f64 = 10.0;
/// Under pressure each guest gives this part of what it has above its minimum, a period.
const PARTS: u64 = 4;
/// Memory is given again once the pressure is below this part of the threshold.
const RELEASE: f64 = 0.5;

/// When memory is given back to the host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostSettings {
    /// Seconds without reads after which a guest is idle; none: never.
    pub idle_after: Option<f64>,
    /// The share of time in which programs of the host wait for memory from which on guests give; none: never.
    pub pressure: Option<f64>,
    /// Seconds of a period.
    pub period: f64,
}

/// A guest that gives memory to the host, or gets it again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Given {
    /// Which: a number from 0.
    pub guest: usize,
    /// What it had as its target, in bytes.
    pub before: u64,
    /// What it has as its target now, in bytes.
    pub target: u64,
    /// Why.
    pub cause: Cause,
}

/// Why a guest gives memory to the host, or gets it again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum Cause {
    /// It has read next to nothing for so long.
    Idle {
        /// Seconds.
        seconds: f64,
    },
    /// It reads again.
    Awake,
    /// The host lacks memory.
    Pressure {
        /// The share of the period in which programs of the host waited for memory.
        share: f64,
        /// From which share on guests give.
        threshold: f64,
    },
    /// The host has memory again.
    Relief {
        /// As above.
        share: f64,
        /// As above.
        threshold: f64,
    },
}

/// What one guest holds back.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Seconds for which it has been idle.
    idle: f64,
    is_idle: bool,
    /// Parts of what it has above its minimum that the host has.
    parts: u64,
    /// Both in the period before.
    last: (bool, u64),
}

/// Keeps what guests give back to the host.
#[derive(Clone, Debug)]
pub struct Host {
    settings: HostSettings,
    guests: Vec<State>,
}

impl Host {
    /// Nobody gives anything yet.
    #[must_use]
    pub fn new(settings: HostSettings, guests: usize) -> Self {
        Self {
            settings,
            guests: vec![State::default(); guests],
        }
    }

    /// The same with other guests: for each the number that it had here, none for a newcomer.
    #[must_use]
    pub fn of(&self, places: &[Option<usize>]) -> Self {
        let state = |place: &Option<usize>| place.and_then(|at| self.guests.get(at).copied());
        Self {
            settings: self.settings,
            guests: places
                .iter()
                .map(|place| state(place).unwrap_or_default())
                .collect(),
        }
    }

    /// Nobody was told anything: all have again what they would have given, and the time without reads goes on.
    pub fn undo(&mut self) {
        for state in &mut self.guests {
            (state.is_idle, state.parts) = (false, 0);
        }
    }

    /// A period is over. `blind` guests are those whose agents do not see all reads: these are never idle. A guest of which
    /// nothing was heard stays as it is.
    pub fn period(&mut self, seen: &[Observation], blind: &[bool], pressure: Option<f64>) {
        let few = IDLE_PAGES_A_SECOND * self.settings.period;
        for (at, state) in self.guests.iter_mut().enumerate() {
            state.last = (state.is_idle, state.parts);
            let activity = seen.get(at).and_then(|one| one.activity);
            if let Some(did) = activity {
                let is_quiet =
                    did.accesses() as f64 <= few && !blind.get(at).copied().unwrap_or(true);
                state.idle = if is_quiet {
                    state.idle + self.settings.period
                } else {
                    0.0
                };
            }
            let limit = self.settings.idle_after;
            state.is_idle = limit.is_some_and(|limit| limit <= state.idle);
            if let (Some(share), Some(threshold)) = (pressure, self.settings.pressure) {
                if share >= threshold {
                    state.parts = (state.parts + 1).min(PARTS);
                } else if share < threshold * RELEASE {
                    state.parts = state.parts.saturating_sub(1);
                }
            }
        }
    }

    /// Whether guests give because the host lacks memory: nothing else moves meanwhile.
    #[must_use]
    pub fn is_pressed(&self) -> bool {
        self.guests.iter().any(|state| state.parts > 0)
    }

    /// Whether a guest is left out of the division: it is idle, or was until now.
    #[must_use]
    pub fn is_left_out(&self, guest: usize) -> bool {
        let state = &self.guests[guest];
        state.is_idle || state.last.0
    }

    /// What guests shall have in fact, where `targets` are the evaluator's.
    #[must_use]
    pub fn targets(&self, guests: &[GuestLimits], targets: &[u64]) -> Vec<u64> {
        let each = self.guests.iter().zip(guests).zip(targets);
        let target = |((state, limits), &target): ((&State, &GuestLimits), &u64)| {
            let above = target.saturating_sub(limits.least);
            match state.is_idle {
                true => target - above,
                false => {
                    target
                        - above / PARTS * state.parts
                        - above % PARTS * u64::from(state.parts == PARTS)
                }
            }
        };
        each.map(target).collect()
    }

    /// Which guests give or get by the last period, where `before` was in force until then, and `now` is from now on.
    #[must_use]
    pub fn given(&self, before: &[u64], now: &[u64], pressure: Option<f64>) -> Vec<Given> {
        let share = pressure.unwrap_or(0.0);
        let threshold = self.settings.pressure.unwrap_or(1.0);
        let mut all = Vec::new();
        for (guest, state) in self.guests.iter().enumerate() {
            let (before, target) = (before[guest], now[guest]);
            let has_changed = (state.is_idle, state.parts) != state.last;
            if before == target || !has_changed {
                continue;
            }
            let is_of_idleness = state.is_idle != state.last.0;
            let cause = match (is_of_idleness, target < before) {
                (true, true) => Cause::Idle {
                    seconds: state.idle,
                },
                (true, false) => Cause::Awake,
                (false, true) => Cause::Pressure { share, threshold },
                (false, false) => Cause::Relief { share, threshold },
            };
            all.push(Given {
                guest,
                before,
                target,
                cause,
            });
        }
        all
    }
}

impl Given {
    /// In words and numbers; `name` is the guest's.
    #[must_use]
    pub fn why(&self, name: &str) -> String {
        let mib = self.before.abs_diff(self.target) as f64 / (1u64 << 20) as f64;
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        match self.cause {
            Cause::Idle { seconds } => {
                format!("{name} has been idle for {seconds:.0} s: {mib:.1} MiB to the host")
            }
            Cause::Awake => format!("{name} reads again: {mib:.1} MiB from the host"),
            Cause::Pressure { share, threshold } => format!(
                "the host's programs waited for memory in {} of the period (threshold {}): {mib:.1} MiB from {name} to the host",
                percent(share),
                percent(threshold)
            ),
            Cause::Relief { share, threshold } => format!(
                "the host's programs waited for memory in {} of the period (threshold {}): {mib:.1} MiB from the host to {name}",
                percent(share),
                percent(threshold)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::Activity;

    const MIB: u64 = 1 << 20;

    fn limits(least: u64) -> GuestLimits {
        GuestLimits {
            name: String::new(),
            least,
            most: 1024 * MIB,
            start: least,
            weight: 1.0,
            overhead: 0,
        }
    }

    fn reads(pages: u64) -> Observation {
        let activity = Activity {
            hits: pages,
            ..Activity::default()
        };
        Observation {
            achieved: Some(512 * MIB),
            activity: Some(activity),
        }
    }

    fn host(idle_after: Option<f64>, pressure: Option<f64>) -> Host {
        let settings = HostSettings {
            idle_after,
            pressure,
            period: 10.0,
        };
        Host::new(settings, 2)
    }

    #[test]
    fn an_idle_guest_has_its_minimum_until_it_reads_again() {
        let (guests, wished) = ([limits(64 * MIB), limits(64 * MIB)], [512 * MIB; 2]);
        let mut host = host(Some(30.0), None);
        let busy = reads(50_000);
        for quiet in [reads(0), reads(100)] {
            host.period(&[quiet, busy], &[false; 2], None);
            assert_eq!(host.targets(&guests, &wished), wished);
        }
        // Nothing was heard: it stays as it is.
        host.period(&[Observation::default(), busy], &[false; 2], None);
        assert_eq!(host.targets(&guests, &wished), wished);
        host.period(&[reads(0), busy], &[false; 2], None);
        let idle = host.targets(&guests, &wished);
        assert_eq!(idle, [64 * MIB, 512 * MIB]);
        assert!(host.is_left_out(0) && !host.is_left_out(1));
        let given = host.given(&wished, &idle, None);
        assert_eq!(given.len(), 1);
        let why = given[0].why("db");
        assert_eq!(why, "db has been idle for 30 s: 448.0 MiB to the host");
        host.period(&[reads(101), busy], &[false; 2], None);
        let awake = host.targets(&guests, &wished);
        assert_eq!(awake, wished);
        let given = host.given(&idle, &awake, None);
        assert_eq!(given[0].cause, Cause::Awake);
    }

    #[test]
    fn a_guest_whose_agent_does_not_see_its_hits_is_never_idle() {
        let mut host = host(Some(10.0), None);
        for _ in 0..9 {
            host.period(&[reads(0), reads(0)], &[true, false], None);
        }
        assert!(!host.is_left_out(0) && host.is_left_out(1));
    }

    #[test]
    fn under_pressure_all_give_by_and_by_and_get_it_again() {
        let (guests, wished) = ([limits(64 * MIB), limits(511 * MIB)], [512 * MIB; 2]);
        let mut host = host(None, Some(0.1));
        let mut seen = Vec::new();
        for share in [0.05, 0.1, 0.3, 0.3, 0.3, 0.3, 0.07, 0.04, 0.0, 0.0, 0.0] {
            host.period(&[reads(9), reads(9)], &[false; 2], Some(share));
            seen.push(host.targets(&guests, &wished)[0] / MIB);
            assert!(host.targets(&guests, &wished)[1] >= 511 * MIB);
        }
        assert_eq!(seen, [512, 400, 288, 176, 64, 64, 64, 176, 288, 400, 512]);
        assert!(!host.is_pressed());
        host.period(&[reads(9), reads(9)], &[false; 2], Some(0.25));
        assert!(host.is_pressed());
        let now = host.targets(&guests, &wished);
        let given = host.given(&wished, &now, Some(0.25));
        assert_eq!(given.len(), 2);
        let why = given[0].why("db");
        assert!(
            why.contains("25.0 % of the period (threshold 10.0 %): 112.0 MiB from db"),
            "{why}"
        );
        // Unknown pressure changes nothing.
        host.period(&[reads(9), reads(9)], &[false; 2], None);
        assert_eq!(host.targets(&guests, &wished), now);
    }
}
