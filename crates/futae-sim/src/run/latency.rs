//! Latencies of requests, by where they were served.

use crate::duration::seconds;
use crate::machine::Served;
use serde::Serialize;
use std::str::FromStr;

/// Access times of the places, in seconds, as `upper=1us,lower=10us,store=100us,link=5us`; an
/// omitted place takes no time.
///
/// A read takes the time of the level that served it, and a link's time for each boundary above
/// that level; a read served by the store takes the store's time and that of all links. A write
/// takes as long as a read served where the write ends: the store, or under write-back the level
/// that accepts it. Writing a dirty block down delays no request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// The first level.
    pub upper: f64,
    /// All other levels.
    pub lower: f64,
    /// The store.
    pub store: f64,
    /// The round trip between two levels.
    pub link: f64,
}

/// A malformed latency.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "latency {part:?} is not PLACE=TIME, such as upper=1us,lower=10us,store=100us,link=5us (places \
     upper, lower, store, link; units ns, us, ms, s)"
)]
pub struct LatencyError {
    part: String,
}

impl FromStr for Latency {
    type Err = LatencyError;

    fn from_str(text: &str) -> Result<Self, LatencyError> {
        let mut latency = Self::default();
        for part in text.split(',') {
            let (place, seconds) = part
                .split_once('=')
                .and_then(|(place, time)| Some((place.trim(), seconds(time.trim())?)))
                .unwrap_or_default();
            let place = match place {
                "upper" => &mut latency.upper,
                "lower" => &mut latency.lower,
                "store" => &mut latency.store,
                "link" => &mut latency.link,
                _ => {
                    let part = part.chars().take(60).collect();
                    return Err(LatencyError { part });
                }
            };
            *place = seconds;
        }
        Ok(latency)
    }
}

/// Latencies in seconds; `None` without requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AccessTimes {
    /// The mean.
    pub mean_access_seconds: Option<f64>,
    /// The median.
    pub p50_access_seconds: Option<f64>,
    /// The 90th percentile.
    pub p90_access_seconds: Option<f64>,
    /// The 99th percentile.
    pub p99_access_seconds: Option<f64>,
}

impl Latency {
    /// The latency of a read served at `depth`, where `levels` stands for the store.
    #[must_use]
    pub fn read_seconds(&self, depth: usize, levels: usize) -> f64 {
        let place = match depth {
            _ if depth >= levels => self.store,
            0 => self.upper,
            _ => self.lower,
        };
        place + self.link * depth.min(levels.saturating_sub(1)) as f64
    }

    /// Latencies of reads by where they were served, and of writes by where they were accepted, top
    /// down, the store last.
    #[must_use]
    pub fn access_times(&self, served: &[Served], writes_taken: &[u64]) -> AccessTimes {
        let levels = served.len().saturating_sub(1);
        let mut groups: Vec<(f64, u64)> = served
            .iter()
            .enumerate()
            .map(|(depth, served)| (self.read_seconds(depth, levels), served.reads))
            .collect();
        let writes = writes_taken.iter().enumerate();
        groups.extend(writes.map(|(depth, &writes)| (self.read_seconds(depth, levels), writes)));
        groups.sort_by(|a, b| a.0.total_cmp(&b.0));
        let total: u64 = groups.iter().map(|group| group.1).sum();
        let sum: f64 = groups
            .iter()
            .map(|&(time, count)| time * count as f64)
            .sum();
        let within = |percent: u64| {
            let rank = (u128::from(total) * u128::from(percent)).div_ceil(100) as u64;
            let mut seen = 0;
            let at = groups.iter().find(|group| {
                seen += group.1;
                seen >= rank
            });
            at.filter(|_| total > 0).map(|group| group.0)
        };
        AccessTimes {
            mean_access_seconds: (total > 0).then(|| sum / total as f64),
            p50_access_seconds: within(50),
            p90_access_seconds: within(90),
            p99_access_seconds: within(99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Latency, Served};

    #[test]
    fn strings_are_read_or_refused() {
        let latency: Latency = "upper=1us, store=0.1ms,link=500ns".parse().expect("valid");
        let expected = Latency {
            upper: 1e-6,
            lower: 0.0,
            store: 1e-4,
            link: 5e-7,
        };
        assert_eq!(latency, expected);
        for text in [
            "",
            "upper",
            "upper=1",
            "upper=us",
            "disk=1ms",
            "upper=-1us",
            "upper=1us,",
        ] {
            assert!(text.parse::<Latency>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn mean_and_percentiles_are_those_of_all_requests() {
        let latency: Latency = "upper=1s,lower=10s,store=100s,link=5s"
            .parse()
            .expect("valid");
        let reads = |reads| Served {
            reads,
            ..Served::default()
        };
        let times = latency.access_times(&[reads(50), reads(41), reads(9)], &[]);
        let mean = (50.0 + 41.0 * 15.0 + 9.0 * 105.0) / 100.0;
        assert_eq!(times.mean_access_seconds, Some(mean));
        assert_eq!(times.p50_access_seconds, Some(1.0));
        assert_eq!(times.p90_access_seconds, Some(15.0));
        assert_eq!(times.p99_access_seconds, Some(105.0));
        assert_eq!(
            latency.access_times(&[reads(0); 3], &[]).p50_access_seconds,
            None
        );
    }
}
