//! How traces are read.

use super::SimulationError;
use super::closed::ClosedLoop;
use super::order::Order;
use super::view::ViewChoice;
use crate::spec::LevelSpec;
use futae_policy::PolicySpec;
use futae_trace::{DenseTrace, RequestReader, TraceError, TraceOptions, TraceReader, View};

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
    /// Which of the runs use neighbours. If any, where blocks lie is kept.
    pub neighbours: Neighbours,
    /// Guests ask a think time after each answer; `order` then says when they begin, and times are
    /// not kept. Memory is 16 bytes per request, and 4 more while traces with latencies are read.
    pub closed: Option<ClosedLoop>,
}

/// Which of the runs over a trace use the neighbours of blocks: those with a level that reads ahead.
///
/// Such runs number blocks by their places. The others number them in the order of their first accesses, as they do without such
/// runs beside them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Neighbours {
    /// None.
    #[default]
    Unused,
    /// Some do, and others do not.
    UsedBySome,
    /// All.
    UsedByAll,
}

impl Neighbours {
    /// Which of the runs of these hierarchies use neighbours.
    pub fn of<'a>(hierarchies: impl IntoIterator<Item = &'a [LevelSpec]>) -> Self {
        let reads_ahead = |level: &LevelSpec| level.policy.reads_ahead();
        let (mut by_some, mut by_all) = (false, true);
        for levels in hierarchies {
            let is_used = levels.iter().any(reads_ahead);
            by_some |= is_used;
            by_all &= is_used;
        }
        match (by_some, by_all) {
            (false, _) => Self::Unused,
            (true, false) => Self::UsedBySome,
            (true, true) => Self::UsedByAll,
        }
    }

    /// The same of runs whose levels that may read ahead all have this policy.
    #[must_use]
    pub fn of_policy(policy: &PolicySpec) -> Self {
        match policy.reads_ahead() {
            true => Self::UsedByAll,
            false => Self::Unused,
        }
    }

    /// The view that the runs have of a trace.
    ///
    /// # Errors
    ///
    /// Starts of requests were asked for, which have no neighbours.
    pub(crate) fn view_of(self, asked: ViewChoice) -> Result<ViewChoice, SimulationError> {
        match (self, asked) {
            (Self::Unused, asked) => Ok(asked),
            (_, ViewChoice::Start) => Err(SimulationError::NoNeighbours),
            (_, ViewChoice::Usual | ViewChoice::Blocks) => Ok(ViewChoice::Blocks),
        }
    }

    /// Checks that a trace, which was read in [that view](Self::view_of), is what each run would have found by itself: for runs that use
    /// no neighbours a request is one block, if the trace numbers its blocks and no view was asked for.
    pub(crate) fn check(
        self,
        asked: ViewChoice,
        reader: &TraceReader,
        trace: &DenseTrace,
    ) -> Result<(), SimulationError> {
        let is_usual = (self, asked) == (Self::UsedBySome, ViewChoice::Usual);
        let is_cut = trace.ids().len() as u64 != trace.requests();
        if is_usual && reader.names_blocks() && (is_cut || reader.has_sizes()) {
            let path = reader.path().display().to_string();
            return Err(SimulationError::MixedViews(path));
        }
        Ok(())
    }

    /// Reads a whole trace.
    pub(crate) fn read(
        self,
        reader: &mut impl RequestReader,
        view: View,
    ) -> Result<DenseTrace, TraceError> {
        match self {
            Self::Unused => DenseTrace::read(reader, view),
            Self::UsedBySome | Self::UsedByAll => DenseTrace::read_with_places(reader, view),
        }
    }
}
