//! The rows of Parquet files.
//!
//! A file is read a row group after another, and of each group some rows at a time. Its end is
//! read first, so data that is compressed as a whole, or that comes from a pipe, is first copied
//! to a temporary file. An object behind a URL is read in ranges.

mod arrow_schema;
mod schema;

use super::TraceErrorKind;
use super::rows::{Cell, Rows, TableColumn};
use parquet::basic::ConvertedType;
use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};
use std::fs::File;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// This many rows are in memory at a time.
const BATCH_ROWS: usize = 1024;

/// Where the bytes of a file are.
pub enum Data {
    File(File),
    #[cfg(feature = "object-store")]
    Object(crate::remote::Blocks),
}

impl Length for Data {
    fn len(&self) -> u64 {
        match self {
            Self::File(file) => file.len(),
            #[cfg(feature = "object-store")]
            Self::Object(blocks) => blocks.bytes(),
        }
    }
}

impl ChunkReader for Data {
    type T = Box<dyn Read + Send>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        Ok(match self {
            Self::File(file) => Box::new(file.get_read(start)?),
            #[cfg(feature = "object-store")]
            Self::Object(blocks) => Box::new(blocks.reader(start)),
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<bytes::Bytes> {
        match self {
            Self::File(file) => file.get_bytes(start, length),
            #[cfg(feature = "object-store")]
            Self::Object(blocks) => Ok(blocks.exactly(start, length)?),
        }
    }
}

/// The rows of a file.
pub struct Parquet {
    reader: SerializedFileReader<Data>,
    columns: Vec<TableColumn>,
    /// Where in the file each of them is, if it can be read.
    leaves: Vec<Option<usize>>,
    /// Which of the file's columns are read.
    wanted: Vec<usize>,
    group: usize,
    /// Where the row group begins in the file.
    byte: u64,
    /// The wanted columns of the row group.
    open: Vec<Column>,
}

/// A column of the row group.
struct Column {
    reader: ColumnReader,
    is_unsigned: bool,
    optional: bool,
}

impl Parquet {
    pub fn new(data: Data) -> Result<Self, TraceErrorKind> {
        let reader = guarded(|| Ok(SerializedFileReader::new(data)?))?;
        let fields = schema::fields(reader.metadata().file_metadata()).into_iter();
        let (columns, leaves) = fields.map(|field| (field.column, field.leaf)).unzip();
        Ok(Self {
            columns,
            leaves,
            reader,
            wanted: Vec::new(),
            group: 0,
            byte: 0,
            open: Vec::new(),
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
            self.open.push(Column {
                reader: group.get_column_reader(column)?,
                is_unsigned: matches!(
                    descriptor.converted_type(),
                    ConvertedType::UINT_64 | ConvertedType::UINT_32
                ),
                optional: descriptor.max_def_level() > 0,
            });
        }
        Ok(())
    }

    /// Reads rows until there are some, or the file ends.
    fn read(&mut self, cells: &mut Vec<Vec<Cell>>) -> Result<(), TraceErrorKind> {
        cells.resize_with(self.wanted.len(), Vec::new);
        loop {
            if self.open.is_empty() {
                if self.group == self.reader.num_row_groups() {
                    cells.iter_mut().for_each(Vec::clear);
                    return Ok(());
                }
                self.open_group()?;
            }
            for (column, cells) in self.open.iter_mut().zip(cells.iter_mut()) {
                column.fill(cells)?;
            }
            let rows = cells.first().map_or(0, Vec::len);
            if cells.iter().any(|cells| cells.len() != rows) {
                let text = "the columns of a row group have different lengths".to_owned();
                return Err(TraceErrorKind::Parquet(text));
            }
            if rows > 0 {
                return Ok(());
            }
            self.open.clear();
        }
    }
}

impl Rows for Parquet {
    fn columns(&self) -> &[TableColumn] {
        &self.columns
    }

    fn want(&mut self, wanted: &[usize]) -> Result<(), TraceErrorKind> {
        self.wanted.clear();
        for &column in wanted {
            match self.leaves[column] {
                Some(leaf) => self.wanted.push(leaf),
                None => return Err(TraceErrorKind::Parquet(self.columns[column].refusal())),
            }
        }
        Ok(())
    }

    fn fill(&mut self, cells: &mut Vec<Vec<Cell>>) -> Result<(), TraceErrorKind> {
        guarded(|| self.read(cells))
    }

    fn byte(&self) -> u64 {
        self.byte
    }
}

impl Column {
    /// Replaces `cells` by the next ones.
    fn fill(&mut self, cells: &mut Vec<Cell>) -> Result<(), TraceErrorKind> {
        let optional = self.optional;
        cells.clear();
        macro_rules! read {
            ($reader:expr, $cell:expr) => {{
                let (mut values, mut present) = (Vec::new(), Vec::new());
                let levels = optional.then_some(&mut present);
                let (rows, _, _) = $reader.read_records(BATCH_ROWS, levels, None, &mut values)?;
                let mut values = values.into_iter().map($cell);
                for row in 0..rows {
                    let is_there = !optional || present.get(row).is_some_and(|&level| level > 0);
                    let cell = if is_there { values.next() } else { None };
                    cells.push(cell.unwrap_or(Cell::None));
                }
            }};
        }
        match &mut self.reader {
            ColumnReader::BoolColumnReader(reader) => {
                read!(reader, |v: bool| Cell::Whole(i64::from(v)));
            }
            ColumnReader::Int32ColumnReader(reader) if self.is_unsigned => {
                read!(reader, |v: i32| Cell::Whole(i64::from(v.cast_unsigned())));
            }
            ColumnReader::Int32ColumnReader(reader) => {
                read!(reader, |v: i32| Cell::Whole(i64::from(v)));
            }
            ColumnReader::Int64ColumnReader(reader) if self.is_unsigned => {
                read!(reader, |v: i64| Cell::Natural(v.cast_unsigned()));
            }
            ColumnReader::Int64ColumnReader(reader) => read!(reader, Cell::Whole),
            ColumnReader::FloatColumnReader(reader) => {
                read!(reader, |v: f32| Cell::Real(f64::from(v)));
            }
            ColumnReader::DoubleColumnReader(reader) => read!(reader, Cell::Real),
            ColumnReader::ByteArrayColumnReader(reader) => {
                read!(reader, |v: ByteArray| Cell::of_bytes(v.data()));
            }
            ColumnReader::FixedLenByteArrayColumnReader(reader) => {
                read!(reader, |v: FixedLenByteArray| Cell::of_bytes(v.data()));
            }
            // `want` refuses them, with their names.
            ColumnReader::Int96ColumnReader(_) => {
                let text = "a column is not of numbers, truth values, text or bytes".to_owned();
                return Err(TraceErrorKind::Parquet(text));
            }
        }
        Ok(())
    }
}

/// Damaged files may find the library unprepared; its panics are errors of the file.
fn guarded<T>(read: impl FnOnce() -> Result<T, TraceErrorKind>) -> Result<T, TraceErrorKind> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
        let text = "the file is damaged where its reader did not expect it".to_owned();
        Err(TraceErrorKind::Parquet(text))
    })
}
