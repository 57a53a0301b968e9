//! The page for people: every number is in the HTML that the program sends, so it needs no script and nothing from elsewhere.

mod balance;
mod chart;
mod curves;
mod forecasts;
mod html;
mod latency;
mod problems;

use crate::curves::CurveShown;
use crate::history::History;
use crate::snapshot::{OneExport, Snapshot};
use chart::{COLOURS, chart};
use futae_agent_protocol::Replacement;
use futae_control::EngineReport;
use html::{Cell, Table, escaped, sized};

const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// The type of what [`page`] writes, for HTTP.
pub(crate) const PAGE_TYPE: &str = "text/html; charset=utf-8";

/// The page; its script and its style have the `nonce`.
pub(crate) fn page(
    snapshot: &Snapshot,
    history: &History,
    known: &[CurveShown],
    nonce: &str,
) -> String {
    let (program, level) = match snapshot.server {
        Some(_) => ("futae serve", "the lower cache, near the store"),
        None => ("futae mount", "the upper cache, near the application"),
    };
    let head = format!(
        "<h1>{program} {}</h1>\n<p>{level}; up {}</p>\n",
        escaped(&snapshot.version),
        lasted(snapshot.uptime_seconds)
    );
    let volumes = snapshot.volumes();
    let main = [
        head,
        problems::problems(snapshot),
        ratios(snapshot, history),
        hits(snapshot, &volumes, history),
        latency::latencies(&snapshot.engines, &volumes),
        curves::curves(known, history),
        forecasts::forecasts(&snapshot.forecasts),
        told(snapshot),
        holders(snapshot, &volumes),
        stores(&volumes),
        memory(snapshot),
        agents(snapshot),
    ];
    framed(program, &main.concat(), nonce)
}

/// A whole page around what changes in it.
fn framed(program: &str, main: &str, nonce: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n<title>{program}</title>\n\
         <meta name=viewport content=\"width=device-width, initial-scale=1\">\n<link rel=icon href=\"data:,\">\n\
         <noscript><meta http-equiv=refresh content=5></noscript>\n<style nonce=\"{nonce}\">\n{STYLE}</style>\n</head>\n<body>\n\
         <p id=stale role=status></p>\n<main>\n{main}</main>\n<script nonce=\"{nonce}\">\n{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

/// A time as people say it.
fn lasted(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds if seconds < 7200.0 => format!("{:.0} minutes", seconds / 60.0),
        seconds if seconds < 172_800.0 => format!("{:.1} hours", seconds / 3600.0),
        seconds => format!("{:.1} days", seconds / 86_400.0),
    }
}

/// The chart, with the names of its lines.
fn ratios(snapshot: &Snapshot, history: &History) -> String {
    let lines = history.busiest(COLOURS);
    let names: String = lines
        .iter()
        .enumerate()
        .map(|(at, line)| {
            let now = line.ratio();
            let now = now.map_or_else(String::new, |ratio| {
                format!(" <b>{:.1} %</b>", ratio * 100.0)
            });
            let name = escaped(&line.name);
            format!("<li class=c{at}><i></i><span>{name}{now}</span></li>\n")
        })
        .collect();
    format!(
        "<section><h2>Hit ratios</h2>\n<p>Of the last 15 minutes, by export; the {COLOURS} with the most requests. \
         A line has gaps where nothing was asked for.</p>\n{}<ul class=legend>\n{names}</ul></section>\n",
        chart(&lines, snapshot.uptime_seconds)
    )
}

