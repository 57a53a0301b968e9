//! The counts of a run, and the results computed from them.

use super::drive::Drive;
use super::{GuestResult, LevelResult, Plan, Run, SimulationError};
use crate::hierarchy::HierarchyShape;
use crate::link::Store;
use crate::machine::{Machine, Served};
use crate::write_back::{Dirt, Written};
use futae_policy::Counters;
use std::time::Duration;

/// The counts after the warm-up.
pub(super) struct Found {
    /// Top down, the store last.
    pub(super) served: Vec<Served>,
    /// The same for each guest in turn, if there are several.
    pub(super) by_guest: Vec<Served>,
    /// Top down.
    pub(super) counters: Vec<Counters>,
    /// Top down: the policies' decisions about themselves.
    pub(super) remarks: Vec<Vec<String>>,
    pub(super) store: Store,
    /// Under write-back: at the beginning of counting, and at the end.
    pub(super) written: Option<[Written; 2]>,
    pub(super) warmup_requests: u64,
    pub(super) requests: u64,
}

/// The counts when counting begins.
pub(super) struct Start {
    counters: Vec<Counters>,
    store: Store,
    written: Option<Written>,
    warmup_requests: u64,
}

impl Start {
    /// The counts after this many requests.
    pub(super) fn of(machine: &dyn Machine, warmup_requests: u64) -> Self {
        Self {
            counters: machine.counters(),
            store: machine.store(),
            written: machine.written(),
            warmup_requests,
        }
    }

    /// The counts since then, after `sent` requests in all. `served` has an element for each guest
    /// and place, without the warm-up.
    pub(super) fn found(
        self,
        machine: &dyn Machine,
        served: Vec<Served>,
        (levels, guests): (usize, u32),
        sent: u64,
    ) -> Found {
        let now = machine.counters();
        let counters = now.iter().zip(&self.counters);
        let (served, by_guest) = match guests {
            1 => (served, Vec::new()),
            _ => (sum(&served, levels + 1), served),
        };
        Found {
            served,
            by_guest,
            counters: counters.map(|(now, then)| now.since(then)).collect(),
            remarks: machine.remarks(),
            store: machine.store().since(&self.store),
            written: self.written.zip(machine.written()).map(Into::into),
            warmup_requests: self.warmup_requests,
            requests: sent - self.warmup_requests,
        }
    }
}

impl Found {
    /// Sends these requests, or as many as there are, and counts those after the warm-up.
    pub(super) fn by(
        drive: &mut Drive<'_>,
        (levels, guests): (usize, u32),
        warmup_requests: u64,
        requests: u64,
    ) -> Result<Self, SimulationError> {
        let mut served = vec![Served::default(); (levels + 1) * guests as usize];
        drive.send(warmup_requests, &mut served)?;
        let start = Start::of(drive.machine, drive.sent);
        served.fill(Served::default());
        drive.send(requests, &mut served)?;
        Ok(start.found(drive.machine, served, (levels, guests), drive.sent))
    }
}

/// Sets the bytes of requests that have so many each.
pub(super) fn set_bytes<'a>(served: impl IntoIterator<Item = &'a mut Served>, each: u64) {
    for served in served {
        served.bytes = requests_of(served) * each;
    }
}

/// The sum over guests of what each place served.
pub(super) fn sum(by_guest: &[Served], places: usize) -> Vec<Served> {
    let mut all = vec![Served::default(); places];
    for (at, served) in by_guest.iter().enumerate() {
        all[at % places].add(served);
    }
    all
}

/// The fraction that the store served, by a count.
fn missed(served: &[Served], count: fn(&Served) -> u64) -> Option<f64> {
    let all: u64 = served.iter().map(count).sum();
    let missed = served.last().map_or(0, count);
    (all > 0).then(|| missed as f64 / all as f64)
}

fn requests_of(served: &Served) -> u64 {
    served.reads + served.writes
}

