//! Several guests with traces: their order, their sizes, and what comes of each.

use futae_sim::run::{Order, Ordered, Reading, Requests, TraceSimulation, Traces, simulate_guests};
use futae_sim::{LevelSpec, SimulationError, SimulationSpec, WriteMode, links};
use futae_trace::{Doubt, TraceOptions};
use std::path::PathBuf;

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    /// A trace of reads of these blocks, each with its second.
    fn write(&self, name: &str, requests: impl IntoIterator<Item = (u64, u64)>) -> PathBuf {
        let lines = requests
            .into_iter()
            .map(|(second, block)| format!("{second},R,{},4096\n", block * 4096));
        let path = self.0.path().join(name);
        let text = format!("time,op,offset,length\n{}", lines.collect::<String>());
        std::fs::write(&path, text).expect("a file");
        path
    }
}

fn read(paths: &[PathBuf], order: Order) -> Result<Traces, SimulationError> {
    let reading = Reading {
        options: vec![TraceOptions::default(); paths.len()],
        order,
        keep_times: true,
        ..Reading::default()
    };
    Traces::read_guests(paths, &reading, &mut |_| {})
}

fn simulation(levels: &[&str], warmup_requests: u64) -> TraceSimulation {
    let levels: Vec<LevelSpec> = levels
        .iter()
        .map(|level| level.parse().expect("a level"))
        .collect();
    TraceSimulation {
        links: links(&levels, None),
        levels,
        write_mode: WriteMode::WriteThrough,
        seed: 1,
        warmup_requests,
        requests: None,
    }
}

/// One guest's blocks come back while the other is silent, so that the order decides what hits.
#[test]
fn the_order_of_time_decides_what_hits() {
    let files = Files::new();
    let first = files.write("first.csv", [(0, 1), (1, 1), (2, 1), (9, 2)]);
    let second = files.write("second.csv", [(5, 7), (6, 7), (7, 7), (8, 8)]);
    let paths = [first, second];
    let of = |order| {
        let traces = read(&paths, order).expect("traces");
        let report = traces
            .simulate(&[simulation(&["lru:1blocks"], 0)], 4096, 1, &|_| {})
            .expect("a run");
        (
            traces.facts().order,
            report.runs[0].levels[0].counters.hits,
            report,
        )
    };
    let (order, hits, report) = of(Order::Usual);
    assert_eq!((order, hits), (Some(Ordered::Recorded), 4));
    let run = &report.runs[0];
    let each: Vec<_> = run
        .by_guest
        .iter()
        .map(|guest| (guest.requests, guest.served[0].reads))
        .collect();
    assert_eq!(each, [(4, 2), (4, 2)]);
    assert!(run.by_guest[1].source.ends_with("second.csv"));
    assert_eq!(run.by_guest[0].combined_hit_ratio, Some(0.5));
    let (order, hits, _) = of(Order::Turns);
    assert_eq!((order, hits), (Some(Ordered::Turns), 0));
    let (order, hits, _) = of(Order::Together);
    assert_eq!((order, hits), (Some(Ordered::Together), 0));
}

#[test]
fn traces_of_different_times_begin_together_and_say_so() {
    let files = Files::new();
    let early = files.write("early.csv", [(0, 1), (3, 1)]);
    let late = files.write("late.csv", [(1000, 5), (1001, 5)]);
    let traces = read(&[early.clone(), late.clone()], Order::Usual).expect("traces");
    assert_eq!(traces.facts().order, Some(Ordered::Together));
    assert_eq!(traces.facts().doubts, [Doubt::TimesApart]);
    assert_eq!(
        (traces.accesses_before(1_000_000), traces.span_us()),
        (Some(2), Some(3_000_000))
    );
    let recorded = read(&[early.clone(), late], Order::Recorded).expect("traces");
    assert_eq!(recorded.facts().doubts, []);
    assert_eq!(
        (recorded.accesses_before(1_000_000_000), recorded.span_us()),
        (Some(2), Some(1_001_000_000))
    );
    let untimed = files.0.path().join("untimed.ids");
    std::fs::write(&untimed, "1\n2\n").expect("a file");
    let both = [early, untimed];
    assert_eq!(
        read(&both, Order::Usual).expect("traces").facts().doubts,
        [Doubt::TimesMissing]
    );
    let error = read(&both, Order::Together).err().map(|e| e.to_string());
    assert!(error.is_some_and(|e| e.contains("untimed.ids has no times")));
}

