//! `futae top`: what the caches of a running server or mount are doing.

use super::export::control_path;
use super::mount::{MountStatus, TreeStatus};
use super::record::Asked;
use crate::save::print;
use anyhow::Context;
use futae_agent_protocol::{Source, printable};
use futae_control::{EngineReport, ask};
use futae_engine::{EngineStatus, VolumeStatus};
use futae_host::{AgentStatus, AgentVolume, InPlaceReport, ServerStatus};
use futae_terminal::failure::Failure;
use futae_terminal::output::output;
use futae_terminal::table::{Table, count, percent};
use futae_units::Size;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Watch the caches of a running server or mount
///
/// The server or mount must have been started with --control. On a terminal the table is refreshed
/// every interval; in a pipe, or with --once, it is printed once.
#[derive(clap::Args)]
pub struct Args {
    /// Its control socket: unix:PATH or PATH
    control: String,
    /// Seconds between refreshes
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    interval: f64,
    /// Look once
    #[arg(long)]
    once: bool,
    /// Print everything as JSON, once
    #[arg(long)]
    json: bool,
}

const MIB: f64 = (1 << 20) as f64;

/// The program at the control socket.
#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum Status {
    Server(ServerStatus),
    Mount(MountStatus),
}

impl Status {
    fn engines(&self) -> &[EngineReport] {
        match self {
            Self::Server(server) => &server.engines,
            Self::Mount(mount) => &mount.engines,
        }
    }

    fn uptime_seconds(&self) -> f64 {
        match self {
            Self::Server(server) => server.uptime_seconds,
            Self::Mount(mount) => mount.uptime_seconds,
        }
    }

    /// The cache that is this one, found by an export that it has: others come and go.
    fn cache_of(&self, cache: &EngineReport) -> Option<&EngineReport> {
        let is_its = |name: &String| cache.exports.contains(name);
        self.engines()
            .iter()
            .find(|known| known.exports.iter().any(is_its))
    }

    /// Whether this counts on from there: the program was not started again, and no cache was made anew.
    fn goes_on_from(&self, before: &Self) -> bool {
        let requests = |report: &EngineReport| report.engine.counters.requests;
        let is_anew = |now: &EngineReport| {
            let earlier = before.cache_of(now);
            earlier.is_some_and(|earlier| requests(now) < requests(earlier))
        };
        self.uptime_seconds() > before.uptime_seconds() && !self.engines().iter().any(is_anew)
    }

    /// What is not of one cache.
    fn headline(&self) -> String {
        match self {
            Self::Server(server) => format!(
                "futae {}, up {:.0} s, {} connections, {} may demote",
                server.version, server.uptime_seconds, server.connections, server.demotion_clients
            ),
            Self::Mount(mount) => format!(
                "futae {}, up {:.0} s, {} at {}",
                mount.version,
                mount.uptime_seconds,
                mount.source,
                mount.path.display()
            ),
        }
    }
}

/// Shows until interrupted, or once.
pub fn run(args: &Args) -> Result<(), Failure> {
    if !(0.05..=86_400.0).contains(&args.interval) {
        return Err(Failure::usage(
            "--interval is between 0.05 seconds and a day",
        ));
    }
    let path = control_path(&args.control);
    let (mut last, mut asked) = look(&path)?;
    if args.json {
        return print(&format!("{}\n", serde_json::to_string_pretty(&last)?));
    }
    if args.once || !std::io::stdout().is_terminal() {
        return print(&render(&last, None));
    }
    let mut out = output();
    loop {
        std::thread::sleep(Duration::from_secs_f64(args.interval));
        let (now, asked_now) = look(&path)?;
        let is_anew = asked_now.zip(asked).is_some_and(|(a, b)| a.is_anew(&b));
        let before = (!is_anew).then_some(&last);
        // To the upper left corner, and clear what is below.
        write!(out, "\x1b[H\x1b[J{}", render(&now, before))?;
        out.flush()?;
        (last, asked) = (now, asked_now);
    }
}

fn look(path: &Path) -> Result<(Status, Option<Asked>), Failure> {
    let now = Instant::now();
    let answer = ask(path, &json!({ "command": "status" }))?;
    let said = || {
        format!(
            "{}: the program that answers here is of another version",
            path.display()
        )
    };
    let status: Status = serde_json::from_value(answer).with_context(said)?;
    let asked = Asked::of(now, status.uptime_seconds());
    Ok((status, asked))
}

