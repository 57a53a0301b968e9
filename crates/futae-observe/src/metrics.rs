//! A snapshot as OpenMetrics text.

use crate::metric::{Durations, Kind, Metric, Value};
use crate::of_cache::{CACHE, DURATIONS, EXPORT, TREE_DURATIONS};
use crate::of_program::{AGENT, AGENT_DISK, PROGRAM, SERVER};
use crate::snapshot::Snapshot;
use futae_agent_protocol::printable;
use futae_engine::LATENCY_STEPS_MICROS;
use futae_host::FeedReport;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt::{self, Write as _};

/// The type of what [`metrics`] writes, for HTTP.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Labels of one series.
type Labels = Vec<(&'static str, String)>;

/// All metrics of a server or a mount as OpenMetrics text.
#[must_use]
pub fn metrics(snapshot: Snapshot) -> String {
    let mut registry = Registry::with_prefix("futae");
    registry.register_collector(Box::new(Collected(snapshot)));
    let mut written = String::new();
    // A String takes everything.
    let _ = text::encode(&mut written, &registry);
    written
}

#[derive(Debug)]
struct Collected(Snapshot);

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let snapshot = &self.0;
        let level = || ("level", snapshot.level.name().to_owned());
        let mut build =
            encoder.encode_descriptor("build", "The version", None, MetricType::Info)?;
        build.encode_info(&vec![level(), ("version", snapshot.version.clone())])?;
        encode(&mut encoder, PROGRAM, &[(vec![level()], snapshot)])?;
        let server: Vec<_> = snapshot
            .server
            .iter()
            .map(|server| (vec![level()], server))
            .collect();
        encode(&mut encoder, SERVER, &server)?;

        let caches = snapshot.engines.iter().map(|cache| {
            let policy = ("policy", clean(&cache.engine.policy));
            (
                vec![level(), ("cache", clean(Snapshot::name_of(cache))), policy],
                cache,
            )
        });
        let caches: Vec<_> = caches.collect();
        encode(&mut encoder, CACHE, &caches)?;
        encode_durations(&mut encoder, TREE_DURATIONS, &caches)?;
        let volumes = snapshot.volumes();
        let volumes = volumes.iter().map(|one| {
            let export = ("export", clean(&one.volume.name));
            let class = ("class", clean(&one.volume.class));
            (
                vec![level(), ("cache", clean(&one.cache)), export, class],
                one,
            )
        });
        let volumes: Vec<_> = volumes.collect();
        encode(&mut encoder, EXPORT, &volumes)?;
        encode_durations(&mut encoder, DURATIONS, &volumes)?;
        let feeds = snapshot.server.iter().flat_map(|server| &server.feeds);
        let labels = |feed: &FeedReport, export: &str| {
            let guest = ("guest", clean(&feed.agent.guest));
            vec![level(), ("export", clean(export)), guest]
        };
        let agents = feeds.clone();
        let agents = agents.map(|feed| (labels(feed, &feed.export), feed));
        encode(&mut encoder, AGENT, &agents.collect::<Vec<_>>())?;
        let disks = feeds.flat_map(|feed| feed.agent.volumes.iter().map(move |it| (feed, it)));
        let disks = disks.map(|(feed, it)| (labels(feed, &it.name), it));
        encode(&mut encoder, AGENT_DISK, &disks.collect::<Vec<_>>())
    }
}

/// A name that may be a client's or a guest's choice.
fn clean(name: &str) -> String {
    printable(name)
}

/// Every metric of one kind of thing, with the series of all these things. What nothing has is left out.
fn encode<T: ?Sized>(
    encoder: &mut DescriptorEncoder<'_>,
    metrics: &[Metric<T>],
    things: &[(Labels, &T)],
) -> Result<(), fmt::Error> {
    for metric in metrics {
        let values = things
            .iter()
            .map(|(labels, thing)| (labels, (metric.value)(thing)));
        let known: Vec<_> = values
            .filter(|(_, value)| *value != Value::Unknown)
            .collect();
        if known.is_empty() {
            continue;
        }
        let kind = match metric.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
        };
        let mut family = encoder.encode_descriptor(metric.name, metric.help, None, kind)?;
        for (labels, value) in known {
            let series = family.encode_family(labels)?;
            match (metric.kind, value) {
                (_, Value::Unknown) => {}
                (Kind::Counter, Value::Whole(count)) => ConstCounter::new(count).encode(series)?,
                (Kind::Counter, Value::Real(count)) => ConstCounter::new(count).encode(series)?,
                (Kind::Gauge, Value::Whole(level)) => ConstGauge::new(level).encode(series)?,
                (Kind::Gauge, Value::Real(level)) => ConstGauge::new(level).encode(series)?,
            }
        }
    }
    Ok(())
}