fn hits(snapshot: &Snapshot, volumes: &[OneExport], history: &History) -> String {
    let heads = [
        "export",
        "hit ratio",
        "15 minutes",
        "requests",
        "hits",
        "misses",
        "errors",
        "delayed",
    ];
    let mut table = Table::new("hits", "Requests", &heads);
    let ratio = |hits: u64, requests: u64| (requests > 0).then(|| hits as f64 / requests as f64);
    for one in volumes {
        let volume = &one.volume;
        let lately = history.line(&volume.name).and_then(|line| line.ratio());
        table.row(
            &volume.name,
            &[
                Cell::share("hit_ratio", ratio(volume.hits, volume.requests)),
                Cell::share("hit_ratio_lately", lately),
                Cell::count("requests", volume.requests),
                Cell::count("hits", volume.hits),
                Cell::count("misses", volume.misses),
                Cell::count("errors", volume.errors),
                delayed(one),
            ],
        );
    }
    // Of a tree the files come and go; its cache has their sum.
    for cache in snapshot.engines.iter().filter(|_| volumes.is_empty()) {
        let counters = &cache.engine.counters;
        let name = Snapshot::name_of(cache);
        let lately = history.line(name).and_then(|line| line.ratio());
        table.row(
            name,
            &[
                Cell::share("hit_ratio", counters.hit_ratio()),
                Cell::share("hit_ratio_lately", lately),
                Cell::count("requests", counters.requests),
                Cell::count("hits", counters.hits),
                Cell::count("misses", counters.misses),
                Cell::count("errors", cache.engine.errors),
                Cell::text("", ""),
            ],
        );
    }
    let sentence = match snapshot.server {
        Some(_) => {
            "Blocks, since the start. What a guest finds in its own cache is not asked for here: these are the requests that missed above, \
             and the hits among them are lower hits. Delayed: requests that waited, since the export has a limit a second."
        }
        None => "Blocks, since the start. The misses go to the store below.",
    };
    table.html(sentence)
}

/// Requests that waited since the export is served no more in a second.
fn delayed(one: &OneExport) -> Cell {
    one.export.as_ref().map_or_else(
        || Cell::text("", ""),
        |export| Cell::count("delayed_requests", export.rates.delayed_requests),
    )
}

fn told(snapshot: &Snapshot) -> String {
    let heads = [
        "cache",
        "policy",
        "demoted",
        "refused",
        "not kept",
        "different",
        "reported evictions",
        "sent down",
    ];
    let mut table = Table::new("told", "Between the levels", &heads);
    for cache in &snapshot.engines {
        let engine = &cache.engine;
        table.row(
            Snapshot::name_of(cache),
            &[
                Cell::text("policy", &engine.policy),
                Cell::count("demotions_in", engine.counters.demotions_in),
                Cell::count("demotions_refused", engine.demotions_refused),
                Cell::count("demotions_declined", engine.counters.demotions_declined),
                Cell::count("demotions_different", engine.demotions.demotions_different),
                Cell::count("notices_in", engine.counters.notices_in),
                Cell::count("demotions_out", engine.counters.demotions_out),
            ],
        );
    }
    table.html("Blocks that clients demoted to a cache, evictions that clients and agents reported, and blocks that a cache sent down.")
}

/// Contents of the caches: each cache with its exports.
fn holders(snapshot: &Snapshot, volumes: &[OneExport]) -> String {
    let heads = [
        "cache",
        "size",
        "full",
        "in the cache",
        "cached twice",
        "not in the store yet",
        "connections",
    ];
    let mut table = Table::new("holders", "Contents of the caches", &heads);
    for cache in &snapshot.engines {
        let engine = &cache.engine;
        let bytes = |blocks: u64| blocks * engine.block_bytes;
        let full = engine.resident_blocks as f64 / engine.capacity_blocks.max(1) as f64;
        let name = Snapshot::name_of(cache);
        table.row(
            name,
            &[
                Cell::bytes("capacity_bytes", bytes(engine.capacity_blocks)),
                Cell::share("full", Some(full)),
                Cell::bytes("resident_bytes", bytes(engine.resident_blocks)),
                Cell::bytes("double_cached_bytes", engine.double_cached_bytes),
                Cell::bytes("dirty_bytes", bytes(engine.dirty_blocks)),
                Cell::text("", ""),
            ],
        );
        add_sharers(&mut table, cache, volumes);
    }
    table.html(
        "Cached twice: blocks here that clients were given and have not reported as evicted. Where neither clients nor agents report evictions, \
         it is the most that can be.",
    )
}

