//! Results as tables for people.

use futae_sim::queueing::StationResult;
use futae_sim::run::Ordered;
use futae_sim::{LevelResult, Report, Run, WriteMode};
use futae_terminal::table::{Table, count, percent};
use futae_trace::WorkloadSpec;

/// A place that is busy for a larger share of the time has more to do than it can.
const FULL: f64 = 0.99;

/// The whole report.
pub fn render(report: &Report, source: &str) -> String {
    let mut table = Table::new([
        "level",
        "blocks",
        "requests",
        "hits",
        "misses",
        "hit ratio",
        "byte misses",
        "demoted in",
    ]);
    for run in &report.runs {
        add_run(&mut table, run, report.runs.len() > 1);
    }
    let Some(first) = report.runs.first() else {
        return table.render();
    };
    let blocks = match &report.trace {
        Some(trace) if trace.view == "start" => "blocks, one a request".to_owned(),
        _ => format!("blocks of {} bytes", first.block_bytes),
    };
    let mut text = format!(
        "{source}: {} {blocks}, seed {}, {} requests ({} writes) after {} of warm-up, digest {}\n\n{}",
        count(first.footprint_blocks),
        report.seed,
        count(first.requests),
        count(first.writes),
        count(first.warmup_requests),
        report.trace_digest,
        table.render()
    );
    if first.guests > 1 {
        text.push('\n');
        text.push_str(&guests(report, first));
        text.push('\n');
        text.push_str(&by_guest(report));
    }
    if let Some(paces) = paces(report) {
        text.push('\n');
        text.push_str(&paces);
    }
    if let Some(bounds) = bounds(report) {
        text.push('\n');
        text.push_str(&bounds);
    }
    if first.write_mode == WriteMode::WriteBack {
        text.push('\n');
        text.push_str(&writes(report));
    }
    if let Some(times) = latencies(report).or_else(|| times(report)) {
        text.push('\n');
        text.push_str(&times);
    }
    text
}

/// Who asks: several sources are guests of one cache, never runs of their own.
fn guests(report: &Report, run: &Run) -> String {
    let each = match &report.trace {
        Some(_) => "one for each trace",
        None => "each with its own workload",
    };
    let shared = match run.levels.len() {
        1 => "share one cache",
        _ => "have their own upper levels and share the last",
    };
    let guests = run.guests;
    let order = match report.trace.as_ref().and_then(|trace| trace.order) {
        Some(order) => order.to_string(),
        None if ask_equally_often(run) => Ordered::Turns.to_string(),
        None => "request as often as the numbers before their workloads say".to_owned(),
    };
    format!(
        "{guests} guests, {each}, {order}, and {shared}; to compare sources, simulate each by itself\n"
    )
}

fn ask_equally_often(run: &Run) -> bool {
    let workloads = run.by_guest.iter().map(|guest| guest.source.parse());
    let mut rates = workloads
        .flatten()
        .map(|workload: WorkloadSpec| workload.rate());
    let first = rates.next();
    rates.all(|rate| Some(rate) == first)
}

/// What came of each guest's requests.
fn by_guest(report: &Report) -> String {
    let mut table = Table::new([
        "guest",
        "requests",
        "hit ratio",
        "of its own levels",
        "byte misses",
        "blocks of its own",
    ]);
    for run in &report.runs {
        if report.runs.len() > 1 {
            table.row([name_of(run).as_str(), "", "", "", "", ""].map(str::to_owned));
        }
        for guest in &run.by_guest {
            let own = &guest.served[..guest.served.len().saturating_sub(2)];
            let own_hits: u64 = own.iter().map(|at| at.reads + at.writes).sum();
            let has_own = !own.is_empty() && guest.requests > 0;
            let capacities = guest.capacities_blocks.iter().map(|&blocks| count(blocks));
            table.row([
                format!("{} {}", guest.guest, guest.source),
                count(guest.requests),
                percent(guest.combined_hit_ratio),
                percent(has_own.then(|| own_hits as f64 / guest.requests as f64)),
                percent(guest.byte_miss_ratio),
                capacities.collect::<Vec<_>>().join(", "),
            ]);
        }
    }
    table.render()
}

/// When guests were done, and how long their requests took, in a closed loop.
fn paces(report: &Report) -> Option<String> {
    let mut table = Table::new([
        "in time",
        "guest",
        "requests",
        "done after, s",
        "requests/s",
        "mean, us",
        "p99, us",
    ]);
    let is_closed = |run: &Run| !run.pace_by_guest.is_empty();
    if !report.runs.iter().all(is_closed) {
        return None;
    }
    for run in &report.runs {
        for pace in &run.pace_by_guest {
            let rate = pace.requests_per_second;
            table.row([
                name_of(run),
                pace.guest.to_string(),
                count(pace.times.requests),
                format!("{:.3}", pace.finish_seconds),
                rate.map_or_else(|| "–".to_owned(), |rate| format!("{rate:.1}")),
                us(pace.times.mean_seconds),
                us(pace.times.p99_seconds),
            ]);
        }
    }
    let paces = report.runs[0].pace_by_guest.iter();
    let overlapped: u64 = paces.map(|pace| pace.overlapped_requests).sum();
    let note = match overlapped {
        0 => String::new(),
        some => format!(
            "{} requests were recorded before the answer to the one before: such a guest had several under way, and has one here\n",
            count(some)
        ),
    };
    Some(table.render() + &note)
}

