//! What the names of a table's columns mean.

use super::columns::Columns;
use super::fields::{KindCode, TimeUnit};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// Where the data begins, in units of this many bytes.
    Offset(u64),
    /// The object.
    Key,
    /// How much data it is, in units of this many bytes.
    Length(u64),
    Time(TimeUnit),
    Kind(KindCode),
    Volume,
    /// How long an object lives, in seconds.
    Ttl,
    /// How long the request took when it was recorded.
    Latency(TimeUnit),
}

/// The names that are known, in lower case.
const NAMES: &[(&str, Meaning)] = &[
    ("offset", Meaning::Offset(1)),
    ("offset_bytes", Meaning::Offset(1)),
    ("lba", Meaning::Offset(512)),
    ("lba_512", Meaning::Offset(512)),
    ("lbn", Meaning::Offset(512)),
    ("sector", Meaning::Offset(512)),
    ("key", Meaning::Key),
    ("object", Meaning::Key),
    ("object_id", Meaning::Key),
    ("obj_id", Meaning::Key),
    ("length", Meaning::Length(1)),
    ("length_bytes", Meaning::Length(1)),
    ("len", Meaning::Length(1)),
    ("size", Meaning::Length(1)),
    ("bytes", Meaning::Length(1)),
    ("len_512", Meaning::Length(512)),
    ("sectors", Meaning::Length(512)),
    ("object_size", Meaning::Length(1)),
    ("obj_size", Meaning::Length(1)),
    ("time", Meaning::Time(TimeUnit::Seconds)),
    ("timestamp", Meaning::Time(TimeUnit::Seconds)),
    ("time_s", Meaning::Time(TimeUnit::Seconds)),
    ("time_us", Meaning::Time(TimeUnit::Micros)),
    ("timestamp_us", Meaning::Time(TimeUnit::Micros)),
    ("time_ns", Meaning::Time(TimeUnit::Nanos)),
    ("timestamp_ns", Meaning::Time(TimeUnit::Nanos)),
    ("op", Meaning::Kind(KindCode::Words)),
    ("kind", Meaning::Kind(KindCode::Words)),
    ("iotype", Meaning::Kind(KindCode::Words)),
    ("opcode", Meaning::Kind(KindCode::Words)),
    ("type", Meaning::Kind(KindCode::Words)),
    ("is_write", Meaning::Kind(KindCode::ReadIs0)),
    ("volume", Meaning::Volume),
    ("lun", Meaning::Volume),
    ("device", Meaning::Volume),
    ("device_id", Meaning::Volume),
    ("disk", Meaning::Volume),
    ("ttl", Meaning::Ttl),
    ("ttl_s", Meaning::Ttl),
    ("latency_s", Meaning::Latency(TimeUnit::Seconds)),
    ("latency_ms", Meaning::Latency(TimeUnit::Millis)),
    ("latency_us", Meaning::Latency(TimeUnit::Micros)),
    ("latency_ns", Meaning::Latency(TimeUnit::Nanos)),
];

impl Meaning {
    fn of(name: &str) -> Option<Self> {
        let name = name.trim();
        let mut known = NAMES.iter();
        let found = known.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|&(_, meaning)| meaning)
    }

    /// Whether a map has room for one of the two only.
    fn is_rival_of(self, other: Self) -> bool {
        let is_place = |it| matches!(it, Self::Offset(_) | Self::Key);
        let is_same = std::mem::discriminant(&self) == std::mem::discriminant(&other);
        is_same || is_place(self) && is_place(other)
    }
}

/// The columns whose names are known.
fn known<'a>(names: &'a [&str]) -> impl Iterator<Item = (usize, Meaning)> + 'a {
    let meanings = names.iter().map(|name| Meaning::of(name));
    let known = meanings.enumerate();
    known.filter_map(|(column, meaning)| Some((column, meaning?)))
}

/// The map for a first line that names its columns so, without regard to case: of each meaning the first column, and of an offset
/// and a key the offset. None without either.
pub fn map(names: &[&str]) -> Option<Columns> {
    let mut columns = Columns::default();
    let (mut volume, mut key) = (None, None);
    for (column, meaning) in known(names) {
        match meaning {
            Meaning::Offset(bytes) => _ = columns.offset.get_or_insert((column, bytes)),
            Meaning::Key => _ = key.get_or_insert(column),
            Meaning::Length(bytes) if columns.length.is_empty() => {
                columns.length.push((column, bytes));
            }
            Meaning::Length(_) => {}
            Meaning::Time(unit) => _ = columns.time.get_or_insert((column, unit)),
            Meaning::Kind(code) => _ = columns.kind.get_or_insert((column, code)),
            Meaning::Volume => _ = volume.get_or_insert(column),
            Meaning::Ttl => _ = columns.ttl.get_or_insert(column),
            Meaning::Latency(unit) => _ = columns.latency.get_or_insert((column, unit)),
        }
    }
    match (columns.offset, key) {
        (Some(_), _) => columns.volume.extend(volume),
        // Objects with the same key on two volumes are two.
        (None, Some(key)) => columns.key.extend(volume.into_iter().chain([key])),
        (None, None) => return None,
    }
    Some(columns)
}

/// Pairs of names in a first line that mean the same, in lower case: one that [the map](map) has, and one that it leaves out for it.
pub fn rivals(names: &[&str]) -> Vec<[String; 2]> {
    let Some(map) = map(names) else {
        return Vec::new();
    };
    let name = |column: usize| names[column].trim().to_ascii_lowercase();
    let is_read = |column: usize| map.all().any(|read| read == column);
    let mut pairs = Vec::new();
    for (left, meaning) in known(names).filter(|&(column, _)| !is_read(column)) {
        let mut rivals = known(names).filter(|&(_, other)| meaning.is_rival_of(other));
        if let Some((read, _)) = rivals.find(|&(column, _)| is_read(column)) {
            pairs.push([name(read), name(left)]);
        }
    }
    pairs
}
