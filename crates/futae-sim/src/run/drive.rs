//! Requests from a stream into a machine.

use super::{Digest, SimulationError};
use crate::machine::Machine;
use futae_trace::{BlockRequest, BlockStream};

/// Requests in one batch.
const BATCH: usize = 1024;

/// A machine being fed from a stream.
pub struct Drive<'a> {
    pub stream: &'a mut dyn BlockStream,
    pub machine: &'a mut dyn Machine,
    pub blocks: u64,
    pub digest: Digest,
    pub sent: u64,
    pub total: u64,
    pub progress: &'a mut dyn FnMut(f64),
}

/// Batches between two calls of the progress callback.
const BATCHES_PER_PROGRESS: u64 = 1024;

impl Drive<'_> {
    /// Sends the next `requests`, or what the stream has left; how many some level served.
    pub fn send(&mut self, requests: u64) -> Result<u64, SimulationError> {
        let mut batch = vec![BlockRequest::default(); BATCH];
        let (mut left, mut served) = (requests, 0);
        while left > 0 {
            let wanted = left.min(BATCH as u64) as usize;
            let got = self.stream.fill(&mut batch[..wanted]);
            let requests = &batch[..got];
            self.check(requests)?;
            self.digest.add(requests);
            served += self.machine.feed(requests);
            self.sent += got as u64;
            left -= got as u64;
            if left == 0 || (self.sent / BATCH as u64).is_multiple_of(BATCHES_PER_PROGRESS) {
                (self.progress)(self.sent as f64 / self.total as f64);
            }
            if got < wanted {
                break;
            }
        }
        Ok(served)
    }

    fn check(&self, requests: &[BlockRequest]) -> Result<(), SimulationError> {
        let highest = requests.iter().map(|request| request.block()).max();
        if highest.is_none_or(|highest| highest < self.blocks) {
            return Ok(());
        }
        let at = requests
            .iter()
            .position(|request| request.block() >= self.blocks)
            .unwrap_or(0);
        Err(SimulationError::BlockRange {
            request: self.sent + at as u64,
            block: requests[at].block(),
            blocks: self.blocks,
        })
    }
}