fn guest_result(guest: u32, shape: &HierarchyShape, served: &[Served]) -> GuestResult {
    let own = shape.levels.iter().take(shape.levels.len() - 1);
    let requests: u64 = served.iter().map(requests_of).sum();
    let store = served.last().map_or(0, requests_of);
    GuestResult {
        guest,
        source: String::new(),
        capacities_blocks: own.map(|level| u64::from(level.slots_of(guest))).collect(),
        requests,
        reads: served.iter().map(|at| at.reads).sum(),
        writes: served.iter().map(|at| at.writes).sum(),
        served: served.to_vec(),
        combined_hit_ratio: (requests > 0).then(|| (requests - store) as f64 / requests as f64),
        miss_ratio: missed(served, requests_of),
        byte_miss_ratio: missed(served, |at| at.bytes),
        read_miss_ratio: missed(served, |at| at.reads),
    }
}

impl Plan<'_> {
    /// The results of a run. Bytes are counted if requests `have_bytes`; otherwise each is for a
    /// block.
    pub(super) fn results(
        &self,
        shape: &HierarchyShape,
        found: Found,
        have_bytes: bool,
        time: Duration,
    ) -> Run {
        let Found {
            mut served,
            mut by_guest,
            counters,
            remarks,
            store,
            written,
            warmup_requests,
            requests,
        } = found;
        if !have_bytes {
            set_bytes(served.iter_mut().chain(&mut by_guest), self.block_bytes);
        }
        let guests = by_guest.chunks(served.len());
        let by_guest = (0..)
            .zip(guests)
            .map(|(guest, served)| guest_result(guest, shape, served));
        let by_guest = by_guest.collect();
        let writes = served.iter().map(|at| at.writes).sum();
        let dirty_blocks_at_start = written.iter().flat_map(|[then, _]| &then.levels);
        let dirty_blocks_at_start = dirty_blocks_at_start.map(|dirt| dirt.blocks).sum();
        let written = match written {
            Some([then, now]) => now.since(&then),
            None => Written::through(shape.levels.len(), writes),
        };
        Run {
            write_mode: self.write_mode,
            dirty_evictions: written.levels.iter().map(|dirt| dirt.evictions).sum(),
            dirty_blocks: written.levels.iter().map(|dirt| dirt.blocks).sum(),
            dirty_blocks_at_start,
            levels: self.level_results(shape, &counters, remarks, &written.levels),
            writes_taken: written.taken,
            links: self.links.to_vec(),
            combined_hit_ratio: (requests > 0).then(|| {
                let missed = served.last().map_or(0, |at| at.reads + at.writes);
                (requests - missed) as f64 / requests as f64
            }),
            miss_ratio: missed(&served, requests_of),
            byte_miss_ratio: missed(&served, |at| at.bytes),
            read_miss_ratio: missed(&served, |at| at.reads),
            reads: served.iter().map(|at| at.reads).sum(),
            writes,
            served,
            by_guest,
            bounds: None,
            windows: Vec::new(),
            access_times: None,
            latencies: None,
            pace_by_guest: Vec::new(),
            store_reads: store.reads,
            store_writes: store.writes,
            notice_reads: store.notice_reads,
            preload_reads: store.preload_reads,
            requests,
            warmup_requests,
            block_bytes: self.block_bytes,
            guests: self.guests,
            footprint_blocks: self.footprint,
            seconds: time.as_secs_f64(),
        }
    }

    fn level_results(
        &self,
        shape: &HierarchyShape,
        counters: &[Counters],
        remarks: Vec<Vec<String>>,
        dirt: &[Dirt],
    ) -> Vec<LevelResult> {
        let last = shape.levels.len() - 1;
        let all = shape.levels.iter().zip(counters).zip(dirt).zip(remarks);
        all.enumerate()
            .map(|(at, (((level, counters), dirt), policy_changes))| {
                let copies = if at == last { 1 } else { self.guests };
                LevelResult {
                    policy: level.policy.to_string(),
                    capacity_blocks: u64::from(level.slots_max()),
                    copies,
                    all_copies_blocks: level.slots_together(copies),
                    counters: *counters,
                    hit_ratio: counters.hit_ratio(),
                    overwrites: dirt.overwrites,
                    dirty_evictions: dirt.evictions,
                    dirty_blocks: dirt.blocks,
                    policy_changes,
                }
            })
            .collect()
    }
}
