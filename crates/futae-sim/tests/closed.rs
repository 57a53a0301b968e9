//! Guests that wait for their answers before they think and ask again.

use futae_sim::queueing::LatencyModel;
use futae_sim::run::{
    Arrivals, ClosedLoop, Order, Ordered, Reading, Requests, Think, TraceSimulation, Traces,
    ViewChoice,
};
use futae_sim::{LevelSpec, Report, SimulationError, WriteMode, links};
use futae_trace::TraceOptions;
use proptest::prelude::*;
use std::path::{Path, PathBuf};

/// A request of a trace: its time and recorded latency, in microseconds, and its block.
type Recorded = (u64, u64, u64);

const A: u64 = 1;
const B: u64 = 2;
const C: u64 = 3;
const D: u64 = 4;

/// The first guest was answered after 2 us each time, and thought for 2 us.
const FIRST: [Recorded; 5] = [(0, 2, A), (4, 2, A), (8, 2, A), (12, 2, B), (16, 2, A)];
/// The second was answered after 5 us, and thought for 3 and then for 9 us.
const SECOND: [Recorded; 3] = [(1, 5, C), (9, 5, D), (23, 5, C)];

fn write(folder: &Path, name: &str, requests: &[Recorded]) -> PathBuf {
    let line =
        |(time, latency, block): &Recorded| format!("{time},{latency},R,{},4096\n", block * 4096);
    let lines: String = requests.iter().map(line).collect();
    let path = folder.join(name);
    std::fs::write(
        &path,
        format!("time_us,latency_us,op,offset,length\n{lines}"),
    )
    .expect("a file");
    path
}

fn read(
    paths: &[PathBuf],
    order: Order,
    think: Option<Think>,
    model: &str,
) -> Result<Traces, SimulationError> {
    let model: LatencyModel = model.parse().expect("a model");
    let reading = Reading {
        options: vec![TraceOptions::default(); paths.len()],
        order,
        closed: think.map(|think| ClosedLoop { think, model }),
        ..Reading::default()
    };
    Traces::read_guests(paths, &reading, &mut |_| {})
}

fn simulation(levels: &[&str]) -> TraceSimulation {
    let levels: Vec<LevelSpec> = levels
        .iter()
        .map(|level| level.parse().expect("a level"))
        .collect();
    TraceSimulation {
        links: links(&levels, None),
        levels,
        write_mode: WriteMode::WriteThrough,
        seed: 1,
        warmup_requests: 0,
        requests: None,
    }
}

fn run(traces: &Traces, simulation: TraceSimulation) -> Result<Report, SimulationError> {
    traces.simulate(&[simulation], 4096, 1, &|_| {})
}

fn hits(report: &Report) -> Vec<u64> {
    let guests = report.runs[0].by_guest.iter();
    guests.map(|guest| guest.served[0].reads).collect()
}

/// The two guests above a common cache of two blocks.
fn two_guests(think: Option<Think>, model: &str) -> Report {
    let folder = tempfile::tempdir().expect("a directory");
    let first = write(folder.path(), "first", &FIRST);
    let paths = [first, write(folder.path(), "second", &SECOND)];
    let traces = read(&paths, Order::Recorded, think, model).expect("traces");
    let order = think.map_or(Ordered::Recorded, |_| Ordered::Closed);
    assert_eq!(traces.facts().order, Some(order));
    run(&traces, simulation(&["lru:2blocks"])).expect("a run")
}

/// Each guest's mean latency, and when it was done, in microseconds.
fn paces(report: &Report) -> Vec<(f64, f64)> {
    let us = |seconds: f64| (seconds * 1e9).round() / 1e3;
    let guests = report.runs[0].pace_by_guest.iter();
    let pace = guests.map(|guest| {
        let mean = guest.times.mean_seconds.expect("requests");
        (us(mean), us(guest.finish_seconds))
    });
    pace.collect()
}

