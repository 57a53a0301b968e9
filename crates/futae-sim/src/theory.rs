//! Hit ratios in closed form, with which simulations are compared.
//!
//! All functions take an LRU upper cache of size U, a lower cache of size L and data of size D (or
//! a loop of size N) in one unit, any unit; ratios are fractions from 0 to 1, for large caches
//! after a long run.
//!
//! The uniform ones (theorem T4) follow from one observation. Time is counted in requests. A block
//! leaves the LRU upper cache when it was not requested during the cache's characteristic time T =
//! −D·ln(1−U/D), and each block is requested at the rate 1/D. The lower cache is therefore asked
//! for a block again after a time t if and only if the block is requested at t and was not
//! requested in the T before: the renewal rate is 0 up to T and then constant, c = (1−U/D)/D. In
//! units of 1/c, lower requests for one block are at least g = cT = −(1−U/D)·ln(1−U/D) apart, and
//! the renewal function is m(x) = max(0, x − g). With l = L/D:
//!
//! * FIFO keeps a block for a time x; of 1 + m(x) requests one misses, and (1−h)·x = l, hence h =
//!   (l − g)/(1 − g), and 0 where that is negative;
//! * RAND evicts a resident block at the rate (1−h)/l, and h is the Laplace transform of the
//!   interval at that rate, hence h = l·exp(−(1−h)·g/l);
//! * LRU keeps a block for a time x after its last request: h = F(x), where the integral of 1 − F
//!   up to x is l, and F(x) = Σ (−1)^(k−1)·(x − kg)^k / k! over all k ≥ 1 with kg < x.

use futae_policy::Kind;

/// The hit ratio of an LRU upper cache under uniform access: U/D, or 1 if all data fits.
#[must_use]
pub fn uniform_upper_hit(upper: f64, data: f64) -> f64 {
    (upper / data).min(1.0)
}

/// The hit ratio of a lower cache under uniform access, below an LRU upper cache (theorems T3 and
/// T4), for the policies `lru`, `fifo`, `random`, `mru`, `fix` and `exclusive`. `None` for another
/// policy, or if the upper cache holds all data and the lower gets no requests.
#[must_use]
pub fn uniform_lower_hit(policy: &str, upper: f64, lower: f64, data: f64) -> Option<f64> {
    if upper >= data {
        return None;
    }
    let share = lower / data;
    let gap = shortest_gap(upper, data) / data;
    let hit = match Kind::named(policy)? {
        // Of the D − U blocks outside the upper cache, the lower one has L.
        Kind::exclusive => lower / (data - upper),
        // A block is kept with the same probability whatever its past.
        Kind::mru | Kind::fix => share,
        Kind::fifo => fifo(share, gap),
        Kind::random => random(share, gap),
        Kind::lru => lru(share, gap),
        _ => return None,
    };
    Some(hit.clamp(0.0, 1.0))
}

/// The combined hit ratio of both caches, from those of each. `lower` is `None` if the lower cache
/// gets no requests.
#[must_use]
pub fn combined(upper: f64, lower: Option<f64>) -> f64 {
    upper + (1.0 - upper) * lower.unwrap_or(0.0)
}

/// The shortest re-access interval below an LRU cache of size U under uniform access, as other data
/// requested from the lower cache in between: −(D−U)·ln(1−U/D) (theorem T5). An LRU or FIFO lower
/// cache smaller than this has no hits.
#[must_use]
pub fn shortest_gap(upper: f64, data: f64) -> f64 {
    if upper >= data {
        return f64::INFINITY;
    }
    -(data - upper) * (-upper / data).ln_1p()
}

/// The hit ratio of a lower cache under a loop of size N, below an LRU upper cache (theorem T6),
/// for the policies of [`uniform_lower_hit`] except `random`. `None` for others, or if the upper
/// cache holds the loop.
#[must_use]
pub fn loop_lower_hit(policy: &str, upper: f64, lower: f64, length: f64) -> Option<f64> {
    if upper >= length {
        return None;
    }
    let whole = |fits: bool| f64::from(u8::from(fits));
    match Kind::named(policy)? {
        // The block demoted first is the one requested next, and it has just been evicted.
        Kind::exclusive => Some(whole(upper + lower >= length)),
        Kind::lru | Kind::fifo => Some(whole(lower >= length)),
        Kind::mru | Kind::fix => Some((lower / length).min(1.0)),
        _ => None,
    }
}

fn fifo(share: f64, gap: f64) -> f64 {
    if share >= 1.0 {
        1.0
    } else {
        (share - gap) / (1.0 - gap)
    }
}

fn random(share: f64, gap: f64) -> f64 {
    if share >= 1.0 {
        return 1.0;
    }
    // The right side is convex in h, above h at 0 and below it at 1: one root.
    bisect(0.0, 1.0, |h| h - share * (-(1.0 - h) * gap / share).exp())
}

/// Beyond this many units of 1/c the series loses its precision, and all but 1e-8 of the blocks are
/// resident.
const HORIZON: f64 = 20.0;

