//! The numbers that a run has for the blocks of traces.

use super::interleave::Interleave;
use super::order::Asked;
use futae_trace::{BlockStream, DenseTrace, TraceError};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The guests' traces, with their blocks numbered as a run needs them. Two runs that need the same numbers have the same traces.
pub(super) struct Numbered<'a> {
    /// Traces whose blocks have numbers in the order of their first accesses.
    in_order: &'a [DenseTrace],
    /// The guest of each access, in order; empty if guests take turns.
    schedule: &'a [u16],
    /// The same traces numbered by place, if the run needs that.
    by_place: Option<Arc<Vec<DenseTrace>>>,
}

/// Traces numbered by place that are in use, with the gaps that they have between far blocks.
#[derive(Default)]
pub(super) struct ByPlace(Mutex<Vec<(u32, Weak<Vec<DenseTrace>>)>>);

impl ByPlace {
    /// The traces of these guests, which were read from these files, numbered by place with this gap.
    pub(super) fn traces(
        &self,
        gap: u32,
        guests: &[DenseTrace],
        files: &[String],
    ) -> Result<Arc<Vec<DenseTrace>>, TraceError> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, traces)| traces.strong_count() > 0);
        let same = known.iter().find(|(other, _)| *other == gap);
        if let Some(traces) = same.and_then(|(_, traces)| traces.upgrade()) {
            return Ok(traces);
        }
        let guests = guests.iter().zip(files).map(|(guest, file)| {
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

impl<'a> Numbered<'a> {
    /// The traces with their blocks numbered in the order of their first accesses; `schedule` has the guest of each access, or nothing
    /// if guests take turns.
    pub(super) fn in_order(traces: &'a [DenseTrace], schedule: &'a [u16]) -> Self {
        Self {
            in_order: traces,
            schedule,
            by_place: None,
        }
    }

    /// The same traces [numbered by place](ByPlace::traces).
    pub(super) fn by_place(self, traces: Arc<Vec<DenseTrace>>) -> Self {
        Self {
            by_place: Some(traces),
            ..self
        }
    }

    /// The guests' traces.
    pub fn guests(&self) -> &[DenseTrace] {
        let by_place = self.by_place.as_deref();
        by_place.map_or(self.in_order, Vec::as_slice)
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
            _ if !self.schedule.is_empty() => act(&mut Asked::new(
                streams.collect(),
                self.blocks(),
                self.schedule,
            )),
            _ => act(&mut Interleave::new(streams.collect(), self.blocks())),
        }
    }
}
