use super::*;
use futae_sim::{LevelSpec, SimulationSpec, WriteMode, links, simulate_all};
use futae_trace::WorkloadSpec;

struct Simulated {
    report: Report,
    workloads: Vec<WorkloadSpec>,
}

/// One run of each list of levels.
fn simulated(workload: &str, runs: &[&[&str]], guests: u32) -> Simulated {
    let workload: WorkloadSpec = workload.parse().expect("a workload");
    let spec = |levels: &&[&str]| {
        let levels = levels.iter().map(|level| level.parse().expect("a level"));
        let levels: Vec<LevelSpec> = levels.collect();
        SimulationSpec {
            links: links(&levels, None),
            levels,
            write_mode: WriteMode::WriteThrough,
            guests,
            workload: workload.clone(),
            block_bytes: 4096,
            seed: 3,
            warmup_requests: None,
            requests: None,
        }
    };
    let specs: Vec<_> = runs.iter().map(spec).collect();
    Simulated {
        report: simulate_all(&specs, 1, &|_| {}).expect("runs"),
        workloads: vec![workload; guests as usize],
    }
}

impl Simulated {
    fn requests(&self) -> Requests<'_> {
        Requests::Workloads {
            workloads: &self.workloads,
            block_bytes: 4096,
            seed: 3,
        }
    }

    fn study(&self, exact_max: u64) -> Study {
        let study = Study::new(&self.report, self.requests(), exact_max, &|_| {});
        study.map_err(|error| error.to_string()).expect("a study")
    }

    fn page(&self, source: &str) -> String {
        let subject = Subject {
            report: &self.report,
            requests: self.requests(),
            source,
            command: source,
        };
        let page = page(&subject, &|_| {});
        page.map_err(|error| error.to_string()).expect("a page")
    }
}

#[test]
fn the_curve_is_what_lru_was_simulated_to_miss() {
    for guests in [1, 2] {
        let runs: [&[&str]; 3] = [&["lru:1%"], &["lru:10%"], &["lru:60%"]];
        let one = simulated("zipf(0.9, writes=0.2):3000blocks", &runs, guests);
        let study = one.study(u64::MAX);
        for run in &one.report.runs {
            let missed = study.curve.miss_ratio_at(run.levels[0].capacity_blocks);
            let simulated = run.miss_ratio.expect("requests");
            assert!((missed - simulated).abs() < 1e-9, "{missed}, {simulated}");
        }
        assert!(study.method.starts_with("exact"), "{}", study.method);
        assert_eq!(
            study.places.len(),
            1 + 3,
            "the application, below each size"
        );
    }
}

#[test]
fn the_curve_of_many_requests_is_sampled_and_says_so() {
    let runs: [&[&str]; 1] = [&["lru:20%"]];
    let one = simulated("zipf(0.6):100000blocks", &runs, 1);
    let study = one.study(1000);
    assert!(study.method.contains("SHARDS"), "{}", study.method);
    let missed = study.curve.miss_ratio_at(20_000);
    let simulated = one.report.runs[0].miss_ratio.expect("requests");
    assert!((missed - simulated).abs() < 0.01, "{missed}, {simulated}");
}

#[test]
fn levels_are_tapped_in_turn() {
    let runs: [&[&str]; 1] = [&["lru:30%", "exclusive:30%"]];
    let one = simulated("uniform:4000blocks", &runs, 2);
    let study = one.study(u64::MAX);
    let names: Vec<_> = study.places.iter().map(|place| place.0.as_str()).collect();
    let below = [
        "below level 1: lru of 4.69 MiB × 2",
        "below level 2: exclusive of 9.38 MiB",
    ];
    assert_eq!(names, ["application", below[0], below[1]]);
    let run = &one.report.runs[0];
    let below = &run.levels[1].counters;
    for (at, requests) in [run.requests, below.requests, run.store_reads]
        .into_iter()
        .enumerate()
    {
        let again = study.places[at].1.reaccesses();
        // Nearly every block was asked for in the warm-up.
        let least = requests - requests / 20;
        assert!(
            again <= requests && again >= least,
            "{at}: {again} of {requests}"
        );
    }
}

#[test]
fn a_policy_that_knows_the_future_is_reported_too() {
    let runs: [&[&str]; 1] = [&["opt:10%"]];
    let one = simulated("zipf(1.0):1000blocks", &runs, 1);
    let study = one.study(u64::MAX);
    assert_eq!(study.places.len(), 1);
    assert!(study.note.is_some());
    assert!(one.page("x").contains("must know the future"));
}

#[test]
fn every_shape_has_its_four_charts_and_no_name_is_markup() {
    let evil = "</script><script>alert('1')</script>&\"";
    let shapes: [&[&[&str]]; 4] = [
        &[&["lru:10%"]],
        &[&["lru:10%"], &["fifo:10%"]],
        &[
            &["lru:1%"],
            &["lru:50%"],
            &["2q(k_in=0.3):1%"],
            &["2q(k_in=0.3):50%"],
        ],
        &[&["lru:10%", "lru:10%", "exclusive:20%"]],
    ];
    for runs in shapes {
        let page = simulated("zipf(1.0):1000blocks", runs, 1).page(evil);
        for id in ["by-size", "by-level", "miss-ratios", "locality"] {
            assert!(page.contains(&format!("<figure id=\"{id}\"")), "{id}");
        }
        assert_eq!(
            page.matches("<script").count(),
            2,
            "the data and the script"
        );
        assert!(!page.contains("alert('1')") && !page.contains("NaN"));
        assert!(page.contains("&lt;/script&gt;") && !page.contains("://"));
    }
}

#[test]
fn charts_of_one_hierarchy_of_several_say_so() {
    let runs: [&[&str]; 2] = [&["lru:5%", "exclusive:10%"], &["lru:10%", "exclusive:10%"]];
    let of_first = "Of the first of 2 hierarchies";
    let of_one = "Only one of the hierarchies is looked at from below";
    let page = simulated("zipf(1.0):1000blocks", &runs, 1).page("x");
    assert_eq!(page.matches(of_first).count(), 3);
    assert_eq!(page.matches(of_one).count(), 1);
    let page = simulated("zipf(1.0):1000blocks", &runs[..1], 1).page("x");
    assert!(!page.contains(of_first) && !page.contains(of_one));
}

#[test]
fn the_same_run_gives_the_same_page() {
    let runs: [&[&str]; 2] = [&["lru:10%"], &["random:20%"]];
    let page = || simulated("zipf(1.0):1000blocks", &runs, 1).page("x");
    assert_eq!(page(), page());
}
