//! Rows of a table in columns, which are named as those of a CSV may be: of a Parquet file, or of a table that a program
//! has in memory.

use super::columns::Columns;
use super::context::{Context, Raw, VOLUME_PARTS};
use super::decoder::{Keys, TableDecoder};
use super::fields::{self, TimeUnit};
use super::{TraceErrorKind, TraceOptions, names};
use crate::{Request, RequestKind};
use futae_policy::VolumeId;
use std::borrow::Cow;

/// A value of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// No value.
    None,
    /// A whole number.
    Whole(i64),
    /// A whole number that may be 2^63 and above.
    Natural(u64),
    /// A number with a fraction.
    Real(f64),
    /// Text.
    Text(String),
}

/// A column of a table.
#[derive(Clone, Debug)]
pub struct TableColumn {
    /// Its name.
    pub name: String,
    /// The type of its values, for messages.
    pub values: String,
    /// Of a column of times: how many nanoseconds its unit has, if its type says so.
    pub time_ns: Option<u64>,
    /// Whether a value has parts, as one of a struct or a list has.
    pub is_nested: bool,
}

impl TableColumn {
    /// Why its values cannot be read, and what the user can do.
    #[must_use]
    pub fn refusal(&self) -> String {
        let Self { name, values, .. } = self;
        let remedy = match self.is_nested {
            true => "make the part that you need a column of its own",
            false => "convert it to numbers, text or timestamps",
        };
        format!("column {name} has the type {values}, which futae cannot read; {remedy}")
    }
}

/// Why a table without a map of its columns cannot be read. `map` is how one is given.
pub fn unnamed(columns: &[TableColumn], map: &str) -> String {
    const SHOWN: usize = 20;
    let names = columns.iter().take(SHOWN).map(|column| &*column.name);
    let names = names.collect::<Vec<_>>().join(", ");
    let more = match columns.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "of the columns {names}{more} none is named offset or key; name them so, or give a map, such as {map}"
    )
}

/// A table whose rows are read from the first to the last, some at a time.
pub trait Rows: Send {
    /// The columns of the table.
    fn columns(&self) -> &[TableColumn];

    /// Says which columns will be read, by their numbers. An error if one cannot be.
    fn want(&mut self, wanted: &[usize]) -> Result<(), TraceErrorKind>;

    /// Replaces `cells` by those of the next rows, one list for each wanted column, all of the same length: empty at the end.
    fn fill(&mut self, cells: &mut Vec<Vec<Cell>>) -> Result<(), TraceErrorKind>;

    /// Where in a file the rows can be found that were read last.
    fn byte(&self) -> u64 {
        0
    }
}

/// Takes requests out of rows.
pub struct Table<R> {
    rows: R,
    columns: Columns,
    /// Which columns of the table are read: those of the offset, of lengths, kind and time, then names, the time to live, and
    /// the latency.
    wanted: Vec<usize>,
    cells: Vec<Vec<Cell>>,
    /// The next of the rows that are in memory.
    next: usize,
}

impl<R: Rows> Table<R> {
    pub fn new(mut rows: R, options: &TraceOptions) -> Result<Self, TraceErrorKind> {
        let mut columns = match &options.columns {
            Some(columns) => columns.clone(),
            None => by_names(rows.columns()).ok_or(TraceErrorKind::NoColumns)?,
        };
        check(&columns, rows.columns().len())?;
        // What nobody asks for may be of any type.
        columns.ttl = columns.ttl.filter(|_| options.lives);
        columns.latency = columns.latency.filter(|_| options.latencies);
        let wanted: Vec<usize> = columns.all().collect();
        rows.want(&wanted)?;
        Ok(Self {
            rows,
            columns,
            wanted,
            cells: Vec::new(),
            next: 0,
        })
    }

    fn loaded(&self) -> usize {
        self.cells.first().map_or(0, Vec::len)
    }

