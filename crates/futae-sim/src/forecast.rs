//! The uncertainty of a simulated figure.
//!
//! A run is divided into windows of equally many requests, and its figure (a hit ratio, reads per
//! request) is taken in each: the method of batch means. The windows differ because the load varies
//! over time. Their differences give the bounds within which another run under the same load is
//! expected. The bounds cover the variation of the load only: they do not cover a load, a guest
//! kernel or a read-ahead that differs from the simulated one.
//!
//! The windows of a load that repeats itself, such as a loop, differ by where in the loop they are. If each fifth of the run is like
//! the others though its windows are not, the fifths give the bounds.

use serde::{Deserialize, Serialize};

/// Number of windows per run: few enough to be long, and enough to show how they differ.
pub const WINDOWS: u32 = 20;

/// For 95 % bounds: the two-sided 95 % quantile of Student's distribution, by degrees of freedom
/// from 1 to 30, and that of the normal distribution, from which those of more follow.
const STUDENT_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
const NORMAL_95: f64 = 1.959_964;

/// A load repeats itself if this many parts of its run are alike.
const PARTS: usize = 5;
/// Alike are parts whose variance is less than this share of what that of their windows would let one expect. Parts of four independent
/// windows are by chance in 1 of 1000 runs: the quantile of the F distribution with 4 and 19 degrees of freedom. With that of 1 in 100
/// one of the twelve forecasts of a test here was much too sure of itself.
const ALIKE: f64 = 0.0216;

/// A correlation above this is a trend: the windows of one run then say little about another, and
/// the bounds are wide.
const CORRELATION_MAX: f64 = 0.9;

/// A figure, with bounds for another run of the same length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The figure of the run: the mean of its windows.
    pub mean: f64,
    /// Lower bound that 95 of 100 runs of the same length under the same load keep.
    pub low: f64,
    /// Upper bound of the same.
    pub high: f64,
    /// The standard deviation of the windows, corrected for the correlation of adjacent ones.
    pub window_deviation: f64,
    /// Number of windows.
    pub windows: u32,
    /// The standard deviation of the fifths of the run, if they are alike and their windows are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_deviation: Option<f64>,
}

impl Estimate {
    /// From the figures of a run's windows, in order; `None` if there are fewer than two.
    #[must_use]
    pub fn of(figures: &[f64]) -> Option<Self> {
        if figures.len() < 2 || figures.iter().any(|figure| !figure.is_finite()) {
            return None;
        }
        let count = figures.len() as f64;
        let mean = figures.iter().sum::<f64>() / count;
        let differences: Vec<f64> = figures.iter().map(|figure| figure - mean).collect();
        let squares: f64 = differences.iter().map(|d| d * d).sum();
        let products: f64 = differences.windows(2).map(|two| two[0] * two[1]).sum();
        let correlation = if squares > 0.0 {
            products / squares
        } else {
            0.0
        };
        // If adjacent windows are correlated, fewer of them are independent.
        let correlation = correlation.clamp(0.0, CORRELATION_MAX);
        let inflation = (1.0 + correlation) / (1.0 - correlation);
        let estimate = Self {
            mean,
            low: mean,
            high: mean,
            window_deviation: (squares / (count - 1.0) * inflation).sqrt(),
            windows: figures.len() as u32,
            part_deviation: deviation_of_parts(figures),
        };
        let (low, high) = estimate.bounds_of(1.0);
        Some(Self {
            low,
            high,
            ..estimate
        })
    }

    /// The ratio of two counts, such as hits to requests, from both counts in each of a run's windows, in order. Its mean is that of
    /// the whole run: the more requests a window has, the more it counts. `None` if there are fewer than two windows, or no requests.
    #[must_use]
    pub fn of_counts(windows: &[(u64, u64)]) -> Option<Self> {
        let sum = |of: fn(&(u64, u64)) -> u64| windows.iter().map(of).sum::<u64>() as f64;
        let (hits, requests) = (sum(|window| window.0), sum(|window| window.1));
        if requests == 0.0 {
            return None;
        }
        let (ratio, usual) = (hits / requests, requests / windows.len() as f64);
        // How far each window's hits are from the ratio, by what a window has on average: the ratio estimator of survey sampling.
        let figure = |&(hits, requests): &(u64, u64)| {
            ratio + (hits as f64 - ratio * requests as f64) / usual
        };
        Self::of(&windows.iter().map(figure).collect::<Vec<_>>())
    }