/// The counts of guests come to those of all, in every machine, and each guest's own level is as it is alone.
#[test]
fn guests_come_to_the_whole_and_have_sizes_of_their_own() {
    let files = Files::new();
    let walk = |step: u64| (0..4000).map(move |at| (at / 2, at * at % step));
    let paths = [
        files.write("a.csv", walk(211)),
        files.write("b.csv", walk(307)),
        files.write("c.csv", walk(59)),
    ];
    let traces = read(&paths, Order::Recorded).expect("traces");
    let all = [
        simulation(&["lru:40blocks"], 1000),
        simulation(
            &["lru:10blocks/20blocks/5blocks", "exclusive:50blocks"],
            1000,
        ),
        simulation(&["lru:10blocks/20blocks/5blocks", "arc:50blocks"], 0),
    ];
    for simulation in all {
        let report = traces
            .simulate(std::slice::from_ref(&simulation), 4096, 1, &|_| {})
            .expect("a run");
        let run = &report.runs[0];
        let what = format!("{:?}", simulation.levels);
        assert_eq!(run.by_guest.len(), 3, "{what}");
        for (at, served) in run.served.iter().enumerate() {
            let sum: u64 = run
                .by_guest
                .iter()
                .map(|guest| guest.served[at].reads)
                .sum();
            assert_eq!(sum, served.reads, "{what}");
            let bytes: u64 = run
                .by_guest
                .iter()
                .map(|guest| guest.served[at].bytes)
                .sum();
            assert_eq!(bytes, served.bytes, "{what}");
        }
        if simulation.levels.len() == 1 || simulation.warmup_requests > 0 {
            continue;
        }
        let level = &run.levels[0];
        assert_eq!((level.capacity_blocks, level.all_copies_blocks), (20, 35));
        for (guest, blocks) in run.by_guest.iter().zip([10, 20, 5]) {
            assert_eq!(guest.capacities_blocks, [blocks]);
            let alone = read(
                &paths[guest.guest as usize..=guest.guest as usize],
                Order::Usual,
            )
            .expect("a trace");
            let level = format!("lru:{blocks}blocks");
            let alone = alone
                .simulate(&[self::simulation(&[level.as_str()], 0)], 4096, 1, &|_| {})
                .expect("a run");
            assert_eq!(
                guest.served[0].reads, alone.runs[0].served[0].reads,
                "{what}"
            );
        }
    }
}

#[test]
fn sizes_that_fit_no_guest_are_refused() {
    let files = Files::new();
    let paths = [
        files.write("a.csv", [(0, 1)]),
        files.write("b.csv", [(0, 1)]),
    ];
    let traces = read(&paths, Order::Usual).expect("traces");
    for levels in [
        &["lru:1blocks/2blocks/3blocks", "lru:2blocks"][..],
        &["lru:1blocks/2blocks"][..],
    ] {
        let error = traces
            .simulate(&[simulation(levels, 0)], 4096, 1, &|_| {})
            .err();
        assert!(
            error.is_some_and(|e| e.to_string().contains("one for each")),
            "{levels:?}"
        );
    }
    assert!("lru:1block/".parse::<LevelSpec>().is_err());
    let level: LevelSpec = "lru:1GiB/2GiB".parse().expect("a level");
    assert_eq!(level.to_string(), "lru:1GiB/2GiB");
}

#[test]
fn workloads_have_results_by_guest_and_windows_by_time_come_to_the_run() {
    let spec = SimulationSpec {
        levels: vec![
            "lru:20blocks".parse().expect("a level"),
            "lru:60blocks".parse().expect("a level"),
        ],
        links: vec![futae_sim::Link::None],
        write_mode: WriteMode::WriteThrough,
        guests: 2,
        workload: "zipf(1.0):100blocks".parse().expect("a workload"),
        block_bytes: 4096,
        seed: 3,
        warmup_requests: Some(100),
        requests: Some(3000),
    };
    let workloads = [
        spec.workload.clone(),
        "loop:50blocks".parse().expect("a workload"),
    ];
    let report = simulate_guests(&[spec], &workloads, 1, &|_| {}).expect("a run");
    let guests = &report.runs[0].by_guest;
    assert_eq!(guests.iter().map(|guest| guest.requests).sum::<u64>(), 3000);
    assert_eq!(guests[1].source, "loop:50blocks");
    assert_eq!(
        guests[1].served[0].reads, 0,
        "a loop over more than fits hits nothing in an LRU cache"
    );

    let files = Files::new();
    let path = files.write("a.csv", (0..600).map(|at| (at, at * at % 97)));
    let traces = read(&[path], Order::Usual).expect("a trace");
    let simulation = simulation(&["lru:20blocks"], 60);
    let run = traces
        .simulate(std::slice::from_ref(&simulation), 4096, 1, &|_| {})
        .expect("a run");
    let ends: Vec<u64> = (1..=10)
        .filter_map(|at| traces.accesses_before(at * 60_000_000))
        .collect();
    assert_eq!(ends, (1..=10).map(|at| at * 60).collect::<Vec<u64>>());
    let windows = Requests::Traces(&traces)
        .until(&simulation, 4096, 60, &ends, &mut |_| {})
        .expect("windows");
    assert_eq!(windows[0].requests(), 0, "the first is the warm-up");
    let hits: u64 = windows.iter().map(|window| window.counters[0].hits).sum();
    assert_eq!(hits, run.runs[0].levels[0].counters.hits);
}

