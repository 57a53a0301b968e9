//! What would have been done with guests whose periods were recorded, without a guest.

use crate::config::{Config, ConfigError, GuestConfig, bytes};
use crate::samples::Period;
use futae_allocate::replay::{Outcome, Past, Replay};
use futae_allocate::{Bounds, Decision};
use serde::Serialize;

/// What would have been done, and what it would have been worth.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// Seconds from the first period to the last.
    pub seconds: f64,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Guests of which nothing can be said, in sentences.
    pub problems: Vec<String>,
}

/// An allocator with a configuration that decides on recorded periods.
#[derive(Debug)]
pub struct Adviser {
    names: Vec<String>,
    replay: Replay,
    first: f64,
    last: f64,
    /// Periods of each guest that can be used.
    used: Vec<u64>,
}

impl Adviser {
    /// Begins with what the guests had in the first period, unless the configuration says their start.
    ///
    /// # Errors
    ///
    /// What is wrong with the configuration, also beside what was recorded.
    pub fn new(config: &Config, first: &Period) -> Result<Self, ConfigError> {
        let mut limits = Vec::new();
        for one in &config.guests {
            let name = &one.name;
            let recorded = first.guests.iter().find(|guest| guest.name == *name);
            let has = recorded.and_then(|guest| guest.has);
            if has.is_none() && one.start.is_none() {
                return Err(ConfigError(format!(
                    "guest {name:?} is not in the recorded samples; remove it, or say its start"
                )));
            }
            // What it had was recorded; the configured start may be of another time.
            let start = has.map_or(one.start, |_| None);
            let one = GuestConfig {
                start,
                ..one.clone()
            };
            limits.push(one.limits(has)?);
        }
        let names: Vec<String> = limits.iter().map(|guest| guest.name.clone()).collect();
        let total = bytes("total", config.total)?;
        let bounds = Bounds::new(limits, total).map_err(|error| ConfigError(error.to_string()))?;
        let replay = Replay::new(bounds, config.settings()?);
        Ok(Self {
            used: vec![0; names.len()],
            names,
            replay: replay.map_err(|error| ConfigError(error.to_string()))?,
            first: first.time,
            last: first.time,
        })
    }

    /// The next period: what would have been done at its end.
    pub fn period(&mut self, period: &Period) -> Decision {
        self.last = period.time;
        let of = |name: &String| {
            let guest = period.guests.iter().find(|guest| guest.name == *name)?;
            guest.past()
        };
        let past: Vec<_> = self.names.iter().map(of).collect();
        for (used, past) in self.used.iter_mut().zip(&past) {
            *used += u64::from(past.as_ref().is_some_and(Past::is_known));
        }
        self.replay.period(&past)
    }

    /// What came of it.
    #[must_use]
    pub fn advice(&self) -> Advice {
        let outcome = self.replay.outcome();
        let lacking = self.names.iter().zip(&self.used);
        let lacking = lacking.filter(|&(_, &used)| used < outcome.periods);
        let problems = lacking.map(|(name, used)| {
            format!(
                "{name}: {used} of {} periods have page counts and a miss-ratio curve, so in the others it is left as it is; its agent \
                 needs --sample",
                outcome.periods
            )
        });
        Advice {
            seconds: self.last - self.first,
            problems: problems.collect(),
            outcome,
        }
    }
}
