//! Doing the cells: on several threads, each trace read once for all of its cells.

use crate::rows::Rows;
use crate::{Cell, Plan, Source};
use futae_sim::run::{
    Column, Neighbours, Reading, TraceFacts, TraceSimulation, Traces, in_parallel,
};
use futae_sim::study::{Listener, Stage};
use futae_sim::{Report, SimulationSpec, links, simulate_all};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A trace that was read, or why it was not.
type Shared = Arc<OnceLock<Result<Traces, String>>>;

/// Cells that are simulated at once: of one source and seed, and where they have a level below, with the same first
/// level.
struct Unit {
    cells: Vec<usize>,
}

/// A cell that was not done, and why.
pub type Failed = (usize, String);

/// Does the cells on this many threads, and hands what comes of each to `keep`. Returns those that failed. Cells of a
/// trace share its reading, after which `read` is told of it; a trace is forgotten once its cells are done, so that at
/// most one for each thread is in memory. `progress` is called with the fraction done, and may unwind to end the work.
pub fn work(
    plan: &Plan,
    todo: &[usize],
    threads: usize,
    progress: &(dyn Fn(f64) + Sync),
    keep: &(dyn Fn(usize, &Rows) -> Result<(), String> + Sync),
    read: &(dyn Fn(&TraceFacts) + Sync),
) -> Vec<Failed> {
    let units = units(plan, todo);
    let traces = Library::new(plan, &units);
    let failures = in_parallel(units.len(), threads, progress, |at, progress| {
        let unit = &units[at];
        let source = plan.cells[unit.cells[0]].source;
        let outcomes = match &plan.sources[source] {
            Source::Traces(..) => {
                let shared = traces.of(source);
                let traces = shared.get_or_init(|| of_files(plan, source, progress, read));
                match traces {
                    Ok(traces) => of_trace(plan, unit, traces, progress),
                    Err(why) => vec![Err(why.clone()); unit.cells.len()],
                }
            }
            Source::Workload(..) => of_workloads(plan, unit, progress),
        };
        traces.done(source);
        let failed = unit
            .cells
            .iter()
            .zip(outcomes)
            .filter_map(|(&cell, outcome)| {
                let kept = outcome.and_then(|columns| keep(cell, &Rows::of(plan, cell, columns)));
                kept.err().map(|why| (cell, why))
            });
        let failed: Vec<Failed> = failed.collect();
        progress(1.0);
        failed
    });
    failures.into_iter().flatten().collect()
}

fn units(plan: &Plan, todo: &[usize]) -> Vec<Unit> {
    let together = |&a: &usize, &b: &usize| {
        let (a, b) = (&plan.cells[a], &plan.cells[b]);
        let is_workload = matches!(plan.sources[a.source], Source::Workload(..));
        let below = a.levels.len() > 1 && b.levels.len() > 1;
        is_workload
            && below
            && (a.source, a.seed) == (b.source, b.seed)
            && a.levels[0] == b.levels[0]
    };
    let groups = todo.chunk_by(together);
    groups
        .map(|cells| Unit {
            cells: cells.to_vec(),
        })
        .collect()
}

/// What comes of a cell, or why nothing does.
type Outcome = Result<Vec<Column>, String>;

/// How far a unit is.
type Progress<'a> = &'a mut (dyn FnMut(f64) + Send);

/// Is told how far a unit is while one of its cells goes on; of its trace others were told when that was read.
struct CellListener<'a> {
    unit: Mutex<Progress<'a>>,
    cell: usize,
    cells: usize,
}

impl CellListener<'_> {
    fn tell(&self, fraction: f64) {
        let mut unit = self.unit.lock().unwrap_or_else(PoisonError::into_inner);
        unit((self.cell as f64 + fraction) / self.cells as f64);
    }
}

impl Listener for CellListener<'_> {
    fn progress(&self, _: Stage, fraction: f64) {
        self.tell(fraction);
    }
    fn warn(&self, _: &str) {}
    fn read(&self, _: &TraceFacts) {}
}

