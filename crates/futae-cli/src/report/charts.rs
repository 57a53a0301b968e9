//! The charts of a report.

use super::bars::{Bar, Bars};
use super::sizes::{SizeAxis, is_of_objects, level_name, size_text};
use super::study::Study;
use crate::densities::{Densities, Height};
use crate::plot::{Line, Look, Plot, Scale};
use futae_sim::curve::even_sizes;
use futae_sim::locality::Bins;
use futae_sim::{Report, Run, WriteMode};

/// A chart with what stands around it.
pub struct Chart {
    /// Its name in the page.
    pub id: &'static str,
    /// Above it.
    pub title: &'static str,
    /// Below it, in plain text.
    pub note: String,
    /// The drawing.
    pub drawing: Drawing,
}

/// What is drawn.
pub enum Drawing {
    /// Lines over axes.
    Lines(Plot),
    /// Bars, in one panel or several.
    Bars(Vec<Bars>),
}

/// From this many times the smallest size on the axis of sizes is logarithmic.
const LOG_SPREAD: u64 = 16;
/// Points of a curve, each half evenly spaced and evenly in the logarithm.
const CURVE_POINTS: usize = 60;
const DENSITY_BINS: usize = 60;
/// With a median of less than this share of what linear bins reach, bins grow in width.
const LINEAR_MEDIAN: f64 = 0.05;

/// All charts, in the order of the page.
pub fn charts(report: &Report, study: &Study) -> Vec<Chart> {
    let Some(first) = report.runs.first() else {
        return Vec::new();
    };
    let mut charts = vec![
        by_size(report, first, study),
        miss_ratios(report, first, study),
        locality(report, first, study),
        by_level(report, first),
    ];
    let hierarchies = report.runs.len();
    if first.levels.len() > 1 && hierarchies > 1 {
        // That of localities says itself what it is of.
        for chart in charts.iter_mut().filter(|chart| chart.id != "locality") {
            chart.note = format!(
                "{} Of the first of {hierarchies} hierarchies: the table has the others.",
                chart.note
            );
        }
    }
    charts
}

/// The policies of single-level runs, in the order of the runs, with those runs.
fn policies(report: &Report) -> Vec<(&str, Vec<&Run>)> {
    let mut policies: Vec<(&str, Vec<&Run>)> = Vec::new();
    for run in &report.runs {
        let Some(level) = run.levels.first() else {
            continue;
        };
        match policies.iter_mut().find(|(name, _)| *name == level.policy) {
            Some((_, runs)) => runs.push(run),
            None => policies.push((&level.policy, vec![run])),
        }
    }
    for (_, runs) in &mut policies {
        runs.sort_by_key(|run| run.levels[0].capacity_blocks);
    }
    policies
}

