use super::*;
use crate::curve::Source;
use crate::spec::LevelSpec;
use crate::theory::shortest_gap;
use futae_trace::View;

const MIB: u64 = 1 << 20;
const GIB: f64 = (1u64 << 30) as f64;

/// A workload over 4 KiB blocks: passes of warm-up, as many that count.
fn run(workload: &str, levels: &[&str], passes: u64) -> Study {
    let open = |requests| Source::open(workload, View::Start, 4096, Some(requests), 1);
    let blocks = open(1).expect("a workload").blocks();
    let source = open(2 * passes * blocks).expect("a workload");
    let levels: Vec<LevelSpec> = levels.iter().map(|l| l.parse().expect("level")).collect();
    let study = Study::of(
        source,
        (levels, Some(crate::Link::None)),
        Some(passes * blocks),
        1,
        &|_| {},
    );
    study.expect("levels")
}

#[test]
fn the_gap_below_lru_is_that_of_the_theory() {
    // Figures 3 and 4 of Sugimoto and Yamaguchi 2015 at 1/16 of their size: 8 GB of data become
    // 512 MiB. The gaps −(D−U)·ln(1−U/D) of an independent simulation, in GB.
    let cells = [(0.45, 0.432), (0.8, 0.750), (1.7, 1.487)];
    let mut before = 0.0;
    for (upper, model) in cells {
        let level = format!("lru:{}blocks", (upper * GIB / 16.0 / 4096.0) as u64);
        let locality = run("uniform:512MiB", &[&level], 8);
        let [application, below] = locality.taps() else {
            panic!("two taps");
        };
        assert!(application.intervals.gap_bytes().expect("re-accesses") < 0.0001 * GIB);
        let gap = 16.0 * below.intervals.gap_bytes().expect("re-accesses") / GIB;
        let theory = shortest_gap(upper, 8.0);
        println!("U={upper} GB: gap {gap:.4} GB, theory {theory:.4}, model {model}");
        assert!(
            (gap / theory - 1.0).abs() < 0.03,
            "{upper}: {gap}, {theory}"
        );
        assert!((gap / model - 1.0).abs() < 0.03, "{upper}: {gap}, {model}");
        assert!(gap > before, "wider below a larger cache");
        before = gap;
        // Just above the gap the density is 1/D per GB, D at 1/16.
        let from = gap / 16.0 * GIB;
        let bins = below.intervals.density(100, Bins::Linear, Some(from * 2.0));
        assert!(
            bins[..45].iter().all(|bin| bin.density_per_gb < 0.02),
            "{bins:?}"
        );
        let above: f64 = bins[52..62].iter().map(|bin| bin.density_per_gb).sum();
        assert!((above / 10.0 * 0.5 - 1.0).abs() < 0.06, "{}", above / 10.0);
    }
}

#[test]
fn below_the_lower_cache_the_gap_is_wider_still() {
    let locality = run("uniform:64MiB", &["lru:8MiB", "lru:24MiB"], 8);
    let gaps = locality.taps().iter().map(|tap| tap.intervals.gap_bytes());
    let gaps: Vec<f64> = gaps.map(|gap| gap.expect("re-accesses")).collect();
    assert_eq!(gaps.len(), 3);
    assert!(gaps.is_sorted_by(|a, b| a < b), "{gaps:?}");
    assert_eq!(locality.taps()[2].place, "below lru:24MiB");
    let requests = locality.taps().iter().map(|tap| tap.intervals.requests());
    assert!(requests.is_sorted_by(|a, b| a > b));
}

#[test]
fn a_loop_comes_back_after_all_its_others() {
    let locality = run("loop:1MiB", &["lru:512KiB"], 3);
    for tap in locality.taps() {
        let intervals = &tap.intervals;
        assert_eq!(intervals.reaccesses(), 768, "{}", tap.place);
        assert_eq!(intervals.gap_bytes(), Some((MIB - 4096) as f64));
        let bins = intervals.density(16, Bins::Linear, None);
        assert_eq!((bins.len(), bins[15].share), (16, 1.0));
        assert_eq!(bins[15].density_per_gb, 1.0 / (65536.0 / GIB));
    }
}

#[test]
fn bins_of_either_kind_hold_everything() {
    let locality = run("zipf(1.0):4MiB", &[], 20);
    let intervals = &locality.taps()[0].intervals;
    for kind in [Bins::Linear, Bins::Log] {
        let bins = intervals.density(30, kind, None);
        let all: f64 = bins.iter().map(|bin| bin.share).sum();
        assert!((all - 1.0).abs() < 1e-9, "{all}");
        assert!(
            bins.windows(2)
                .all(|pair| pair[0].high_bytes == pair[1].low_bytes)
        );
    }
    assert_eq!(
        intervals.gap_bytes(),
        Some(0.0),
        "at the application there is none"
    );
    assert!(intervals.quantile_bytes(0.9) > intervals.quantile_bytes(0.5));
    assert!(intervals.density(0, Bins::Log, None).is_empty());
}

#[test]
fn writes_reach_the_bottom_and_hits_do_not() {
    let level = ["lru:4blocks".parse().expect("a level")];
    let mut taps = taps::Taps::new(&level, 4096, 0);
    for (is_write, served) in [(false, 1), (false, 0), (true, 0)] {
        taps.pass(1, is_write, served);
    }
    let of = |count: fn(&Intervals) -> u64| [0, 1].map(|at| count(&taps.taps[at].intervals));
    assert_eq!(of(Intervals::requests), [3, 2]);
    assert_eq!(of(Intervals::reaccesses), [2, 1]);
    assert_eq!(Intervals::new(4096).gap_bytes(), None);
}

#[test]
fn more_blocks_than_can_be_numbered() {
    for levels in [&[][..], &["lru:4blocks"]] {
        let source = Source::open("uniform:17TiB", View::Start, 4096, Some(10), 1);
        let levels = levels.iter().map(|level| level.parse().expect("a level"));
        let study = Study::of(
            source.expect("a workload"),
            (levels.collect(), None),
            None,
            1,
            &|_| {},
        );
        let error = study.err().expect("too many").to_string();
        assert!(error.contains("2^32 - 1 blocks"), "{error}");
    }
}