/// A hit takes 1 us, a miss 10.
///
/// | us | who | asks | is a | until | the cache then |
/// | 0  | first  | A | miss | 10 | A |
/// | 1  | second | C | miss | 11 | C A |
/// | 12 | first, 2 after 10  | A | hit  | 13 | A C |
/// | 14 | second, 3 after 11 | D | miss | 24 | D A |
/// | 15 | first, 2 after 13  | A | hit  | 16 | A D |
/// | 18 | first, 2 after 16  | B | miss | 28 | B A |
/// | 30 | first, 2 after 28  | A | hit  | 31 | A B |
/// | 33 | second, 9 after 24 | C | miss | 43 | C A |
///
/// In the order of the recording, D comes before B, which then evicts A, and the first guest's last
/// request is a miss.
#[test]
fn two_guests_by_hand() {
    let report = two_guests(Some(Think::Recorded), "upper=1us,store=10us");
    assert_eq!(hits(&report), [3, 0]);
    let first = (10.0 + 1.0 + 1.0 + 10.0 + 1.0) / 5.0;
    assert_eq!(paces(&report), [(first, 31.0), (10.0, 43.0)]);
    let pace = &report.runs[0].pace_by_guest;
    let near = |rate: Option<f64>, wanted: f64| (rate.expect("a rate") / wanted - 1.0).abs() < 1e-9;
    assert!(near(pace[0].requests_per_second, 5.0 / 31e-6));
    assert!(near(pace[1].requests_per_second, 3.0 / 42e-6));
    let open = two_guests(None, "upper=1us,store=10us");
    assert_eq!(hits(&open), [2, 0]);
}

/// The same above a store that reads one block at a time.
///
/// | us | who | asks | is a | until | the cache then |
/// | 0  | first  | A | miss | 10 | A |
/// | 1  | second | C | miss, waits until 10 | 20 | C A |
/// | 12 | first  | A | hit  | 13 | A C |
/// | 15 | first  | A | hit  | 16 | A C |
/// | 18 | first  | B | miss, waits until 20 | 30 | B A |
/// | 23 | second, 3 after 20 | D | miss, waits until 30 | 40 | D B |
/// | 32 | first, 2 after 30  | A | miss, waits until 40 | 50 | A D |
/// | 49 | second, 9 after 40 | C | miss, waits until 50 | 60 | C A |
#[test]
fn answers_that_wait_for_the_store_delay_who_asks_next() {
    let report = two_guests(Some(Think::Recorded), "upper=1us,store=10us*1");
    assert_eq!(hits(&report), [2, 0]);
    let mean = |all: &[f64]| {
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        (mean * 1e3).round() / 1e3
    };
    let first = mean(&[10.0, 1.0, 1.0, 12.0, 18.0]);
    let second = mean(&[19.0, 17.0, 11.0]);
    assert_eq!(paces(&report), [(first, 50.0), (second, 60.0)]);
    let latencies = report.runs[0].latencies.as_ref().expect("latencies");
    assert_eq!(
        (latencies.arrivals, latencies.all.requests),
        ("thinking", 8)
    );
}

/// The first guest asks at 0, 10, 11, 12 and 22, the second at 1, 11 and 21; at 11 the first comes first.
#[test]
fn guests_that_do_not_think_ask_with_each_answer() {
    let report = two_guests(Some(Think::Fixed(0)), "upper=1us,store=10us");
    assert_eq!(hits(&report), [2, 0]);
    let first = (10.0 + 1.0 + 1.0 + 10.0 + 10.0) / 5.0;
    assert_eq!(paces(&report), [(first, 32.0), (10.0, 31.0)]);
}

/// A request of two blocks is answered with its second; one that was sent before the answer to the
/// last one, follows it at once.
#[test]
fn a_request_of_several_blocks_is_answered_with_its_last() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("long");
    let text = "time_us,latency_us,op,offset,length\n0,5,R,0,8192\n3,5,R,8192,4096\n10,,R,0,4096\n";
    std::fs::write(&path, text).expect("a file");
    let think = Some(Think::Recorded);
    let traces = read(&[path], Order::Usual, think, "store=10us*1").expect("a trace");
    let report = run(&traces, simulation(&["lru:9blocks"])).expect("a run");
    // At 0 until 20; at 20 until 30; 2 us after, a hit that takes no time.
    assert_eq!(paces(&report), [(10.0, 32.0)]);
    assert_eq!(report.runs[0].pace_by_guest[0].overlapped_requests, 1);
    let counted = TraceSimulation {
        warmup_requests: 2,
        requests: Some(1),
        ..simulation(&["lru:9blocks"])
    };
    let report = run(&traces, counted).expect("a run");
    assert_eq!(paces(&report), [(10.0, 30.0)]);
    assert_eq!(report.runs[0].pace_by_guest[0].overlapped_requests, 1);
    assert_eq!(
        (report.runs[0].requests, report.runs[0].warmup_requests),
        (1, 2)
    );
    let counted = TraceSimulation {
        warmup_requests: 3,
        ..simulation(&["lru:9blocks"])
    };
    let report = run(&traces, counted).expect("a run");
    assert_eq!(report.runs[0].pace_by_guest[0].overlapped_requests, 0);
}

