//! What is known of one guest.

use super::settings::Settings;
use crate::curve::OnlineCurve;
use crate::guest::Activity;

/// The part of the last period in smoothed values.
const NEW: f64 = 0.25;
/// Pages that show that a guest is doing something.
pub const ACCESSES_MIN: u64 = 200;

/// One guest.
#[derive(Debug)]
pub struct Model {
    /// Its miss-ratio curve.
    pub curve: OnlineCurve,
    /// Accesses a period times their mean time in hits, smoothed.
    busy: Option<f64>,
    /// Bytes of its memory that are no cache.
    overhead: u64,
}

impl Model {
    pub fn new(curve: OnlineCurve) -> Self {
        Self {
            curve,
            busy: None,
            overhead: 0,
        }
    }

    /// Takes what it did in a period in which it had so much.
    pub fn end_period(&mut self, did: &Activity, has: u64, overhead: u64, miss_cost: f64) {
        self.curve.end_period();
        let busy = did.accesses() as f64 * (1.0 + (miss_cost - 1.0) * did.miss_ratio());
        let before = self.busy.unwrap_or(busy);
        // A guest that has ended needs nothing more.
        let new = if busy > 0.0 { NEW } else { 1.0 };
        self.busy = Some(before + new * (busy - before));
        self.overhead = did
            .cache
            .map_or(overhead, |cache| has.saturating_sub(cache));
    }

    /// What it would do in a period if it never missed.
    pub fn busy(&self) -> f64 {
        self.busy.unwrap_or(0.0)
    }

    /// Whether its sizes can be judged: by its curve, or since it does nothing.
    pub fn is_known(&self, did: &Activity) -> bool {
        self.curve.is_known() || did.accesses() < ACCESSES_MIN
    }

    /// The mean time of an access in hits, at each size, which must ascend.
    pub fn times(&self, sizes: &[u64], settings: &Settings) -> Vec<f64> {
        let units = |&size: &u64| size.saturating_sub(self.overhead) as f64 / settings.unit as f64;
        let units: Vec<f64> = sizes.iter().map(units).collect();
        let time = |ratio: f64| 1.0 + (settings.miss_cost - 1.0) * ratio;
        self.curve
            .miss_ratios(&units)
            .into_iter()
            .map(time)
            .collect()
    }

    /// By how much it missed more than its curve says for what it has.
    pub fn surprise(&self, did: &Activity, has: u64, unit: u64) -> f64 {
        if !self.curve.is_known() || did.accesses() < ACCESSES_MIN {
            return 0.0;
        }
        let units = has.saturating_sub(self.overhead) as f64 / unit as f64;
        did.miss_ratio() - self.curve.miss_ratios(&[units])[0]
    }
}
