//! A run with counts per window: consecutive windows of equally many requests.

use super::counts::{Counted, Window};
use super::drive::{Drive, Known};
use super::found::{set_bytes, sum};
use super::plan::Plan;
use super::{Requests, SimulationError, TraceSimulation};
use crate::batch::next_uses;
use crate::machine::{self, Served};
use futae_trace::{BlockRequest, BlockStream};
use std::borrow::Cow;

impl Requests<'_> {
    /// Runs one hierarchy with counts per window: after the warm-up of `spec`, `windows` windows of
    /// equally many requests; see [`Requests::amount`].
    ///
    /// # Errors
    ///
    /// Those of any simulation, and those of [`Requests::amount`] if less than one request per
    /// window is left.
    pub fn in_windows(
        &self,
        spec: &TraceSimulation,
        block_bytes: u64,
        windows: u32,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Vec<Window>, SimulationError> {
        let windows = u64::from(windows.max(1));
        let amount = self.amount(Some(spec.warmup_requests), spec.requests, windows)?;
        let (warmup, each) = (amount.warmup, amount.requests / windows);
        let ends: Vec<u64> = (1..=windows).map(|window| warmup + window * each).collect();
        self.until(spec, block_bytes, warmup, &ends, progress)
    }

    /// As [`in_windows`](Self::in_windows), with windows that end after these numbers of requests,
    /// counted from the first of all; the first window begins after `warmup` requests.
    ///
    /// # Errors
    ///
    /// Those of any simulation.
    pub fn until(
        &self,
        spec: &TraceSimulation,
        block_bytes: u64,
        warmup: u64,
        ends: &[u64],
        progress: &mut dyn FnMut(f64),
    ) -> Result<Vec<Window>, SimulationError> {
        let end = ends.last().copied().unwrap_or(warmup);
        let counted = self.driven(
            spec,
            block_bytes,
            (warmup, end),
            progress,
            |drive, shape| count(drive, shape, warmup, ends),
        )?;
        let mut windows = counted?;
        let known = Known {
            next_uses: &[],
            bytes: self.lengths(),
        };
        if let Some(each) = known.equal_bytes(block_bytes) {
            set_bytes(
                windows.iter_mut().flat_map(|window| &mut window.served),
                each,
            );
        }
        Ok(windows)
    }

    /// Lets `act` drive one hierarchy through the first requests, some of which are a warm-up. It
    /// also gets the numbers of levels and guests.
    pub(crate) fn driven<T>(
        &self,
        spec: &TraceSimulation,
        block_bytes: u64,
        (warmup, end): (u64, u64),
        progress: &mut dyn FnMut(f64),
        act: impl FnOnce(Drive<'_>, (usize, u32)) -> T,
    ) -> Result<T, SimulationError> {
        let numbered = match self {
            Self::Traces(traces) => Some(traces.numbered(&spec.levels)?),
            Self::Workloads { .. } => None,
        };
        let (blocks, volumes) = match &numbered {
            Some(numbered) => (numbered.blocks(), numbered.volumes()),
            None => (self.blocks()?, Vec::new()),
        };
        let plan = Plan {
            levels: &spec.levels,
            links: &spec.links,
            write_mode: spec.write_mode,
            guests: self.guests(),
            blocks,
            volumes,
            distinct: self.distinct()?,
            footprint: self.footprint_blocks()?,
            block_bytes,
            seed: spec.seed,
            warmup_requests: warmup,
            requests: end - warmup,
            is_spread: false,
        };
        let shape = plan.shape()?;
        let mut machine = machine::build(&shape)?;
        let known = match plan.needs_future()? {
            true => self.next_uses(end, block_bytes)?,
            false => Cow::default(),
        };
        let act = |stream: &mut (dyn BlockStream + Send)| {
            let drive = Drive {
                stream,
                known: Known {
                    next_uses: &known,
                    bytes: self.lengths(),
                },
                machine: machine.as_mut(),
                is_spread: plan.is_spread,
                blocks: plan.blocks * u64::from(plan.guests),
                digest: None,
                sent: 0,
                total: end,
                progress,
            };
            act(drive, (shape.levels.len(), plan.guests))
        };
        match &numbered {
            Some(numbered) => Ok(numbered.with_stream(act)),
            None => self.with_stream(block_bytes, act),
        }
    }

    /// For each of the first requests, the number of the next one for the same block.
    fn next_uses(
        &self,
        requests: u64,
        block_bytes: u64,
    ) -> Result<Cow<'_, [u32]>, SimulationError> {
        if let Self::Traces(traces) = self {
            return Ok(Cow::Borrowed(traces.next_uses()?));
        }
        if requests >= u64::from(u32::MAX) {
            return Err(SimulationError::TooLong);
        }
        let mut all = vec![BlockRequest::default(); requests as usize];
        let got = self.with_stream(block_bytes, |stream| stream.fill(&mut all))?;
        all.truncate(got);
        let blocks = self.blocks()? * u64::from(self.guests());
        let known = next_uses(&all, blocks, |request| request.block());
        Ok(Cow::Owned(known))
    }
}

