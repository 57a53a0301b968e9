//! Curves are true and small, and what turned out badly is taken back.

use futae_allocate::{
    Activity, Allocator, Bounds, GuestLimits, Observation, OnlineCurve, Reason, SAMPLES_MAX,
    Settings, mrc,
};
use futae_policy::Prng;

const MIB: u64 = 1 << 20;
/// Pages of a MiB.
const PAGES: u64 = 256;

/// Pages that are read evenly.
fn read(curve: &mut OnlineCurve, random: &mut Prng, pages: u64, count: u64) {
    for _ in 0..count {
        curve.access(random.bits() % pages);
    }
}

#[test]
fn a_curve_is_true_and_stays_small() {
    // 4 GiB are of interest; 1 GiB is read evenly, in pages of 4 KiB.
    let (most, pages) = (1 << 20, 1 << 18);
    let mut curve = OnlineCurve::new(most, 1);
    let mut random = Prng::new(2);
    for _ in 0..6 {
        read(&mut curve, &mut random, pages, 300_000);
        curve.end_period();
    }
    let sizes: Vec<f64> = (1..=16u32).map(|at| f64::from(at * 32_768)).collect();
    for (size, ratio) in sizes.iter().zip(curve.miss_ratios(&sizes)) {
        let truth = (1.0 - size / pages as f64).max(0.0);
        assert!(
            (ratio - truth).abs() < 0.03,
            "{size}: {ratio}, truly {truth}"
        );
    }
    // Twenty times as many pages as can be remembered, once.
    for unit in 0..20 * most {
        curve.access(unit + (1 << 40));
    }
    curve.end_period();
    assert!(curve.memory_bytes() < 1 << 20, "{}", curve.memory_bytes());
    assert_eq!(SAMPLES_MAX, 8192);
    // A scan says that nothing helps.
    assert_eq!(curve.miss_ratios(&[most as f64])[0], 1.0);
    // What is read evenly again is known again.
    for _ in 0..3 {
        read(&mut curve, &mut random, pages, 300_000);
        curve.end_period();
    }
    let half = curve.miss_ratios(&[pages as f64 / 2.0])[0];
    assert!((half - 0.5).abs() < 0.03, "{half}");
}

#[test]
fn a_share_of_the_pages_is_enough() {
    let pages = 1 << 18;
    let mut curve = OnlineCurve::new(1 << 20, 1);
    curve.given_share(1.0 / 16.0);
    let mut random = Prng::new(3);
    for _ in 0..6 {
        for _ in 0..600_000 {
            let page = random.bits() % pages;
            // Another hash than the curve's own.
            if page.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60 == 0 {
                curve.access(page);
            }
        }
        curve.end_period();
    }
    let half = curve.miss_ratios(&[pages as f64 / 2.0])[0];
    assert!((half - 0.5).abs() < 0.05, "{half}");
}

fn two_guests(settings: mrc::Settings) -> Allocator {
    let limits = ["a", "b"].map(|name| GuestLimits {
        name: name.to_owned(),
        least: 64 * MIB,
        most: 448 * MIB,
        start: 256 * MIB,
        weight: 1.0,
        overhead: 0,
    });
    let bounds = Bounds::new(limits.into(), 512 * MIB).expect("good bounds");
    Allocator::new(bounds, Settings::Mrc(settings)).expect("good settings")
}

/// A period in which `a` reads 128 MiB evenly and `b` 512 MiB, missing as `missed` says for what each has.
fn period(
    allocator: &mut Allocator,
    random: &mut Prng,
    missed: impl Fn(usize, u64) -> f64,
    pressure: f64,
) -> futae_allocate::Decision {
    let mut seen = Vec::new();
    for (at, pages) in [128 * PAGES, 512 * PAGES].into_iter().enumerate() {
        let curve = allocator.curve(at).expect("a curve");
        read(curve, random, pages, 200_000);
        let has = allocator.targets()[at];
        let misses = (200_000.0 * missed(at, has)) as u64;
        seen.push(Observation {
            achieved: Some(has),
            activity: Some(Activity {
                hits: 200_000 - misses,
                misses,
                cache: Some(has),
                pressure: (at == 0).then_some(pressure),
            }),
        });
    }
    allocator.decide(&seen)
}

