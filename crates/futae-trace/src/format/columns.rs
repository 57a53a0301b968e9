//! Text with one request a line and one value a column: most trace formats differ only in which
//! column is what, and in its unit.

use super::TraceErrorKind;
use super::context::{Context, Raw};
use super::decoder::LineDecoder;
use super::fields::{self, KindCode, TimeUnit};
use super::line::{FIELDS_MAX, Fields};
use crate::{Request, RequestKind};
use futae_policy::VolumeId;
use std::str::FromStr;

/// Which column is what, columns counted from 0.
///
/// As text it is a list of `name=column` or `name=column:unit`: `offset` and `length` with the
/// bytes of their unit (1), `time` with `s`, `ms`, `us`, `ns` or `filetime` (s), `kind` with
/// `read0` or `read1` where it is a number, `volume`, any number of times, and `separator=blank`
/// where the columns are not separated by commas. Only `offset` must be there:
/// `time=0:s,volume=4,offset=1:512,length=2:512,kind=3:read0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    pub(super) blanks: bool,
    pub(super) time: Option<(usize, TimeUnit)>,
    pub(super) volume: Vec<usize>,
    pub(super) offset: (usize, u64),
    pub(super) length: Option<(usize, u64)>,
    pub(super) kind: Option<(usize, KindCode)>,
}

impl FromStr for Columns {
    type Err = TraceErrorKind;

    fn from_str(text: &str) -> Result<Self, TraceErrorKind> {
        let mut columns = Self {
            blanks: false,
            time: None,
            volume: Vec::new(),
            offset: (FIELDS_MAX, 1),
            length: None,
            kind: None,
        };
        for item in text.split(',') {
            columns.set(item.trim())?;
        }
        if columns.offset.0 == FIELDS_MAX {
            return Err(bad(text, "complete: the offset has no column"));
        }
        Ok(columns)
    }
}

impl Columns {
    fn set(&mut self, item: &str) -> Result<(), TraceErrorKind> {
        let expected = "one of time=, volume=, offset=, length=, kind=, separator=";
        let (name, value) = item.split_once('=').ok_or_else(|| bad(item, expected))?;
        if name == "separator" {
            self.blanks = match value {
                "blank" => true,
                "comma" => false,
                _ => return Err(bad(item, "separator=comma or separator=blank")),
            };
            return Ok(());
        }
        let (column, unit) = match value.split_once(':') {
            Some((column, unit)) => (column, Some(unit)),
            None => (value, None),
        };
        let column = column.parse().ok().filter(|&c: &usize| c < FIELDS_MAX);
        let column = column.ok_or_else(|| bad(item, "a column number from 0 to 31"))?;
        match name {
            "time" => self.time = Some((column, time_unit(item, unit)?)),
            "volume" if unit.is_none() => self.volume.push(column),
            "offset" => self.offset = (column, unit_bytes(item, unit)?),
            "length" => self.length = Some((column, unit_bytes(item, unit)?)),
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

    /// A map for a first line that names its columns as `name`, without regard to case.
    pub(super) fn of_header(names: &[&str]) -> Option<Self> {
        let find = |known: &[(&str, u64)]| {
            names.iter().enumerate().find_map(|(i, name)| {
                let name = name.trim().to_ascii_lowercase();
                known
                    .iter()
                    .find(|(k, _)| *k == name)
                    .map(|(_, unit)| (i, *unit))
            })
        };
        let offset = find(&[
            ("offset", 1),
            ("offset_bytes", 1),
            ("lba", 512),
            ("lba_512", 512),
            ("sector", 512),
        ])?;
        let length = find(&[
            ("length", 1),
            ("length_bytes", 1),
            ("len", 1),
            ("size", 1),
            ("bytes", 1),
            ("len_512", 512),
            ("sectors", 512),
        ]);
        let time = find(&[
            ("time", 1_000_000),
            ("timestamp", 1_000_000),
            ("time_s", 1_000_000),
            ("time_us", 1),
            ("timestamp_us", 1),
            ("time_ns", 0),
            ("timestamp_ns", 0),
        ]);
        let time = time.map(|(column, micros)| {
            let unit = match micros {
                0 => TimeUnit::Nanos,
                1 => TimeUnit::Micros,
                _ => TimeUnit::Seconds,
            };
            (column, unit)
        });
        let kind = find(&[
            ("op", 0),
            ("kind", 0),
            ("iotype", 0),
            ("opcode", 0),
            ("type", 0),
        ]);
        let kind = kind.map(|(column, _)| (column, KindCode::Words));
        let volume = find(&[
            ("volume", 0),
            ("lun", 0),
            ("device", 0),
            ("device_id", 0),
            ("disk", 0),
        ]);
        let volume = volume.map(|(column, _)| column).into_iter().collect();
        Some(Self {
            blanks: false,
            time,
            volume,
            offset,
            length,
            kind,
        })
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
        Some(_) => Err(bad(item, "time=COLUMN with :s, :ms, :us, :ns or :filetime")),
    }
}

/// Reads lines by a column map.
pub struct ColumnDecoder {
    columns: Columns,
    /// The next line may name the columns.
    first: bool,
    name: String,
}

impl ColumnDecoder {
    pub fn new(columns: Columns) -> Self {
        Self {
            columns,
            first: true,
            name: String::new(),
        }
    }

    fn volume(
        &mut self,
        fields: &Fields<'_>,
        context: &mut Context,
    ) -> Result<VolumeId, TraceErrorKind> {
        match self.columns.volume[..] {
            [] => Ok(VolumeId(0)),
            [column] => context.volume(fields.get(column, "volume")?),
            _ => {
                self.name.clear();
                for &column in &self.columns.volume {
                    if !self.name.is_empty() {
                        self.name.push('.');
                    }
                    self.name.push_str(fields.get(column, "volume")?);
                }
                context.volume(&self.name)
            }
        }
    }
}

impl LineDecoder for ColumnDecoder {
    fn decode(
        &mut self,
        line: &str,
        context: &mut Context,
    ) -> Result<Option<Request>, TraceErrorKind> {
        let fields = Fields::split(line, self.columns.blanks);
        let offset = fields.get(self.columns.offset.0, "offset")?;
        if std::mem::take(&mut self.first) && offset.starts_with(|c: char| c.is_alphabetic()) {
            return Ok(None);
        }
        let raw = Raw {
            offset_bytes: fields::bytes(offset, self.columns.offset.1)?,
            length_bytes: match self.columns.length {
                Some((column, unit)) => fields::bytes(fields.get(column, "length")?, unit)?,
                None => 0,
            },
            kind: match self.columns.kind {
                Some((column, code)) => fields::kind(fields.get(column, "kind")?, code)?,
                None => RequestKind::Read,
            },
            time_us: match self.columns.time {
                // An empty field is a time that is not known.
                Some((column, unit)) => match fields.get(column, "time")? {
                    "" => None,
                    time => Some(fields::time_us(time, unit)?),
                },
                None => None,
            },
            volume: self.volume(&fields, context)?,
        };
        context.request(raw).map(Some)
    }
}
