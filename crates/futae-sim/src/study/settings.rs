//! What is asked of a study, and who is told of it while it goes on.

use super::{StudyError, Warmup, Windows};
use crate::link::Link;
use crate::queueing::LatencyModel;
use crate::run::{Order, Think, TraceFacts};
use crate::spec::LevelSpec;
use crate::write_back::WriteMode;

/// A part of a study that takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A trace is read and simulated at once.
    OnePass,
    /// Traces are read.
    Reading,
    /// The hierarchies are simulated.
    Simulating,
    /// They are simulated once more, for windows of the run.
    Windows,
    /// They are simulated once more, with requests that wait for each other.
    Queueing,
}

impl Stage {
    /// What a user is told that goes on.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reading => "reading",
            Self::OnePass | Self::Simulating | Self::Windows => "simulating",
            Self::Queueing => "queueing",
        }
    }
}

/// Who is told of a study while it goes on.
pub trait Listener: Sync {
    /// So much of a stage is done, from 0 to 1. Unwinding from here ends the study.
    fn progress(&self, stage: Stage, fraction: f64);
    /// Why a result may not be what was meant.
    fn warn(&self, warning: &str);
    /// The traces were read.
    fn read(&self, facts: &TraceFacts);
}

/// What is asked about hierarchies of caches.
#[derive(Clone, Debug)]
pub struct Study {
    /// The levels of each run, top down.
    pub hierarchies: Vec<Vec<LevelSpec>>,
    /// The links between all levels; `None`: the usual ones.
    pub link: Option<Link>,
    /// When written data goes to the store.
    pub write_mode: WriteMode,
    /// The seed of all randomness.
    pub seed: u64,
    /// What goes before counting begins.
    pub warmup: Option<Warmup>,
    /// Requests that are counted; `None`: the usual number.
    pub requests: Option<u64>,
    /// The windows for which results are wanted, too.
    pub windows: Option<Windows>,
    /// Whether bounds on the best caches are wanted.
    pub bounds: bool,
    /// In which order guests with traces ask; `None`: the usual one.
    pub order: Option<Order>,
    /// How long requests take, if that is wanted.
    pub latency: Option<LatencyModel>,
    /// How many requests are under way at a time; `None`: they come at the times of the trace.
    pub clients: Option<u32>,
    /// How long guests think between an answer and the next request, if answers decide when they ask.
    pub think: Option<Think>,
    /// Size of a block.
    pub block_bytes: u64,
    /// Threads.
    pub threads: usize,
    /// Whether the requests of a trace are wanted afterwards.
    pub keeps_requests: bool,
}

impl Study {
    /// Checks that its parts go together.
    ///
    /// # Errors
    ///
    /// They do not.
    pub fn check(&self) -> Result<(), StudyError> {
        if self.clients == Some(0) {
            return Err(StudyError::NoClients);
        }
        if self.clients.is_some() && self.latency.is_none() {
            return Err(StudyError::ClientsWithoutLatency);
        }
        let Some(_) = self.think else { return Ok(()) };
        if self.latency.is_none() {
            return Err(StudyError::ThinkWithoutLatency);
        }
        let others = [
            ("--clients", self.clients.is_some()),
            ("--windows", self.windows.is_some()),
            ("--bounds", self.bounds),
        ];
        match others.iter().find(|other| other.1) {
            Some((other, _)) => Err(StudyError::Conflict("--think", other)),
            None if self.warmup.is_some_and(Warmup::needs_times) => Err(StudyError::WarmupOfThink),
            None => Ok(()),
        }
    }

    /// The stages that a study of traces, or else of workloads, has.
    #[must_use]
    pub fn stages(&self, of_traces: bool) -> Vec<Stage> {
        let all = [
            (Stage::Reading, of_traces),
            (Stage::Simulating, true),
            (Stage::Windows, self.windows.is_some()),
            (Stage::Queueing, self.is_queued()),
        ];
        let wanted = all.iter().filter(|(_, is_wanted)| *is_wanted);
        wanted.map(|(stage, _)| *stage).collect()
    }

    /// Whether requests wait for each other. A closed loop tells the latencies itself.
    pub(super) fn is_queued(&self) -> bool {
        let is_fixed = |model: LatencyModel| self.clients.is_none() && model.fixed().is_some();
        self.think.is_none() && self.latency.is_some_and(|model| !is_fixed(model))
    }
}
