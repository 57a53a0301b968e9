//! Settings and observations of a guest.

use serde::Serialize;

/// The largest plausible number of pages per period, 4 TiB: larger counts from a guest are not
/// believed.
const ACCESSES_MAX: u64 = 1 << 30;

/// The limits of a guest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GuestLimits {
    /// Its name, for people.
    pub name: String,
    /// Its minimum in bytes.
    pub least: u64,
    /// Its maximum in bytes.
    pub most: u64,
    /// Its initial size in bytes.
    pub start: u64,
    /// The weight of its access time relative to that of other guests; above 0.
    pub weight: f64,
    /// Bytes of its memory that are not cache, if it does not report them.
    pub overhead: u64,
}

/// The observation of a guest at the end of a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// Its actual size in bytes; `None` if it cannot be read.
    pub achieved: Option<u64>,
    /// Its activity in the period; `None` if its agent is silent or not believed.
    pub activity: Option<Activity>,
}

impl Observation {
    /// The same without activity that nobody can believe: counts that no guest reaches, or those of
    /// a guest of unknown size.
    #[must_use]
    pub fn believed(mut self) -> Self {
        self.activity = self
            .achieved
            .and(self.activity)
            .filter(Activity::is_credible);
        self
    }
}

/// A guest's activity in a period, as its agent reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Activity {
    /// Pages found in the page cache.
    pub hits: u64,
    /// Pages that a process had to wait for.
    pub misses: u64,
    /// Bytes that are page cache or could be; none where it does not tell.
    pub cache: Option<u64>,
    /// The share of the period in which all tasks waited for memory, from 0 to 1; none where it
    /// does not tell.
    pub pressure: Option<f64>,
}

impl Activity {
    /// Pages that were asked for.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.hits.saturating_add(self.misses)
    }

    /// Whether a guest can have done that in a period.
    pub(crate) fn is_credible(&self) -> bool {
        let pressure = self.pressure.unwrap_or(0.0);
        self.accesses() <= ACCESSES_MAX && (0.0..=1.0).contains(&pressure)
    }

    /// The share that missed, from 0 to 1; 0 where nothing was asked for.
    #[must_use]
    pub fn miss_ratio(&self) -> f64 {
        self.misses as f64 / (self.accesses() as f64).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_no_guest_reaches_are_not_believed() {
        let of = |achieved, misses, pressure| {
            let activity = Activity {
                hits: 3,
                misses,
                pressure,
                ..Activity::default()
            };
            let seen = Observation {
                achieved,
                activity: Some(activity),
            };
            seen.believed().activity.is_some()
        };
        assert!(of(Some(1), 5, None) && of(Some(1), 5, Some(1.0)));
        assert!(!of(None, 5, None), "of unknown size");
        assert!(!of(Some(1), u64::MAX - 3, None) && !of(Some(1), ACCESSES_MAX, None));
        assert!(!of(Some(1), 5, Some(1.5)) && !of(Some(1), 5, Some(f64::NAN)));
    }
}