    fn row(&self, context: &mut Context) -> Result<Option<Request>, TraceErrorKind> {
        let all = self.rows.columns();
        let mut cells = self.wanted.iter().zip(&self.cells);
        let mut next = || {
            let (&column, cells) = cells.next()?;
            Some((&all[column], cells.get(self.next)?))
        };
        let mut next = || next().ok_or(TraceErrorKind::NotARecord { format: "table" });
        // First, since rows without a request, such as deletions, may lack a size.
        let Some(kind) = self.kind()? else {
            return Ok(None);
        };
        let bytes = |at: (&TableColumn, &Cell), unit: u64| {
            let whole = named(at, at.1.whole())?;
            whole.checked_mul(unit).ok_or(TraceErrorKind::OutOfRange)
        };
        let offset_bytes = match self.columns.offset {
            Some((_, unit)) => bytes(next()?, unit)?,
            None => 0,
        };
        let mut length_bytes = 0u64;
        for &(_, unit) in &self.columns.length {
            let length = length_bytes.checked_add(bytes(next()?, unit)?);
            length_bytes = length.ok_or(TraceErrorKind::OutOfRange)?;
        }
        if self.columns.kind.is_some() {
            next()?;
        }
        let time_us = match self.columns.time {
            Some((_, unit)) => {
                let at = next()?;
                named(at, at.1.time_us(at.0.time_ns, unit))?
            }
            None => None,
        };
        let mut names = Vec::new();
        let last = self.columns.volume.len() + self.columns.key.len();
        while names.len() < last {
            let at = next()?;
            if *at.1 == Cell::None && self.has_keys() && names.len() + 1 == last {
                // No key is no object, and not one that all such requests are for.
                return named(at, Err(fields::no_key()));
            }
            names.push(at.1.text());
        }
        let life = match self.columns.ttl {
            Some(_) => Some(next()?),
            None => None,
        };
        let latency_us = match self.columns.latency {
            Some((_, unit)) => {
                let at = next()?;
                // No value is a latency that is not known.
                Some(named(at, at.1.time_us(at.0.time_ns, unit))?.unwrap_or(0))
            }
            None => None,
        };
        let request = if self.has_keys() {
            let length = (!self.columns.length.is_empty()).then_some(length_bytes);
            context.named(&names.join("\t"), length, kind, time_us)?
        } else {
            let volume = match &names[..] {
                [] => VolumeId(0),
                [name] => context.volume(name)?,
                _ => context.volume(&names.join(VOLUME_PARTS))?,
            };
            context.request(Raw {
                volume,
                offset_bytes,
                length_bytes,
                kind,
                time_us,
            })?
        };
        if let Some(at) = life {
            let seconds = named(at, at.1.seconds(at.0.time_ns))?;
            named(at, context.note_life(&seconds))?;
        }
        if let Some(us) = latency_us {
            context.note_latency(us);
        }
        Ok(Some(request))
    }

    /// What the next row asks for; none if it has no request.
    fn kind(&self) -> Result<Option<RequestKind>, TraceErrorKind> {
        let Some((column, code)) = self.columns.kind else {
            return Ok(Some(RequestKind::Read));
        };
        // It is behind the offset and the lengths.
        let before = usize::from(self.columns.offset.is_some()) + self.columns.length.len();
        let cell = self.cells.get(before).and_then(|it| it.get(self.next));
        let cell = cell.ok_or(TraceErrorKind::NotARecord { format: "table" })?;
        let text = cell.text();
        let kind = match self.has_keys() {
            true => fields::operation(&text, code),
            false => fields::kind(&text, code).map(Some),
        };
        named((&self.rows.columns()[column], cell), kind)
    }

    fn has_keys(&self) -> bool {
        !self.columns.key.is_empty()
    }
}

impl<R: Rows> TableDecoder for Table<R> {
    fn keys(&self) -> Option<Keys> {
        let has_sizes = !self.columns.length.is_empty();
        self.has_keys().then_some(Keys { has_sizes })
    }

    fn rivals(&self) -> Vec<[String; 2]> {
        names::rivals(&of_columns(self.rows.columns(), false))
    }

