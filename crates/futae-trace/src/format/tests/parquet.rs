//! Tables in Parquet: which columns are read, and what the types of their values mean.

use super::{reader, show};
use crate::{Columns, TraceError, TraceOptions};
use parquet::data_type::{
    ByteArray, ByteArrayType, DoubleType, FixedLenByteArray, FixedLenByteArrayType, Int32Type,
    Int64Type,
};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::sync::Arc;

/// The values of a column that the file keeps.
enum Values<'a> {
    Ints(&'a [i32]),
    Longs(&'a [i64]),
    Reals(&'a [f64]),
    Texts(&'a [&'a str]),
    Bytes(&'a [&'a [u8]]),
    /// All of the same length.
    Fixed(&'a [&'a [u8]]),
    /// Optional ones, with 1 where there is one.
    Some(&'a [i64], &'a [i16]),
    Real(&'a [f64], &'a [i16]),
}

use Values::{Ints, Longs, Reals, Texts};

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
            Ints(values) => column.typed::<Int32Type>().write_batch(values, None, None),
            Longs(values) => column.typed::<Int64Type>().write_batch(values, None, None),
            Reals(values) => column.typed::<DoubleType>().write_batch(values, None, None),
            Texts(texts) => {
                let texts: Vec<ByteArray> = texts.iter().map(|&text| text.into()).collect();
                column
                    .typed::<ByteArrayType>()
                    .write_batch(&texts, None, None)
            }
            Values::Bytes(all) => {
                let all: Vec<ByteArray> = all.iter().map(|&bytes| bytes.to_vec().into()).collect();
                let column = column.typed::<ByteArrayType>();
                column.write_batch(&all, None, None)
            }
            Values::Fixed(all) => {
                let all = all
                    .iter()
                    .map(|&bytes| FixedLenByteArray::from(bytes.to_vec()));
                let column = column.typed::<FixedLenByteArrayType>();
                column.write_batch(&all.collect::<Vec<_>>(), None, None)
            }
            Values::Real(values, there) => {
                let column = column.typed::<DoubleType>();
                column.write_batch(values, Some(there), None)
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
fn keys_that_are_no_text_are_different_keys() -> Result<(), Failure> {
    let keys = [&[0xff, 0x01][..], &[0xfe, 0x01], &[0xff, 0x01], b"text"];
    let data = file("required binary key;", &[Values::Bytes(&keys)])?;
    let read = read(&data, None)?;
    assert_eq!(read[0], read[2]);
    assert!(
        read[0] != read[1] && read[0] != read[3] && read[1] != read[3],
        "{read:?}"
    );
    Ok(())
}

#[test]
fn keys_of_a_fixed_length_are_read_whether_they_are_text_or_not() -> Result<(), Failure> {
    let keys = [
        &[0xff, 1, 2, 3][..],
        &[0xff, 1, 2, 4],
        b"text",
        &[0xff, 1, 2, 3],
        b"text",
    ];
    let data = file(
        "required fixed_len_byte_array(4) key;",
        &[Values::Fixed(&keys)],
    )?;
    let key = |number: u64| format!("0 R {}+4096", number * 4096);
    assert_eq!(read(&data, None)?, [0, 1, 2, 0, 2].map(key));

    let (one, other) = ([0xee; 16], [7; 16]);
    let data = file(
        "required fixed_len_byte_array(16) key (UUID);",
        &[Values::Fixed(&[&one, &other, &one])],
    )?;
    assert_eq!(read(&data, None)?, [0, 1, 0].map(key));
    Ok(())
}

#[test]
fn what_is_no_request_needs_no_size() -> Result<(), Failure> {
    let columns = "required binary key (STRING); required binary op (STRING); optional int64 size;";
    let values = [
        Texts(&["a", "b", "a"]),
        Texts(&["set", "delete", "get"]),
        Values::Some(&[7, 9], &[1, 0, 1]),
    ];
    let found = read(&file(columns, &values)?, None)?;
    assert_eq!(found, ["0 W 0+7", "0 R 0+9"]);
    let values = [Texts(&["a"]), Texts(&["get"]), Values::Some(&[], &[0])];
    let message = refusal(&file(columns, &values)?, None);
    assert!(
        message.contains("column size (INT64): there is no value"),
        "{message}"
    );
    Ok(())
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

#[test]
fn a_column_that_cannot_be_read_is_named_with_its_type() -> Result<(), Failure> {
    for (columns, name, values) in [
        (
            "required int64 a; required int96 offset;",
            "offset",
            "INT96",
        ),
        (
            "required int32 offset (DECIMAL(9,2));",
            "offset",
            "DECIMAL(9,2)",
        ),
        (
            "required fixed_len_byte_array(9) offset (DECIMAL(20,0));",
            "offset",
            "DECIMAL(20,0)",
        ),
        (
            "required int64 offset; required fixed_len_byte_array(2) time (FLOAT16);",
            "time",
            "FLOAT16",
        ),
        (
            "required group offset { required int64 a; }",
            "offset",
            "STRUCT",
        ),
        ("repeated int64 key;", "key", "repeated INT64"),
        (
            "optional group key (LIST) { repeated group list { optional int64 element; } }",
            "key",
            "LIST",
        ),
    ] {
        let schema = Arc::new(parse_message_type(&format!(
            "message table {{ {columns} }}"
        ))?);
        let mut data = Vec::new();
        SerializedFileWriter::new(&mut data, schema, Arc::default())?.close()?;
        let message = refusal(&data, None);
        let wanted = format!(
            "trace t.parquet: Parquet: column {name} has the type {values}, which futae cannot read"
        );
        assert!(message.starts_with(&wanted), "{message}");
    }
    let message = refusal(
        &file(
            "required int64 a; required int64 b;",
            &[Longs(&[1]), Longs(&[2])],
        )?,
        None,
    );
    assert!(
        message.contains("Parquet: of the columns a, b none is named offset or key"),
        "{message}"
    );
    assert!(message.contains("such as --columns offset=0"), "{message}");
    Ok(())
}

/// What a simulation gets of a table: requests, times to live and latencies.
type All = (Vec<String>, Vec<u32>, Vec<u32>);

fn all(name: &str, data: &[u8], columns: Option<&str>) -> Result<All, TraceError> {
    let columns = columns.map(|map| map.parse::<Columns>());
    let options = TraceOptions {
        columns: columns.transpose().unwrap_or_else(|e| panic!("{e}")),
        lives: true,
        latencies: true,
        ..TraceOptions::default()
    };
    let mut reader = reader(name, data, &options)?;
    let requests: Result<_, TraceError> = reader.by_ref().map(|it| Ok(show(&it?))).collect();
    Ok((requests?, reader.take_lives(), reader.take_latencies()))
}

#[test]
fn times_to_live_and_latencies_are_those_of_the_csv() -> Result<(), Failure> {
    let csv = "time,key,op,size,ttl,latency_us\n1,a,get,10,60,17\n2,b,del,10,1,2\n3,a,set,10,0,\n4,c,get,5,4294967296,5000000000\n";
    let columns = "required int64 time; required binary key (STRING); required binary op (STRING); required int64 size; \
                   required int64 ttl; optional int64 latency_us;";
    let file_of = |columns: &str, ttl: Values<'_>, latency: Values<'_>| {
        let ops = Texts(&["get", "del", "set", "get"]);
        let (times, keys) = (Longs(&[1, 2, 3, 4]), Texts(&["a", "b", "a", "c"]));
        file(
            columns,
            &[times, keys, ops, Longs(&[10, 10, 10, 5]), ttl, latency],
        )
    };
    let lives = || Longs(&[60, 1, 0, 1 << 32]);
    let latencies = || Values::Some(&[17, 2, 5_000_000_000], &[1, 1, 0, 1]);
    let parquet = file_of(columns, lives(), latencies())?;
    let wanted = all("t.csv", csv.as_bytes(), None)?;
    assert_eq!(
        (&wanted.1[..], &wanted.2[..]),
        (&[60, 0, 0][..], &[17, 0, u32::MAX][..])
    );
    assert_eq!(all("t.parquet", &parquet, None)?, wanted);
    // By a map, too.
    let map = Some("time=0,key=1,kind=2,length=3,ttl=4,latency=5:us");
    assert_eq!(all("t.parquet", &parquet, map)?, wanted);
    // They are not looked at if nobody asks for them.
    let other = columns.replace("int64 ttl", "int32 ttl (DATE)");
    let dates = file_of(&other, Ints(&[60, 1, 0, 1]), latencies())?;
    assert_eq!(read(&dates, None)?, wanted.0);
    let message = all("t", &dates, None).map_err(|e| e.to_string());
    assert!(message.is_err_and(|e| e.contains("column ttl has the type DATE")));
    // A negative time to live is refused as it is in a CSV, with the column.
    let bad = file_of(columns, Longs(&[60, 1, -1, 1]), latencies())?;
    let message = all("t", &bad, None).map_err(|e| e.to_string());
    assert_eq!(
        message.err().as_deref(),
        Some(
            "trace t, record 3 at byte 4: column ttl (INT64): `-1` is not a time to live in seconds"
        )
    );
    // A type of times has its own unit. Seconds are rounded up.
    let spans = columns.replace("int64 ttl", "int64 ttl (TIME(MICROS,true))");
    let spans = file_of(&spans, Longs(&[59_000_001, 0, 0, 1 << 60]), latencies())?;
    assert_eq!(all("t", &spans, None)?, wanted);
    Ok(())
}

#[test]
fn latencies_of_blocks_are_those_of_the_csv() -> Result<(), Failure> {
    let csv = "offset,latency_ms,volume\n0,1.5,a\n4096,,b\n";
    let columns = "required int64 offset; optional double latency_ms; required binary volume;";
    let values = [
        Longs(&[0, 4096]),
        Values::Real(&[1.5], &[1, 0]),
        Texts(&["a", "b"]),
    ];
    let wanted = all("t.csv", csv.as_bytes(), None)?;
    assert_eq!(wanted.2, [1500, 0]);
    assert_eq!(all("t.parquet", &file(columns, &values)?, None)?, wanted);
    Ok(())
}

/// Parts of a name may contain what stands between parts, or be empty.
#[test]
fn volumes_of_several_columns_are_as_many_as_there_are_combinations() -> Result<(), Failure> {
    const MAP: &str = "volume=0,volume=1,offset=2";
    let hosts = ["a.b", "a", "10.0.0.1", "", "x", "a.b"];
    let disks = ["c", "b.c", "2", "x", "", "c"];
    let table = file(
        "required binary host (STRING); required binary disk (STRING); required int64 at;",
        &[Texts(&hosts), Texts(&disks), Longs(&[0; 6])],
    )?;
    let line = |(host, disk): (&str, &str)| format!("{host},{disk},0\n");
    let csv: String = hosts.into_iter().zip(disks).map(line).collect();
    let options = TraceOptions {
        columns: Some(MAP.parse::<Columns>()?),
        ..TraceOptions::default()
    };
    for (name, data) in [("t.parquet", &table[..]), ("t.csv", csv.as_bytes())] {
        let mut trace = reader(name, data, &options)?;
        let requests = trace.by_ref().collect::<Result<Vec<_>, _>>()?;
        let volumes: Vec<u16> = requests.iter().map(|request| request.volume.0).collect();
        assert_eq!(volumes, [0, 1, 2, 3, 4, 0], "{name}");
        let names = ["a.b.c", "a.b.c", "10.0.0.1.2", ".x", "x."];
        assert_eq!(trace.volumes(), names, "{name}");
    }
    Ok(())
}