fn lru(share: f64, gap: f64) -> f64 {
    if share <= gap {
        return 0.0;
    }
    let resident = |x: f64| x - interval_series(x, gap, 1);
    if share >= 1.0 || resident(HORIZON) <= share {
        return 1.0;
    }
    interval_series(bisect(0.0, HORIZON, |x| resident(x) - share), gap, 0)
}

/// The distribution function F of the interval between lower requests for one block, integrated
/// `times` times.
fn interval_series(x: f64, gap: f64, times: i32) -> f64 {
    let mut sum = 0.0;
    for k in 1..1000 {
        let rest = x - f64::from(k) * gap;
        if rest <= 0.0 {
            break;
        }
        let term: f64 = (1..=k + times).map(|i| rest / f64::from(i)).product();
        sum += if k % 2 == 1 { term } else { -term };
        if term < 1e-18 {
            break;
        }
    }
    sum
}

/// The root of an increasing function.
fn bisect(mut low: f64, mut high: f64, function: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if function(middle) < 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An independent simulation of figures 12 to 14 of Sugimoto and Yamaguchi 2015, in percent: U, L, and
    /// the lower hit ratio of LRU, FIFO, RAND, MRU, FIX and the proposed policy.
    const TABLE: [(f64, f64, [f64; 6]); 12] = [
        (2.0, 2.0, [2.2, 2.6, 8.9, 20.0, 20.0, 25.0]),
        (2.0, 3.0, [13.0, 14.8, 18.5, 30.0, 30.0, 37.5]),
        (2.0, 4.0, [25.1, 27.0, 29.2, 40.0, 40.0, 50.0]),
        (2.0, 5.0, [37.5, 39.2, 40.4, 50.0, 50.0, 62.5]),
        (3.0, 2.0, [0.0, 0.0, 6.2, 20.0, 20.0, 28.57]),
        (3.0, 3.0, [5.2, 6.7, 14.8, 30.0, 30.0, 42.86]),
        (3.0, 4.0, [16.4, 20.0, 25.1, 40.0, 40.0, 57.14]),
        (3.0, 5.0, [29.3, 33.4, 36.4, 50.0, 50.0, 71.43]),
        (4.0, 2.0, [0.0, 0.0, 4.6, 20.0, 20.0, 33.33]),
        (4.0, 3.0, [0.0, 0.0, 12.3, 30.0, 30.0, 50.0]),
        (4.0, 4.0, [9.9, 13.5, 22.0, 40.0, 40.0, 66.67]),
        (4.0, 5.0, [21.8, 27.9, 33.2, 50.0, 50.0, 83.33]),
    ];

    const POLICIES: [&str; 6] = ["lru", "fifo", "random", "mru", "fix", "exclusive"];

    #[test]
    fn the_table_of_the_first_experiment() {
        for (upper, lower, row) in TABLE {
            for (policy, percent) in POLICIES.into_iter().zip(row) {
                let hit = uniform_lower_hit(policy, upper, lower, 10.0).expect("known");
                let off = (100.0 * hit - percent).abs();
                assert!(
                    off < 0.15,
                    "{policy} {upper}/{lower}: {hit} and {percent} %"
                );
            }
        }
    }

    #[test]
    fn both_together() {
        let lower = uniform_lower_hit("exclusive", 3.0, 4.0, 10.0);
        let both = combined(uniform_upper_hit(3.0, 10.0), lower);
        assert!((both - 0.7).abs() < 1e-12, "U + L of D, {both}");
        assert_eq!(combined(1.0, None), 1.0);
    }

    #[test]
    fn edges() {
        for policy in POLICIES {
            assert_eq!(uniform_lower_hit(policy, 10.0, 1.0, 10.0), None, "{policy}");
            assert_eq!(
                uniform_lower_hit(policy, 2.0, 10.0, 10.0),
                Some(1.0),
                "{policy}"
            );
            // Without an upper cache all are the same.
            let alone = uniform_lower_hit(policy, 0.0, 3.0, 10.0).expect("known");
            assert!((alone - 0.3).abs() < 1e-9, "{policy}: {alone}");
            // More lower cache never hurts.
            let hits: Vec<f64> = (1..100)
                .map(|l| uniform_lower_hit(policy, 2.0, f64::from(l) / 10.0, 10.0).expect("known"))
                .collect();
            assert!(hits.is_sorted(), "{policy}: {hits:?}");
        }
        assert_eq!(uniform_lower_hit("unheard-of", 1.0, 1.0, 10.0), None);
    }

    #[test]
    fn no_hits_below_the_shortest_gap() {
        let gap = shortest_gap(3.0, 10.0);
        assert!((gap - 2.497).abs() < 1e-3, "{gap}");
        for policy in ["lru", "fifo"] {
            assert_eq!(uniform_lower_hit(policy, 3.0, gap - 0.01, 10.0), Some(0.0));
            let above = uniform_lower_hit(policy, 3.0, gap + 0.1, 10.0).expect("known");
            assert!(above > 0.0 && above < 0.03, "{policy}: {above}");
        }
    }
}
