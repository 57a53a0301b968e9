//! The schema of an Arrow table in the metadata of a Parquet file.
//!
//! Parquet has no type for a span of time. Arrow's libraries write one as a plain number, and its unit into this schema only:
//! a flatbuffer in base 64 (Arrow's `Message.fbs` and `Schema.fbs`). Nothing else is taken from it. Without a schema, or with
//! one that is damaged, spans of time are numbers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

/// The key of the schema in the metadata.
pub const KEY: &str = "ARROW:schema";

/// `MessageHeader.Schema`.
const SCHEMA: u8 = 1;
/// `Type.Duration`.
const DURATION: u8 = 18;
/// What a message begins with since Arrow 0.15.
const CONTINUATION: u32 = u32::MAX;

/// The columns that are spans of time: number, name, and nanoseconds of the unit.
pub fn durations(encoded: &str) -> Vec<(usize, String, u64)> {
    let found = decode(encoded).and_then(|data| of_message(&data));
    found.unwrap_or_default()
}

fn of_message(data: &[u8]) -> Option<Vec<(usize, String, u64)>> {
    let begin = match u32_at(data, 0)? {
        CONTINUATION => 8,
        _ => 4,
    };
    let message = Table::root(data.get(begin..)?)?;
    if message.byte(1)? != SCHEMA {
        return None;
    }
    let fields = message.table(2)?.tables(1)?;
    let mut found = Vec::new();
    for (number, field) in fields.enumerate() {
        let field = field?;
        if field.byte(2) == Some(DURATION) {
            let unit = field.table(3)?.field(0);
            // A flatbuffer leaves out what is the default: milliseconds.
            let unit = unit.map_or(Some(1), |at| u16_at(field.data, at))?;
            let ns = match unit {
                0 => 1_000_000_000,
                1 => 1_000_000,
                2 => 1000,
                3 => 1,
                _ => return None,
            };
            found.push((number, field.text(0)?, ns));
        }
    }
    Some(found)
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    let bytes = data.get(at..)?.first_chunk()?;
    Some(u16::from_le_bytes(*bytes))
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

/// Where the offset at `at` leads.
fn follow(data: &[u8], at: usize) -> Option<usize> {
    at.checked_add(usize::try_from(u32_at(data, at)?).ok()?)
}

/// A table of a flatbuffer. Its fields have numbers.
#[derive(Clone, Copy)]
struct Table<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Table<'a> {
    fn root(data: &'a [u8]) -> Option<Self> {
        let at = follow(data, 0)?;
        Some(Self { data, at })
    }

    /// Where a field is; none if the table does not have it.
    fn field(self, number: usize) -> Option<usize> {
        let back = u32_at(self.data, self.at)?.cast_signed();
        let map = i64::try_from(self.at).ok()?.checked_sub(i64::from(back))?;
        let map = usize::try_from(map).ok()?;
        let slot = 4 + 2 * number;
        if slot + 2 > usize::from(u16_at(self.data, map)?) {
            return None;
        }
        match u16_at(self.data, map.checked_add(slot)?)? {
            0 => None,
            offset => self.at.checked_add(usize::from(offset)),
        }
    }

    fn byte(self, number: usize) -> Option<u8> {
        self.data.get(self.field(number)?).copied()
    }

    fn table(self, number: usize) -> Option<Self> {
        let at = follow(self.data, self.field(number)?)?;
        Some(Self { at, ..self })
    }

    /// The tables of a list; each is none if it is damaged.
    fn tables(self, number: usize) -> Option<impl Iterator<Item = Option<Self>>> {
        let list = follow(self.data, self.field(number)?)?;
        let count = usize::try_from(u32_at(self.data, list)?).ok()?;
        let begin = list.checked_add(4)?;
        // No more than there is room for, whatever the count says.
        let room = self.data.len().saturating_sub(begin) / 4;
        (count <= room).then_some(())?;
        Some((0..count).map(move |item| {
            let at = follow(self.data, begin + 4 * item)?;
            Some(Self { at, ..self })
        }))
    }

    fn text(self, number: usize) -> Option<String> {
        let at = follow(self.data, self.field(number)?)?;
        let length = usize::try_from(u32_at(self.data, at)?).ok()?;
        let begin = at.checked_add(4)?;
        let bytes = self.data.get(begin..begin.checked_add(length)?)?;
        Some(str::from_utf8(bytes).ok()?.to_owned())
    }
}

/// Base 64, with or without padding.
fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD_NO_PAD.decode(text.trim_end_matches('=')).ok()
}

#[cfg(test)]
mod tests {
    use super::{decode, durations, of_message};

    /// Written by pyarrow 26: `d_s` in seconds, and `ts`, which is no span of time.
    const PYARROW: &str = "/////6AAAAAQAAAAAAAKAAwABgAFAAgACgAAAAABBAAMAAAACAAIAAAABAAIAAAABAAAAAIAAABAAAAABAAAANj///8AAAEKEAAAABgAAAAEAAAAAAAAAAIAAAB0cwAABAAEAAQAAAAQABQACAAGAAcADAAAABAAEAAAAAAAARIQAAAAHAAAAAQAAAAAAAAAAwAAAGRfcwAAAAYACAAGAAYAAAAAAAAA";
    /// Written by polars: `d` in microseconds, a time of day and a date.
    const POLARS: &str = "/////9IAAAAEAAAA8v///xQAAAAEAAEAAAAKAAsACAAKAAQA+P///wwAAAAIAAgAAAAEAAMAAABoAAAAMAAAAAQAAACQ////HAAAABAAAAAIAAAAAQgAAAAAAACO////AAAAAAIAAABkZAAAuP///ygAAAAQAAAACAAAAAEJAAAAAAAA9P///0AAAAADAAAACAAKAAgABAABAAAAdAAAAOz///8wAAAAIAAAABgAAAABEgAAEAASAAQAEAARAAgAAAAMAAAAAAD6////AgAGAAYABAABAAAAZAA=";

    #[test]
    fn spans_of_time_are_found_in_what_arrows_libraries_write() {
        assert_eq!(durations(PYARROW), [(0, "d_s".to_owned(), 1_000_000_000)]);
        assert_eq!(durations(POLARS), [(0, "d".to_owned(), 1000)]);
        for text in ["", "////", "no base 64", &PYARROW[..40]] {
            assert_eq!(durations(text), [], "{text}");
        }
    }

    #[test]
    fn damage_never_panics() {
        for text in [PYARROW, POLARS] {
            let whole = decode(text).unwrap_or_default();
            for at in 0..whole.len() {
                for byte in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut damaged = whole.clone();
                    damaged[at] = byte;
                    let _ = of_message(&damaged);
                }
                let _ = of_message(&whole[..at]);
            }
        }
    }
}
