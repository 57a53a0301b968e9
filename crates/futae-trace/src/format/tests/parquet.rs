//! Tables in Parquet: which columns are read, and what the types of their values mean.

use super::{reader, show};
use crate::{Columns, TraceError, TraceErrorKind, TraceOptions};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::file::metadata::KeyValue;
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
    file_of_arrow(columns, values, None)
}

/// As [`file`], with the schema of the table in Arrow that it was.
fn file_of_arrow(
    columns: &str,
    values: &[Values<'_>],
    arrow: Option<&str>,
) -> Result<Vec<u8>, Failure> {
    let schema = parse_message_type(&format!("message table {{ {columns} }}"))?;
    let arrow = arrow.map(|arrow| vec![KeyValue::new("ARROW:schema".to_owned(), arrow.to_owned())]);
    let properties = WriterProperties::builder()
        .set_key_value_metadata(arrow)
        .build();
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

#[test]
fn a_type_of_times_says_its_unit() -> Result<(), Failure> {
    // 2026-01-01 00:00:00 and 3 microseconds, and times of day.
    for (column, values, wanted) in [
        (
            "int64 time (TIMESTAMP(MILLIS,true))",
            Longs(&[1_767_225_600_003]),
            1_767_225_600_003_000u64,
        ),
        (
            "int64 time (TIMESTAMP(MICROS,false))",
            Longs(&[1_767_225_600_000_003]),
            1_767_225_600_000_003,
        ),
        (
            "int64 time (TIMESTAMP(NANOS,false))",
            Longs(&[1_767_225_600_000_003_000]),
            1_767_225_600_000_003,
        ),
        ("int64 time (TIMESTAMP_MILLIS)", Longs(&[7]), 7000),
        ("int64 time (TIMESTAMP_MICROS)", Longs(&[7]), 7),
        ("int32 time (TIME(MILLIS,true))", Ints(&[7]), 7000),
        ("int64 time (TIME(MICROS,true))", Longs(&[7]), 7),
        ("int64 time (TIME(NANOS,true))", Longs(&[7999]), 7),
        ("int32 time (TIME_MILLIS)", Ints(&[7]), 7000),
        ("int64 time (TIME_MICROS)", Longs(&[7]), 7),
        // No type of times: what the name says, or the map.
        ("int64 time", Longs(&[7]), 7_000_000),
        ("int64 time_ns", Longs(&[7000]), 7),
        ("double time", Reals(&[0.25]), 250_000),
    ] {
        let data = file(
            &format!("required {column}; required int64 offset;"),
            &[values, Longs(&[0])],
        )?;
        let wanted = [format!("0 R 0+0 @{wanted}")];
        assert_eq!(read(&data, None)?, wanted, "{column}");
        if column.contains('(') {
            // The type knows better.
            assert_eq!(read(&data, Some("time=0:s,offset=1"))?, wanted, "{column}");
        }
    }
    let data = file(
        "required int32 time (DATE); required int64 offset;",
        &[Ints(&[7]), Longs(&[0])],
    )?;
    let message = refusal(&data, None);
    assert!(
        message.contains("column time has the type DATE") && message.contains("timestamps"),
        "{message}"
    );
    Ok(())
}

#[test]
fn spans_of_time_have_the_unit_of_arrows_schema() -> Result<(), Failure> {
    // By pyarrow 26: `time` in nanoseconds, `latency_s` in milliseconds, and `offset`.
    let arrow = "/////+gAAAAQAAAAAAAKAAwABgAFAAgACgAAAAABBAAMAAAACAAIAAAABAAIAAAABAAAAAMAAACEAAAAQAAAAAQAAACY////AAABAhAAAAAgAAAABAAAAAAAAAAGAAAAb2Zmc2V0AAAIAAwACAAHAAgAAAAAAAABQAAAAND///8AAAESEAAAACAAAAAEAAAAAAAAAAkAAABsYXRlbmN5X3MAAAAEAAQABAAAABAAFAAIAAYABwAMAAAAEAAQAAAAAAABEhAAAAAcAAAABAAAAAAAAAAEAAAAdGltZQAABgAIAAYABgAAAAAAAwAAAAAA";
    let columns = "required int64 time; required int64 latency_s; required int64 offset;";
    let values = || [Longs(&[9000]), Longs(&[2]), Longs(&[4096])];
    let data = file_of_arrow(columns, &values(), Some(arrow))?;
    assert_eq!(read(&data, None)?, ["0 R 4096+0 @9"]);
    // A file that only has the same schema is not of the same table.
    let other = columns.replace(" time;", " time_us;");
    let data = file_of_arrow(&other, &values(), Some(arrow))?;
    assert_eq!(read(&data, None)?, ["0 R 4096+0 @9000"]);
    for arrow in [None, Some("damaged")] {
        let data = file_of_arrow(columns, &values(), arrow)?;
        assert_eq!(read(&data, None)?, ["0 R 4096+0 @9000000000"]);
    }
    Ok(())
}
