//! Tables in Parquet: which columns are read, and what the types of their values mean.

use super::{reader, show};
use crate::{Columns, TraceError, TraceErrorKind, TraceOptions};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::sync::Arc;

/// The values of a column that the file keeps.
enum Values<'a> {
    Bools(&'a [bool]),
    Ints(&'a [i32]),
    Longs(&'a [i64]),
    Reals(&'a [f64]),
    Texts(&'a [&'a str]),
    /// Optional ones, with 1 where there is one.
    Some(&'a [i64], &'a [i16]),
}

use Values::{Bools, Ints, Longs, Reals, Texts};

type Failure = Box<dyn std::error::Error>;

/// A file with one row group.
fn file(columns: &str, values: &[Values<'_>]) -> Result<Vec<u8>, Failure> {
    let schema = parse_message_type(&format!("message table {{ {columns} }}"))?;
    let properties = WriterProperties::builder().build();
    let mut data = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut data, Arc::new(schema), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for values in values {
        let mut column = group.next_column()?.ok_or("more values than columns")?;
        match *values {
            Bools(values) => column.typed::<BoolType>().write_batch(values, None, None),
            Ints(values) => column.typed::<Int32Type>().write_batch(values, None, None),
            Longs(values) => column.typed::<Int64Type>().write_batch(values, None, None),
            Reals(values) => column.typed::<DoubleType>().write_batch(values, None, None),
            Texts(texts) => {
                let texts: Vec<ByteArray> = texts.iter().map(|&text| text.into()).collect();
                column
                    .typed::<ByteArrayType>()
                    .write_batch(&texts, None, None)
            }
            Values::Some(values, there) => {
                let column = column.typed::<Int64Type>();
                column.write_batch(values, Some(there), None)
            }
        }?;
        column.close()?;
    }
    group.close()?;
    writer.close()?;
    Ok(data)
}

fn read(data: &[u8], columns: Option<&str>) -> Result<Vec<String>, TraceError> {
    let columns = columns.map(|map| map.parse::<Columns>());
    let columns = columns.transpose().unwrap_or_else(|e| panic!("{e}"));
    let options = TraceOptions {
        columns,
        ..TraceOptions::default()
    };
    let requests = reader("t.parquet", data, &options)?;
    requests.map(|request| Ok(show(&request?))).collect()
}

fn refusal(data: &[u8], columns: Option<&str>) -> String {
    match read(data, columns) {
        Ok(requests) => panic!("{requests:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn columns_are_those_of_the_table_and_not_parts_of_nested_ones() -> Result<(), Failure> {
    let nested = "required group meta { required int64 offset; required int64 length; }";
    let columns = format!("{nested} required int64 x; required int64 offset;");
    let values = [
        Longs(&[1, 2]),
        Longs(&[3, 4]),
        Longs(&[5, 6]),
        Longs(&[4096, 8192]),
    ];
    let data = file(&columns, &values)?;
    // By name, and by position as a data frame counts.
    assert_eq!(read(&data, None)?, ["0 R 4096+0", "0 R 8192+0"]);
    assert_eq!(
        read(&data, Some("offset=2,length=1"))?,
        ["0 R 4096+5", "0 R 8192+6"]
    );
    let message = refusal(&data, Some("offset=0"));
    assert!(
        message.contains("t.parquet: Parquet: column meta has the type STRUCT"),
        "{message}"
    );
    let message = refusal(&data, Some("offset=3"));
    assert!(message.contains("has 3 fields"), "{message}");

    // A nested column of a known name is passed over where there is another.
    let nested = nested.replace("meta", "offset").replace(" offset;", " a;");
    let data = file(
        &format!("{nested} required int64 lba;"),
        &[Longs(&[1]), Longs(&[2]), Longs(&[3])],
    )?;
    assert_eq!(read(&data, None)?, ["0 R 1536+0"]);
    Ok(())
}
