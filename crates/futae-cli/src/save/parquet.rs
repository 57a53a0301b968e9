//! Tables of results as Parquet.

use futae_sim::run::{Column, Values};
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::sync::Arc;

/// The columns as a Parquet file: counts are unsigned 64-bit integers, numbers doubles that may be
/// missing, names strings.
pub fn parquet(columns: &[Column]) -> Result<Vec<u8>> {
    let fields = columns.iter().map(|column| {
        let name = column.name;
        match column.values {
            Values::Counts(_) => format!("required int64 {name} (INTEGER(64,false));"),
            Values::Numbers(_) => format!("optional double {name};"),
            Values::Texts(_) => format!("required binary {name} (STRING);"),
        }
    });
    let schema = format!("message results {{ {} }}", fields.collect::<String>());
    let schema = Arc::new(parse_message_type(&schema)?);
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for column in columns {
        match &column.values {
            Values::Counts(counts) => {
                let counts: Vec<i64> = counts.iter().map(|n| n.cast_signed()).collect();
                add::<Int64Type>(&mut group, &counts, None)?;
            }
            Values::Numbers(numbers) => {
                let present: Vec<i16> = numbers.iter().map(|n| i16::from(n.is_some())).collect();
                let numbers: Vec<f64> = numbers.iter().copied().flatten().collect();
                add::<DoubleType>(&mut group, &numbers, Some(&present))?;
            }
            Values::Texts(texts) => {
                let texts: Vec<ByteArray> = texts.iter().map(|text| text.as_str().into()).collect();
                add::<ByteArrayType>(&mut group, &texts, None)?;
            }
        }
    }
    group.close()?;
    writer.into_inner()
}

fn add<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: &[T::T],
    present: Option<&[i16]>,
) -> Result<()> {
    if let Some(mut column) = group.next_column()? {
        column.typed::<T>().write_batch(values, present, None)?;
        column.close()?;
    }
    Ok(())
}
