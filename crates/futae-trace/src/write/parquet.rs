//! Parquet, with the columns of a [CSV](super::Extras::columns), compressed by Zstandard.

use super::record::{Encoder, Extras, Record};
use super::sink::Sink;
use super::text::kind;
use crate::RequestKind;
use crate::format::TraceErrorKind;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::sync::Arc;

/// The type of a column.
fn of_column(name: &str) -> &'static str {
    match name {
        "time_us" => "optional int64 time_us (INTEGER(64,false));",
        "volume" => "required binary volume (STRING);",
        "kind" => "required binary kind (STRING);",
        "offset" => "required int64 offset (INTEGER(64,false));",
        "key" => "required int64 key (INTEGER(64,false));",
        "length" => "required int64 length (INTEGER(64,false));",
        "ttl" => "required int32 ttl (INTEGER(32,false));",
        _ => "required int32 latency_us (INTEGER(32,false));",
    }
}

/// This many rows wait in memory until they are written.
const GROUP_ROWS: usize = 128 << 10;

pub struct Parquet {
    writer: SerializedFileWriter<Sink>,
    extras: Extras,
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
    /// Offsets, or numbers of objects.
    places: Vec<i64>,
    lengths: Vec<i64>,
    lives: Vec<i32>,
    latencies: Vec<i32>,
    read: ByteArray,
    write: ByteArray,
}

impl Parquet {
    pub fn new(sink: Sink, extras: Extras) -> std::result::Result<Self, TraceErrorKind> {
        let columns: String = extras.columns().map(of_column).collect();
        let schema = parse_message_type(&format!("message trace {{ {columns} }}"))?;
        let level = ZstdLevel::try_new(3)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .build();
        Ok(Self {
            writer: SerializedFileWriter::new(sink, Arc::new(schema), Arc::new(properties))?,
            extras,
            rows: Rows {
                times: Vec::new(),
                timed: Vec::new(),
                volumes: Vec::new(),
                kinds: Vec::new(),
                places: Vec::new(),
                lengths: Vec::new(),
                lives: Vec::new(),
                latencies: Vec::new(),
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
        column::<Int64Type>(&mut group, &rows.places, None)?;
        column::<Int64Type>(&mut group, &rows.lengths, None)?;
        if self.extras.lives {
            column::<Int32Type>(&mut group, &rows.lives, None)?;
        }
        if self.extras.latencies {
            column::<Int32Type>(&mut group, &rows.latencies, None)?;
        }
        group.close()?;
        rows.times.clear();
        rows.timed.clear();
        rows.volumes.clear();
        rows.kinds.clear();
        rows.places.clear();
        rows.lengths.clear();
        rows.lives.clear();
        rows.latencies.clear();
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
        let place = record.place(self.extras)?;
        let request = &record.request;
        let (number, name) = record.volume;
        if self.volumes.len() <= number {
            self.volumes.resize(number + 1, None);
        }
        let volume = self.volumes[number].get_or_insert_with(|| match name {
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
        rows.places.push(place.cast_signed());
        rows.lengths.push(request.length_bytes.cast_signed());
        if self.extras.lives {
            let life = record.noted.life_seconds.unwrap_or(0);
            rows.lives.push(life.cast_signed());
        }
        if self.extras.latencies {
            let latency = record.noted.latency_us.unwrap_or(0);
            rows.latencies.push(latency.cast_signed());
        }
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