/// Between what bounds the best caches would be, if that was asked for.
fn bounds(report: &Report) -> Option<String> {
    let mut table = Table::new([
        "hit ratio of all levels",
        "reached",
        "of OPT at every level (OPT-LB)",
        "at most (OPT-UB)",
    ]);
    for run in &report.runs {
        let bounds = run.bounds.as_ref()?;
        table.row([
            name_of(run),
            percent(run.combined_hit_ratio),
            percent(bounds.lower.last().copied().flatten()),
            percent(bounds.upper.last().copied().flatten()),
        ]);
    }
    Some(table.render())
}

/// Where written data went.
fn writes(report: &Report) -> String {
    let mut table = Table::new([
        "written back",
        "writes taken",
        "overwritten",
        "dirty evicted",
        "dirty left",
        "to the store",
    ]);
    for run in &report.runs {
        let levels = run.levels.iter().zip(&run.writes_taken);
        for (level, &taken) in levels {
            table.row([
                name_of_level(level),
                count(taken),
                count(level.overwrites),
                count(level.dirty_evictions),
                count(level.dirty_blocks),
                String::new(),
            ]);
        }
        table.row([
            "all together".to_owned(),
            count(run.writes),
            count(run.levels.iter().map(|level| level.overwrites).sum()),
            count(run.dirty_evictions),
            count(run.dirty_blocks),
            count(run.store_writes),
        ]);
    }
    table.render()
}

fn name_of_level(level: &LevelResult) -> String {
    format!("{} of {}", level.policy, count(level.capacity_blocks))
}

fn name_of(run: &Run) -> String {
    let names: Vec<String> = run.levels.iter().map(name_of_level).collect();
    names.join(", ")
}

fn us(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "–".to_owned(), |seconds| format!("{:.2}", seconds * 1e6))
}

/// How long requests take, if that was asked for.
fn times(report: &Report) -> Option<String> {
    let mut table = Table::new(["access time, us", "mean", "p50", "p90", "p99"]);
    for run in &report.runs {
        let times = run.access_times?;
        table.row([
            name_of(run),
            us(times.mean_access_seconds),
            us(times.p50_access_seconds),
            us(times.p90_access_seconds),
            us(times.p99_access_seconds),
        ]);
    }
    Some(table.render())
}

/// The same of reads and writes apart, and how busy the link and the store were, where requests waited for each other.
fn latencies(report: &Report) -> Option<String> {
    let mut table = Table::new([
        "access time, us",
        "of",
        "mean",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "link busy",
        "store busy",
    ]);
    let mut notes = String::new();
    for run in &report.runs {
        let found = run.latencies.as_ref()?;
        let busy = |station: Option<StationResult>| {
            station.map_or_else(
                || "–".to_owned(),
                |it| format!("{:.1} %", it.utilisation * 100.0),
            )
        };
        for (kind, times) in [("reads", &found.reads), ("writes", &found.writes)] {
            if times.requests > 0 {
                table.row([
                    name_of(run),
                    kind.to_owned(),
                    us(times.mean_seconds),
                    us(times.p50_seconds),
                    us(times.p90_seconds),
                    us(times.p99_seconds),
                    us(times.p999_seconds),
                    busy(found.link),
                    busy(found.store),
                ]);
            }
        }
        let stations = [found.link, found.store].into_iter().flatten();
        let is_full = stations.map(|it| it.utilisation).any(|busy| busy > FULL);
        if found.clients.is_none() && is_full {
            notes.push_str(&format!(
                "{}: more came than could be worked on; the last request ended {:.0} s after it came, and the times say how long \
                 the trace is\n",
                name_of(run),
                found.backlog_seconds
            ));
        }
    }
    Some(table.render() + &notes)
}

fn add_run(table: &mut Table, run: &Run, several: bool) {
    let single = several && run.levels.len() == 1;
    for level in &run.levels {
        let copies = if level.copies > 1 {
            format!(" × {}", level.copies)
        } else {
            String::new()
        };
        table.row([
            format!("{}{copies}", level.policy),
            count(level.capacity_blocks),
            count(level.counters.requests),
            count(level.counters.hits),
            count(level.counters.misses),
            percent(level.hit_ratio),
            if single {
                percent(run.byte_miss_ratio)
            } else {
                String::new()
            },
            count(level.counters.demotions_in),
        ]);
    }
    if single {
        return;
    }
    table.row([
        "all together".to_owned(),
        String::new(),
        count(run.requests),
        String::new(),
        count(run.served.last().map_or(0, |at| at.reads + at.writes)),
        percent(run.combined_hit_ratio),
        percent(run.byte_miss_ratio),
        String::new(),
    ]);
}
