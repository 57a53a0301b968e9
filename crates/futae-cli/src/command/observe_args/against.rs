//! The caches of a program against a forecast, over the last quarter of an hour.

use crate::command::forecast::Forecast;
use crate::command::record::Traffic;
use crate::command::verify::judge::judge;
use futae_control::EngineReport;
use futae_observe::{ForecastShown, Snapshot};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// What is looked at, in seconds.
const SPAN: f64 = 900.0;
/// Between two counts that are kept.
const STEP: f64 = 5.0;

/// What a cache had counted, and when: seconds since the program's start.
type Counts = VecDeque<(f64, Traffic)>;

/// A forecast, and what the caches had counted since.
pub(super) struct Against {
    forecast: Forecast,
    /// By the name of the cache.
    counted: Mutex<Vec<(String, Counts)>>,
}

impl Against {
    pub(super) fn new(forecast: Forecast) -> Self {
        Self {
            forecast,
            counted: Mutex::default(),
        }
    }

    /// Every cache against the forecast.
    pub(super) fn shown(&self, snapshot: &Snapshot) -> Vec<ForecastShown> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = |name: &str| {
            snapshot
                .engines
                .iter()
                .any(|one| Snapshot::name_of(one) == name)
        };
        counted.retain(|(name, _)| is_there(name));
        let now = snapshot.uptime_seconds;
        let one = |cache: &EngineReport| {
            let name = Snapshot::name_of(cache);
            let known = counted.iter().position(|(known, _)| known == name);
            let at = known.unwrap_or_else(|| {
                counted.push((name.to_owned(), Counts::new()));
                counted.len() - 1
            });
            let (exports, feeds) = snapshot
                .server
                .as_ref()
                .map_or((&[][..], &[][..]), |it| (&it.exports, &it.feeds));
            let traffic = Traffic::of(&cache.engine).beside(&cache.exports, exports, feeds);
            let traffic = since(&mut counted[at].1, traffic, now);
            let judged = judge(&self.forecast, &traffic);
            ForecastShown {
                cache: name.to_owned(),
                requests: judged.requests,
                measured: judged.hit_ratio,
                low: judged.low,
                high: judged.high,
                alarm: judged.alarm,
            }
        };
        snapshot.engines.iter().map(one).collect()
    }
}

/// What came in the last quarter of an hour, or since the start.
///
/// What was counted before the first look is part of it: the thread that looks may start late.
fn since(counts: &mut Counts, traffic: Traffic, now: f64) -> Traffic {
    if counts.is_empty() {
        // Before anything was asked of it.
        counts.push_back((now, Traffic::default()));
    }
    while counts.get(1).is_some_and(|(then, _)| now - then >= SPAN) {
        counts.pop_front();
    }
    let came = traffic.since(&counts[0].1);
    if counts.back().is_none_or(|(then, _)| now - then >= STEP) {
        counts.push_back((now, traffic));
    }
    came
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(requests: u64) -> Traffic {
        Traffic {
            requests,
            hits: requests / 2,
            ..Traffic::default()
        }
    }

    #[test]
    fn the_last_quarter_of_an_hour_counts() {
        let mut counts = Counts::new();
        assert_eq!(since(&mut counts, traffic(100), 0.5).requests, 100);
        // Ten requests a second; looked at every second, and kept every five.
        for second in 1..=2000u32 {
            let requests = 100 + 10 * u64::from(second);
            let came = since(&mut counts, traffic(requests), f64::from(second) + 0.5).requests;
            let all = 10 * u64::from(second.min(905)) + 100;
            assert!(
                came <= all && came + 60 >= all.min(9000),
                "{second}: {came}"
            );
        }
        assert!(counts.len() <= 182, "{}", counts.len());
        // A program that was started anew counts from 0.
        assert_eq!(since(&mut counts, traffic(7), 2001.0).requests, 7);
    }
}
