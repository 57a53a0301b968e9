//! The hit ratio over time: runs once more, counted by window.

use super::StudyError;
use crate::duration::with_unit;
use crate::run::{Requests, TraceSimulation, Traces};
use crate::{Report, SimulationSpec};
use std::str::FromStr;
use std::time::Duration;

/// More windows than this are a mistake.
const WINDOWS_MAX: u64 = 1 << 20;

/// How the requests that are counted are cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Windows {
    /// Into this many windows of as many requests.
    Count(u32),
    /// Into windows of this time.
    Time(Duration),
}

impl FromStr for Windows {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(count) = text.parse::<u32>() {
            let is_fit = (1..=WINDOWS_MAX).contains(&u64::from(count));
            return is_fit
                .then_some(Self::Count(count))
                .ok_or_else(|| format!("there are 1 to {WINDOWS_MAX} windows"));
        }
        let time = with_unit(text).filter(|time| time.as_micros() > 0);
        time.map(Self::Time).ok_or_else(|| {
            format!("{text:?} is neither a number of windows (24) nor a time (15min, 1h)")
        })
    }
}

impl Windows {
    /// Whether the times of a trace must be kept for it.
    #[must_use]
    pub fn needs_times(self) -> bool {
        matches!(self, Self::Time(_))
    }

    /// Adds the windows of each run of traces.
    pub(super) fn of_traces(
        self,
        traces: &Traces,
        simulations: &[TraceSimulation],
        block_bytes: u64,
        report: &mut Report,
        progress: &dyn Fn(f64),
    ) -> Result<(), StudyError> {
        let requests = Requests::Traces(traces);
        let runs = simulations.len() as f64;
        for (at, (simulation, run)) in simulations.iter().zip(&mut report.runs).enumerate() {
            let ends = self.ends(run.warmup_requests, run.requests, Some(traces))?;
            let counted = requests.until(
                simulation,
                block_bytes,
                run.warmup_requests,
                &ends,
                &mut |part| progress((at as f64 + part) / runs),
            );
            let starts = self.starts(ends.len());
            run.set_windows(&counted?, starts);
        }
        Ok(())
    }

    /// Adds the windows of each run of workloads.
    pub(super) fn of_workloads(
        self,
        requests: &Requests<'_>,
        specs: &[SimulationSpec],
        report: &mut Report,
        progress: &dyn Fn(f64),
    ) -> Result<(), StudyError> {
        let runs = specs.len() as f64;
        for (at, (spec, run)) in specs.iter().zip(&mut report.runs).enumerate() {
            let ends = self.ends(run.warmup_requests, run.requests, None)?;
            let simulation = TraceSimulation {
                levels: spec.levels.clone(),
                links: spec.links.clone(),
                write_mode: spec.write_mode,
                seed: spec.seed,
                warmup_requests: run.warmup_requests,
                requests: Some(run.requests),
            };
            let counted = requests.until(
                &simulation,
                spec.block_bytes,
                run.warmup_requests,
                &ends,
                &mut |part| progress((at as f64 + part) / runs),
            );
            run.set_windows(&counted?, None);
        }
        Ok(())
    }

    /// Where each window ends, in requests from the first, warm-up included. Windows of time that are wholly in the
    /// warm-up have no requests.
    fn ends(
        self,
        warmup: u64,
        requests: u64,
        traces: Option<&Traces>,
    ) -> Result<Vec<u64>, StudyError> {
        let end = warmup + requests;
        match self {
            Self::Count(count) => {
                let count = u64::from(count).min(requests.max(1));
                let at =
                    |window| warmup + (u128::from(requests) * window / u128::from(count)) as u64;
                Ok((1..=u128::from(count)).map(at).collect())
            }
            Self::Time(time) => {
                let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
                let no_times = || StudyError::WindowsWithoutTimes;
                let traces = traces.ok_or_else(no_times)?;
                let count = traces.span_us().ok_or_else(no_times)? / us + 1;
                if count > WINDOWS_MAX {
                    return Err(StudyError::TooManyWindows(count));
                }
                let before = |window: u64| traces.accesses_before(window.saturating_mul(us));
                let ends = (1..=count).map(|window| before(window).map(|at| at.clamp(warmup, end)));
                ends.collect::<Option<_>>().ok_or_else(no_times)
            }
        }
    }

    /// Where windows of time begin, in seconds from the first request.
    fn starts(self, windows: usize) -> Option<Vec<f64>> {
        match self {
            Self::Count(_) => None,
            Self::Time(time) => Some(
                (0..windows)
                    .map(|at| at as f64 * time.as_secs_f64())
                    .collect(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_a_number_or_a_time() {
        assert_eq!("24".parse(), Ok(Windows::Count(24)));
        assert_eq!("15min".parse(), Ok(Windows::Time(Duration::from_secs(900))));
        for bad in ["0", "", "-1", "0s", "many", "0.5"] {
            assert!(bad.parse::<Windows>().is_err(), "{bad}");
        }
        let ends = Windows::Count(4).ends(10, 10, None).ok();
        assert_eq!(ends, Some(vec![12, 15, 17, 20]));
    }
}