#[test]
fn times_that_go_back_are_told() {
    let files = Files::new();
    let late = files.write("late.csv", [(9, 1), (0, 2), (1, 3), (10, 1)]);
    let sorted = files.write("sorted.csv", [(0, 2), (1, 3), (1, 1)]);
    let doubts = |paths: &[PathBuf]| {
        let traces = read(paths, Order::Recorded).expect("traces");
        traces.facts().doubts.clone()
    };
    let told = [Doubt::TimesBack { requests: 2 }];
    assert_eq!(doubts(std::slice::from_ref(&late)), told);
    assert_eq!(doubts(&[sorted.clone(), late]), told);
    assert_eq!(doubts(&[sorted]), []);
}

#[test]
fn a_share_is_of_the_blocks_of_all_guests_however_they_differ() {
    let of = |levels: &[&str]| {
        let levels: Vec<LevelSpec> = levels
            .iter()
            .map(|level| level.parse().expect("a level"))
            .collect();
        let spec = SimulationSpec {
            links: links(&levels, None),
            levels,
            write_mode: WriteMode::WriteThrough,
            guests: 2,
            workload: "uniform:100blocks".parse().expect("a workload"),
            block_bytes: 4096,
            seed: 3,
            warmup_requests: None,
            requests: Some(2000),
        };
        let workloads = [
            spec.workload.clone(),
            "uniform:900blocks".parse().expect("a workload"),
        ];
        let mut report = simulate_guests(&[spec], &workloads, 1, &|_| {}).expect("a run");
        report.runs.remove(0)
    };
    let run = of(&["lru:10%"]);
    assert_eq!(run.footprint_blocks, 1000);
    assert_eq!(run.levels[0].capacity_blocks, 100);
    let run = of(&["lru:10%", "exclusive:10%"]);
    let capacities = run.levels.iter().map(|level| level.capacity_blocks);
    assert_eq!(
        capacities.collect::<Vec<_>>(),
        [90, 100],
        "each guest's is a share of the largest guest"
    );
}

/// By hand: of 1 2 3 1 2 3 one block that may decline the others hits once, and two blocks hit twice.
#[test]
fn bounds_hold_and_are_those_by_hand() {
    let files = Files::new();
    let path = files.write(
        "a.csv",
        [1, 2, 3, 1, 2, 3].into_iter().map(|block| (0, block)),
    );
    let traces = read(&[path], Order::Usual).expect("a trace");
    let bounds = |levels: &[&str]| traces.bounds(&simulation(levels, 0), 4096).expect("bounds");
    let two = bounds(&["lru:1blocks", "lru:1blocks"]);
    assert_eq!(two.upper, [Some(1.0 / 6.0), Some(2.0 / 6.0)]);
    assert_eq!(two.lower, [Some(1.0 / 6.0), Some(2.0 / 6.0)]);
    assert!(
        traces
            .bounds(&simulation(&["lru:1blocks"], 1), 4096)
            .is_err()
    );

    let walk = |step: u64| (0..4000).map(move |at| (at / 2, at * at % step));
    let paths = [
        files.write("b.csv", walk(211)),
        files.write("c.csv", walk(307)),
    ];
    let traces = read(&paths, Order::Recorded).expect("traces");
    for levels in [
        &["lru:20blocks/30blocks", "exclusive:50blocks"][..],
        &["lru:20blocks", "arc:80blocks"],
        &["lru:64blocks"],
    ] {
        let simulation = simulation(levels, 0);
        let bounds = traces.bounds(&simulation, 4096).expect("bounds");
        let report = traces
            .simulate(&[simulation], 4096, 1, &|_| {})
            .expect("a run");
        let run = &report.runs[0];
        let mut hits = 0.0;
        for (at, served) in run.served[..levels.len()].iter().enumerate() {
            hits += (served.reads + served.writes) as f64 / run.requests as f64;
            assert!(
                Some(hits) <= bounds.upper[at],
                "{levels:?}: {hits} at {at}, {bounds:?}"
            );
            assert!(bounds.lower[at] <= bounds.upper[at], "{bounds:?}");
        }
    }
}
