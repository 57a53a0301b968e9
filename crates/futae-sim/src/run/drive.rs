//! Feeds requests from a stream to a machine.

use super::SimulationError;
use crate::batch::{Asked, Batch};
use crate::machine::{Machine, Served};
use futae_trace::{BlockRequest, BlockStream, Digest};

/// Requests in one batch.
const BATCH: usize = 1024;

/// Additional facts about the requests of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known<'a> {
    /// For each request the number of the next one for the same block; empty if unknown.
    pub next_uses: &'a [u32],
    /// The length of each request; empty if all are equal.
    pub bytes: &'a [u32],
}

/// A machine being fed from a stream.
pub struct Drive<'a> {
    pub stream: &'a mut dyn BlockStream,
    pub known: Known<'a>,
    pub machine: &'a mut dyn Machine,
    pub blocks: u64,
    /// `None` if the digest is known already.
    pub digest: Option<Digest>,
    pub sent: u64,
    pub total: u64,
    pub progress: &'a mut dyn FnMut(f64),
}

/// Batches between two calls of the progress callback.
const BATCHES_PER_PROGRESS: u64 = 1024;

impl Drive<'_> {
    /// Sends the next `requests`, or the rest of the stream, and adds up where they were served.
    pub fn send(&mut self, requests: u64, served: &mut [Served]) -> Result<(), SimulationError> {
        let mut filled = vec![BlockRequest::default(); BATCH];
        let mut asked = Asked::default();
        let mut left = requests;
        while left > 0 {
            // Batches end at the boundaries of the stream's words of write marks, wherever the
            // first began.
            let to_boundary = BATCH - (self.sent % BATCH as u64) as usize;
            let wanted = left.min(to_boundary as u64) as usize;
            let in_memory = match self.digest {
                None => self.stream.in_memory(wanted),
                Some(_) => None,
            };
            let is_filled = in_memory.is_none();
            let mut batch = match in_memory {
                Some(requests) => Batch::from(requests),
                None => {
                    let got = self.stream.fill(&mut filled[..wanted]);
                    check(&filled[..got], self.sent, self.blocks)?;
                    if let Some(digest) = &mut self.digest {
                        digest.add(&filled[..got]);
                    }
                    asked.put_down(&filled[..got])
                }
            };
            let got = batch.blocks.len();
            let of_batch = |all: &'_ [u32]| -> std::ops::Range<usize> {
                let begin = all.len().min(self.sent as usize);
                begin..all.len().min(begin + got)
            };
            let (next_uses, bytes) = (self.known.next_uses, self.known.bytes);
            batch.next_uses = &next_uses[of_batch(next_uses)];
            batch.bytes = &bytes[of_batch(bytes)];
            self.machine.feed(&batch, served);
            if let Some(fault) = self.machine.fault() {
                return Err(SimulationError::Policy(fault.clone()));
            }
            self.sent += got as u64;
            left -= got as u64;
            if left == 0 || (self.sent / BATCH as u64).is_multiple_of(BATCHES_PER_PROGRESS) {
                (self.progress)(self.sent as f64 / self.total as f64);
            }
            if is_filled && got < wanted {
                break;
            }
        }
        Ok(())
    }
}

/// An error if one of the requests, the first of which has number `first`, is for a block that does
/// not exist.
pub fn check(requests: &[BlockRequest], first: u64, blocks: u64) -> Result<(), SimulationError> {
    let highest = requests.iter().map(|request| request.block()).max();
    if highest.is_none_or(|highest| highest < blocks) {
        return Ok(());
    }
    let at = requests
        .iter()
        .position(|request| request.block() >= blocks)
        .unwrap_or(0);
    Err(SimulationError::BlockRange {
        request: first + at as u64,
        block: requests[at].block(),
        blocks,
    })
}
