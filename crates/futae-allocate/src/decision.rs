//! What was decided, and the numbers that made it.

use crate::guest::Activity;
use serde::Serialize;
use std::fmt::{self, Write};

/// The sizes after a period.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// Which period this was, from 0.
    pub period: u64,
    /// Why.
    pub reason: Reason,
    /// Each guest: what it had, did, and shall have.
    pub guests: Vec<GuestState>,
}

/// One guest in a decision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GuestState {
    /// Its name.
    pub name: String,
    /// What its target was, in bytes.
    pub before: u64,
    /// What it has in fact, in bytes; none where that cannot be read.
    pub achieved: Option<u64>,
    /// What its target is from now on, in bytes.
    pub target: u64,
    /// What it did; none if it is left as it is, being silent, not to be believed or out of sight.
    pub activity: Option<Activity>,
}

/// Why the sizes are as they are.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Reason {
    /// `paper`: a step from the guest with the higher value to the one with the lower.
    Step {
        /// e by guest.
        values: Vec<Option<f64>>,
        /// Between the two.
        difference: f64,
        /// What it was held against.
        threshold: f64,
        /// Who gives: a number from 0.
        from: usize,
        /// Who takes.
        to: usize,
        /// How much.
        bytes: u64,
    },
    /// `paper`: the difference is not as the condition asks.
    Condition {
        /// e by guest.
        values: Vec<Option<f64>>,
        /// Between the highest and the lowest.
        difference: f64,
        /// What it was held against.
        threshold: f64,
    },
    /// `paper`: no guest that can give a step is above one that can take it.
    NobodyCan {
        /// e by guest.
        values: Vec<Option<f64>>,
    },
    /// Some guest does not have what it was told yet.
    Waiting,
    /// No guest sent page counts that are to be believed; or, with `mrc`, none that is busy has a curve.
    Silence,
    /// `mrc`: a step towards a better division.
    Better {
        /// Mean access time now, in hits, as the curves say.
        now: f64,
        /// In the best division.
        best: f64,
        /// The best division, in bytes.
        wished: Vec<u64>,
        /// Whether more steps are to come.
        more: bool,
    },
    /// `mrc`: the best division is not worth moving for.
    GoodEnough {
        /// Mean access time now, in hits, as the curves say.
        now: f64,
        /// In the best division.
        best: f64,
    },
    /// `mrc`: what was moved is given time to show.
    Settling {
        /// Periods still to wait.
        periods: u32,
    },
    /// `mrc`: what was moved made it worse and is taken back.
    TakenBack {
        /// Mean access time before the move, in hits, as measured.
        before: f64,
        /// What the curves had promised.
        promised: f64,
        /// What was measured.
        measured: f64,
        /// Periods until the next move.
        periods: u32,
    },
}

impl Decision {
    /// Whether any target changed.
    #[must_use]
    pub fn moves(&self) -> bool {
        self.guests.iter().any(|guest| guest.before != guest.target)
    }
}

fn mib(bytes: u64) -> f64 {
    (bytes as f64) / (1u64 << 20) as f64
}

/// One line for people.
impl fmt::Display for Decision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "period {}: {}", self.period, self.why())?;
        for guest in &self.guests {
            write!(formatter, "; {} {:.1}", guest.name, mib(guest.before))?;
            if guest.target != guest.before {
                write!(formatter, " → {:.1}", mib(guest.target))?;
            }
            write!(formatter, " MiB")?;
            match guest.achieved {
                None => write!(formatter, ", out of sight")?,
                Some(achieved) if achieved != guest.before => {
                    write!(formatter, ", has {:.1}", mib(achieved))?;
                }
                Some(_) => {}
            }
            match guest.activity {
                None => write!(formatter, ", left as it is")?,
                Some(did) => {
                    let missed = did.miss_ratio() * 100.0;
                    write!(
                        formatter,
                        ", {} pages, {missed:.1} % missed",
                        did.accesses()
                    )?;
                }
            }
        }
        Ok(())
    }
}

impl Decision {
    fn name(&self, at: usize) -> &str {
        self.guests.get(at).map_or("?", |guest| &guest.name)
    }

    fn values(&self, values: &[Option<f64>]) -> String {
        let mut text = String::from("e is");
        for (at, value) in values.iter().enumerate() {
            let shown = value.map_or_else(|| "unknown".to_owned(), |value| format!("{value:.1}"));
            // Writing to a string does not fail.
            let _ = write!(text, " {} {shown}", self.name(at));
        }
        text
    }

    fn why(&self) -> String {
        match &self.reason {
            Reason::Step {
                values,
                difference,
                threshold,
                from,
                to,
                bytes,
            } => format!(
                "{}, difference {difference:.1} (threshold {threshold}): {:.1} MiB from {} to {}",
                self.values(values),
                mib(*bytes),
                self.name(*from),
                self.name(*to)
            ),
            Reason::Condition {
                values,
                difference,
                threshold,
            } => format!(
                "{}, difference {difference:.1} (threshold {threshold}): nothing moves",
                self.values(values)
            ),
            Reason::NobodyCan { values } => format!(
                "{}; nobody can give to one with less: nothing moves",
                self.values(values)
            ),
            Reason::Waiting => "waiting for sizes that were told to be reached".to_owned(),
            Reason::Silence if self.guests.iter().all(|guest| guest.activity.is_none()) => {
                "no agent sent page counts that can be used: nothing moves".to_owned()
            }
            Reason::Silence => {
                "page counts came, but no busy guest has a miss-ratio curve: nothing moves"
                    .to_owned()
            }
            Reason::Better {
                now, best, more, ..
            } => format!(
                "an access takes {now:.3} hits, {best:.3} at best: {}",
                if *more { "a step" } else { "moved" }
            ),
            Reason::GoodEnough { now, best } => {
                format!("an access takes {now:.3} hits, {best:.3} at best: nothing moves")
            }
            Reason::Settling { periods } => {
                format!("what was moved is given time, {periods} more periods")
            }
            Reason::TakenBack {
                before,
                promised,
                measured,
                periods,
            } => format!(
                "an access took {before:.3} hits before the move, {promised:.3} were promised, it takes \
                 {measured:.3}: taken back, nothing moves for {periods} periods"
            ),
        }
    }
}