/// The exports in one cache.
fn add_sharers(table: &mut Table, cache: &EngineReport, volumes: &[OneExport]) {
    let name = Snapshot::name_of(cache);
    for one in volumes.iter().filter(|one| one.cache == name) {
        let volume = &one.volume;
        let bytes = |blocks: u64| blocks * one.block_bytes;
        let share = volume.resident_blocks as f64 / cache.engine.capacity_blocks.max(1) as f64;
        let export = one.export.as_ref();
        table.row(
            &format!("\u{2514} {}", volume.name),
            &[
                Cell::bytes("size_bytes", volume.size_bytes),
                Cell::share("share", Some(share)),
                Cell::bytes("resident_bytes", bytes(volume.resident_blocks)),
                Cell::bytes("double_cached_bytes", volume.double_cached_bytes),
                Cell::bytes("dirty_bytes", bytes(volume.dirty_blocks)),
                export.map_or_else(
                    || Cell::text("", ""),
                    |export| Cell::count("connections", export.connections),
                ),
            ],
        );
    }
}

fn stores(volumes: &[OneExport]) -> String {
    let heads = [
        "export",
        "class",
        "read",
        "99 % of reads",
        "write",
        "99 % of writes",
        "reads",
        "buffered fallbacks",
        "store",
    ];
    let mut table = Table::new("stores", "Stores", &heads);
    for one in volumes {
        let volume = &one.volume;
        table.row(
            &volume.name,
            &[
                Cell::text("class", &volume.class),
                Cell::micros("read_micros", volume.read_micros),
                Cell::micros("read_micros_p99", volume.read_micros_p99),
                Cell::micros("write_micros", volume.write_micros),
                Cell::micros("write_micros_p99", volume.write_micros_p99),
                Cell::count("store_reads", volume.store_reads),
                Cell::count("store_buffered_fallbacks", volume.store_buffered_fallbacks),
                Cell::text("store", &volume.store),
            ],
        );
    }
    table.html("Times are per block: a moving average and the 99th percentile. Buffered fallbacks are operations without O_DIRECT or io_uring. Reads are operations; one can be for many blocks.")
}

fn memory(snapshot: &Snapshot) -> String {
    let mut table = Table::new("memory", "Memory", &["for", "now", "at most so far"]);
    for cache in &snapshot.engines {
        let engine = &cache.engine;
        table.row(
            &format!("buffers of {}", Snapshot::name_of(cache)),
            &[
                Cell::bytes("buffer_bytes", engine.buffer_bytes),
                Cell::bytes("buffer_bytes_max", engine.buffer_bytes_max),
            ],
        );
    }
    let mut sentence = "Beside the caches themselves.".to_owned();
    if let Some(server) = &snapshot.server {
        table.row(
            "connections",
            &[
                Cell::bytes("buffer_bytes", server.buffer_bytes),
                Cell::bytes("buffer_bytes_peak", server.buffer_bytes_peak),
            ],
        );
        sentence = format!(
            "{sentence} {} connections have {} at most; {} wait for memory.",
            server.connections,
            sized(server.buffer_memory_bytes),
            server.buffer_waiters
        );
    }
    table.html(&sentence)
}

fn agents(snapshot: &Snapshot) -> String {
    let heads = [
        "exports",
        "guest",
        "agent",
        "disks",
        "kernel replaces by",
        "evicted",
        "refused ranges",
        "untold pages",
    ];
    let mut table = Table::new("agents", "Agents in guests", &heads);
    for feed in snapshot.server.iter().flat_map(|server| &server.feeds) {
        let agent = &feed.agent;
        let state = match (agent.connected, agent.last_frame_seconds) {
            (true, _) => "connected".to_owned(),
            (false, None) => "never seen".to_owned(),
            (false, Some(seconds)) => format!("silent for {}", lasted(seconds)),
        };
        let replacement = match agent.page_cache.map(|cache| cache.replacement) {
            Some(Replacement::Linux) => "active and inactive lists",
            Some(Replacement::Mglru) => "multi-generational LRU",
            None => "",
        };
        let disks = agent.volumes.iter().map(|it| match it.disk.as_str() {
            "" => "none",
            disk => disk,
        });
        let disks: Vec<_> = disks.collect();
        table.row(
            &agent.volume_names(),
            &[
                Cell::text("guest", &agent.guest),
                Cell::text("state", &state),
                Cell::text("disks", &disks.join(", ")),
                Cell::text("replacement", replacement),
                Cell::bytes("bytes", agent.bytes),
                Cell::count("refused_ranges", agent.refused_ranges),
                Cell::count("untold_pages", agent.untold_pages),
            ],
        );
    }
    table.html("What agents report of evictions in their guests.")
}
