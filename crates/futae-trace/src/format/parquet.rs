//! Parquet files, whose columns are named as those of a CSV may be.
//!
//! A file is read a row group after another, and of each group some rows at a time. Its end is
//! read first, so data that is compressed as a whole, or that comes from a pipe, is first copied
//! to a temporary file.

use super::TraceErrorKind;
use super::columns::Columns;
use super::context::{Context, Raw};
use super::decoder::{Keys, TableDecoder};
use super::fields::{self, TimeUnit};
use crate::{Request, RequestKind};
use futae_policy::VolumeId;
use parquet::basic::ConvertedType;
use parquet::column::reader::ColumnReader;
use parquet::data_type::ByteArray;
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// This many rows are in memory at a time.
const BATCH_ROWS: usize = 1024;

/// Takes requests out of rows.
pub struct Parquet {
    reader: SerializedFileReader<File>,
    columns: Columns,
    /// Which columns of the file are read.
    wanted: Vec<usize>,
    group: usize,
    /// Where the row group begins in the file.
    byte: u64,
    /// The wanted columns of the row group.
    open: Vec<Column>,
    /// The rows that are in memory, and which is next.
    rows: usize,
    next: usize,
}

/// A column of the row group, and its values in memory.
struct Column {
    reader: ColumnReader,
    time: Option<TimeUnit>,
    is_unsigned: bool,
    optional: bool,
    cells: Vec<Cell>,
}

/// A value.
enum Cell {
    None,
    Whole(i64),
    Real(f64),
    Text(ByteArray),
}

impl Parquet {
    pub fn new(file: File, columns: Option<Columns>) -> Result<Self, TraceErrorKind> {
        let reader = guarded(|| Ok(SerializedFileReader::new(file)?))?;
        let schema = reader.metadata().file_metadata().schema_descr();
        let names: Vec<&str> = schema.columns().iter().map(|c| c.name()).collect();
        let columns = match columns {
            Some(columns) => columns,
            None => Columns::of_header(&names).ok_or(TraceErrorKind::NoColumns)?,
        };
        let mut wanted: Vec<usize> = columns.offset.iter().map(|it| it.0).collect();
        wanted.extend(columns.length.iter().map(|(column, _)| column));
        wanted.extend(columns.kind.map(|(column, _)| column));
        wanted.extend(columns.time.map(|(column, _)| column));
        wanted.extend(&columns.volume);
        wanted.extend(&columns.key);
        for &column in &wanted {
            let Some(column) = schema.columns().get(column) else {
                return Err(TraceErrorKind::Missing {
                    field: "column",
                    wanted: column + 1,
                    found: names.len(),
                });
            };
            if column.max_rep_level() > 0 || column.path().parts().len() > 1 {
                let text = format!("column {} holds more than one value a row", column.name());
                return Err(TraceErrorKind::Parquet(text));
            }
        }
        Ok(Self {
            reader,
            columns,
            wanted,
            group: 0,
            byte: 0,
            open: Vec::new(),
            rows: 0,
            next: 0,
        })
    }

    /// Opens the next row group.
    fn open_group(&mut self) -> Result<(), TraceErrorKind> {
        let group = self.reader.get_row_group(self.group)?;
        let metadata = self.reader.metadata().row_group(self.group);
        self.byte = metadata
            .columns()
            .iter()
            .map(|column| column.byte_range().0)
            .min()
            .unwrap_or(0);
        self.group += 1;
        for &column in &self.wanted {
            let descriptor = metadata.schema_descr().column(column);
            let (time, is_unsigned) = match descriptor.converted_type() {
                ConvertedType::TIMESTAMP_MILLIS => (Some(TimeUnit::Millis), false),
                ConvertedType::TIMESTAMP_MICROS => (Some(TimeUnit::Micros), false),
                ConvertedType::UINT_64 | ConvertedType::UINT_32 => (None, true),
                _ => (None, false),
            };
            self.open.push(Column {
                reader: group.get_column_reader(column)?,
                time,
                is_unsigned,
                optional: descriptor.max_def_level() > 0,
                cells: Vec::new(),
            });
        }
        Ok(())
    }

    /// Reads rows until there are some, or the file ends.
    fn fill(&mut self) -> Result<(), TraceErrorKind> {
        while self.next == self.rows {
            (self.next, self.rows) = (0, 0);
            if self.open.is_empty() {
                if self.group == self.reader.num_row_groups() {
                    return Ok(());
                }
                self.open_group()?;
            }
            for (at, column) in self.open.iter_mut().enumerate() {
                column.fill()?;
                if at > 0 && column.cells.len() != self.rows {
                    let text = "the columns of a row group have different lengths".to_owned();
                    return Err(TraceErrorKind::Parquet(text));
                }
                self.rows = column.cells.len();
            }
            if self.rows == 0 {
                self.open.clear();
            }
        }
        Ok(())
    }

