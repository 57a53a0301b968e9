//! The number of requests in a run.

use super::{Requests, SimulationError};
use futae_trace::{WorkloadError, WorkloadSpec};

/// Default number of passes over the blocks (requests per block) for the warm-up, and for the
/// measurement.
pub const PASSES_DEFAULT: u64 = 5;

/// The default warm-up of a trace: one in this many requests.
const TRACE_PARTS: u64 = 4;

/// Numbers of requests of all guests together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// Requests before counting begins.
    pub warmup: u64,
    /// Requests that are counted.
    pub requests: u64,
}

impl Amount {
    /// The default for workloads with this many blocks in all, whose guests ask at these rates.
    /// `natural` is the number of requests of workloads that are complete after one pass, which
    /// need no warm-up.
    pub(super) fn usual(blocks: u64, natural: Option<u64>, rates: &[f64]) -> Self {
        match natural {
            Some(requests) if scarcity(rates) == 1.0 => Self {
                warmup: 0,
                requests,
            },
            _ => {
                let passes = blocks.saturating_mul(PASSES_DEFAULT);
                // There are fewer blocks than a float has whole numbers.
                let passes = (passes as f64 * scarcity(rates)) as u64;
                Self {
                    warmup: passes,
                    requests: passes,
                }
            }
        }
    }
}

/// How many times as many requests of all guests it takes, until the one that asks least has made as
/// many as it would if all asked equally often.
fn scarcity(rates: &[f64]) -> f64 {
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    rates.iter().map(|rate| rate / least).sum::<f64>() / rates.len() as f64
}

impl Requests<'_> {
    /// The requests of a run with these requested numbers, limited to the existing ones. By
    /// default, the warm-up is a quarter of a trace, and the rest is counted; a workload has the
    /// usual numbers.
    ///
    /// # Errors
    ///
    /// [`SimulationError::Warmup`] if the warm-up leaves fewer than `least` requests.
    pub fn amount(
        &self,
        warmup: Option<u64>,
        requests: Option<u64>,
        least: u64,
    ) -> Result<Amount, SimulationError> {
        let all = self.all()?;
        let usual = match (self, all) {
            (Self::Traces(_), Some(all)) => Amount {
                warmup: all / TRACE_PARTS,
                requests: all,
            },
            _ => Amount::usual(self.footprint_blocks()?, all, &self.rates()),
        };
        let warmup = warmup.unwrap_or(usual.warmup);
        // Of a workload without an end, what can still be counted.
        let left = all.unwrap_or(u64::MAX).saturating_sub(warmup);
        let counted = requests.unwrap_or(usual.requests);
        let amount = Amount {
            warmup,
            requests: counted.min(left),
        };
        match amount.requests < least {
            false => Ok(amount),
            true if counted < least => Err(SimulationError::Few {
                requests: counted,
                least,
            }),
            true => Err(SimulationError::Warmup {
                warmup,
                accesses: all.unwrap_or(u64::MAX),
            }),
        }
    }

    /// The number of requests of all guests, if it is finite.
    fn all(&self) -> Result<Option<u64>, SimulationError> {
        match self {
            Self::Traces(traces) => Ok(Some(traces.facts().accesses)),
            Self::Workloads {
                workloads,
                block_bytes,
                ..
            } => {
                let natural = workloads
                    .iter()
                    .map(|one| one.natural_requests(*block_bytes));
                let natural = natural.collect::<Result<Vec<_>, WorkloadError>>()?;
                // The guest that is done first begins again.
                let is_even = scarcity(&self.rates()) == 1.0;
                Ok(natural.into_iter().sum::<Option<u64>>().filter(|_| is_even))
            }
        }
    }

    /// How often each guest asks, beside the others; what traces say of that is in their order.
    fn rates(&self) -> Vec<f64> {
        match self {
            Self::Traces(_) => vec![1.0],
            Self::Workloads { workloads, .. } => workloads.iter().map(WorkloadSpec::rate).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workload that is complete after one pass is counted from its beginning, and no further than its end.
    #[test]
    fn a_scan_has_one_pass() {
        let workloads = ["scan:1000blocks".parse().expect("a workload")];
        let requests = Requests::Workloads {
            workloads: &workloads,
            block_bytes: 4096,
            seed: 1,
        };
        let amount = |warmup, counted| requests.amount(warmup, counted, 20);
        let (warmup, all) = (0, 1000);
        let whole = Amount {
            warmup,
            requests: all,
        };
        assert_eq!(amount(None, None).expect("an amount"), whole);
        assert_eq!(amount(None, Some(5000)).expect("an amount"), whole);
        let later = amount(Some(900), None).expect("an amount");
        assert_eq!((later.warmup, later.requests), (900, 100));
        assert!(matches!(
            amount(Some(990), None),
            Err(SimulationError::Warmup { .. })
        ));
        assert!(matches!(
            amount(None, Some(5)),
            Err(SimulationError::Few { .. })
        ));
    }

    /// Later sums of both are numbers, too.
    #[test]
    fn an_endless_workload_ends_with_the_numbers() {
        let workloads = ["uniform:1000blocks".parse().expect("a workload")];
        let requests = Requests::Workloads {
            workloads: &workloads,
            block_bytes: 4096,
            seed: 1,
        };
        let amount = requests.amount(Some(10), Some(u64::MAX), 20);
        let amount = amount.expect("an amount");
        assert_eq!((amount.warmup, amount.requests), (10, u64::MAX - 10));
    }

    /// A guest that asks a third as often as the other has as many requests as it would alone.
    #[test]
    fn the_guest_that_asks_least_makes_as_many_requests_as_at_equal_rates() {
        let amount = |texts: [&str; 2]| {
            let workloads = texts.map(|text| text.parse().expect("a workload"));
            let requests = Requests::Workloads {
                workloads: &workloads,
                block_bytes: 4096,
                seed: 1,
            };
            let amount = requests.amount(None, None, 1).expect("an amount");
            (amount.warmup, amount.requests)
        };
        let even = amount(["uniform:1000blocks", "uniform:1000blocks"]);
        assert_eq!(even, (2000 * PASSES_DEFAULT, 2000 * PASSES_DEFAULT));
        assert_eq!(
            amount(["0.3*uniform:1000blocks", "0.3*uniform:1000blocks"]),
            even
        );
        let uneven = amount(["3*uniform:1000blocks", "uniform:1000blocks"]);
        assert_eq!(uneven, (2 * even.0, 2 * even.1));
        assert_eq!(amount(["scan:1000blocks", "scan:500blocks"]), (0, 1500));
        let scans = amount(["3*scan:1000blocks", "scan:1000blocks"]);
        assert_eq!(scans, uneven, "the first guest's scan begins again");
    }
}
