//! Times with their units, as options have them.

use futae_units::parse_duration;
use std::time::Duration;

/// A time with its unit: a bare number could be meant as requests or as a share.
pub(crate) fn with_unit(text: &str) -> Option<Duration> {
    let has_unit = text.ends_with(char::is_alphabetic);
    parse_duration(text).ok().filter(|_| has_unit)
}

/// A time, such as `0.1ms`, in seconds.
pub(crate) fn seconds(text: &str) -> Option<f64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(end);
    let per_second = match unit.trim() {
        "ns" => 1e9,
        "us" | "µs" => 1e6,
        "ms" => 1e3,
        "s" => 1.0,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    number.is_finite().then_some(number / per_second)
}