/// Every histogram of one kind of thing: a series for each operation of each of these things.
fn encode_durations<T: ?Sized>(
    encoder: &mut DescriptorEncoder<'_>,
    metrics: &[Durations<T>],
    things: &[(Labels, &T)],
) -> Result<(), fmt::Error> {
    let ends = LATENCY_STEPS_MICROS.map(|micros| micros as f64 / 1e6);
    // The last step has no end.
    let ends: Vec<f64> = ends.into_iter().chain([f64::INFINITY]).collect();
    for metric in metrics {
        if things
            .iter()
            .all(|(_, thing)| (metric.value)(thing).is_empty())
        {
            continue;
        }
        let kind = MetricType::Histogram;
        let mut family = encoder.encode_descriptor(metric.name, metric.help, None, kind)?;
        for (labels, thing) in things {
            for latency in (metric.value)(thing) {
                let mut labels = labels.clone();
                labels.push(("operation", clean(&latency.operation)));
                let counts = latency.counts.iter().copied();
                let buckets: Vec<_> = ends.iter().copied().zip(counts).collect();
                let mut series = family.encode_family(&labels)?;
                series.encode_histogram::<NoLabelSet>(
                    latency.seconds,
                    latency.count(),
                    &buckets,
                    None,
                )?;
            }
        }
    }
    Ok(())
}

/// Every metric as a page of Markdown, without a heading.
#[must_use]
pub fn reference() -> String {
    let mut page = String::from(
        "## The program\n\nLabels: `level` (`lower` for a server, `upper` for a mount).\n\n\
         | name | kind | meaning |\n| --- | --- | --- |\n\
         | `futae_build_info` | info | 1; the label `version` has the version |\n",
    );
    rows(&mut page, PROGRAM);
    let head = |page: &mut String, title: &str, labels: &str| {
        let _ = write!(
            page,
            "\n## {title}\n\nLabels: {labels}.\n\n| name | kind | meaning |\n| --- | --- | --- |\n"
        );
    };
    head(&mut page, "A server", "`level`");
    rows(&mut page, SERVER);
    let cache = "`cache` (the only export of the cache, or `common` if it has several; so adding an export can change the label)";
    head(&mut page, "A cache", &format!("`level`, {cache}, `policy`"));
    rows(&mut page, CACHE);
    let class = "`class` (of the store: `local`, `remote` or a name)";
    head(
        &mut page,
        "An export, or a file of a mount",
        &format!("`level`, `cache`, `export`, {class}"),
    );
    rows(&mut page, EXPORT);
    let by_operation = "`operation` (`read`, `write`, `flush`, `trim`, `zero`, `other`)";
    head(
        &mut page,
        "Durations, by export or by file of a mount",
        &format!("`level`, `cache`, `export`, {class}, {by_operation}"),
    );
    duration_rows(&mut page, DURATIONS);
    head(
        &mut page,
        "Durations, of all files of a tree together",
        &format!("`level`, {cache}, `policy`, {by_operation}"),
    );
    duration_rows(&mut page, TREE_DURATIONS);
    head(
        &mut page,
        "The agent in a guest",
        "`level`, `export` (the first of the feed), `guest` (the name that the agent gives)",
    );
    rows(&mut page, AGENT);
    head(
        &mut page,
        "A disk of the agent's guest",
        "`level`, `export`, `guest`",
    );
    rows(&mut page, AGENT_DISK);
    page
}

