//! Where blocks lie: what runs that read ahead make of it, and that nothing else depends on it. Curves and the requests between levels
//! are those of simulations.

use futae_policy::{PolicySpec, Prng};
use futae_sim::curve::Source;
use futae_sim::locality::Study;
use futae_sim::run::{Neighbours, Order, Reading, TraceSimulation, Traces, ViewChoice};
use futae_sim::{
    LevelSpec, Link, Report, SimulationError, SimulationSpec, WriteMode, links, simulate,
};
use futae_trace::{TraceOptions, View};
use std::path::{Path, PathBuf};

const BLOCK: u64 = 4096;

/// Requests for one block each, on volumes.
fn trace(directory: &Path, name: &str, requests: impl IntoIterator<Item = (char, u64)>) -> PathBuf {
    let lines = requests.into_iter();
    let lines = lines.map(|(volume, at)| format!("{volume},{},{BLOCK}\n", at * BLOCK));
    let path = directory.join(name);
    let text = format!("volume,offset,length\n{}", lines.collect::<String>());
    std::fs::write(&path, text).expect("a trace");
    path
}

/// Runs of neighbours here and there, and the same with each block somewhere else.
fn runs() -> [Vec<(char, u64)>; 2] {
    let mut prng = Prng::new(11);
    let mut requests = Vec::new();
    while requests.len() < 12_000 {
        let (from, length) = (prng.below(2000), prng.below(30) + 1);
        requests.extend((from..from + length).map(|at| ('a', at)));
    }
    let mut places: Vec<u64> = (0..2100).collect();
    for at in (1..places.len()).rev() {
        places.swap(at, prng.below(at as u64 + 1) as usize);
    }
    let elsewhere = requests
        .iter()
        .map(|&(volume, at)| (volume, places[at as usize]));
    let elsewhere = elsewhere.collect();
    [requests, elsewhere]
}

fn hierarchy(levels: &[&str]) -> TraceSimulation {
    let levels: Vec<LevelSpec> = levels
        .iter()
        .map(|level| level.parse().expect("a level"))
        .collect();
    TraceSimulation {
        links: links(&levels, Some(Link::None)),
        levels,
        write_mode: WriteMode::WriteThrough,
        seed: 3,
        warmup_requests: 0,
        requests: None,
    }
}

/// Simulates hierarchies together, in the usual view or another.
fn together(
    paths: &[PathBuf],
    view: ViewChoice,
    hierarchies: &[TraceSimulation],
) -> Result<Report, SimulationError> {
    let reading = Reading {
        options: vec![TraceOptions::default(); paths.len()],
        view,
        order: Order::Turns,
        neighbours: Neighbours::of(hierarchies.iter().map(|it| &it.levels[..])),
        ..Reading::default()
    };
    let traces = Traces::read_guests(paths, &reading, &mut |_| ())?;
    traces.simulate(hierarchies, BLOCK, 2, &|_| ())
}

fn hits(paths: &[PathBuf], levels: &[&str]) -> u64 {
    let report = together(paths, ViewChoice::Usual, &[hierarchy(levels)]);
    let report = report.expect("a simulation");
    let levels = report.runs[0].levels.iter();
    levels.map(|level| level.counters.hits).sum()
}

#[test]
fn a_run_is_the_same_beside_others() {
    let place = tempfile::tempdir().expect("a directory");
    let [here, _] = runs();
    let paths = [trace(place.path(), "seq.csv", here)];
    let all = [
        "const:1500blocks",
        "linux(readahead=32):500blocks",
        "auto:500blocks",
        "lfu-history(min_gain=0):500blocks",
        "linux(readahead=128):500blocks",
        "random:500blocks",
    ];
    let all = all.map(|level| hierarchy(&[level]));
    let report = together(&paths, ViewChoice::Usual, &all).expect("simulations");
    for (one, run) in all.iter().zip(&report.runs) {
        let alone = together(&paths, ViewChoice::Usual, std::slice::from_ref(one));
        let alone = alone.expect("a simulation");
        assert_eq!(
            run.levels[0].counters, alone.runs[0].levels[0].counters,
            "{}",
            one.levels[0]
        );
        assert_eq!(report.trace_digest, alone.trace_digest);
    }
}

#[test]
fn runs_that_view_a_trace_differently_are_not_one_study() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("objects.csv");
    let lines: String = (0..500)
        .map(|at| format!("{},9000\n", at * 7 % 90))
        .collect();
    std::fs::write(&path, format!("key,size\n{lines}")).expect("a trace");
    let paths = [path];
    let all = ["lru:20blocks", "linux(readahead=32):20blocks"].map(|level| hierarchy(&[level]));
    let error = together(&paths, ViewChoice::Usual, &all).expect_err("two views");
    assert!(matches!(error, SimulationError::MixedViews(_)), "{error}");
    assert!(error.to_string().contains("--view blocks"), "{error}");
    for one in &all {
        together(&paths, ViewChoice::Usual, std::slice::from_ref(one)).expect("its own view");
    }
    together(&paths, ViewChoice::Blocks, &all).expect("one view");
    let path = place.path().join("blocks.ids");
    std::fs::write(&path, "1\n2\n3\n1\n").expect("a trace");
    together(&[path], ViewChoice::Usual, &all).expect("the same blocks in each view");
}

