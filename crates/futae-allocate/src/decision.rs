//! A decision, with the numbers behind it.

use crate::guest::Activity;
use crate::host::Given;
use serde::Serialize;
use std::fmt::{self, Write};

/// The sizes after a period.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// Which period this was, from 0.
    pub period: u64,
    /// Why.
    pub reason: Reason,
    /// The state of each guest: its previous size, its activity, and its target.
    pub guests: Vec<GuestState>,
    /// What guests give to the host, or get from it again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub given: Vec<Given>,
}

/// One guest in a decision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GuestState {
    /// Its name.
    pub name: String,
    /// Its previous target in bytes.
    pub before: u64,
    /// Its actual size in bytes; `None` if it cannot be read.
    pub achieved: Option<u64>,
    /// Its new target in bytes.
    pub target: u64,
    /// Its activity; `None` if the guest keeps its target because it is silent, not believed, or of
    /// unknown size.
    pub activity: Option<Activity>,
}

/// The reason for the sizes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Reason {
    /// `paper`: a step from the guest with the higher value to the one with the lower.
    Step {
        /// e by guest.
        values: Vec<Option<f64>>,
        /// Between the two.
        difference: f64,
        /// The threshold of the condition.
        threshold: f64,
        /// The giving guest, from 0.
        from: usize,
        /// The receiving guest, from 0.
        to: usize,
        /// The bytes moved.
        bytes: u64,
    },
    /// `paper`: the difference does not satisfy the condition.
    Condition {
        /// e by guest.
        values: Vec<Option<f64>>,
        /// Between the highest and the lowest.
        difference: f64,
        /// The threshold of the condition.
        threshold: f64,
    },
    /// `paper`: no guest that can give a step is above one that can take it.
    NobodyCan {
        /// e by guest.
        values: Vec<Option<f64>>,
    },
    /// Some guest has not reached its target yet.
    Waiting,
    /// No guest sent believable page counts; or, with `mrc`, no busy guest has a curve.
    Silence,
    /// The host lacks memory, or did until lately.
    HostPressure {
        /// The share of the period in which its programs waited for memory.
        share: f64,
        /// From which share on guests give.
        threshold: f64,
    },
    /// `mrc`: a step towards a better division.
    Better {
        /// Current mean access time, in hits, according to the curves.
        now: f64,
        /// The same for the best division.
        best: f64,
        /// The best division, in bytes.
        wished: Vec<u64>,
        /// Whether more steps follow.
        more: bool,
    },
    /// `mrc`: the best division is not worth a move.
    GoodEnough {
        /// Current mean access time, in hits, according to the curves.
        now: f64,
        /// The same for the best division.
        best: f64,
    },
    /// `mrc`: waiting for the effect of a move.
    Settling {
        /// Periods still to wait.
        periods: u32,
    },
    /// `mrc`: the last move increased the access time and is reverted.
    TakenBack {
        /// Mean access time before the move, in hits, as measured.
        before: f64,
        /// The value predicted by the curves.
        promised: f64,
        /// The measured value.
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

    /// Why, in a sentence with the numbers.
    #[must_use]
    pub fn why(&self) -> String {
        let given = self.given.iter().map(|one| one.why(self.name(one.guest)));
        let all: Vec<String> = std::iter::once(self.reason()).chain(given).collect();
        all.join("; ")
    }

    fn reason(&self) -> String {
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
                "{}; no other guest can give memory: nothing moves",
                self.values(values)
            ),
            Reason::HostPressure { share, threshold } => format!(
                "the host's programs waited for memory in {:.1} % of the period (threshold {:.1} %): nothing moves between guests",
                share * 100.0,
                threshold * 100.0
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