fn duration_rows<T: ?Sized>(page: &mut String, metrics: &[Durations<T>]) {
    for metric in metrics {
        // A String takes everything.
        let _ = writeln!(
            page,
            "| `futae_{}` | histogram | {} |",
            metric.name, metric.help
        );
    }
}

fn rows<T: ?Sized>(page: &mut String, metrics: &[Metric<T>]) {
    for metric in metrics {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        // A String takes everything.
        let _ = writeln!(
            page,
            "| `{}` | {kind} | {} |",
            metric.full_name(),
            metric.help
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futae_control::EngineReport;
    use futae_engine::{Asked, EngineStatus, Latencies, VolumeStatus};
    use futae_host::{AgentStatus, AgentVolume, ExportReport, ServerStatus};
    use std::time::Duration;

    fn server() -> ServerStatus {
        let volume = |name: &str| VolumeStatus {
            name: name.to_owned(),
            class: "local".to_owned(),
            size_bytes: 1 << 20,
            hits: 5,
            read_micros: Some(250.0),
            ..VolumeStatus::default()
        };
        let cache = |exports: &[&str]| EngineReport {
            exports: exports.iter().map(|&name| name.to_owned()).collect(),
            engine: EngineStatus {
                policy: "lru".to_owned(),
                block_bytes: 4096,
                capacity_blocks: 10,
                volumes: exports.iter().map(|name| volume(name)).collect(),
                ..EngineStatus::default()
            },
        };
        let export = |name: &str| ExportReport {
            name: name.to_owned(),
            connections: 3,
            ..ExportReport::default()
        };
        let volume = |name: &str, bytes| AgentVolume {
            name: name.to_owned(),
            bytes,
            ..AgentVolume::default()
        };
        let agent = AgentStatus {
            guest: "g\"\n\u{1b}[2J".to_owned(),
            volumes: vec![volume("a", 4096), volume("b", 8192)],
            ..AgentStatus::default()
        };
        ServerStatus {
            version: "1.2".to_owned(),
            engines: vec![cache(&["a"]), cache(&["b", "c"])],
            exports: vec![export("a"), export("b"), export("c")],
            feeds: vec![FeedReport {
                export: "a".to_owned(),
                agent,
                samples_to: None,
                channel: None,
                in_place: Some(futae_host::InPlaceReport::default()),
            }],
            ..ServerStatus::default()
        }
    }

    #[test]
    fn what_is_counted_has_a_series_with_its_labels() {
        let text = metrics(Snapshot::of_server(server()));
        for line in [
            "futae_build_info{level=\"lower\",version=\"1.2\"} 1",
            "# TYPE futae_cache_capacity_bytes gauge",
            "futae_cache_capacity_bytes{level=\"lower\",cache=\"a\",policy=\"lru\"} 40960",
            "futae_cache_capacity_bytes{level=\"lower\",cache=\"common\",policy=\"lru\"} 40960",
            "futae_export_hits_total{level=\"lower\",cache=\"common\",export=\"c\",class=\"local\"} 5",
            "futae_export_store_read_seconds{level=\"lower\",cache=\"a\",export=\"a\",class=\"local\"} 0.00025",
            "futae_export_connections{level=\"lower\",cache=\"a\",export=\"a\",class=\"local\"} 3",
            "futae_agent_evicted_bytes_total{level=\"lower\",export=\"a\",guest=\"g\\\"\u{fffd}\u{fffd}[2J\"} 4096",
            "futae_agent_evicted_bytes_total{level=\"lower\",export=\"b\",guest=\"g\\\"\u{fffd}\u{fffd}[2J\"} 8192",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
        assert!(
            text.ends_with("# EOF\n") && !text.contains("write_seconds"),
            "{text}"
        );
        let guest = text
            .lines()
            .find(|line| line.starts_with("futae_agent_connected"));
        let guest = guest.expect("a series of the agent");
        assert!(
            guest.contains("guest=\"g\\\"") && !guest.contains('\u{1b}'),
            "{guest}"
        );
    }

    #[test]
    fn a_histogram_counts_up_to_each_of_its_ends() {
        let latencies = Latencies::default();
        for micros in [1, 7, 8, 70_000, 60_000_000] {
            latencies.note(Asked::Read, Duration::from_micros(micros));
        }
        let mut server = server();
        server.engines[0].engine.volumes[0].latencies = latencies.report();
        let text = metrics(Snapshot::of_server(server));
        let labels = "level=\"lower\",cache=\"a\",export=\"a\",class=\"local\",operation=\"read\"";
        let name = "futae_export_request_duration_seconds";
        assert!(
            text.contains(&format!("# TYPE {name} histogram\n")),
            "{text}"
        );
        let value = |end: &str, le: &str| {
            let start = format!("{name}_{end}{{{le}{labels}}} ");
            let start_after = format!("{name}_{end}{{{labels}{}}} ", le.trim_end_matches(','));
            let found = text.lines().find_map(|line| {
                line.strip_prefix(&start)
                    .or_else(|| line.strip_prefix(&start_after))
            });
            found
                .unwrap_or_else(|| panic!("{start}\n{text}"))
                .to_owned()
        };
        for (le, count) in [
            ("0.000001", "1"),
            ("0.00001", "3"),
            ("0.1", "4"),
            ("10.0", "4"),
            ("+Inf", "5"),
        ] {
            assert_eq!(value("bucket", &format!("le=\"{le}\",")), count, "{le}");
        }
        assert_eq!(
            (&*value("count", ""), &*value("sum", "")),
            ("5", "60.070016")
        );
        assert_eq!(text.matches(&format!("{name}_bucket")).count(), 23);
    }

    #[test]
    fn the_reference_has_every_name_and_no_other() {
        let mut server = server();
        for volume in server
            .engines
            .iter_mut()
            .flat_map(|cache| &mut cache.engine.volumes)
        {
            (volume.read_micros_p99, volume.write_micros) = (Some(1.0), Some(1.0));
            volume.write_micros_p99 = Some(1.0);
            let latencies = Latencies::default();
            latencies.note(Asked::Write, Duration::from_micros(7));
            (volume.latencies, volume.store_latencies) = (latencies.report(), latencies.report());
        }
        // A server has no tree; a mount's metrics have the same form.
        let latencies = server.engines[0].engine.volumes[0].latencies.clone();
        let engine = &mut server.engines[0].engine;
        (engine.tree_latencies, engine.tree_store_latencies) = (latencies.clone(), latencies);
        server.feeds[0].agent.last_frame_seconds = Some(1.0);
        let rates = &mut server.exports[0].rates;
        (rates.iops_limit, rates.bandwidth_limit_bytes) = (Some(1), Some(4096));
        rates.weight = Some(2);
        let text = metrics(Snapshot::of_server(server));
        let series = text.lines().filter(|line| !line.starts_with('#'));
        let mut written: Vec<_> = series
            .filter_map(|line| line.split(['{', ' ']).next())
            .map(|name| {
                let parts = ["_bucket", "_sum", "_count"];
                let of_histogram = parts.iter().find_map(|end| name.strip_suffix(end));
                of_histogram
                    .filter(|name| name.ends_with("_duration_seconds"))
                    .unwrap_or(name)
            })
            .collect();
        written.sort_unstable();
        written.dedup();
        let page = reference();
        let named = page
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let mut named: Vec<_> = named.collect();
        named.sort_unstable();
        let count = named.len();
        named.dedup();
        assert_eq!(
            (written, count),
            (named.clone(), named.len()),
            "a name stands twice"
        );
    }

    #[test]
    fn names_say_their_units_as_openmetrics_does() {
        let page = reference();
        for line in page.lines().filter(|line| line.starts_with("| `futae_")) {
            let name = line.split('`').nth(1).unwrap_or_default();
            let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(name.chars().all(legal), "{name}");
            assert_eq!(
                name.ends_with("_total"),
                line.contains("| counter |"),
                "{line}"
            );
            let says_size =
                line.contains("| Size") || line.contains("| Data") || line.contains("| Memory");
            let says_time = line.contains("| Time");
            let has = |unit: &str| name.trim_end_matches("_total").ends_with(unit);
            assert!(!says_size || has("_bytes"), "{line}");
            assert!(!says_time || has("_seconds"), "{line}");
        }
    }
}