    fn row(&self, context: &mut Context) -> Result<Option<Request>, TraceErrorKind> {
        let mut cells = self
            .open
            .iter()
            .map(|column| (column, &column.cells[self.next]));
        let mut next = || {
            cells
                .next()
                .ok_or(TraceErrorKind::NotARecord { format: "parquet" })
        };
        let bytes = |(column, cell): (&Column, &Cell), unit: u64| {
            let whole = column.whole(cell)?;
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
        let kind = match self.columns.kind {
            Some((_, code)) if self.has_keys() => fields::operation(&next()?.1.text(), code)?,
            Some((_, code)) => Some(fields::kind(&next()?.1.text(), code)?),
            None => Some(RequestKind::Read),
        };
        let time_us = match self.columns.time {
            Some((_, unit)) => {
                let (column, cell) = next()?;
                column.time_us(cell, unit)?
            }
            None => None,
        };
        let Some(kind) = kind else { return Ok(None) };
        let names: Vec<String> = cells.map(|(_, cell)| cell.text()).collect();
        if self.has_keys() {
            let length = (!self.columns.length.is_empty()).then_some(length_bytes);
            return context
                .named(&names.join("\t"), length, kind, time_us)
                .map(Some);
        }
        let volume = match names[..] {
            [] => VolumeId(0),
            _ => context.volume(&names.join("."))?,
        };
        let raw = Raw {
            volume,
            offset_bytes,
            length_bytes,
            kind,
            time_us,
        };
        context.request(raw).map(Some)
    }

    fn has_keys(&self) -> bool {
        !self.columns.key.is_empty()
    }
}

impl TableDecoder for Parquet {
    fn keys(&self) -> Option<Keys> {
        let has_sizes = !self.columns.length.is_empty();
        self.has_keys().then_some(Keys { has_sizes })
    }

    fn at_end(&mut self) -> Result<bool, TraceErrorKind> {
        guarded(|| self.fill())?;
        Ok(self.next == self.rows)
    }

    fn byte(&self) -> u64 {
        self.byte
    }

    fn decode(&mut self, context: &mut Context) -> Result<Option<Request>, TraceErrorKind> {
        let request = self.row(context);
        self.next += 1;
        request
    }
}

impl Column {
    fn fill(&mut self) -> Result<(), TraceErrorKind> {
        let optional = self.optional;
        self.cells.clear();
        macro_rules! read {
            ($reader:expr, $cell:expr) => {{
                let (mut values, mut present) = (Vec::new(), Vec::new());
                let levels = optional.then_some(&mut present);
                let (rows, _, _) = $reader.read_records(BATCH_ROWS, levels, None, &mut values)?;
                let mut values = values.into_iter().map($cell);
                for row in 0..rows {
                    let is_there = !optional || present.get(row).is_some_and(|&level| level > 0);
                    let cell = if is_there { values.next() } else { None };
                    self.cells.push(cell.unwrap_or(Cell::None));
                }
            }};
        }
        match &mut self.reader {
            ColumnReader::Int32ColumnReader(reader) if self.is_unsigned => {
                read!(reader, |v: i32| Cell::Whole(i64::from(v.cast_unsigned())));
            }
            ColumnReader::Int32ColumnReader(reader) => {
                read!(reader, |v: i32| Cell::Whole(i64::from(v)));
            }
            ColumnReader::Int64ColumnReader(reader) => read!(reader, Cell::Whole),
            ColumnReader::FloatColumnReader(reader) => {
                read!(reader, |v: f32| Cell::Real(f64::from(v)));
            }
            ColumnReader::DoubleColumnReader(reader) => read!(reader, Cell::Real),
            ColumnReader::ByteArrayColumnReader(reader) => read!(reader, Cell::Text),
            _ => {
                let text = "a column is neither of numbers nor of text".to_owned();
                return Err(TraceErrorKind::Parquet(text));
            }
        }
        Ok(())
    }

    fn whole(&self, cell: &Cell) -> Result<u64, TraceErrorKind> {
        match cell {
            Cell::Whole(whole) if self.is_unsigned => Ok(whole.cast_unsigned()),
            Cell::Whole(whole) if *whole >= 0 => Ok(whole.cast_unsigned()),
            _ => fields::number(&cell.text()),
        }
    }

    fn time_us(&self, cell: &Cell, unit: TimeUnit) -> Result<Option<u64>, TraceErrorKind> {
        let unit = self.time.unwrap_or(unit);
        match cell {
            Cell::None => Ok(None),
            Cell::Whole(_) if unit == TimeUnit::Micros => self.whole(cell).map(Some),
            Cell::Real(_) | Cell::Text(_) => fields::time_us(&cell.text(), unit).map(Some),
            Cell::Whole(_) => fields::time_us(&self.whole(cell)?.to_string(), unit).map(Some),
        }
    }
}

impl Cell {
    fn text(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Whole(whole) => whole.to_string(),
            Self::Real(real) => real.to_string(),
            Self::Text(text) => String::from_utf8_lossy(text.data()).into_owned(),
        }
    }
}

/// Damaged files may find the library unprepared; its panics are errors of the file.
fn guarded<T>(read: impl FnOnce() -> Result<T, TraceErrorKind>) -> Result<T, TraceErrorKind> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
        let text = "the file is damaged where its reader did not expect it".to_owned();
        Err(TraceErrorKind::Parquet(text))
    })
}
