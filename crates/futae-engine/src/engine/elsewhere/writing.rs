//! Blocks that are being written while somebody else holds them.
//!
//! The kernel changes a page before it sends the write. If it dropped the page before the store or the cache has the write, somebody
//! could read the block again, and the page would have its old data for good.

use crate::engine::flights::Span;
use crate::engine::state::State;
use crate::{Operation, Request};
use futae_policy::BlockId;

impl State {
    /// Those of the blocks that are not resident, not being read, and not being written.
    pub fn unwanted_of(&self, blocks: &[BlockId]) -> Vec<BlockId> {
        let waiting = self.waiting_writes();
        let is_wanted = |block: &BlockId| {
            let of = self.block_span(*block);
            self.level.find(*block).is_some()
                || self.under_way.flight_of.contains_key(block)
                || self.under_way.write_over(&of).is_some()
                || waiting.iter().any(|span| span.overlap(&of).is_some())
        };
        let inside = |block: &BlockId| self.is_inside(*block);
        let unwanted = blocks.iter().copied();
        unwanted
            .filter(|block| !inside(block) || !is_wanted(block))
            .collect()
    }

    /// The ranges of writes that have come and not begun.
    fn waiting_writes(&self) -> Vec<Span> {
        let flights = self.under_way.flights.iter();
        let writes = self.under_way.writes.iter();
        let runs = self.under_way.runs.iter();
        let parked = flights
            .flat_map(|(_, flight)| &flight.parked)
            .chain(writes.flat_map(|(_, write)| &write.parked))
            .chain(runs.flat_map(|(_, run)| &run.parked));
        let throttled = self.volumes.iter();
        let throttled = throttled.flat_map(|volume| &volume.dirt.throttled);
        let throttled = throttled.map(|it| &it.request);
        let left = self.under_way.left.iter().map(|(_, request)| request);
        let parked = parked.chain(self.under_way.line.requests()).chain(left);
        parked.chain(throttled).filter_map(written).collect()
    }
}

/// The range that a request writes.
fn written(request: &Request) -> Option<Span> {
    let (offset, length) = match &request.operation {
        Operation::Write { offset, data, .. } => (*offset, data.len() as u64),
        Operation::Trim { offset, length } | Operation::WriteZeroes { offset, length, .. } => {
            (*offset, *length)
        }
        _ => return None,
    };
    let volume = request.volume;
    Some(Span {
        volume,
        offset,
        length,
    })
}