    /// From the figures of runs under the same load by other random numbers, each as long as the measurement that is to come; `None` if
    /// there are fewer than two. Where the load can be had again and again this needs no windows, which are too short to show a loop.
    #[must_use]
    pub fn of_runs(figures: &[f64]) -> Option<Self> {
        let estimate = Self {
            part_deviation: None,
            ..Self::of(figures)?
        };
        let (low, high) = estimate.bounds_of(1.0 / figures.len() as f64);
        Some(Self {
            low,
            high,
            ..estimate
        })
    }

    /// Widens the bounds by the error of the model, which is independent of the load: half the width of its own 95 % bounds.
    #[must_use]
    pub fn with_model_error(self, half_width: f64) -> Self {
        let half = self.half_width().hypot(half_width);
        Self {
            low: self.mean - half,
            high: self.mean + half,
            ..self
        }
    }

    /// Bounds that 95 of 100 measurements keep that are `length` times as long as the run. They
    /// include the uncertainty of the run and that of the measurement.
    #[must_use]
    pub fn bounds_of(&self, length: f64) -> (f64, f64) {
        let length = length.max(f64::MIN_POSITIVE);
        let windows = f64::from(self.windows);
        let of_windows = self.window_deviation * self.window_deviation;
        let (variance, count) = match self.part_deviation {
            None => (
                of_windows / windows * (1.0 + 1.0 / length),
                self.windows as usize,
            ),
            Some(deviation) => {
                let parts = PARTS as f64;
                let measured = length * parts;
                let whole = measured.round();
                // What a measurement has more than whole repetitions, or less, is like its windows, or like a piece of one.
                let rest = (measured - whole).abs().min(measured);
                let pieces = (parts / (windows * rest)).max(1.0);
                let share = rest / measured;
                let of_rest = match rest > 0.0 {
                    true => of_windows * share * share * pieces,
                    false => 0.0,
                };
                let of_parts = deviation * deviation;
                (of_parts / parts + of_parts / measured + of_rest, PARTS)
            }
        };
        let half = student(count) * variance.sqrt();
        (self.mean - half, self.mean + half)
    }

    /// Half the width of the 95 % confidence interval of the mean of independent figures; 0 if
    /// there are fewer than two.
    #[must_use]
    pub fn half_width_of_mean(figures: &[f64]) -> f64 {
        match figures.len() {
            0 | 1 => 0.0,
            count => student(count) * (variance(figures) / count as f64).sqrt(),
        }
    }

    /// Half the width between the bounds.
    #[must_use]
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// Clips the bounds to the possible range of a ratio.
    #[must_use]
    pub fn within(self, least: f64, most: f64) -> Self {
        Self {
            low: self.low.clamp(least, most),
            high: self.high.clamp(least, most),
            ..self
        }
    }

    /// Whether `other` may be the same figure: the two intervals intersect.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }
}

/// The variance of independent figures, of which there are at least two.
fn variance(figures: &[f64]) -> f64 {
    let count = figures.len() as f64;
    let mean = figures.iter().sum::<f64>() / count;
    let squares: f64 = figures.iter().map(|figure| (figure - mean).powi(2)).sum();
    squares / (count - 1.0)
}

/// The standard deviation of the parts of a run, if they are alike and its windows are not.
fn deviation_of_parts(figures: &[f64]) -> Option<f64> {
    let each = figures.len() / PARTS;
    if each < 2 || !figures.len().is_multiple_of(PARTS) {
        return None;
    }
    let means = figures
        .chunks(each)
        .map(|part| part.iter().sum::<f64>() / each as f64);
    let of_parts = variance(&means.collect::<Vec<_>>());
    (of_parts * (each as f64) < ALIKE * variance(figures)).then(|| of_parts.sqrt())
}

