//! The number of requests in a run.

use super::{PASSES_DEFAULT, Requests, SimulationError};
use futae_trace::WorkloadError;

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
    /// The default for workloads with this many blocks in all. `natural` is the number of requests
    /// of workloads that are complete after one pass, which need no warm-up.
    pub(super) fn usual(blocks: u64, natural: Option<u64>) -> Self {
        let passes = blocks.saturating_mul(PASSES_DEFAULT);
        match natural {
            Some(requests) => Self {
                warmup: 0,
                requests,
            },
            None => Self {
                warmup: passes,
                requests: passes,
            },
        }
    }
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
            _ => Amount::usual(self.footprint_blocks()?, all),
        };
        let warmup = warmup.unwrap_or(usual.warmup);
        let left = all.map_or(u64::MAX, |all| all.saturating_sub(warmup));
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
                Ok(natural.into_iter().sum())
            }
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
}
