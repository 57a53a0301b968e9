//! Reads real traces and compares what is in them with counts made by other means.
//!
//! The traces are not part of this repository: they are looked for where `FUTAE_TRACES` says, or
//! in `shared/traces` beside it, with a table `truth.tsv` of requests and distinct blocks.

use futae_testkit::need::{Need, skip};
use futae_trace::{
    DenseTrace, Request, RequestKind, Summarizer, Summary, TraceOptions, TraceReader, View,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn traces() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let path = std::env::var_os("FUTAE_TRACES").map_or(beside, PathBuf::from);
    if path.join("truth.tsv").is_file() {
        return Some(path);
    }
    let why = format!("no truth.tsv in {} (set FUTAE_TRACES)", path.display());
    skip(Need::Traces, &why);
    None
}

fn open(path: &Path) -> TraceReader {
    TraceReader::open(path, &TraceOptions::default()).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn requests_and_distinct_blocks_are_those_of_the_table() {
    let Some(traces) = traces() else { return };
    let table = std::fs::read_to_string(traces.join("truth.tsv")).unwrap_or_default();
    let mut expected = BTreeMap::new();
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        if let [file, _, _, requests, _, view, distinct] = fields[..] {
            expected.insert(
                (file.to_owned(), view.to_owned()),
                (requests.parse(), distinct.parse()),
            );
        }
    }
    assert!(expected.len() > 30);
    for ((file, view_name), (accesses, distinct)) in expected {
        let view = match view_name.as_str() {
            "page4k" => View::Blocks(4096),
            "block512" => View::Blocks(512),
            _ => View::Start,
        };
        let mut reader = open(&traces.join(&file));
        let trace = DenseTrace::read(&mut reader, view).unwrap_or_else(|e| panic!("{e}"));
        let found = (Ok(trace.ids().len()), Ok(trace.distinct()));
        assert_eq!(
            found,
            (accesses, distinct),
            "{file} as {}, {view_name}",
            reader.format()
        );
    }
}

#[test]
fn reads_writes_volumes_and_bytes_are_those_of_the_list() {
    let Some(traces) = traces() else { return };
    let rows = [
        (
            "cloudphysics.vscsi.zst",
            "vscsi1",
            46_974,
            66_898,
            0,
            Some(7200.1),
        ),
        ("msps-dtrs.trace.zst", "disksim", 113_123, 13_920, 1, None),
        (
            "tencent-rw_60_40.490.csv.zst",
            "flashnet",
            30_012,
            19_988,
            0,
            Some(147.0),
        ),
        (
            "tencent-cbs-sample.csv.bz2",
            "tencent",
            24_521,
            25_479,
            2038,
            None,
        ),
        ("msr-rsrch_1.csv.zst", "msr", 42, 13_738, 1, Some(576_557.6)),
        ("msr-hm_0-first1000.csv", "msr", 508, 492, 1, Some(127.2)),
        (
            "systor17-first1000.csv.gz",
            "systor",
            826,
            173,
            1,
            Some(2.4),
        ),
        (
            "ocas-ycsba-rocksdb-20200702.csv.zst",
            "csv",
            1,
            64_188,
            0,
            Some(24.7),
        ),
        (
            "mqsim-tpcc-small.trace.zst",
            "disksim",
            4381,
            2618,
            16,
            Some(0.1),
        ),
        (
            "takeoverjp-sample.blktrace.0.zst",
            "blktrace",
            963,
            0,
            1,
            Some(0.3),
        ),
        ("arc-P3.lis.zst", "arc", 238_578, 0, 0, None),
        ("lirs-multi1.trace.gz", "ids", 15_858, 0, 0, None),
    ];
    for (file, format, reads, writes, volumes, seconds) in rows {
        let mut reader = open(&traces.join(file));
        let requests: Vec<Request> = reader
            .by_ref()
            .map(|r| r.unwrap_or_else(|e| panic!("{e}")))
            .collect();
        let kinds: Vec<RequestKind> = requests.iter().map(|r| r.kind).collect();
        let times = requests.iter().filter_map(|r| r.time_us);
        if let (Some(first), Some(last), Some(seconds)) =
            (times.clone().min(), times.max(), seconds)
        {
            let span: f64 = (last - first) as f64 / 1e6;
            assert!((span - seconds).abs() < 0.06, "{file}: {span} seconds");
        }
        let written = kinds
            .iter()
            .filter(|&&kind| kind == RequestKind::Write)
            .count();
        let found = (kinds.len() - written, written, reader.volumes().len());
        assert_eq!(found, (reads, writes, volumes), "{file}");
        assert_eq!(reader.format().name(), format, "{file}");
    }
    let bytes = open(&traces.join("cloudphysics.vscsi.zst"));
    let bytes: u64 = bytes
        .filter_map(Result::ok)
        .map(|request| request.length_bytes)
        .sum();
    assert_eq!(bytes, 4_205_978_112);
}