/// The quantile for bounds by this many independent figures, of which there are at least two.
fn student(figures: usize) -> f64 {
    let known = STUDENT_95.get(figures.saturating_sub(2));
    known.copied().unwrap_or_else(|| {
        // The expansion of Cornish and Fisher.
        let (z, freedom) = (NORMAL_95, figures as f64 - 1.0);
        let first = z.powi(3) + z;
        let second = 5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z;
        z + first / (4.0 * freedom) + second / (96.0 * freedom * freedom)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Requests, TraceSimulation};
    use crate::{WriteMode, links};
    use futae_policy::Prng;

    #[test]
    fn equal_windows_leave_no_doubt_and_two_are_the_least() {
        let estimate = Estimate::of(&[0.25; 20]).expect("windows");
        assert_eq!(
            (estimate.mean, estimate.low, estimate.high),
            (0.25, 0.25, 0.25)
        );
        assert_eq!(Estimate::of(&[0.5]), None);
        assert_eq!(Estimate::of(&[0.5, f64::NAN]), None);
    }

    #[test]
    fn the_bounds_are_those_of_the_textbook() {
        // Mean 3, variance 2.5, no correlation of neighbours: 3 ± 2.776 * sqrt(2.5 / 5 * 2).
        let estimate = Estimate::of(&[1.0, 4.0, 2.0, 5.0, 3.0]).expect("windows");
        assert!((estimate.high - (3.0 + 2.776)).abs() < 1e-9, "{estimate:?}");
        assert!((estimate.low - (3.0 - 2.776)).abs() < 1e-9, "{estimate:?}");
        let (_, high) = estimate.bounds_of(0.25);
        assert!(high > estimate.high, "a shorter measurement is less sure");
    }

    #[test]
    fn the_interval_of_a_mean_is_that_of_students_table_for_any_number_of_figures() {
        let table = [
            (1, 12.706),
            (30, 2.042),
            (31, 2.040),
            (40, 2.021),
            (120, 1.980),
            (1000, 1.962),
        ];
        for (freedom, quantile) in table {
            // Halves of -1 and 1, with a 0 where they are odd: of `count` figures the variance is known.
            let count = freedom + 1;
            let figures: Vec<f64> = (0..count)
                .map(|at| match at {
                    0 if count % 2 == 1 => 0.0,
                    at => 1.0 - 2.0 * f64::from(at % 2),
                })
                .collect();
            let squares = f64::from(count - count % 2);
            let expected = quantile * (squares / f64::from(freedom) / f64::from(count)).sqrt();
            let half = Estimate::half_width_of_mean(&figures);
            assert!((half / expected - 1.0).abs() < 5e-4, "{freedom}: {half}");
        }
        assert_eq!(Estimate::half_width_of_mean(&[1.0]), 0.0);
    }

    #[test]
    fn a_ratio_is_that_of_all_requests_however_they_are_spread() {
        let estimate = Estimate::of_counts(&[(0, 10), (90, 100), (0, 0), (10, 10)]);
        let estimate = estimate.expect("windows");
        assert!((estimate.mean - 100.0 / 120.0).abs() < 1e-12);
        // Where windows are equal it is the mean of their ratios, with the same bounds.
        let equal = Estimate::of_counts(&[(1, 10), (4, 10), (2, 10), (5, 10), (3, 10)]);
        let ratios = Estimate::of(&[0.1, 0.4, 0.2, 0.5, 0.3]).expect("windows");
        let equal = equal.expect("windows");
        for (a, b) in [(equal.low, ratios.low), (equal.high, ratios.high)] {
            assert!((a - b).abs() < 1e-12, "{a} and {b}");
        }
        assert_eq!(Estimate::of_counts(&[(0, 0), (0, 0)]), None);
        assert_eq!(Estimate::of_counts(&[(1, 2)]), None);
    }

    /// As often as they say, further runs of windows with 0 to 999 requests are within the bounds.
    #[test]
    fn bounds_of_a_ratio_are_kept_as_often_as_they_say() {
        let mut draws = Prng::new(11);
        let mut windows = || -> Vec<(u64, u64)> {
            let mut window = || {
                let requests = draws.below(1000);
                let percent = 30 + draws.below(40);
                (requests * percent / 100, requests)
            };
            (0..20).map(|_| window()).collect()
        };
        let kept = (0..2000).filter(|_| {
            let estimate = Estimate::of_counts(&windows()).expect("windows");
            let other = windows();
            let sum = |of: fn(&(u64, u64)) -> u64| other.iter().map(of).sum::<u64>() as f64;
            let ratio = sum(|window| window.0) / sum(|window| window.1);
            (estimate.low..=estimate.high).contains(&ratio)
        });
        let kept = kept.count();
        assert!((1860..=1970).contains(&kept), "{kept} of 2000");
    }

    #[test]
    fn a_load_that_repeats_itself_is_known_by_whole_repetitions() {
        // Each fifth of the run is one turn of a loop: its blocks are hit at first, and missed then.
        let turn = [1.0, 0.6, 0.0, 0.0];
        let turns: Vec<f64> = (0..20).map(|at| turn[at % 4]).collect();
        let estimate = Estimate::of(&turns).expect("windows");
        assert_eq!(estimate.part_deviation, Some(0.0));
        assert!(estimate.half_width() < 1e-9, "{estimate:?}");
        let half = |length: f64| {
            let (low, high) = estimate.bounds_of(length);
            (high - low) / 2.0
        };
        assert!(half(2.0) < 1e-9, "ten turns");
        assert!(
            half(0.1) > 0.5,
            "a half turn may be all hits: {}",
            half(0.1)
        );
        assert!(half(0.5) > half(2.5), "a half turn of less weight");
        assert!(half(0.01) > 2.0 * half(0.05), "less than a window");
        // Where no fifth is like another, nothing is changed.
        let slow: Vec<f64> = (0..20).map(|at| f64::from(at / 7)).collect();
        let slow = Estimate::of(&slow).expect("windows");
        assert_eq!(slow.part_deviation, None);
    }

    #[test]
    fn the_bounds_of_runs_are_for_one_more_run() {
        // The same figures: 3 ± 2.776 * sqrt(2.5 * (1 + 1 / 5)).
        let estimate = Estimate::of_runs(&[1.0, 4.0, 2.0, 5.0, 3.0]).expect("runs");
        let half = 2.776 * 3.0_f64.sqrt();
        assert!((estimate.low - (3.0 - half)).abs() < 1e-9, "{estimate:?}");
        let wider = estimate.with_model_error(half);
        let expected = half * 2.0_f64.sqrt();
        assert!((wider.half_width() - expected).abs() < 1e-9, "{wider:?}");
        let sure = Estimate::of_runs(&[0.25; 20]).expect("runs");
        let bounds = sure.with_model_error(0.01);
        assert_eq!((bounds.low, bounds.high), (0.24, 0.26));
        assert_eq!(Estimate::of_runs(&[0.5]), None);
    }

    #[test]
    fn a_trend_widens_the_bounds() {
        let rising: Vec<f64> = (0..20).map(f64::from).collect();
        let mut mixed = rising.clone();
        (0..10).for_each(|at| mixed.swap(2 * at, 19 - at));
        let (rising, mixed) = (Estimate::of(&rising), Estimate::of(&mixed));
        let half = |estimate: Option<Estimate>| estimate.map_or(0.0, |e| e.half_width());
        assert!(half(rising) > 2.0 * half(mixed));
    }

    /// Draws from a known distribution: 95 of 100 further means are within the bounds, give or take what chance
    /// does to 2,000 of them.
    #[test]
    fn bounds_of_independent_windows_are_kept_as_often_as_they_say() {
        let mut draws = Prng::new(7);
        let mut means = |count: u32| -> Vec<f64> {
            (0..count)
                .map(|_| {
                    (0..12)
                        .map(|_| draws.bits() as f64 / u64::MAX as f64)
                        .sum::<f64>()
                })
                .collect()
        };
        let kept = (0..2000).filter(|_| {
            let estimate = Estimate::of(&means(20)).expect("windows");
            let other = means(20).iter().sum::<f64>() / 20.0;
            (estimate.low..=estimate.high).contains(&other)
        });
        let kept = kept.count();
        assert!((1880..=1970).contains(&kept), "{kept} of 2000");
    }

    /// The forecast of a run under one seed holds for runs under others.
    #[test]
    fn runs_under_other_seeds_are_within_the_bounds() {
        let loads = [
            "uniform:2000blocks",
            "zipf(0.8):2000blocks",
            "zipf(1.1):2000blocks",
            "normal(0.1):2000blocks",
        ];
        let (mut kept, mut all) = (0, 0);
        for load in loads {
            for levels in [
                "lru:200blocks",
                "lru:200blocks exclusive:300blocks",
                "lru:200blocks arc:300blocks",
            ] {
                let levels: Vec<_> = levels
                    .split(' ')
                    .map(|level| level.parse().expect("a level"))
                    .collect();
                let spec = TraceSimulation {
                    links: links(&levels, None),
                    levels,
                    write_mode: WriteMode::default(),
                    seed: 1,
                    warmup_requests: 5000,
                    requests: Some(20_000),
                };
                let workloads = [load.parse().expect("a workload")];
                let store_reads = |seed| {
                    let requests = Requests::Workloads {
                        workloads: &workloads,
                        block_bytes: 4096,
                        seed,
                    };
                    let windows = requests
                        .in_windows(&spec, 4096, WINDOWS, &mut |_| {})
                        .expect("a run");
                    let ratios = windows
                        .iter()
                        .map(|window| window.store_reads as f64 / window.requests() as f64);
                    Estimate::of(&ratios.collect::<Vec<_>>()).expect("windows")
                };
                let forecast = store_reads(1);
                for seed in 2..12 {
                    let other = store_reads(seed).mean;
                    kept += u32::from((forecast.low..=forecast.high).contains(&other));
                    all += 1;
                }
            }
        }
        assert!(kept * 100 >= all * 90, "{kept} of {all}");
    }
}