fn render(now: &Status, before: Option<&Status>) -> String {
    let before = before.filter(|before| now.goes_on_from(before));
    let seconds = before.map(|before| now.uptime_seconds() - before.uptime_seconds());
    let mut text = format!(
        "{}; {}\n\n",
        now.headline(),
        seconds.map_or_else(
            || "counts since the start".to_owned(),
            |seconds| format!("rates of the last {seconds:.1} s")
        ),
    );
    let mut table = Table::new([
        "cache",
        "policy",
        "full",
        "requests",
        "hit ratio",
        "store reads",
        "dirty",
        "demoted in",
        "refused",
        "errors",
    ]);
    for report in now.engines() {
        let earlier = before.and_then(|before| before.cache_of(report));
        add_row(&mut table, report, earlier, seconds);
    }
    text.push_str(&table.render());
    if let Status::Server(server) = now {
        let _ = write!(text, "\n{}", exports(server, before, seconds));
    }
    text.push_str(&stores(now.engines()));
    if let Status::Mount(MountStatus {
        tree: Some(tree), ..
    }) = now
    {
        add_tree(&mut text, tree);
    }
    if let Status::Server(server) = now {
        add_feeds(&mut text, server);
    }
    // Names may be those that a guest or a client chose.
    text.lines().map(|line| printable(line) + "\n").collect()
}

/// What the clients of each export ask for.
fn exports(server: &ServerStatus, before: Option<&Status>, seconds: Option<f64>) -> String {
    let mut table = Table::new([
        "export",
        "connections",
        "requests",
        "hit ratio",
        "store reads",
        "demoted in",
        "errors",
    ]);
    let volumes_of = |engines: &[EngineReport], name: &str| -> Option<VolumeStatus> {
        let mut volumes = engines.iter().flat_map(|report| &report.engine.volumes);
        volumes.find(|volume| volume.name == name).cloned()
    };
    for export in &server.exports {
        let Some(now) = volumes_of(&server.engines, &export.name) else {
            continue;
        };
        let earlier = before.and_then(|before| volumes_of(before.engines(), &export.name));
        let earlier = earlier.unwrap_or_default();
        let rate =
            |of: fn(&VolumeStatus) -> u64| rate(of(&now).saturating_sub(of(&earlier)), seconds);
        let requests = now.requests.saturating_sub(earlier.requests);
        let hits = now.hits.saturating_sub(earlier.hits);
        table.row([
            export.name.clone(),
            count(export.connections),
            rate(|volume| volume.requests),
            percent((requests > 0).then(|| hits as f64 / requests as f64)),
            rate(|volume| volume.store_reads),
            rate(|volume| volume.demotions_in),
            count(now.errors),
        ]);
    }
    table.render()
}

/// A count since the start, or what it comes to in a second.
fn rate(n: u64, seconds: Option<f64>) -> String {
    seconds.map_or_else(
        || count(n),
        |s| format!("{}/s", count((n as f64 / s) as u64)),
    )
}

/// What each store costs, and the weights that policies draw from it.
fn stores(engines: &[EngineReport]) -> String {
    let micros =
        |micros: Option<f64>| micros.map_or("-".to_owned(), |micros| format!("{micros:.0}"));
    let mut table = Table::new([
        "store",
        "class",
        "read \u{b5}s/block",
        "99 %",
        "write \u{b5}s/block",
        "99 %",
        "dirty",
    ]);
    let volumes = engines.iter().flat_map(|report| &report.engine.volumes);
    for volume in volumes {
        table.row([
            volume.name.clone(),
            volume.class.clone(),
            micros(volume.read_micros),
            micros(volume.read_micros_p99),
            micros(volume.write_micros),
            micros(volume.write_micros_p99),
            count(volume.dirty_blocks),
        ]);
    }
    let mut text = format!("\n{}", table.render());
    for report in engines
        .iter()
        .filter(|report| !report.engine.weights.is_empty())
    {
        let weights = report.engine.weights.iter();
        let weights: Vec<_> = weights
            .map(|weight| format!("{} {:.2}", weight.class, weight.weight))
            .collect();
        text.push_str(&format!("\nweights: {}\n", weights.join(", ")));
    }
    text
}

/// The protected directories of a tree, and the table of its files.
fn add_tree(text: &mut String, tree: &TreeStatus) {
    let _ = writeln!(
        text,
        "\nfiles: {} known to the kernel, {} in the cache; their table takes {:.1} MiB",
        count(tree.known_files),
        count(tree.cached_files),
        tree.file_table_bytes as f64 / MIB,
    );
    for directory in &tree.protected {
        let _ = writeln!(text, "protected: {directory}");
    }
    for path in &tree.protected_absent {
        let _ = writeln!(text, "to be protected: {path}, where no directory is now");
    }
}

