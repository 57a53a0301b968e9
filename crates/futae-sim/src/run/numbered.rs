//! The numbers that a run has for the blocks of traces.

use super::interleave::Interleave;
use super::order::Asked;
use super::reading::Neighbours;
use super::{SimulationError, Traces};
use crate::spec::LevelSpec;
use futae_trace::{BlockStream, DenseTrace, TraceError};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The guests' traces, with their blocks numbered as a run needs them. Two runs that need the same numbers have the same traces.
pub(super) struct Numbered<'a> {
    traces: &'a Traces,
    /// Traces numbered by place; otherwise blocks have numbers in the order of their first accesses.
    by_place: Option<Arc<Vec<DenseTrace>>>,
}

/// Traces numbered by place that are in use, with the gaps that they have between far blocks.
pub(super) type ByPlace = Mutex<Vec<(u32, Weak<Vec<DenseTrace>>)>>;

impl Traces {
    /// The traces as a run with these levels has them: numbered by place if a level reads ahead, which takes 4 bytes an access.
    pub(super) fn numbered(&self, levels: &[LevelSpec]) -> Result<Numbered<'_>, SimulationError> {
        let ahead = |level: &&LevelSpec| level.policy.read_ahead_blocks();
        let farthest = levels.iter().max_by_key(ahead);
        let by_place = match farthest.filter(|level| level.policy.reads_ahead()) {
            None => None,
            Some(level) if self.neighbours == Neighbours::Unused => {
                return Err(SimulationError::Neighbours(level.to_string()));
            }
            Some(level) => Some(self.by_place(ahead(&level))?),
        };
        Ok(Numbered {
            traces: self,
            by_place,
        })
    }

    /// The traces with their blocks numbered in the order of their first accesses.
    pub(super) fn in_order(&self) -> Numbered<'_> {
        Numbered {
            traces: self,
            by_place: None,
        }
    }

    fn by_place(&self, gap: u32) -> Result<Arc<Vec<DenseTrace>>, SimulationError> {
        let mut known = self.by_place.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, traces)| traces.strong_count() > 0);
        let same = known.iter().find(|(other, _)| *other == gap);
        if let Some(traces) = same.and_then(|(_, traces)| traces.upgrade()) {
            return Ok(traces);
        }
        let guests = self.guests.iter().zip(&self.facts.files);
        let guests = guests.map(|(guest, file)| {
            let too_many = |kind| TraceError {
                path: file.into(),
                at: None,
                kind,
            };
            guest.by_place(gap).map_err(too_many)
        });
        let guests = Arc::new(guests.collect::<Result<Vec<_>, TraceError>>()?);
        known.push((gap, Arc::downgrade(&guests)));
        Ok(guests)
    }
}

impl Numbered<'_> {
    /// The guests' traces.
    pub fn guests(&self) -> &[DenseTrace] {
        let by_place = self.by_place.as_deref();
        by_place.map_or(&self.traces.guests[..], Vec::as_slice)
    }

    /// How many numbers there are for the blocks of each guest.
    pub fn blocks(&self) -> u64 {
        let blocks = self.guests().iter().map(|guest| u64::from(guest.numbers()));
        blocks.max().unwrap_or(0)
    }

    /// For each guest the numbers at which its volumes begin; none if blocks are not numbered by place.
    pub fn volumes(&self) -> Vec<Vec<u32>> {
        let guests = self.guests().iter();
        guests.map(|guest| guest.volumes().to_vec()).collect()
    }

    /// Passes the accesses of all guests in their order.
    pub fn with_stream<T>(&self, act: impl FnOnce(&mut (dyn BlockStream + Send)) -> T) -> T {
        let streams = self.guests().iter().map(DenseTrace::stream);
        match self.guests() {
            [only] => act(&mut only.stream()),
            _ if !self.traces.schedule.is_empty() => act(&mut Asked::new(
                streams.collect(),
                self.blocks(),
                &self.traces.schedule,
            )),
            _ => act(&mut Interleave::new(streams.collect(), self.blocks())),
        }
    }
}