/// The sizes of single-level runs, smallest first.
fn sizes(report: &Report) -> Vec<u64> {
    let levels = report.runs.iter().filter_map(|run| run.levels.first());
    let mut sizes: Vec<u64> = levels.map(|level| level.capacity_blocks).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// The size of levels down to each, and the share of all requests that is missed there.
fn down_through(run: &Run) -> Vec<(u64, f64)> {
    let (mut blocks, mut served) = (0, 0);
    let requests = run.requests.max(1) as f64;
    let levels = run.levels.iter().zip(&run.served);
    let point = levels.map(|(level, at)| {
        blocks += level.all_copies_blocks;
        served += at.reads + at.writes;
        (blocks, 1.0 - served as f64 / requests)
    });
    point.collect()
}

fn size_label(report: &Report, run: &Run, axis: &SizeAxis) -> String {
    match is_of_objects(report) {
        true => format!("cache size, {}, one for each object", axis.unit),
        false => format!(
            "cache size, {}, in blocks of {} bytes",
            axis.unit, run.block_bytes
        ),
    }
}

fn by_size(report: &Report, first: &Run, study: &Study) -> Chart {
    let chart = |note: &str, drawing| Chart {
        id: "by-size",
        title: "Hit ratio by size and policy",
        note: note.to_owned(),
        drawing,
    };
    let (lines, largest, smallest, note);
    if first.levels.len() > 1 {
        let points = down_through(first);
        (largest, smallest) = (points.last().map_or(1, |at| at.0), points[0].0);
        let axis = SizeAxis::up_to(report, largest);
        let point = |&(blocks, miss): &(u64, f64)| (axis.at(blocks), 1.0 - miss);
        let lru = points.iter().map(|&(blocks, _)| {
            let miss = study.curve.miss_ratio_at(blocks);
            (axis.at(blocks), 1.0 - miss)
        });
        let names = first.levels.iter().map(|level| level.policy.as_str());
        let names = names.collect::<Vec<_>>().join(" over ");
        lines = vec![
            Line {
                name: format!("{names}, down to each level"),
                points: points.iter().map(point).collect(),
                look: Look::Marked,
            },
            Line {
                name: "one lru cache of the same size".to_owned(),
                points: lru.collect(),
                look: Look::Reference,
            },
        ];
        note = "Of all requests, by the size of all levels down to each; beside it one LRU cache \
                with all that memory in one place.";
    } else if sizes(report).len() == 1 {
        let bars = policies(report).into_iter().enumerate();
        let bars = bars.map(|(line, (policy, runs))| Bar {
            name: policy.to_owned(),
            ratio: runs[0].levels[0].hit_ratio,
            line: Some(line),
        });
        let size = size_text(report, sizes(report)[0]);
        let bars = Bars {
            title: format!("caches of {size}"),
            label: "hit ratio",
            bars: bars.collect(),
        };
        return chart(
            "One size: a bar for each policy.",
            Drawing::Bars(vec![bars]),
        );
    } else {
        let all = sizes(report);
        (largest, smallest) = (all[all.len() - 1], all[0]);
        let axis = SizeAxis::up_to(report, largest);
        let line = |(policy, runs): (&str, Vec<&Run>)| {
            let levels = runs.iter().map(|run| &run.levels[0]);
            let points = levels.filter_map(|at| Some((axis.at(at.capacity_blocks), at.hit_ratio?)));
            Line {
                name: policy.to_owned(),
                points: points.collect(),
                look: Look::Marked,
            }
        };
        lines = policies(report).into_iter().map(line).collect();
        note = "A mark for each simulated cache.";
    }
    let axis = SizeAxis::up_to(report, largest);
    let plot = Plot {
        title: "hit ratio by cache size, a line for each policy".to_owned(),
        x_label: size_label(report, first, &axis),
        x_unit: axis.unit,
        y_label: "hit ratio".to_owned(),
        y_scale: Scale::Percent,
        log_x: largest / smallest.max(1) >= LOG_SPREAD,
        lines,
        rules: Vec::new(),
        bars: Vec::new(),
    };
    chart(note, Drawing::Lines(plot))
}

fn by_level(report: &Report, first: &Run) -> Chart {
    let chart = |note: &str, panels| Chart {
        id: "by-level",
        title: "Hit ratio per level",
        note: note.to_owned(),
        drawing: Drawing::Bars(panels),
    };
    if first.levels.len() > 1 {
        let bar = |at: usize, ratio| Bar {
            name: level_name(report, first, &first.levels[at]),
            ratio,
            line: Some(at),
        };
        let levels = 0..first.levels.len();
        let mut reaching: Vec<Bar> = levels
            .clone()
            .map(|at| bar(at, first.levels[at].hit_ratio))
            .collect();
        reaching.push(Bar {
            name: "all together".to_owned(),
            ratio: first.combined_hit_ratio,
            line: Some(first.levels.len()),
        });
        let share = |at: usize| {
            let served = first.served.get(at)?;
            let any = first.requests > 0;
            any.then(|| (served.reads + served.writes) as f64 / first.requests as f64)
        };
        let mut shares: Vec<Bar> = levels.map(|at| bar(at, share(at))).collect();
        shares.push(Bar {
            name: "the store".to_owned(),
            ratio: share(first.levels.len()),
            line: None,
        });
        let panel = |title: &str, label, bars| Bars {
            title: title.to_owned(),
            label,
            bars,
        };
        let panels = vec![
            panel("of the requests that reach a level", "hit ratio", reaching),
            panel(
                "of all requests, who served them",
                "share of requests",
                shares,
            ),
        ];
        let note = "A level sees what the levels above it have missed, so its own hit ratio says \
                    little of what it adds: the second panel does.";
        return chart(note, panels);
    }
    let policies = policies(report);
    let panel = |size: u64| {
        let bars = policies
            .iter()
            .enumerate()
            .filter_map(|(line, (policy, runs))| {
                let mut runs = runs.iter().map(|run| &run.levels[0]);
                let level = runs.find(|level| level.capacity_blocks == size)?;
                Some(Bar {
                    name: (*policy).to_owned(),
                    ratio: level.hit_ratio,
                    line: Some(line),
                })
            });
        Bars {
            title: format!("one level of {}", size_text(report, size)),
            label: "hit ratio",
            bars: bars.collect(),
        }
    };
    let panels = sizes(report).into_iter().map(panel).collect();
    chart("Each run has one level: a panel for each size.", panels)
}

fn miss_ratios(report: &Report, first: &Run, study: &Study) -> Chart {
    let is_deep = first.levels.len() > 1;
    let deep = if is_deep {
        down_through(first)
    } else {
        Vec::new()
    };
    let mut marked: Vec<u64> = deep.iter().map(|at| at.0).collect();
    if !is_deep {
        marked = sizes(report);
    }
    let largest = marked.iter().copied().max().unwrap_or(1);
    let largest = largest.max(first.footprint_blocks);
    let mut at = even_sizes(CURVE_POINTS, largest);
    let growth = (largest as f64).powf(1.0 / CURVE_POINTS as f64);
    at.extend((0..CURVE_POINTS).map(|i| growth.powi(i as i32).round() as u64));
    at.extend(&marked);
    let smallest = marked.iter().copied().min().unwrap_or(1).max(1);
    let is_log = largest / smallest >= LOG_SPREAD;
    if is_log {
        at.retain(|&blocks| blocks * 2 >= smallest);
    }
    let axis = SizeAxis::up_to(report, largest);
    let curve = study.curve.at(&at);
    let points = curve.points().iter();
    let points = points.map(|point| (axis.at(point.blocks), point.miss_ratio));
    let mut lines = Vec::new();
    if is_deep {
        lines.push(Line {
            name: "as simulated, down to each level".to_owned(),
            points: deep
                .iter()
                .map(|&(blocks, miss)| (axis.at(blocks), miss))
                .collect(),
            look: Look::Marks,
        });
    } else {
        for (policy, runs) in policies(report) {
            let point = |run: &&Run| {
                let blocks = run.levels[0].capacity_blocks;
                Some((axis.at(blocks), run.miss_ratio?))
            };
            lines.push(Line {
                name: format!("{policy}, as simulated"),
                points: runs.iter().filter_map(point).collect(),
                look: Look::Marks,
            });
        }
    }
    lines.push(Line {
        name: "lru, at every size".to_owned(),
        points: std::iter::once((0.0, 1.0)).chain(points).collect(),
        look: Look::Reference,
    });
    let warm = match first.warmup_requests {
        0 => "caches begin empty",
        _ => "after the same warm-up",
    };
    Chart {
        id: "miss-ratios",
        title: "Miss-ratio curve",
        note: format!(
            "The curve is that of LRU over the same requests, {}; {warm}. Marks are the simulated \
             caches.",
            study.method
        ),
        drawing: Drawing::Lines(Plot {
            title: "miss ratio by cache size".to_owned(),
            x_label: size_label(report, first, &axis),
            x_unit: axis.unit,
            y_label: "miss ratio".to_owned(),
            y_scale: Scale::Percent,
            log_x: is_log,
            lines,
            rules: Vec::new(),
            bars: Vec::new(),
        }),
    }
}

fn locality(report: &Report, first: &Run, study: &Study) -> Chart {
    let places = study.places.iter();
    let is_skewed = places.clone().any(|(_, intervals)| {
        let (median, end) = (
            intervals.quantile_bytes(0.5),
            intervals.quantile_bytes(0.995),
        );
        median
            .zip(end)
            .is_some_and(|(median, end)| median < LINEAR_MEDIAN * end)
    });
    let densities = Densities {
        places: places
            .map(|(name, intervals)| (name.clone(), intervals))
            .collect(),
        bins: DENSITY_BINS,
        kind: if is_skewed { Bins::Log } else { Bins::Linear },
        block_bytes: first.block_bytes,
    };
    let height = if is_skewed {
        Height::Share
    } else {
        Height::Density
    };
    let mut note = "How much else is asked for before a block is asked for again. Below an LRU \
                    cache there is a gap, drawn broken: a lower LRU or FIFO cache smaller than it \
                    has no hits."
        .to_owned();
    if is_of_objects(report) {
        note = format!("{note} Each request counts as {} bytes.", first.block_bytes);
    }
    if first.write_mode == WriteMode::WriteBack && first.writes > 0 {
        note = format!("{note} Writes are taken to go through all levels.");
    }
    if let Some(why) = study.note {
        note = format!("{note} {why}");
    }
    Chart {
        id: "locality",
        title: "Locality: re-access intervals",
        note,
        drawing: Drawing::Lines(densities.plot("re-access intervals".to_owned(), height)),
    }
}
