//! What would have been done with guests whose periods were recorded, without a guest.

use crate::config::{Config, ConfigError, GuestConfig, bytes};
use crate::libvirt::fit;
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
    /// Domains that ran only later; none where guests are those that are named.
    late: Option<Vec<String>>,
}

impl Adviser {
    /// Begins with what the guests had in the first period, unless the configuration says their start.
    ///
    /// # Errors
    ///
    /// What is wrong with the configuration, also beside what was recorded.
    pub fn new(config: &Config, first: &Period) -> Result<Self, ConfigError> {
        let mut limits = Vec::new();
        for one in &guests_of(config, first)? {
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
        if config.libvirt.is_some() {
            fit(&mut limits, total).map_err(ConfigError)?;
        }
        let bounds = Bounds::new(limits, total).map_err(|error| ConfigError(error.to_string()))?;
        let replay = Replay::new(bounds, config.settings()?);
        Ok(Self {
            used: vec![0; names.len()],
            late: config.libvirt.as_ref().map(|_| Vec::new()),
            names,
            replay: replay.map_err(|error| ConfigError(error.to_string()))?,
            first: first.time,
            last: first.time,
        })
    }

    /// The next period: what would have been done at its end.
    pub fn period(&mut self, period: &Period) -> Decision {
        self.last = period.time;
        if let Some(late) = &mut self.late {
            for guest in &period.guests {
                let mut known = self.names.iter().chain(&*late);
                if !known.any(|name| *name == guest.name) {
                    late.push(guest.name.clone());
                }
            }
        }
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
        let lacking = lacking.map(|(name, used)| {
            format!(
                "{name}: {used} of {} periods have page counts and a miss-ratio curve, so in the others it is left as it is; its agent \
                 needs --sample",
                outcome.periods
            )
        });
        let late = self.late.iter().flatten().map(|name| {
            format!(
                "{name}: it was not seen in the first period, so it and its memory are left out"
            )
        });
        Advice {
            seconds: self.last - self.first,
            problems: lacking.chain(late).collect(),
            outcome,
        }
    }
}

/// The guests that are named, and by `[libvirt]` all others that were recorded.
fn guests_of(config: &Config, first: &Period) -> Result<Vec<GuestConfig>, ConfigError> {
    let mut guests = config.guests.clone();
    let Some(libvirt) = &config.libvirt else {
        return Ok(guests);
    };
    for recorded in first.guests.iter().filter(|guest| guest.has.is_some()) {
        let name = &recorded.name;
        if config.guests.iter().any(|guest| guest.name == *name) {
            continue;
        }
        if libvirt.maximum.is_none() && recorded.maximum.is_none() {
            return Err(ConfigError(format!(
                "guest {name:?}: its maximum was not recorded; set libvirt.maximum"
            )));
        }
        guests.push(libvirt.guest(name, recorded.maximum.unwrap_or(0)));
    }
    Ok(guests)
}
