//! Feeds requests from a stream to a machine.

use super::SimulationError;
use crate::batch::{Asked, Batch, Batches};
use crate::conveyor::conveyor;
use crate::machine::{Machine, Served};
use futae_trace::{BlockRequest, BlockStream, Digest, InMemory};
use std::panic::resume_unwind;

/// Requests in one batch.
const BATCH: usize = 1024;
/// Requests that one thread hands to another together.
const PART: usize = 16 * BATCH;

/// Additional facts about the requests of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known<'a> {
    /// For each request the number of the next one for the same block; empty if unknown.
    pub next_uses: &'a [u32],
    /// The length of each request; a single one if all are equal; empty if they are not known, and each counts as a block.
    pub bytes: &'a [u32],
}

impl Known<'_> {
    /// The length of every request if all are equal, with blocks of this many bytes.
    pub fn equal_bytes(&self, block_bytes: u64) -> Option<u64> {
        match *self.bytes {
            [] => Some(block_bytes),
            [each] => Some(u64::from(each)),
            _ => None,
        }
    }
}

/// A machine being fed from a stream.
pub struct Drive<'a> {
    pub stream: &'a mut (dyn BlockStream + Send),
    pub known: Known<'a>,
    pub machine: &'a mut dyn Machine,
    /// Whether threads may be started.
    pub is_spread: bool,
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
    /// Sends the whole stream through the machine that `wrap` makes of this one, and returns it.
    pub fn through<'m, M: Machine>(
        &'m mut self,
        wrap: impl FnOnce(&'m mut dyn Machine) -> M,
        served: &mut [Served],
    ) -> Result<M, SimulationError> {
        let mut machine = wrap(self.machine);
        let mut drive = Drive {
            stream: self.stream,
            known: self.known,
            machine: &mut machine,
            is_spread: self.is_spread,
            blocks: self.blocks,
            digest: self.digest.take(),
            sent: self.sent,
            total: self.total,
            progress: self.progress,
        };
        drive.send(drive.total, served)?;
        Ok(machine)
    }

    /// Sends the next `requests`, or the rest of the stream, and adds up where they were served.
    pub fn send(&mut self, requests: u64, served: &mut [Served]) -> Result<(), SimulationError> {
        let mut coming = Coming {
            drawing: Drawing {
                stream: self.stream,
                digest: self.digest.as_mut(),
                blocks: self.blocks,
                next: self.sent,
                end: self.sent.saturating_add(requests),
            },
            passing: Passing {
                known: self.known,
                sent: &mut self.sent,
                total: self.total,
                progress: self.progress,
            },
            is_spread: self.is_spread,
            outcome: Ok(()),
        };
        match self.is_spread {
            true => self.machine.feed_spread(&mut coming, served),
            false => self.machine.feed_all(&mut coming, served),
        }
        coming.outcome?;
        match self.machine.fault() {
            Some(fault) => Err(SimulationError::Policy(fault.clone())),
            None => Ok(()),
        }
    }
}

/// The next requests of a stream.
struct Coming<'a> {
    drawing: Drawing<'a>,
    passing: Passing<'a>,
    is_spread: bool,
    outcome: Result<(), SimulationError>,
}

impl Batches for Coming<'_> {
    fn each(&mut self, take: &mut dyn FnMut(&Batch<'_>) -> bool) {
        let Self {
            drawing,
            passing,
            is_spread,
            ..
        } = self;
        // Requests whose digest is known already are in memory, or are read from a trace here.
        self.outcome = match *is_spread && drawing.digest.is_some() {
            true => apart(drawing, passing, take),
            false => together(drawing, passing, take),
        };
    }
}

