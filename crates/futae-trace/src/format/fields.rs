//! Numbers, times and kinds as traces write them.

use super::TraceErrorKind;
use crate::RequestKind;

/// The unit of a column of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
    /// Nanoseconds.
    Nanos,
    /// Windows FILETIME: units of 100 ns.
    FileTime,
}

impl TimeUnit {
    /// The unit with so many nanoseconds.
    pub(super) fn of_nanos(nanos: u64) -> Option<Self> {
        [Self::Seconds, Self::Millis, Self::Micros, Self::Nanos]
            .into_iter()
            .find(|unit| unit.nanos() == u128::from(nanos))
    }

    fn nanos(self) -> u128 {
        match self {
            Self::Seconds => 1_000_000_000,
            Self::Millis => 1_000_000,
            Self::Micros => 1000,
            Self::Nanos => 1,
            Self::FileTime => 100,
        }
    }
}

fn wrong(text: &str, expected: &'static str) -> TraceErrorKind {
    TraceErrorKind::Field {
        text: text.chars().take(40).collect(),
        expected,
    }
}

/// A whole number.
pub fn number(text: &str) -> Result<u64, TraceErrorKind> {
    text.parse()
        .map_err(|_| wrong(text, "a whole number below 2^64"))
}

/// A whole number of units of `unit_bytes`, in bytes.
pub fn bytes(text: &str, unit_bytes: u64) -> Result<u64, TraceErrorKind> {
    number(text)?
        .checked_mul(unit_bytes)
        .ok_or(TraceErrorKind::OutOfRange)
}

/// A time, possibly with a fraction, in microseconds; what is below one is cut off.
pub fn time_us(text: &str, unit: TimeUnit) -> Result<u64, TraceErrorKind> {
    let error = || wrong(text, "a time");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) {
        return Err(error());
    }
    let whole: u64 = whole.parse().map_err(|_| error())?;
    let mut nanos = u128::from(whole) * unit.nanos();
    let mut digit_nanos = unit.nanos();
    for digit in fraction.bytes() {
        digit_nanos /= 10;
        nanos += u128::from(digit - b'0') * digit_nanos;
    }
    u64::try_from(nanos / 1000).map_err(|_| error())
}

/// What the numbers of a column of kinds mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindCode {
    /// Letters or words only: `R`, `W`, `Read`, `Write`.
    Words,
    /// 0 is a read and 1 a write, as are false and true.
    ReadIs0,
    /// 1 is a read and 0 a write, as are true and false.
    ReadIs1,
    /// Flags, of which the lowest is set for a read.
    ReadIsOdd,
}

/// A read or a write.
pub fn kind(text: &str, code: KindCode) -> Result<RequestKind, TraceErrorKind> {
    let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    let is_code = matches!(code, KindCode::ReadIs0 | KindCode::ReadIs1);
    let number = match text.parse::<u64>().ok() {
        None if is_code && is(&["true"]) => Some(1),
        None if is_code && is(&["false"]) => Some(0),
        number => number,
    };
    match (code, number) {
        (KindCode::ReadIs0, Some(0)) | (KindCode::ReadIs1, Some(1)) => Ok(RequestKind::Read),
        (KindCode::ReadIs0, Some(1)) | (KindCode::ReadIs1, Some(0)) => Ok(RequestKind::Write),
        (KindCode::ReadIsOdd, Some(flags)) if flags & 1 == 1 => Ok(RequestKind::Read),
        (KindCode::ReadIsOdd, Some(_)) => Ok(RequestKind::Write),
        _ if is(&["R", "Read"]) => Ok(RequestKind::Read),
        _ if is(&["W", "Write"]) => Ok(RequestKind::Write),
        _ => Err(wrong(text, "a read or a write")),
    }
}

/// Why a request without a key is none.
pub fn no_key() -> TraceErrorKind {
    wrong("", "a key")
}

/// As [`kind`], and what clients of key-value stores do, too. None is what neither reads nor writes an object, such
/// as its deletion: a simulated cache has no use for it.
pub fn operation(text: &str, code: KindCode) -> Result<Option<RequestKind>, TraceErrorKind> {
    if code != KindCode::Words {
        return kind(text, code).map(Some);
    }
    let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    let reads = ["get", "gets", "get_lease", "lease_get", "gat", "read", "r"];
    let writes = [
        "set",
        "add",
        "replace",
        "cas",
        "append",
        "prepend",
        "incr",
        "decr",
        "lease_set",
        "set_lease",
        "put",
        "write",
        "w",
    ];
    if is(&reads) {
        Ok(Some(RequestKind::Read))
    } else if is(&writes) {
        Ok(Some(RequestKind::Write))
    } else if is(&["delete", "del", "touch", "invalidate"]) {
        Ok(None)
    } else {
        Err(wrong(text, "an operation such as get, set or delete"))
    }
}

#[cfg(test)]
mod tests {
    use super::{KindCode, RequestKind, TimeUnit, kind, time_us};

    #[test]
    fn times_are_exact_to_the_microsecond() {
        let us = |text, unit| time_us(text, unit).ok();
        assert_eq!(
            us("1456095145.133076000", TimeUnit::Seconds),
            Some(1_456_095_145_133_076)
        );
        assert_eq!(
            us("128166385295514663", TimeUnit::FileTime),
            Some(12_816_638_529_551_466)
        );
        assert_eq!(us("0.5", TimeUnit::Millis), Some(500));
        assert_eq!(us("1999", TimeUnit::Nanos), Some(1));
        assert_eq!(us("7.", TimeUnit::Micros), Some(7));
        for text in ["", ".5", "-1", "1e3", "1.-5", "99999999999999999999", "0x1"] {
            assert_eq!(us(text, TimeUnit::Seconds), None, "{text}");
        }
        assert_eq!(us("18446744073709551615", TimeUnit::Seconds), None);
    }

    #[test]
    fn kinds_are_words_or_the_numbers_of_the_format() {
        let read = |text, code| kind(text, code).ok().map(|k| k == RequestKind::Read);
        assert_eq!(read("Read", KindCode::Words), Some(true));
        assert_eq!(read("w", KindCode::ReadIs0), Some(false));
        assert_eq!(read("0", KindCode::ReadIs0), Some(true));
        assert_eq!(read("0", KindCode::ReadIs1), Some(false));
        assert_eq!(read("True", KindCode::ReadIs0), Some(false));
        assert_eq!(read("false", KindCode::ReadIs0), Some(true));
        assert_eq!(read("true", KindCode::ReadIs1), Some(true));
        assert_eq!(read("true", KindCode::Words), None);
        assert_eq!(read("false", KindCode::ReadIsOdd), None);
        assert_eq!(read("3", KindCode::ReadIsOdd), Some(true));
        assert_eq!(read("2", KindCode::ReadIs1), None);
        assert_eq!(read("0", KindCode::Words), None);
        assert_eq!(read("Trim", KindCode::Words), None);
    }
}
