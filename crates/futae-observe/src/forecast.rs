//! What was forecast of a cache, and what came.

/// One cache beside its forecast. Ratios are from 0 to 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForecastShown {
    /// What the cache is called: its only export, or `common`.
    pub cache: String,
    /// Blocks asked for in the time that was looked at.
    pub requests: u64,
    /// The hits among them per request; none without requests.
    pub measured: Option<f64>,
    /// The least hit ratio that the forecast allows for that many requests.
    pub low: f64,
    /// The highest.
    pub high: f64,
    /// What is not as forecast, with its likely cause; none if nothing is.
    pub alarm: Option<String>,
}
