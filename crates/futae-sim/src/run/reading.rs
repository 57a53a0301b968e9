//! How traces are read.

use super::SimulationError;
use super::closed::ClosedLoop;
use super::order::Order;
use super::view::ViewChoice;
use futae_trace::TraceOptions;

/// Options for reading traces.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// One per trace. The first one's block size applies to all.
    pub options: Vec<TraceOptions>,
    /// How requests become blocks.
    pub view: ViewChoice,
    /// The order of the guests' requests.
    pub order: Order,
    /// Whether times are kept, 16 bytes per request, for windows and warm-ups by time.
    pub keep_times: bool,
    /// How many blocks levels read ahead at most ([`futae_policy::PolicySpec::read_ahead_blocks`]). If any, the usual view is that of
    /// blocks, and these are numbered by their places, which takes 32 bytes a block more while a trace is read.
    pub read_ahead_blocks: u32,
    /// Guests ask a think time after each answer; `order` then says when they begin, and times are
    /// not kept. Memory is 16 bytes per request, and 4 more while traces with latencies are read.
    pub closed: Option<ClosedLoop>,
}

impl Reading {
    /// The view, in which neighbours must be known if levels read ahead: starts of requests have none.
    pub(super) fn neighbours_view(&self) -> Result<ViewChoice, SimulationError> {
        match (self.read_ahead_blocks, self.view) {
            (0, view) => Ok(view),
            (_, ViewChoice::Start) => Err(SimulationError::NoNeighbours),
            (_, ViewChoice::Usual | ViewChoice::Blocks) => Ok(ViewChoice::Blocks),
        }
    }
}