/// Draws requests on this thread.
fn together(
    drawing: &mut Drawing<'_>,
    passing: &mut Passing<'_>,
    take: &mut dyn FnMut(&Batch<'_>) -> bool,
) -> Result<(), SimulationError> {
    let mut drawn = Vec::new();
    let mut asked = Asked::default();
    loop {
        let wanted = drawing.wanted(BATCH);
        if let Some(requests) = drawing.in_memory(wanted) {
            if !passing.pass(Batch::from(requests), take) {
                return Ok(());
            }
        } else {
            drawing.draw(wanted, &mut drawn)?;
            if drawn.is_empty() || !passing.pass(asked.put_down(&drawn), take) {
                return Ok(());
            }
        }
    }
}

/// Draws requests on a thread of its own.
fn apart(
    drawing: &mut Drawing<'_>,
    passing: &mut Passing<'_>,
    take: &mut dyn FnMut(&Batch<'_>) -> bool,
) -> Result<(), SimulationError> {
    std::thread::scope(|scope| {
        let (to_here, drawn) = conveyor();
        let drawing = scope.spawn(move || {
            let mut part = Vec::new();
            loop {
                drawing.draw(drawing.wanted(PART), &mut part)?;
                if part.is_empty() || !to_here.send(&mut part) {
                    return Ok(());
                }
            }
        });
        let mut asked = Asked::default();
        drawn.each(|part| {
            let mut few = part.chunks(BATCH);
            few.all(|few| passing.pass(asked.put_down(few), take))
        });
        drawing
            .join()
            .unwrap_or_else(|thrown| resume_unwind(thrown))
    })
}

/// What draws requests.
struct Drawing<'a> {
    stream: &'a mut (dyn BlockStream + Send),
    digest: Option<&'a mut Digest>,
    /// Blocks that exist.
    blocks: u64,
    /// The number of the next request.
    next: u64,
    /// The number of the first that is not wanted.
    end: u64,
}

impl Drawing<'_> {
    /// How many requests to draw together, at most `limit`. They end at the boundaries of the
    /// stream's words of write marks, wherever the first began.
    fn wanted(&self, limit: usize) -> usize {
        let to_boundary = limit as u64 - self.next % limit as u64;
        (self.end - self.next).min(to_boundary) as usize
    }

    /// The next requests, if they are in memory already and their digest is known.
    fn in_memory(&mut self, wanted: usize) -> Option<InMemory<'_>> {
        if self.digest.is_some() || wanted == 0 {
            return None;
        }
        let found = self.stream.in_memory(wanted)?;
        self.next += found.blocks.len() as u64;
        Some(found)
    }

    /// Replaces what is in `drawn` by the next requests; by none at the end.
    fn draw(
        &mut self,
        wanted: usize,
        drawn: &mut Vec<BlockRequest>,
    ) -> Result<(), SimulationError> {
        drawn.resize(wanted, BlockRequest::default());
        let got = self.stream.fill(drawn);
        drawn.truncate(got);
        check(drawn, self.next, self.blocks)?;
        if let Some(digest) = &mut self.digest {
            digest.add(drawn);
        }
        self.next += got as u64;
        if got < wanted {
            // The stream ends here.
            self.end = self.next;
        }
        Ok(())
    }
}

/// What passes requests on.
struct Passing<'a> {
    known: Known<'a>,
    sent: &'a mut u64,
    total: u64,
    progress: &'a mut dyn FnMut(f64),
}

impl Passing<'_> {
    /// Passes a batch, with the additional facts about its requests; false if no more are taken.
    fn pass(&mut self, batch: Batch<'_>, take: &mut dyn FnMut(&Batch<'_>) -> bool) -> bool {
        let (begin, count) = (*self.sent as usize, batch.blocks.len());
        let of_batch = |all: &[u32]| all.len().min(begin)..all.len().min(begin + count);
        let next_uses = self.known.next_uses;
        // Equal lengths need not be counted one by one.
        let bytes = match self.known.bytes {
            [_] => &[],
            bytes => bytes,
        };
        let batch = Batch {
            next_uses: &next_uses[of_batch(next_uses)],
            bytes: &bytes[of_batch(bytes)],
            ..batch
        };
        if !take(&batch) {
            return false;
        }
        *self.sent += count as u64;
        if *self.sent == self.total
            || (*self.sent / BATCH as u64).is_multiple_of(BATCHES_PER_PROGRESS)
        {
            (self.progress)(*self.sent as f64 / self.total as f64);
        }
        true
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