/// Traces that are in memory, and how many units need them yet.
struct Library(Mutex<BTreeMap<usize, (Shared, usize)>>);

impl Library {
    fn new(plan: &Plan, units: &[Unit]) -> Self {
        let mut all: BTreeMap<usize, (Shared, usize)> = BTreeMap::new();
        for unit in units {
            all.entry(plan.cells[unit.cells[0]].source).or_default().1 += 1;
        }
        Self(Mutex::new(all))
    }

    fn of(&self, source: usize) -> Shared {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(source).or_default().0.clone()
    }

    /// One unit needs it no more.
    fn done(&self, source: usize) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, needed)) = all.get_mut(&source) {
            *needed = needed.saturating_sub(1);
            if *needed == 0 {
                all.remove(&source);
            }
        }
    }
}

fn of_files(
    plan: &Plan,
    source: usize,
    progress: Progress<'_>,
    read: &(dyn Fn(&TraceFacts) + Sync),
) -> Result<Traces, String> {
    let Source::Traces(_, paths) = &plan.sources[source] else {
        return Err("it is no trace".to_owned());
    };
    let reading = match plan.objects {
        Some(_) => plan
            .object_study(Vec::new(), 0)
            .reading(plan.options.clone(), plan.view),
        None => Reading {
            options: vec![plan.options.clone(); paths.len()],
            view: plan.view,
            closed: plan.closed,
            neighbours: Neighbours::of(plan.cells.iter().map(|cell| &cell.levels[..])),
            ..Reading::default()
        },
    };
    // It is no part of a cell, but may be ended.
    let traces = Traces::read_guests(paths, &reading, &mut |_| progress(0.0));
    let traces = traces.map_err(|error| error.to_string())?;
    read(traces.facts());
    Ok(traces)
}

fn of_trace(plan: &Plan, unit: &Unit, traces: &Traces, progress: Progress<'_>) -> Vec<Outcome> {
    let one = |(cell, &at): (usize, &usize)| {
        let Cell { levels, seed, .. } = &plan.cells[at];
        let listener = CellListener {
            unit: Mutex::new(&mut *progress),
            cell,
            cells: unit.cells.len(),
        };
        if plan.objects.is_some() {
            let study = plan.object_study(levels.clone(), *seed);
            let report = study.of_traces(traces, &listener);
            return report
                .map(|report| report.columns())
                .map_err(|error| error.to_string());
        }
        let simulation = TraceSimulation {
            links: links(levels, plan.link),
            levels: levels.clone(),
            write_mode: plan.write_mode,
            seed: *seed,
            warmup_requests: plan.warmup.unwrap_or(0),
            requests: plan.requests,
        };
        let report = traces.simulate(&[simulation], plan.options.unit_bytes, 1, &|part| {
            listener.tell(part);
        });
        report
            .map(|report| report.columns())
            .map_err(|error| error.to_string())
    };
    unit.cells.iter().enumerate().map(one).collect()
}

/// The cells of a unit together; one after the other if one of them fails, which is not to cost the others.
fn of_workloads(plan: &Plan, unit: &Unit, progress: Progress<'_>) -> Vec<Outcome> {
    match of_workload(plan, &unit.cells, progress) {
        Ok(tables) => tables.into_iter().map(Ok).collect(),
        Err(why) if unit.cells.len() == 1 => vec![Err(why)],
        Err(_) => {
            let cells = unit.cells.iter();
            let alone = cells.map(|&cell| of_workload(plan, &[cell], &mut *progress));
            let only = alone.map(|tables| Ok(tables?.into_iter().next().unwrap_or_default()));
            only.collect()
        }
    }
}