    fn at_end(&mut self) -> Result<bool, TraceErrorKind> {
        if self.next == self.loaded() {
            self.next = 0;
            self.rows.fill(&mut self.cells)?;
        }
        Ok(self.loaded() == 0)
    }

    fn byte(&self) -> u64 {
        self.rows.byte()
    }

    fn decode(&mut self, context: &mut Context) -> Result<Option<Request>, TraceErrorKind> {
        let request = self.row(context);
        self.next += 1;
        request
    }
}

/// An error if a table with so many columns does not have all of a map.
fn check(columns: &Columns, count: usize) -> Result<(), TraceErrorKind> {
    match columns.all().find(|&column| column >= count) {
        Some(column) => Err(TraceErrorKind::Missing {
            field: "column",
            wanted: column + 1,
            found: count,
        }),
        None => Ok(()),
    }
}

/// What the names of columns say. A nested column holds no field, whatever its name is. If no other column can be the offset
/// or the key, a nested one is named, so that the error can say that it cannot be.
fn by_names(columns: &[TableColumn]) -> Option<Columns> {
    let map = |with_nested| names::map(&of_columns(columns, with_nested));
    map(false).or_else(|| map(true))
}

/// The names of columns; without nested ones, theirs are empty.
fn of_columns(columns: &[TableColumn], with_nested: bool) -> Vec<&str> {
    let name = |column| match column {
        &TableColumn {
            is_nested: true, ..
        } if !with_nested => "",
        TableColumn { name, .. } => name.as_str(),
    };
    columns.iter().map(name).collect()
}

/// An error of a cell with the column where it is.
fn named<T>(
    (column, cell): (&TableColumn, &Cell),
    outcome: Result<T, TraceErrorKind>,
) -> Result<T, TraceErrorKind> {
    outcome.map_err(|error| match error {
        TraceErrorKind::Field { text, expected } => TraceErrorKind::Cell {
            column: format!("{} ({})", column.name, column.values),
            text: (*cell != Cell::None).then_some(text),
            expected,
        },
        error => error,
    })
}

impl Cell {
    /// A value of bytes: their text, or their hexadecimal digits if they are none. Different bytes are different keys.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self::Text(match str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => bytes
                .iter()
                .fold("0x".to_owned(), |text, byte| text + &format!("{byte:02x}")),
        })
    }

    fn text(&self) -> Cow<'_, str> {
        match self {
            Self::None => Cow::Borrowed(""),
            Self::Whole(whole) => whole.to_string().into(),
            Self::Natural(natural) => natural.to_string().into(),
            Self::Real(real) => real.to_string().into(),
            Self::Text(text) => Cow::Borrowed(text),
        }
    }

    fn whole(&self) -> Result<u64, TraceErrorKind> {
        match self {
            Self::Natural(natural) => Ok(*natural),
            Self::Whole(whole) if *whole >= 0 => Ok(whole.cast_unsigned()),
            _ => fields::number(&self.text()),
        }
    }

    /// A time in microseconds. The type of its column knows its unit better than the column map.
    fn time_us(&self, ns: Option<u64>, unit: TimeUnit) -> Result<Option<u64>, TraceErrorKind> {
        let unit = ns.and_then(TimeUnit::of_nanos).unwrap_or(unit);
        match self {
            Self::None => Ok(None),
            // As an empty field of a CSV.
            Self::Text(text) if text.is_empty() => Ok(None),
            Self::Whole(_) | Self::Natural(_) if unit == TimeUnit::Micros => self.whole().map(Some),
            _ => fields::time_us(&self.text(), unit).map(Some),
        }
    }

    /// A number of seconds as text. Where the type of the column has a unit, they are rounded up.
    fn seconds(&self, ns: Option<u64>) -> Result<Cow<'_, str>, TraceErrorKind> {
        let Some(ns) = ns.filter(|_| *self != Self::None) else {
            return Ok(self.text());
        };
        let all = u128::from(self.whole()?) * u128::from(ns);
        Ok(all.div_ceil(1_000_000_000).to_string().into())
    }
}
