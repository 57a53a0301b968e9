//! Hit ratios of the two caches.

use serde::Serialize;

/// Hit ratios as fractions; none where nothing was asked for.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Ratios {
    /// Of the upper cache.
    pub upper_hit: Option<f64>,
    /// Of the lower cache, of what the upper one missed.
    pub lower_hit: Option<f64>,
    /// Of both together.
    pub combined_hit: Option<f64>,
}
