//! Durations as they are written on every command line: `200us`, `10s`, `2min`, `1h`.

use std::time::Duration;

/// The longest duration: a day.
const LONGEST_SECONDS: f64 = 86_400.0;

/// A text that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text}: write a time above 0 and of at most a day, such as 200us, 500ms, 10s, 2min or 1h; \
     a bare number counts seconds"
)]
pub struct DurationError {
    /// What was written.
    pub text: String,
}

/// Reads `200us`, `500ms`, `10s`, `2min`, `1h` or a number of seconds.
///
/// # Errors
///
/// The text is not a number with one of these units, or is not above 0 and at most a day.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let wrong = || DurationError { text: text.into() };
    let at = text
        .find(|letter: char| letter.is_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let scale = match unit {
        "" | "s" => 1.0,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    let seconds = number * scale;
    if !(seconds > 0.0 && seconds <= LONGEST_SECONDS) {
        return Err(wrong());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_scale() {
        for (text, micros) in [
            ("200us", 200),
            ("200µs", 200),
            ("1.5ms", 1_500),
            ("2", 2_000_000),
            ("10s", 10_000_000),
            ("2min", 120_000_000),
            ("1h", 3_600_000_000),
        ] {
            let duration = parse_duration(text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(duration, Duration::from_micros(micros), "{text}");
        }
    }

    #[test]
    fn nothing_else_is_a_duration() {
        for text in [
            "", "s", "0", "-1s", "25h", "2 days", "inf", "NaN", "86401", "1e9min",
        ] {
            let error = parse_duration(text).expect_err(text).to_string();
            assert!(error.starts_with(&format!("{text}: ")), "{error}");
        }
    }
}
