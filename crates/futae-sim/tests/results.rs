//! Whole simulations: the results as other programs read them.

mod common;

use common::{run, spec};
use futae_sim::machine::Served;
use futae_sim::run::{
    ClosedLoop, Plan, Reading, Requests, Think, TraceSimulation, Traces, ViewChoice,
};
use futae_sim::study::Warmup;
use futae_sim::{LevelSpec, Link, SimulationError, WriteMode, simulate, simulate_all};
use futae_trace::{BlockRequest, BlockStream, TraceOptions};

fn json(levels: &[&str], workload: &str, guests: u32) -> serde_json::Value {
    let mut spec = spec(levels, None, workload, (1, 2));
    spec.guests = guests;
    let report = simulate(&spec, &mut |_| {}).expect("a simulation");
    serde_json::to_value(report).expect("only strings as keys")
}

#[test]
fn the_names_that_other_programs_rely_on() {
    let json = json(&["lru:20%", "exclusive:30%"], "uniform:1000blocks", 1);
    assert_eq!(json["seed"], common::SEED);
    assert_eq!(json["trace_digest"].as_str().map(str::len), Some(16));
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(json["sources"], serde_json::json!(["uniform:1000blocks"]));
    let run = &json["runs"][0];
    assert_eq!(
        (&run["requests"], &run["warmup_requests"]),
        (&2000.into(), &1000.into())
    );
    assert_eq!(
        (&run["block_bytes"], &run["guests"]),
        (&4096.into(), &1.into())
    );
    assert_eq!(run["links"], serde_json::json!(["demote"]));
    assert!(run["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0));
    let number = |value: &serde_json::Value| value.as_f64().expect("a number");
    for (level, (policy, slots)) in [("lru", 200), ("exclusive", 300)].into_iter().enumerate() {
        let level = &run["levels"][level];
        assert_eq!(level["policy"], policy);
        assert_eq!(level["capacity_blocks"], slots);
        let (requests, hits) = (number(&level["requests"]), number(&level["hits"]));
        assert_eq!(requests, hits + number(&level["misses"]));
        assert_eq!(number(&level["hit_ratio"]), hits / requests);
        for name in [
            "admissions",
            "bypasses",
            "evictions",
            "demotions_in",
            "demotions_out",
        ] {
            assert!(level[name].is_u64(), "{name}");
        }
    }
    let combined = number(&run["combined_hit_ratio"]);
    assert_eq!(combined, 1.0 - number(&run["store_reads"]) / 2000.0);
}

#[test]
fn a_ratio_of_nothing_is_null() {
    let json = json(&["lru:1000blocks", "lru:10blocks"], "loop:1000blocks", 1);
    let lower = &json["runs"][0]["levels"][1];
    assert_eq!(
        (&lower["requests"], &lower["hit_ratio"]),
        (&0.into(), &serde_json::Value::Null)
    );
    assert_eq!(json["runs"][0]["combined_hit_ratio"], 1.0);
}

#[test]
fn guests_have_levels_and_seeds_of_their_own() {
    let json = json(&["lru:20%", "exclusive:30%"], "uniform:1000blocks", 3);
    let run = &json["runs"][0];
    assert_eq!(run["footprint_blocks"], 3000);
    assert_eq!(
        (&run["levels"][0]["copies"], &run["levels"][1]["copies"]),
        (&3.into(), &1.into())
    );
    assert_eq!(
        run["levels"][0]["capacity_blocks"], 200,
        "a share of the guest's own blocks"
    );
    assert_eq!(
        run["levels"][1]["capacity_blocks"], 900,
        "a share of all blocks"
    );
}

#[test]
fn the_usual_length_is_five_passes_and_five_more_or_the_one_pass_of_a_scan() {
    for (workload, expected) in [
        ("uniform:100blocks", (500, 500)),
        ("scan:100blocks", (0, 100)),
    ] {
        let mut spec = spec(&["lru:10blocks"], None, workload, (1, 1));
        (spec.warmup_requests, spec.requests) = (None, None);
        let run = simulate(&spec, &mut |_| {})
            .expect("a simulation")
            .runs
            .remove(0);
        assert_eq!((run.warmup_requests, run.requests), expected, "{workload}");
    }
}

#[test]
fn threads_change_nothing_and_progress_ends_at_one() {
    let specs: Vec<_> = (1..8)
        .map(|share| {
            spec(
                &[&format!("lru:{share}0%")],
                None,
                "zipf(0.9):500blocks",
                (5, 5),
            )
        })
        .collect();
    let hits = |threads| {
        let last = std::sync::Mutex::new(0.0);
        let progress = |fraction| *last.lock().expect("no panic before") = fraction;
        let report = simulate_all(&specs, threads, &progress).expect("simulations");
        assert_eq!(*last.lock().expect("no panic before"), 1.0);
        let runs = report.runs.iter().map(|run| run.levels[0].counters.hits);
        (report.trace_digest.clone(), runs.collect::<Vec<_>>())
    };
    let (digest, one) = hits(1);
    assert_eq!((digest, one.clone()), hits(3));
    assert!(
        one.is_sorted(),
        "a larger LRU cache has no fewer hits: {one:?}"
    );
    let mut other = specs;
    other[3].seed = 9;
    let error = simulate_all(&other, 2, &|_| {}).expect_err("other requests");
    assert!(matches!(error, SimulationError::Different(..)), "{error}");
}

#[test]
fn wrong_specs_are_refused() {
    let good = || {
        spec(
            &["lru:10blocks", "lru:10blocks"],
            None,
            "uniform:100blocks",
            (1, 1),
        )
    };
    let error = |spec| {
        simulate(&spec, &mut |_| {})
            .expect_err("a wrong spec")
            .to_string()
    };
    let mut links = good();
    links.links = vec![Link::Demote; 2];
    assert!(error(links).contains("2 levels need 1 links, not 2"));
    let mut guests = good();
    guests.guests = 0;
    assert!(error(guests).contains("at least one level and one guest"));
    let mut size = good();
    size.levels[0].size = futae_units::Size::Bytes(5000);
    assert!(error(size).contains("not a multiple of the block size"));
    let mut many = good();
    many.guests = u32::MAX;
    assert!(error(many).contains("2^32 - 1 blocks"));
}

/// A trace, which ends, and whose block numbers may be wrong.
struct Trace(std::vec::IntoIter<u64>);

impl BlockStream for Trace {
    fn fill(&mut self, out: &mut [BlockRequest]) -> usize {
        let pairs = out.iter_mut().zip(&mut self.0);
        pairs
            .map(|(place, block)| *place = BlockRequest::read(block))
            .count()
    }
}

#[test]
fn a_stream_that_ends_early_or_asks_too_much() {
    let levels: [LevelSpec; 1] = ["lru:2blocks".parse().expect("a level")];
    for is_spread in [false, true] {
        let plan = Plan {
            levels: &levels,
            links: &[],
            write_mode: WriteMode::WriteThrough,
            guests: 1,
            blocks: 4,
            volumes: Vec::new(),
            distinct: 4,
            footprint: 4,
            block_bytes: 4096,
            seed: 1,
            warmup_requests: 2,
            requests: u64::MAX,
            is_spread,
        };
        let trace = |blocks: [u64; 5]| Trace(Vec::from(blocks).into_iter());
        let (run, _) = plan
            .run(&mut trace([0, 1, 1, 2, 0]), &mut |_| {})
            .expect("a trace");
        assert_eq!(
            (
                run.warmup_requests,
                run.requests,
                run.levels[0].counters.hits
            ),
            (2, 3, 1)
        );
        let error = plan
            .run(&mut trace([0, 1, 3, 4, 0]), &mut |_| {})
            .expect_err("block 4 of 4");
        assert_eq!(
            error.to_string(),
            "request 3 is for block 4, but there are only 4 blocks"
        );
    }
}

#[test]
fn equal_seeds_give_equal_runs_and_others_do_not() {
    let of = |seed| {
        let mut spec = spec(&["random:50blocks"], None, "zipf(1.0):500blocks", (2, 2));
        spec.seed = seed;
        let report = simulate(&spec, &mut |_| {}).expect("a simulation");
        (
            report.trace_digest.clone(),
            report.runs[0].levels[0].counters,
        )
    };
    assert_eq!(of(1), of(1));
    assert_ne!(of(1).0, of(2).0);
    assert!(run(&["random:50blocks"], None, "zipf(1.0):500blocks", (2, 2)).seconds > 0.0);
}

/// A trace of these lines, in the view of starts.
fn starts(lines: &str, closed: Option<ClosedLoop>) -> Traces {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("t.csv");
    std::fs::write(&path, lines).expect("a trace");
    let reading = Reading {
        options: vec![TraceOptions::default()],
        view: ViewChoice::Start,
        closed,
        ..Reading::default()
    };
    Traces::read_guests(&[path], &reading, &mut |_| {}).expect("a trace")
}

#[test]
fn bytes_of_starts_are_those_of_the_requests() {
    let think = ClosedLoop {
        think: Think::Fixed(0),
        model: "store=1us".parse().expect("a model"),
    };
    let simulation = TraceSimulation {
        levels: vec!["lru:8blocks".parse().expect("a level")],
        links: Vec::new(),
        write_mode: WriteMode::WriteThrough,
        seed: 1,
        warmup_requests: 0,
        requests: None,
    };
    let bytes = |served: &[Served]| [served[0].bytes, served[1].bytes];
    // A request without a length counts as a block.
    for (lengths, wanted) in [
        ([512, 512, 512], [512, 1024]),
        ([513, 512, 513], [513, 1025]),
        ([0, 0, 0], [4096, 8192]),
    ] {
        let [first, second, third] = lengths;
        let lines = format!("offset,length\n0,{first}\n4096,{second}\n0,{third}\n");
        for closed in [None, Some(think)] {
            let traces = starts(&lines, closed);
            let all = std::slice::from_ref(&simulation);
            let report = traces.simulate(all, 4096, 1, &|_| {}).expect("a run");
            assert_eq!(bytes(&report.runs[0].served), wanted);
            assert_eq!(
                report.runs[0].byte_miss_ratio,
                Some(wanted[1] as f64 / (wanted[0] + wanted[1]) as f64)
            );
        }
        let traces = starts(&lines, None);
        let requests = Requests::Traces(&traces);
        let windows = requests.until(&simulation, 4096, 0, &[3], &mut |_| {});
        assert_eq!(bytes(&windows.expect("windows")[0].served), wanted);
    }
}

#[test]
fn a_share_of_a_trace_is_exact() {
    let lines: String = (0..1000).map(|at| format!("{at}\n")).collect();
    let traces = starts(&format!("offset\n{lines}"), None);
    for tenths in 0..1000 {
        let share = format!("{}.{}%", tenths / 10, tenths % 10);
        let warmup: Warmup = share.parse().expect("a share");
        assert_eq!(warmup.of_traces(&traces).ok(), Some(tenths), "{share}");
    }
}