/// The feeds of agents, and the exports whose evictions are unknown.
fn add_feeds(text: &mut String, server: &ServerStatus) {
    for feed in &server.feeds {
        let agent = &feed.agent;
        let (exports, who) = (agent.volume_names(), who(agent));
        let refused = agent.refused_ranges - agent.other_disk_ranges.min(agent.refused_ranges);
        let _ = writeln!(
            text,
            "feed {exports}: {who}; evicted {} in {} ranges, {} ranges of other disks left out, {} refused, {} pages untold",
            Size::Bytes(agent.bytes),
            count(agent.ranges),
            count(agent.other_disk_ranges),
            count(refused),
            count(agent.untold_pages),
        );
        if let Some(in_place) = &feed.in_place {
            let _ = writeln!(text, "  {}", in_place_line(in_place));
        }
        if let Some(relay) = &feed.samples_to {
            let whether = if relay.connected {
                "connected"
            } else {
                "not connected"
            };
            let _ = writeln!(
                text,
                "  samples to unix:{}: {whether}; {} frames passed on, {} dropped",
                relay.path.display(),
                count(relay.frames),
                count(relay.dropped_frames),
            );
        }
    }
    let blind: Vec<_> = server
        .exports
        .iter()
        .filter(|export| export.is_blind)
        .map(|e| e.name.as_str())
        .collect();
    if !blind.is_empty() {
        let _ = writeln!(
            text,
            "blind: {}: no client or agent reports evictions above; use --feed with an agent, a client that \
             demotes, or a policy that needs neither",
            blind.join(", ")
        );
    }
}

/// Who reports on a feed, and which of its disks the exports are.
fn who(agent: &AgentStatus) -> String {
    if !agent.connected {
        return agent.last_frame_seconds.map_or_else(
            || "no agent".to_owned(),
            |seconds| format!("no agent; the last report came {seconds:.0} s ago"),
        );
    }
    if agent.source == Some(Source::Vmstat) {
        return format!(
            "agent of {}, which counts by /proc/vmstat and tells no evictions: it needs root, and Linux 6.1 or \
             later with BTF",
            agent.guest
        );
    }
    let one = |AgentVolume { name, disk, .. }: &AgentVolume| match disk.as_str() {
        "" => format!("none of whose disks is {name}"),
        disk => format!("whose disk {disk} is {name}"),
    };
    let disks: Vec<_> = agent.volumes.iter().map(one).collect();
    format!("agent of {}, {}", agent.guest, disks.join(", "))
}

/// What was read in the memory of a guest, and what a page cost.
fn in_place_line(in_place: &InPlaceReport) -> String {
    let state = match in_place.why_not.as_str() {
        _ if in_place.reading => "pages are read in the guest's memory".to_owned(),
        "" => "pages are not read in the guest's memory now".to_owned(),
        why => format!("pages are not read in the guest's memory: {why}"),
    };
    let micros = |seconds: f64, pages: u64| match pages {
        0 => "-".to_owned(),
        pages => format!("{:.1}", seconds * 1e6 / pages as f64),
    };
    format!(
        "{state}; {} pages, {} missed, {} of other disks, {} without data since it differs, {} unreadable, {} resyncs; a \
         page costs {} µs here, {} µs there",
        count(in_place.pages),
        count(in_place.missed_pages),
        count(in_place.foreign_pages),
        count(in_place.differing_pages),
        count(in_place.unreadable_pages),
        count(in_place.resyncs),
        micros(in_place.seconds, in_place.pages),
        micros(in_place.guest_seconds, in_place.guest_pages),
    )
}

fn add_row(
    table: &mut Table,
    now: &EngineReport,
    before: Option<&EngineReport>,
    seconds: Option<f64>,
) {
    let engine = &now.engine;
    let counters = before.map_or(engine.counters, |b| {
        engine.counters.since(&b.engine.counters)
    });
    let store_reads = before.map_or(0, |before| before.engine.store_reads);
    let store_reads = engine.store_reads.saturating_sub(store_reads);
    let full = engine.resident_blocks as f64 / engine.capacity_blocks.max(1) as f64;
    table.row([
        now.exports.join(","),
        engine.policy.clone(),
        percent(Some(full)),
        rate(counters.requests, seconds),
        percent(counters.hit_ratio()),
        rate(store_reads, seconds),
        dirty(engine),
        rate(counters.demotions_in, seconds),
        count(engine.demotions_refused),
        count(engine.errors),
    ]);
}

