//! Parquet, with the columns of a [CSV](super::text::COLUMNS), compressed by Zstandard.

use super::text::kind;
use super::{Encoder, Record, Sink};
use crate::RequestKind;
use crate::format::TraceErrorKind;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::sync::Arc;

const SCHEMA: &str = "message trace {
    optional int64 time_us (INTEGER(64,false));
    required binary volume (STRING);
    required binary kind (STRING);
    required int64 offset (INTEGER(64,false));
    required int64 length (INTEGER(64,false));
}";

/// This many rows wait in memory until they are written.
const GROUP_ROWS: usize = 128 << 10;

pub struct Parquet {
    writer: SerializedFileWriter<Sink>,
    rows: Rows,
    /// The volumes' names, by number.
    volumes: Vec<Option<ByteArray>>,
}

/// What waits, by column.
struct Rows {
    times: Vec<i64>,
    /// 1 for a row that has a time.
    timed: Vec<i16>,
    volumes: Vec<ByteArray>,
    kinds: Vec<ByteArray>,
    offsets: Vec<i64>,
    lengths: Vec<i64>,
    read: ByteArray,
    write: ByteArray,
}

impl Parquet {
    pub fn new(sink: Sink) -> std::result::Result<Self, TraceErrorKind> {
        let schema = parse_message_type(SCHEMA)?;
        let level = ZstdLevel::try_new(3)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .build();
        Ok(Self {
            writer: SerializedFileWriter::new(sink, Arc::new(schema), Arc::new(properties))?,
            rows: Rows {
                times: Vec::new(),
                timed: Vec::new(),
                volumes: Vec::new(),
                kinds: Vec::new(),
                offsets: Vec::new(),
                lengths: Vec::new(),
                read: kind(RequestKind::Read).into(),
                write: kind(RequestKind::Write).into(),
            },
            volumes: Vec::new(),
        })
    }

    fn write_group(&mut self) -> Result<()> {
        let rows = &mut self.rows;
        let mut group = self.writer.next_row_group()?;
        column::<Int64Type>(&mut group, &rows.times, Some(&rows.timed))?;
        column::<ByteArrayType>(&mut group, &rows.volumes, None)?;
        column::<ByteArrayType>(&mut group, &rows.kinds, None)?;
        column::<Int64Type>(&mut group, &rows.offsets, None)?;
        column::<Int64Type>(&mut group, &rows.lengths, None)?;
        group.close()?;
        rows.times.clear();
        rows.timed.clear();
        rows.volumes.clear();
        rows.kinds.clear();
        rows.offsets.clear();
        rows.lengths.clear();
        Ok(())
    }
}

fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Sink>,
    values: &[T::T],
    present: Option<&[i16]>,
) -> Result<()> {
    if let Some(mut column) = group.next_column()? {
        column.typed::<T>().write_batch(values, present, None)?;
        column.close()?;
    }
    Ok(())
}

impl Encoder for Parquet {
    fn write(&mut self, record: &Record<'_>) -> std::result::Result<(), TraceErrorKind> {
        record.check_length()?;
        let request = &record.request;
        let number = usize::from(request.volume.0);
        if self.volumes.len() <= number {
            self.volumes.resize(number + 1, None);
        }
        let volume = self.volumes[number].get_or_insert_with(|| match record.volume {
            Some(name) => name.into(),
            None => number.to_string().as_str().into(),
        });
        let rows = &mut self.rows;
        rows.volumes.push(volume.clone());
        rows.times.extend(request.time_us.map(u64::cast_signed));
        rows.timed.push(i16::from(request.time_us.is_some()));
        rows.kinds.push(match request.kind {
            RequestKind::Read => rows.read.clone(),
            RequestKind::Write => rows.write.clone(),
        });
        rows.offsets.push(request.offset_bytes.cast_signed());
        rows.lengths.push(request.length_bytes.cast_signed());
        if rows.kinds.len() == GROUP_ROWS {
            self.write_group()?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> std::result::Result<Sink, TraceErrorKind> {
        if !self.rows.kinds.is_empty() {
            self.write_group()?;
        }
        Ok(self.writer.into_inner()?)
    }
}