#[test]
fn times_that_no_clock_of_nanoseconds_counts_are_refused() {
    let folder = tempfile::tempdir().expect("a directory");
    let last = u64::MAX;
    // What only recorded think times need, and what the beginnings of two guests need.
    let wide = write(folder.path(), "wide", &[(0, 5, A), (1 << 60, 5, B)]);
    let near = write(folder.path(), "near", &[(0, 5, A), (9, 5, B)]);
    let late = write(folder.path(), "late", &[(last, 5, A), (last, 5, B)]);
    let recorded = Some(Think::Recorded);
    let fixed = Some(Think::Fixed(1_000_000));
    let model = "upper=1us,store=10us*1";
    for (paths, order, think, is_good) in [
        (vec![wide.clone()], Order::Usual, recorded, false),
        (vec![wide], Order::Usual, fixed, true),
        (vec![late.clone()], Order::Usual, recorded, true),
        (
            vec![near.clone(), late.clone()],
            Order::Recorded,
            fixed,
            false,
        ),
        (vec![near, late], Order::Together, recorded, true),
    ] {
        match read(&paths, order, think, model) {
            Ok(traces) => {
                assert!(is_good, "{paths:?}");
                run(&traces, simulation(&["lru:2blocks"])).expect("a run");
            }
            Err(error) => {
                assert!(!is_good, "{paths:?}: {error}");
                assert!(error.to_string().contains("292 years"), "{error}");
            }
        }
    }
}

#[test]
fn what_has_no_closed_loop_is_said() {
    let folder = tempfile::tempdir().expect("a directory");
    let timed = write(folder.path(), "timed", &FIRST);
    let untimed = folder.path().join("untimed.ids");
    std::fs::write(&untimed, "1\n2\n").expect("a file");
    let both = [timed, untimed];
    let error = |traces: Result<Traces, SimulationError>| {
        let error = traces.err().map(|error| error.to_string());
        error.expect("an error")
    };
    let recorded = Some(Think::Recorded);
    let missing = error(read(&both, Order::Usual, recorded, "store=1us"));
    assert!(missing.contains("untimed.ids has no times"), "{missing}");
    let turns = error(read(&both, Order::Turns, recorded, "store=1us"));
    assert!(turns.contains("turns"), "{turns}");
    let traces = read(&both, Order::Usual, Some(Think::Fixed(500)), "store=1us").expect("traces");
    assert_eq!(traces.facts().order, Some(Ordered::ClosedTogether));
    let opt = run(&traces, simulation(&["opt:2blocks"])).map(|_| ());
    assert!(opt.is_err_and(|error| error.to_string().contains("leave out opt")));
    let report = run(&traces, simulation(&["lru:9blocks"])).expect("a run");
    // Two misses, and 0.5 us of thought between them.
    assert_eq!(paces(&report)[1], (1.0, 2.5));
    for bad in ["", "5", "soon", "-1us"] {
        assert!(bad.parse::<Think>().is_err(), "{bad}");
    }
    assert_eq!("5ms".parse(), Ok(Think::Fixed(5_000_000)));
}

/// Requests of a guest: pauses after the answers, in microseconds, and blocks.
fn guest() -> impl Strategy<Value = Vec<(u64, u64)>> {
    proptest::collection::vec((0u64..30, 0u64..12), 1..60)
}

