//! Column maps: text with one request a line and one value a column is what most trace formats are, which differ only in
//! which column is what, and in its unit.

use super::error::TraceErrorKind;
use super::fields::{KindCode, TimeUnit};
use super::line::Separator;
use std::str::FromStr;

/// As many columns as a line of the longest length can have.
const COLUMNS_MAX: usize = 1 << 16;

/// The names in a map that may be given more than once.
const REPEATED: [&str; 3] = ["volume", "key", "length"];

/// Which column is what, columns counted from 0.
///
/// As text it is a list of `name=column` or `name=column:unit`: `offset` and `length` with the
/// bytes of their unit (1), `time` with `s`, `ms`, `us`, `ns` or `filetime` (s), `kind` with
/// `read0` or `read1` where it is a number, `volume`, any number of times, and `separator=blank`, `tab` or
/// `semicolon` where the columns are not separated by commas. Only `offset` must be there:
/// `time=0:s,volume=4,offset=1:512,length=2:512,kind=3:read0`. Where objects have names in place of offsets, `key`
/// takes its place; several make one name, and several lengths add up: `time=0,key=1,length=2,length=3`. `ttl` is for the seconds that
/// an object lives, 0 where a request does not say, and `latency` for how long a request took when it was recorded, with the units of `time`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    pub(super) separator: Separator,
    pub(super) time: Option<(usize, TimeUnit)>,
    pub(super) volume: Vec<usize>,
    /// None where objects have keys.
    pub(super) offset: Option<(usize, u64)>,
    /// The columns that name an object together; none where there are offsets.
    pub(super) key: Vec<usize>,
    pub(super) length: Vec<(usize, u64)>,
    pub(super) kind: Option<(usize, KindCode)>,
    /// How long an object lives, in seconds.
    pub(super) ttl: Option<usize>,
    /// How long the request took when it was recorded.
    pub(super) latency: Option<(usize, TimeUnit)>,
}

impl FromStr for Columns {
    type Err = TraceErrorKind;

    fn from_str(text: &str) -> Result<Self, TraceErrorKind> {
        let (mut columns, mut given) = (Self::default(), Vec::new());
        for item in text.split(',').map(str::trim) {
            let (name, _) = item.split_once('=').unwrap_or((item, ""));
            if given.contains(&name) && !REPEATED.contains(&name) {
                let expected = "the first of its name; only volume, key and length may be given more than once";
                return Err(bad(item, expected));
            }
            given.push(name);
            columns.set(item)?;
        }
        match (columns.offset.is_some(), columns.key.is_empty()) {
            (false, true) => Err(bad(text, "complete: the offset has no column")),
            (true, false) => Err(bad(text, "clear: it has both an offset and a key")),
            _ if !columns.key.is_empty() && !columns.volume.is_empty() => {
                Err(bad(text, "clear: in place of volume= name a further key="))
            }
            _ => Ok(columns),
        }
    }
}

impl Columns {
    fn set(&mut self, item: &str) -> Result<(), TraceErrorKind> {
        let expected =
            "one of time=, volume=, offset=, key=, length=, kind=, ttl=, latency=, separator=";
        let (name, value) = item.split_once('=').ok_or_else(|| bad(item, expected))?;
        if name == "separator" {
            self.separator = match value {
                "comma" => Separator::Comma,
                "blank" => Separator::Blank,
                "tab" => Separator::Tab,
                "semicolon" => Separator::Semicolon,
                _ => return Err(bad(item, "separator=comma, blank, tab or semicolon")),
            };
            return Ok(());
        }
        let (column, unit) = match value.split_once(':') {
            Some((column, unit)) => (column, Some(unit)),
            None => (value, None),
        };
        let column = column.parse().ok().filter(|&c: &usize| c < COLUMNS_MAX);
        let column = column.ok_or_else(|| bad(item, "a column number from 0 to 65535"))?;
        match name {
            "time" => self.time = Some((column, time_unit(item, unit)?)),
            "volume" if unit.is_none() => self.volume.push(column),
            "key" if unit.is_none() => self.key.push(column),
            "ttl" if unit.is_none() => self.ttl = Some(column),
            "latency" => self.latency = Some((column, time_unit(item, unit)?)),
            "offset" => self.offset = Some((column, unit_bytes(item, unit)?)),
            "length" => self.length.push((column, unit_bytes(item, unit)?)),
            "kind" => {
                let code = match unit {
                    None => KindCode::Words,
                    Some("read0") => KindCode::ReadIs0,
                    Some("read1") => KindCode::ReadIs1,
                    Some(_) => return Err(bad(item, "kind=COLUMN, with :read0 or :read1")),
                };
                self.kind = Some((column, code));
            }
            _ => return Err(bad(item, expected)),
        }
        Ok(())
    }

    /// All columns that are read, in the order in which the row of a table is taken apart.
    pub(super) fn all(&self) -> impl Iterator<Item = usize> {
        let offset = self.offset.map(|(column, _)| column);
        let kind = self.kind.map(|(column, _)| column);
        let time = self.time.map(|(column, _)| column);
        let latency = self.latency.map(|(column, _)| column);
        let lengths = self.length.iter().map(|(column, _)| *column);
        let names = self.volume.iter().chain(&self.key).copied();
        let numbers = offset.into_iter().chain(lengths).chain(kind).chain(time);
        numbers.chain(names).chain(self.ttl).chain(latency)
    }

    /// Whether a record may begin with any text: with a name, or with what is not read.
    pub(super) fn begin_with_text(&self) -> bool {
        let is_read = self.all().any(|column| column == 0);
        !is_read || self.key.contains(&0) || self.volume.contains(&0)
    }
}

fn bad(text: &str, expected: &'static str) -> TraceErrorKind {
    TraceErrorKind::Columns {
        text: text.to_owned(),
        expected,
    }
}

fn unit_bytes(item: &str, unit: Option<&str>) -> Result<u64, TraceErrorKind> {
    let bytes = unit.map_or(Some(1), |unit| unit.parse().ok().filter(|&bytes| bytes > 0));
    bytes.ok_or_else(|| {
        bad(
            item,
            "a column and the bytes of its unit, as in offset=1:512",
        )
    })
}

fn time_unit(item: &str, unit: Option<&str>) -> Result<TimeUnit, TraceErrorKind> {
    match unit {
        None | Some("s") => Ok(TimeUnit::Seconds),
        Some("ms") => Ok(TimeUnit::Millis),
        Some("us") => Ok(TimeUnit::Micros),
        Some("ns") => Ok(TimeUnit::Nanos),
        Some("filetime") => Ok(TimeUnit::FileTime),
        Some(_) => Err(bad(
            item,
            "a column with the unit :s, :ms, :us, :ns or :filetime",
        )),
    }
}