/// As LRU misses.
fn truly(at: usize, has: u64) -> f64 {
    let file = [128.0, 512.0][at] * MIB as f64;
    (1.0 - has as f64 / file).max(0.0)
}

#[test]
fn memory_goes_to_whom_it_helps_and_stays() {
    let mut allocator = two_guests(mrc::Settings::default());
    let mut random = Prng::new(4);
    for _ in 0..12 {
        period(&mut allocator, &mut random, truly, 0.0);
    }
    let small = allocator.targets()[0] as f64 / MIB as f64;
    assert!((small - 128.0).abs() < 6.0, "{small}");
    let before = allocator.targets().to_vec();
    for _ in 0..20 {
        period(&mut allocator, &mut random, truly, 0.0);
    }
    for (now, before) in allocator.targets().iter().zip(&before) {
        assert!(now.abs_diff(*before) <= 4 * MIB, "{before} became {now}");
    }
}

#[test]
fn a_guest_under_pressure_gives_nothing() {
    let mut allocator = two_guests(mrc::Settings::default());
    let mut random = Prng::new(5);
    for _ in 0..8 {
        period(&mut allocator, &mut random, truly, 0.5);
    }
    assert_eq!(allocator.targets(), [256 * MIB, 256 * MIB]);
}

#[test]
fn a_guest_that_misses_more_than_its_curve_says_gives_nothing() {
    let mut allocator = two_guests(mrc::Settings::default());
    let mut random = Prng::new(6);
    let worse = |at: usize, has: u64| if at == 0 { 0.3 } else { truly(at, has) };
    for _ in 0..8 {
        period(&mut allocator, &mut random, worse, 0.0);
    }
    assert_eq!(allocator.targets(), [256 * MIB, 256 * MIB]);
}

#[test]
fn what_makes_it_worse_is_taken_back_and_not_tried_again_soon() {
    // `b` gains nothing by what it is given, since it is no LRU; worse, it suffers.
    let settings = mrc::Settings {
        surprise: 1.0,
        ..mrc::Settings::default()
    };
    let mut allocator = two_guests(settings);
    let mut random = Prng::new(7);
    let suffers = |at: usize, has: u64| match at {
        0 => truly(0, has),
        _ if has > 256 * MIB => 0.8,
        _ => 0.5,
    };
    let mut back = Vec::new();
    for number in 0..30 {
        let decision = period(&mut allocator, &mut random, suffers, 0.0);
        if matches!(decision.reason, Reason::TakenBack { .. }) {
            back.push(number);
            let said = decision.to_string();
            assert!(said.contains("taken back"), "{said}");
        }
    }
    assert!(!back.is_empty(), "it was never taken back");
    assert!(
        back.windows(2).all(|pair| pair[1] - pair[0] > 10),
        "{back:?}"
    );
    // Given back to the byte, in the periods after the first time.
    let mut allocator = two_guests(mrc::Settings {
        surprise: 1.0,
        ..mrc::Settings::default()
    });
    let mut random = Prng::new(7);
    for number in 0..=back[0] + 4 {
        period(&mut allocator, &mut random, suffers, 0.0);
        assert!(number < back[0] + 4 || allocator.targets() == [256 * MIB, 256 * MIB]);
    }
}

#[test]
fn decisions_show_the_numbers_that_made_them() {
    let mut allocator = two_guests(mrc::Settings::default());
    let mut random = Prng::new(8);
    let said: Vec<_> = (0..4)
        .map(|_| period(&mut allocator, &mut random, truly, 0.0))
        .collect();
    let moved = said
        .iter()
        .find(|decision| decision.moves())
        .expect("a move");
    let line = moved.to_string();
    assert!(
        line.contains("an access takes") && line.contains("a 256.0 → "),
        "{line}"
    );
    let json = serde_json::to_value(moved).expect("JSON");
    assert_eq!(json["reason"]["kind"], "better", "{json}");
    assert_eq!(json["guests"][0]["name"], "a", "{json}");
    assert!(json["guests"][1]["activity"]["misses"].is_u64(), "{json}");
}