/// Every other block of two volumes, one read here and one there.
#[test]
fn every_volume_is_one_file() {
    let place = tempfile::tempdir().expect("a directory");
    let of = |volume: char| (0..1000).map(move |at| (volume, 2 * at));
    let one = trace(place.path(), "a.csv", of('a'));
    let other = trace(place.path(), "b.csv", of('b'));
    let both = of('a').zip(of('b')).flat_map(|(a, b)| [a, b]);
    let both = trace(place.path(), "ab.csv", both);
    for policy in ["linux", "mglru"] {
        let level = format!("{policy}(readahead=32):100000blocks");
        let alone = hits(std::slice::from_ref(&one), &[&level]);
        assert!(alone > 400, "{policy}: {alone}");
        assert_eq!(
            hits(std::slice::from_ref(&both), &[&level]),
            2 * alone,
            "{policy}"
        );
        let guests = [one.clone(), other.clone()];
        assert_eq!(
            hits(&guests, &[&level]),
            2 * alone,
            "{policy}, of two guests"
        );
        let below = hits(&guests, &["lru:1blocks", &level]);
        assert_eq!(below, 2 * alone, "{policy}, below two guests");
    }
}

#[test]
fn exact_curves_are_simulations() {
    let place = tempfile::tempdir().expect("a directory");
    let [here, elsewhere] = runs();
    let paths = [
        trace(place.path(), "seq.csv", here),
        trace(place.path(), "perm.csv", elsewhere),
    ];
    let sizes = [50, 500];
    let workload = "zipf(0.8):2MiB";
    let mut apart = Vec::new();
    for policy in [
        "const",
        "lfu-history",
        "w-tinylfu",
        "random",
        "opt",
        "linux(readahead=32)",
        "lirs",
    ] {
        let spec: PolicySpec = policy.parse().expect("a policy");
        let mut curves = Vec::new();
        for path in &paths {
            let options = TraceOptions::default();
            let read = Source::of_trace(
                path,
                ViewChoice::Usual,
                &options,
                Some(9000),
                Neighbours::of_policy(&spec),
            );
            let source = read.expect("a trace").0;
            let curve = source.simulate_sizes(&spec, &sizes, 3, 2, &|_| ());
            let curve = curve.expect("a curve");
            for size in sizes {
                let one = TraceSimulation {
                    requests: Some(9000),
                    ..hierarchy(&[&format!("{policy}:{size}blocks")])
                };
                let report = together(std::slice::from_ref(path), ViewChoice::Usual, &[one]);
                let run = &report.expect("a simulation").runs[0];
                assert_eq!(
                    Some(curve.miss_ratio_at(size)),
                    run.miss_ratio,
                    "{policy}, {size}"
                );
            }
            curves.push(curve);
        }
        if curves[0] != curves[1] {
            apart.push(policy);
        }
        let source = Source::open(workload, View::Start, BLOCK, Some(3000), 3);
        let source = source.expect("a workload");
        let curve = source.simulate_sizes(&spec, &sizes, 3, 2, &|_| ());
        for size in sizes {
            let one = hierarchy(&[&format!("{policy}:{size}blocks")]);
            let report = simulate(
                &SimulationSpec {
                    levels: one.levels,
                    links: one.links,
                    write_mode: one.write_mode,
                    guests: 1,
                    workload: workload.parse().expect("a workload"),
                    block_bytes: BLOCK,
                    seed: one.seed,
                    warmup_requests: Some(0),
                    requests: Some(3000),
                },
                &mut |_| (),
            );
            let ratio = report.expect("a simulation").runs[0].miss_ratio;
            let curve = curve.as_ref().expect("a curve");
            assert_eq!(Some(curve.miss_ratio_at(size)), ratio, "{policy}, {size}");
        }
    }
    assert_eq!(apart, ["linux(readahead=32)"], "where places matter");
}

#[test]
fn levels_are_tapped_where_a_simulation_counts() {
    let place = tempfile::tempdir().expect("a directory");
    let [here, _] = runs();
    let path = trace(place.path(), "seq.csv", here);
    for levels in [
        &["opt:500blocks"][..],
        &["linux(readahead=32):300blocks", "lru:900blocks"],
        &["opt:100blocks", "linux(readahead=8):200blocks"],
        &["const:100blocks", "random:700blocks"],
    ] {
        let one = hierarchy(levels);
        let neighbours = Neighbours::of([&one.levels[..]]);
        let options = TraceOptions::default();
        let read = Source::of_trace(&path, ViewChoice::Usual, &options, None, neighbours);
        let source = read.expect("a trace").0;
        let tapped = (one.levels.clone(), Some(Link::None));
        let study = Study::of(source, tapped, Some(0), one.seed, &|_| ()).expect("a study");
        let report = together(std::slice::from_ref(&path), ViewChoice::Usual, &[one]);
        let run = &report.expect("a simulation").runs[0];
        let mut passed = run.requests;
        for (tap, served) in study.taps().iter().zip(&run.served) {
            assert_eq!(
                tap.intervals.requests(),
                passed,
                "{levels:?}, {}",
                tap.place
            );
            passed -= served.reads;
        }
    }
    let below: Vec<LevelSpec> = ["lru:10blocks", "opt:500blocks"]
        .map(|it| it.parse().expect("a level"))
        .into();
    let source =
        Source::open("uniform:1MiB", View::Start, BLOCK, Some(100), 1).expect("a workload");
    let study = Study::of(source, (below, None), None, 1, &|_| ());
    let error = study.err().expect("no future there").to_string();
    assert!(
        error.contains("must know what will be asked of it"),
        "{error}"
    );
}