/// A row of the list of traces: its name, and the figures that it gives.
struct Row {
    file: String,
    requests: u64,
    reads_and_writes: Option<(u64, u64)>,
    distinct: u64,
    accesses_and_pages: Option<(u64, u64)>,
    volumes: Option<u64>,
    monotonic: Option<bool>,
}

fn row(line: &str) -> Option<Row> {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let [
        _,
        file,
        bytes,
        _,
        _,
        _,
        requests,
        kinds,
        distinct,
        pages,
        _,
        span,
        ..,
    ] = cells[..]
    else {
        return None;
    };
    bytes.parse::<u64>().ok()?;
    let pair = |text: &str| {
        let (a, b) = text.split(';').next()?.split_once('/')?;
        Some((a.trim().parse().ok()?, b.trim().parse().ok()?))
    };
    let monotonic = match span.rsplit(", ").next() {
        Some("m") => Some(true),
        Some("not m") => Some(false),
        _ => None,
    };
    Some(Row {
        file: file.to_owned(),
        requests: requests.parse().ok()?,
        reads_and_writes: pair(kinds),
        distinct: distinct.trim_start_matches("start ").parse().ok()?,
        accesses_and_pages: pair(pages),
        volumes: span.split(' ').next().and_then(|n| n.parse().ok()),
        monotonic,
    })
}

fn summary(path: &Path) -> Summary {
    let mut summarizer = Summarizer::new(4096);
    for request in open(path) {
        let request = request.unwrap_or_else(|e| panic!("{e}"));
        summarizer
            .add(&request)
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
    summarizer.finish()
}

#[test]
fn figures_are_those_of_the_list() {
    let Some(traces) = traces() else { return };
    let Ok(list) = std::fs::read_to_string(traces.join("README.md")) else {
        let why = format!("no README.md in {}", traces.display());
        return skip(Need::Traces, &why);
    };
    let rows: Vec<Row> = list.lines().filter_map(row).collect();
    assert!(rows.len() > 20);
    for row in rows {
        let found = summary(&traces.join(&row.file));
        let file = &row.file;
        assert_eq!(
            (found.requests, found.distinct_starts),
            (row.requests, row.distinct),
            "{file}"
        );
        if let Some(expected) = row.reads_and_writes {
            assert_eq!((found.reads, found.writes), expected, "{file}");
        }
        if let Some(expected) = row.accesses_and_pages {
            let pages = (found.block_accesses, found.distinct_blocks);
            assert_eq!(pages, expected, "{file}");
        }
        if let Some(volumes) = row.volumes {
            assert_eq!(found.volumes, volumes, "{file}");
        }
        if let Some(monotonic) = row.monotonic {
            assert_eq!(found.monotonic, Some(monotonic), "{file}");
        }
    }
}

/// The files as Open CAS recorded them, one a queue, against a table that other means made of them.
#[test]
fn octf_as_recorded_is_its_table() {
    let Some(traces) = traces() else { return };
    let raw = open(&traces.join("ocas-20200702-octf-raw.tar.xz"));
    assert_eq!(raw.format().name(), "octf");
    let requests = |reader: TraceReader| -> Vec<(u64, u64, RequestKind, u64)> {
        let all: Vec<Request> = reader
            .map(|r| r.unwrap_or_else(|e| panic!("{e}")))
            .collect();
        let first = all.first().and_then(|request| request.time_us).unwrap_or(0);
        let of = |r: &Request| {
            let time = r.time_us.unwrap_or(0) - first;
            (r.offset_bytes, r.length_bytes, r.kind, time)
        };
        all.iter().map(of).collect()
    };
    let raw = requests(raw);
    let table = requests(open(&traces.join("ocas-ycsba-rocksdb-20200702.csv.zst")));
    assert_eq!(raw.len(), 64_189);
    let untimed = |all: &[(u64, u64, RequestKind, u64)]| -> Vec<_> {
        all.iter().map(|r| (r.0, r.1, r.2)).collect()
    };
    assert_eq!(untimed(&raw), untimed(&table));
    // The table counts from the first request in nanoseconds; here each time is cut to microseconds.
    assert!(raw.iter().zip(&table).all(|(a, b)| a.3.abs_diff(b.3) <= 1));
}
