//! How long caches are warmed up: in requests, in shares of a trace, or in its time.

use super::StudyError;
use crate::duration::with_unit;
use crate::run::Traces;
use std::str::FromStr;
use std::time::Duration;

/// The parts of a trace that a share counts.
const PARTS: u64 = 1_000_000_000;

/// What goes before counting begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Warmup {
    /// This many requests.
    Requests(u64),
    /// So many billionths of a trace, fewer than all.
    Share(u64),
    /// So much of a trace's time.
    Time(Duration),
}

impl FromStr for Warmup {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("{text:?} is neither requests (100000) nor a share (10%) nor a time (90s, 1h)")
        };
        if let Ok(requests) = text.parse() {
            return Ok(Self::Requests(requests));
        }
        if let Some(percent) = text.strip_suffix('%') {
            let percent: f64 = percent.parse().map_err(|_| wrong())?;
            // A percentage with a few digits is a whole number of parts, which a fraction of 1 is not.
            let parts = (percent * (PARTS / 100) as f64).round();
            let is_part = (0.0..PARTS as f64).contains(&parts) && percent >= 0.0;
            return is_part
                .then_some(Self::Share(parts as u64))
                .ok_or_else(wrong);
        }
        with_unit(text).map(Self::Time).ok_or_else(wrong)
    }
}

impl Warmup {
    /// Whether the times of a trace must be kept for it.
    #[must_use]
    pub fn needs_times(self) -> bool {
        matches!(self, Self::Time(_))
    }

    /// The same in requests, for a workload.
    ///
    /// # Errors
    ///
    /// It is a share or a time.
    pub fn of_workload(self) -> Result<u64, StudyError> {
        match self {
            Self::Requests(requests) => Ok(requests),
            _ => Err(StudyError::WarmupOfWorkload),
        }
    }

    /// The same in requests, for traces.
    ///
    /// # Errors
    ///
    /// It is a time, and the traces have none.
    pub fn of_traces(self, traces: &Traces) -> Result<u64, StudyError> {
        match self {
            Self::Requests(requests) => Ok(requests),
            Self::Share(parts) => {
                let all = u128::from(traces.facts().accesses);
                // There are fewer than all.
                Ok((all * u128::from(parts) / u128::from(PARTS)) as u64)
            }
            Self::Time(time) => {
                let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
                let before = traces.accesses_before(us);
                before.ok_or(StudyError::WarmupWithoutTimes)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warmup_is_requests_a_share_or_a_time() {
        assert_eq!("1000".parse(), Ok(Warmup::Requests(1000)));
        assert_eq!("12.5%".parse(), Ok(Warmup::Share(125_000_000)));
        assert_eq!("90s".parse(), Ok(Warmup::Time(Duration::from_secs(90))));
        for bad in ["", "100%", "-1%", "x", "1 week", "0.5"] {
            let parsed = bad.parse::<Warmup>();
            assert!(parsed.is_err_and(|e| e.contains("neither")), "{bad}");
        }
    }
}