/// How much the stores do not have yet, and how much that may be.
fn dirty(engine: &EngineStatus) -> String {
    if engine.dirty_max_blocks == 0 {
        return "-".to_owned();
    }
    let (dirty, most) = (count(engine.dirty_blocks), count(engine.dirty_max_blocks));
    format!("{dirty} of {most}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use futae_host::{ExportReport, FeedReport};

    #[test]
    fn every_export_has_a_row_of_its_own() {
        let volume = |name: &str, requests, hits| VolumeStatus {
            name: name.into(),
            requests,
            hits,
            ..VolumeStatus::default()
        };
        let export = |name: &str| ExportReport {
            name: name.into(),
            ..ExportReport::default()
        };
        let server = |requests| ServerStatus {
            engines: vec![EngineReport {
                exports: vec!["a".into(), "b".into()],
                engine: EngineStatus {
                    volumes: vec![volume("a", 100, 25), volume("b", requests, 0)],
                    ..EngineStatus::default()
                },
            }],
            exports: vec![export("a"), export("b")],
            ..ServerStatus::default()
        };
        let row = |text: &str, name: &str| -> Vec<String> {
            let line = text
                .lines()
                .find(|line| line.starts_with(name))
                .expect("a row");
            line.split_whitespace().map(str::to_owned).collect()
        };
        let text = exports(&server(7), None, None);
        assert_eq!(row(&text, "a ")[..4], ["a", "0", "100", "25.0"], "{text}");
        assert_eq!(row(&text, "b ")[..3], ["b", "0", "7"], "{text}");
        let before = Status::Server(server(7));
        let text = exports(&server(27), Some(&before), Some(2.0));
        assert_eq!(row(&text, "b ")[..3], ["b", "0", "10/s"], "{text}");
    }

    /// A server that is up for so long, with caches that have these exports and so many requests.
    fn server(uptime_seconds: f64, caches: &[(&[&str], u64)]) -> Status {
        let cache = |&(names, requests): &(&[&str], u64)| {
            let mut engine = EngineStatus {
                store_reads: requests,
                ..EngineStatus::default()
            };
            engine.counters.requests = requests;
            EngineReport {
                exports: names.iter().map(|&name| name.to_owned()).collect(),
                engine,
            }
        };
        Status::Server(ServerStatus {
            uptime_seconds,
            engines: caches.iter().map(cache).collect(),
            ..ServerStatus::default()
        })
    }

    #[test]
    fn caches_that_come_and_go_do_not_mix_the_rates_of_others() {
        let before = server(1.0, &[(&["a"], 500), (&["b", "c"], 100)]);
        let text = render(&server(3.0, &[(&["b", "c", "d"], 140)]), Some(&before));
        assert!(text.contains("rates of the last 2.0 s"), "{text}");
        let row = text.lines().find(|line| line.starts_with("b,c,d"));
        assert!(row.is_some_and(|row| row.contains(" 20/s ")), "{text}");
    }

    #[test]
    fn a_program_that_was_started_again_is_counted_anew() {
        let before = server(9.0, &[(&["a"], 500)]);
        for (seconds, requests) in [(2.0, 7), (2.0, 900), (10.0, 7)] {
            let text = render(&server(seconds, &[(&["a"], requests)]), Some(&before));
            assert!(text.contains("counts since the start"), "{text}");
            assert!(text.contains(&format!(" {requests} ")), "{text}");
        }
    }

    #[test]
    fn a_name_steers_no_terminal() {
        let volume = |name: &str, disk: &str| AgentVolume {
            name: name.into(),
            disk: disk.into(),
            ..AgentVolume::default()
        };
        let agent = AgentStatus {
            connected: true,
            guest: "g\x1b[2J\nroot#".into(),
            volumes: vec![volume("disk\x1b[1m", "vda"), volume("data", "")],
            refused_ranges: 10_231,
            other_disk_ranges: 10_229,
            ..AgentStatus::default()
        };
        let feed = FeedReport {
            export: "disk\x1b[1m".into(),
            agent,
            samples_to: None,
            channel: None,
            in_place: None,
        };
        let server = ServerStatus {
            feeds: vec![feed],
            ..ServerStatus::default()
        };
        let text = render(&Status::Server(server), None);
        assert!(!text.contains('\x1b'), "{text:?}");
        let disks = ", whose disk vda is disk\u{fffd}[1m, none of whose disks is data;";
        assert!(text.contains(disks), "{text}");
        let refused = "10,229 ranges of other disks left out, 2 refused";
        assert!(text.contains(refused), "{text}");
    }
}