fn count(
    mut drive: Drive<'_>,
    (levels, guests): (usize, u32),
    warmup: u64,
    ends: &[u64],
) -> Result<Vec<Window>, SimulationError> {
    let places = levels + 1;
    let mut served = vec![Served::default(); places * guests as usize];
    drive.send(warmup, &mut served)?;
    let mut then = Counted::by(drive.machine);
    let counted: Vec<Window> = ends
        .iter()
        .map(|&end| {
            let mut served = vec![Served::default(); places * guests as usize];
            drive.send(end.saturating_sub(drive.sent), &mut served)?;
            let now = Counted::by(drive.machine);
            let window = now.window_since(&then, sum(&served, places));
            then = now;
            Ok(window)
        })
        .collect::<Result<_, SimulationError>>()?;
    match drive.sent < drive.total {
        true => Err(SimulationError::Ended {
            got: drive.sent,
            wanted: drive.total,
        }),
        false => Ok(counted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SimulationSpec, WriteMode, links, simulate};

    /// The windows of a run add up to its totals.
    #[test]
    fn windows_add_up_to_the_run() {
        for (levels, write_mode) in [
            ("lru:100blocks", WriteMode::WriteThrough),
            ("opt:100blocks", WriteMode::WriteThrough),
            ("lru:100blocks exclusive:200blocks", WriteMode::WriteThrough),
            ("linux:100blocks arc:200blocks", WriteMode::WriteThrough),
            ("lru:100blocks lru:200blocks", WriteMode::WriteBack),
        ] {
            let levels: Vec<_> = levels
                .split(' ')
                .map(|level| level.parse().expect("a level"))
                .collect();
            let workload = "zipf(0.9,writes=0.2):1000blocks";
            let workload: futae_trace::WorkloadSpec = workload.parse().expect("a workload");
            let spec = TraceSimulation {
                links: links(&levels, None),
                levels: levels.clone(),
                write_mode,
                seed: 5,
                warmup_requests: 3000,
                requests: Some(8000),
            };
            let requests = Requests::Workloads {
                workloads: std::slice::from_ref(&workload),
                block_bytes: 4096,
                seed: 5,
            };
            let windows = requests
                .in_windows(&spec, 4096, 8, &mut |_| {})
                .expect("a run");
            let whole = SimulationSpec {
                links: links(&levels, None),
                levels,
                write_mode,
                guests: 1,
                workload: workload.clone(),
                block_bytes: 4096,
                seed: 5,
                warmup_requests: Some(3000),
                requests: Some(8000),
            };
            let report = simulate(&whole, &mut |_| {}).expect("a run");
            let run = &report.runs[0];
            let sum = |count: &dyn Fn(&Window) -> u64| windows.iter().map(count).sum::<u64>();
            assert_eq!(windows.len(), 8);
            assert!(windows.iter().all(|window| window.requests() == 1000));
            assert_eq!(
                sum(&|w| w.store_reads),
                run.store_reads + run.notice_reads + run.preload_reads
            );
            assert_eq!(sum(&|w| w.store_writes), run.store_writes);
            for (depth, level) in run.levels.iter().enumerate() {
                assert_eq!(
                    sum(&|w| w.counters[depth].requests),
                    level.counters.requests
                );
                assert_eq!(sum(&|w| w.counters[depth].hits), level.counters.hits);
            }
            for (depth, served) in run.served.iter().enumerate() {
                assert_eq!(sum(&|w| w.served[depth].reads), served.reads);
                assert_eq!(sum(&|w| w.served[depth].writes), served.writes);
                assert_eq!(sum(&|w| w.writes_taken[depth]), run.writes_taken[depth]);
            }
        }
    }
}
