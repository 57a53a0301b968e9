//! Times as text, in UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A time as 2026-11-23T04:50:00Z.
#[must_use]
pub fn utc(time: SystemTime) -> String {
    format!("{}Z", seconds(since_epoch(time)))
}

/// A time as 2026-11-23T04:50:00.123Z.
pub(crate) fn utc_millis(time: SystemTime) -> String {
    let since = since_epoch(time);
    format!("{}.{:03}Z", seconds(since), since.subsec_millis())
}

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn seconds(since: Duration) -> String {
    let (days, of_day) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Years that begin in March: the leap day is their last. 719,468 days lie between 1 March 0 and 1970.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{of_month:02}T{:02}:{:02}:{:02}",
        of_day / 3_600,
        of_day / 60 % 60,
        of_day % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_a_calendar_has_them() {
        let at = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(at(1_795_409_400), "2026-11-23T04:50:00Z");
        assert_eq!(at(4_102_444_799), "2099-12-31T23:59:59Z");
    }
}