/// Requests that were answered after `latency`.
fn recorded(requests: &[(u64, u64)], latency: u64) -> Vec<Recorded> {
    let mut now = 0;
    let request = |&(pause, block): &(u64, u64)| {
        now += pause + latency;
        (now, latency, block)
    };
    requests.iter().map(request).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// If every answer takes as long as it did in the recording, guests ask when they did.
    #[test]
    fn with_the_recorded_latency_the_order_is_the_recorded_one(
        guests in proptest::collection::vec(guest(), 1..4),
        latency in 0u64..20,
    ) {
        let folder = tempfile::tempdir().expect("a directory");
        let paths: Vec<PathBuf> = (guests.iter().enumerate())
            .map(|(at, requests)| write(folder.path(), &at.to_string(), &recorded(requests, latency)))
            .collect();
        let model = format!("upper={latency}us,store={latency}us");
        let levels = simulation(&["lru:5blocks"]);
        let open = read(&paths, Order::Recorded, None, &model).expect("traces");
        let open = run(&open, levels.clone()).expect("a run");
        let closed = read(&paths, Order::Recorded, Some(Think::Recorded), &model).expect("traces");
        let closed = run(&closed, levels).expect("a run");
        prop_assert_eq!(hits(&open), hits(&closed));
        let (open, closed) = (&open.runs[0], &closed.runs[0]);
        prop_assert_eq!(&open.levels[0].counters, &closed.levels[0].counters);
        let counted: u64 = closed.pace_by_guest.iter().map(|guest| guest.times.requests).sum();
        prop_assert_eq!(counted, closed.requests);
    }

    /// Alone, a guest hits what it hits in the open loop, however long answers take; and two runs
    /// are the same.
    #[test]
    fn a_guest_alone_hits_the_same(requests in guest(), seed in 0u64..100) {
        let folder = tempfile::tempdir().expect("a directory");
        let paths = [write(folder.path(), "alone", &recorded(&requests, 7))];
        let model = "upper=exp(1us),lower=3us,link=2us*1,store=exp(50us)*1";
        let levels = || TraceSimulation { seed, ..simulation(&["lru:3blocks", "exclusive:4blocks"]) };
        let open = read(&paths, Order::Usual, None, model).expect("a trace");
        let closed = read(&paths, Order::Usual, Some(Think::Recorded), model).expect("a trace");
        let open = run(&open, levels()).expect("a run");
        let first = run(&closed, levels()).expect("a run");
        let second = run(&closed, levels()).expect("a run");
        prop_assert_eq!(&open.runs[0].served, &first.runs[0].served);
        prop_assert_eq!(&open.trace_digest, &first.trace_digest);
        prop_assert_eq!(paces(&first), paces(&second));
    }
}

/// Times beyond what is counted would be cut short: such a model is refused, and no figure comes of it.
#[test]
fn times_that_cannot_be_counted_are_refused() {
    const AGES: &str = "999999999999s";
    let folder = tempfile::tempdir().expect("a folder");
    let path = [write(folder.path(), "first", &FIRST)];
    let of = |think: &str, model: &str| -> Result<Report, SimulationError> {
        let think = think.parse().expect("a think time");
        let traces = read(&path, Order::Usual, Some(think), model)?;
        traces.simulate(&[simulation(&["lru:1blocks"])], 4096, 1, &|_| {})
    };
    let years = "upper=1us,store=1000000000s";
    assert!(of("0", years).is_ok(), "95 years are counted");
    for (think, model) in [
        ("0", format!("store={AGES}")),
        (AGES, "store=1us".to_owned()),
        ("5000000000s", years.to_owned()),
    ] {
        let error = of(think, &model).map(|_| ()).expect_err(&model);
        assert!(error.to_string().contains("584 years"), "{error}");
    }

    let traces = Traces::read(
        &path,
        &TraceOptions::default(),
        ViewChoice::Usual,
        &mut |_| {},
    );
    let traces = traces.expect("a trace");
    let queued = |model: &str| {
        let spec = simulation(&["lru:1blocks"]);
        let model: LatencyModel = model.parse().expect("a model");
        let asked = (&model, Arrivals::Clients(1));
        Requests::Traces(&traces).queued(&spec, 4096, (1, 4), asked, &mut |_| {})
    };
    assert!(queued("store=1us*1").is_ok());
    let error = queued(&format!("store=exp({AGES})*1"));
    let error = error.map(|_| ()).expect_err("it takes ages").to_string();
    assert!(error.contains("--latency"), "{error}");
}
