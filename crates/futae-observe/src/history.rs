//! Hits and requests of the last quarter of an hour, by export.

use crate::snapshot::Snapshot;
use std::collections::VecDeque;

/// Seconds between two points.
pub(crate) const STEP_SECONDS: f64 = 5.0;
/// Points of an export: a quarter of an hour.
const POINTS: usize = 181;
/// Exports that are followed; the first ones.
const FOLLOWED: usize = 64;

/// What an export had counted at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Point {
    /// Seconds since the program's start.
    pub(crate) at: f64,
    pub(crate) requests: u64,
    pub(crate) hits: u64,
}

impl Point {
    /// The share of hits among the requests since an earlier point; none without requests.
    pub(crate) fn ratio_since(&self, earlier: &Self) -> Option<f64> {
        let requests = self.requests.saturating_sub(earlier.requests);
        let hits = self.hits.saturating_sub(earlier.hits);
        (requests > 0).then(|| hits as f64 / requests as f64)
    }
}

/// The points of one export, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: VecDeque<Point>,
}

impl Line {
    /// The requests in all that is kept.
    fn requests(&self) -> u64 {
        match (self.points.front(), self.points.back()) {
            (Some(first), Some(last)) => last.requests.saturating_sub(first.requests),
            _ => 0,
        }
    }

    /// The ratio of hits in all that is kept.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let (first, last) = (self.points.front()?, self.points.back()?);
        last.ratio_since(first)
    }
}

/// The lines of all exports that are followed.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(Vec<Line>);

impl History {
    /// Adds a point to every line. Exports that are gone lose theirs.
    pub(crate) fn note(&mut self, snapshot: &Snapshot) {
        let mut counted = counted(snapshot);
        counted.truncate(FOLLOWED);
        self.0
            .retain(|line| counted.iter().any(|(name, _)| *name == line.name));
        for (name, point) in counted {
            let known = self.0.iter().position(|line| line.name == name);
            let at = known.unwrap_or_else(|| {
                let points = VecDeque::with_capacity(POINTS);
                self.0.push(Line { name, points });
                self.0.len() - 1
            });
            let points = &mut self.0[at].points;
            if points.len() == POINTS {
                points.pop_front();
            }
            points.push_back(point);
        }
    }

    /// The line of an export.
    pub(crate) fn line(&self, name: &str) -> Option<&Line> {
        self.0.iter().find(|line| line.name == name)
    }

    /// The lines with the most requests, at most this many, by name.
    pub(crate) fn busiest(&self, most: usize) -> Vec<&Line> {
        let mut lines: Vec<_> = self.0.iter().collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.requests()));
        lines.truncate(most);
        lines.sort_by(|a, b| a.name.cmp(&b.name));
        lines
    }
}

/// What each export has counted; each cache, of a mount whose files come and go.
fn counted(snapshot: &Snapshot) -> Vec<(String, Point)> {
    let at = snapshot.uptime_seconds;
    let of_cache = |name: &str, requests, hits| {
        let point = Point { at, requests, hits };
        (name.to_owned(), point)
    };
    let caches = snapshot.engines.iter().flat_map(|cache| {
        let counters = &cache.engine.counters;
        let mut counted: Vec<_> = cache.engine.volumes.iter().collect::<Vec<_>>();
        let whole = counted
            .is_empty()
            .then(|| of_cache(Snapshot::name_of(cache), counters.requests, counters.hits));
        let volumes = counted
            .drain(..)
            .map(|volume| of_cache(&volume.name, volume.requests, volume.hits));
        volumes.chain(whole).collect::<Vec<_>>()
    });
    caches.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futae_control::EngineReport;
    use futae_engine::{EngineStatus, VolumeStatus};

    fn seen(at: f64, volumes: &[(&str, u64, u64)]) -> Snapshot {
        let volume = |&(name, requests, hits): &(&str, u64, u64)| VolumeStatus {
            name: name.to_owned(),
            requests,
            hits,
            ..VolumeStatus::default()
        };
        let engine = EngineStatus {
            volumes: volumes.iter().map(volume).collect(),
            ..EngineStatus::default()
        };
        let exports = vec!["tree".to_owned()];
        Snapshot::of_mount("1", at, vec![EngineReport { exports, engine }])
    }

    #[test]
    fn a_line_has_the_last_quarter_of_an_hour() {
        let mut history = History::default();
        for step in 0..500 {
            let at = f64::from(step) * STEP_SECONDS;
            let hits = u64::try_from(step).expect("small");
            history.note(&seen(at, &[("a", 4 * hits, hits), ("b", 7, 3)]));
        }
        let line = history.line("a").expect("it is followed");
        let (first, last) = (line.points.front(), line.points.back());
        let span = last.expect("a point").at - first.expect("a point").at;
        assert!((span - 900.0).abs() < 1e-9, "{span}");
        assert_eq!(line.ratio(), Some(0.25));
        assert_eq!(history.line("b").expect("it is followed").ratio(), None);
        let names = |most| -> Vec<_> { history.busiest(most).iter().map(|l| &*l.name).collect() };
        assert_eq!((names(1), names(9)), (vec!["a"], vec!["a", "b"]));
    }

    #[test]
    fn what_is_gone_is_forgotten_and_a_tree_is_one_line() {
        let mut history = History::default();
        let many: Vec<_> = (0..100).map(|at| format!("e{at}")).collect();
        let many: Vec<_> = many.iter().map(|name| (&**name, 1, 1)).collect();
        history.note(&seen(0.0, &many));
        assert_eq!(history.0.len(), FOLLOWED);
        history.note(&seen(5.0, &[("a", 1, 1)]));
        assert_eq!(history.0.len(), 1);
        history.note(&seen(10.0, &[]));
        assert!(history.line("a").is_none() && history.line("tree").is_some());
        // A counter that begins again is no negative number.
        history.note(&seen(15.0, &[("a", 9, 9)]));
        history.note(&seen(20.0, &[("a", 2, 1)]));
        assert_eq!(history.line("a").expect("it is followed").ratio(), None);
    }
}