fn of_workload(
    plan: &Plan,
    cells: &[usize],
    progress: Progress<'_>,
) -> Result<Vec<Vec<Column>>, String> {
    let specs = cells.iter().map(|&at| {
        let Cell {
            source,
            levels,
            seed,
            ..
        } = &plan.cells[at];
        let Source::Workload(workload, _) = &plan.sources[*source] else {
            return Err("it is no workload".to_owned());
        };
        Ok(SimulationSpec {
            links: links(levels, plan.link),
            levels: levels.clone(),
            write_mode: plan.write_mode,
            guests: plan.guests,
            workload: workload.clone(),
            block_bytes: plan.options.unit_bytes,
            seed: *seed,
            warmup_requests: plan.warmup,
            requests: plan.requests,
        })
    });
    let specs = specs.collect::<Result<Vec<_>, _>>()?;
    let listener = CellListener {
        unit: Mutex::new(progress),
        cell: 0,
        cells: 1,
    };
    let report = simulate_all(&specs, 1, &|part| listener.tell(part));
    let report = report.map_err(|error| error.to_string())?;
    Ok(report.split().iter().map(Report::columns).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
    use std::path::Path;

    #[test]
    fn a_cell_that_fails_costs_no_other_with_the_same_first_level() {
        let text = "workloads = ['zipf(0.8):1MiB']\nrequests = 1000\n\
                    levels = [['lru:10%', 'lru:6000,1%'], ['lru:10%', 'exclusive:10%']]";
        let plan = Plan::of_toml(text, Path::new("")).expect("a plan");
        let kept = Mutex::new(Vec::new());
        let keep = |cell: usize, rows: &Rows| {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push((cell, rows.text()));
            Ok(())
        };
        let failed = work(&plan, &[0, 1, 2], 1, &|_| (), &keep, &|_| ());
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert!(
            failed[0].0 == 0 && failed[0].1.contains("6000"),
            "{failed:?}"
        );
        let together = kept.into_inner().unwrap_or_else(PoisonError::into_inner);
        let alone = Mutex::new(Vec::new());
        let keep = |cell: usize, rows: &Rows| {
            let mut alone = alone.lock().unwrap_or_else(PoisonError::into_inner);
            alone.push((cell, rows.text()));
            Ok(())
        };
        assert!(work(&plan, &[1], 1, &|_| (), &keep, &|_| ()).is_empty());
        assert!(work(&plan, &[2], 1, &|_| (), &keep, &|_| ()).is_empty());
        assert_eq!(
            together,
            alone.into_inner().unwrap_or_else(PoisonError::into_inner)
        );
    }

    #[test]
    fn a_cell_that_cannot_be_kept_costs_no_other() {
        let text = "workloads = ['zipf(0.8):1MiB']\nrequests = 1000\nlevels = [['lru:10%', 'lru:5%,10%,20%']]";
        let plan = Plan::of_toml(text, Path::new("")).expect("a plan");
        let keep = |cell: usize, _: &Rows| match cell {
            1 => Err("full".to_owned()),
            _ => Ok(()),
        };
        let failed = work(&plan, &[0, 1, 2], 1, &|_| (), &keep, &|_| ());
        assert_eq!(failed, [(1, "full".to_owned())]);
    }

    #[test]
    fn progress_can_end_a_cell_that_goes_on() {
        for cells in [
            "policies = ['lru']\nsizes = ['5%', '10%']",
            "levels = [['lru:10%', 'arc:20%,30%']]",
        ] {
            let text = format!(
                "workloads = ['uniform:1MiB']\nrequests = {}\n{cells}",
                1u64 << 40
            );
            let plan = Plan::of_toml(&text, Path::new("")).expect("a plan");
            let todo: Vec<usize> = (0..plan.cells.len()).collect();
            let thrown = catch_unwind(AssertUnwindSafe(|| {
                let end = |done| {
                    if done > 0.0 {
                        panic_any("enough");
                    }
                };
                work(&plan, &todo, 2, &end, &|_, _| Ok(()), &|_| ())
            }));
            let thrown = thrown.expect_err("it was ended");
            assert_eq!(thrown.downcast_ref(), Some(&"enough"));
        }
    }
}
