//! Errors, compression, column maps, and input that is no trace at all.

use super::{reader, show};
use crate::TraceError;
use crate::format::{
    Columns, Compression, Doubt, Format, RequestReader, TraceErrorKind, TraceOptions, TraceReader,
};
use proptest::prelude::{any, prop, proptest};
use std::io::Write;
use std::path::Path;

fn message(data: &[u8], format: Format) -> String {
    let options = TraceOptions {
        format: Some(format),
        ..TraceOptions::default()
    };
    let reader = reader("t", data, &options).unwrap_or_else(|e| panic!("{e}"));
    let errors: Vec<TraceError> = reader.filter_map(Result::err).collect();
    assert_eq!(errors.len(), 1, "a reader ends at its first error");
    errors[0].to_string()
}

#[test]
fn an_error_names_file_record_and_byte() {
    let text = |data: &str, format| message(data.as_bytes(), format);
    assert_eq!(
        text("1\n22\nx3\n4\n", Format::Ids),
        "trace t, record 3 at byte 5: `x3` is not a whole number below 2^64"
    );
    assert_eq!(
        text("1,2,3\n", Format::Msr),
        "trace t, record 1 at byte 0: the record has 3 fields, and the offset should be field 5"
    );
    assert_eq!(
        text("1,0,8,5,9\n", Format::Tencent),
        "trace t, record 1 at byte 0: `5` is not a read or a write"
    );
    assert_eq!(
        message(&[0; 6], Format::Le32),
        "trace t, record 2 at byte 4: the data ends after 2 of the record's 4 bytes"
    );
    assert_eq!(
        message(&[0; 32], Format::Vscsi1),
        "trace t, record 1 at byte 0: the bytes are not a vscsi version 1 record"
    );
    assert!(text("0 9999999999 0 0\n", Format::Arc).ends_with("more than 1 GiB"));
    assert!(text("36028797018963968 8 0 0\n", Format::Arc).ends_with("ends beyond 2^64 bytes"));
    assert!(text(&"9".repeat(70_000), Format::Ids).ends_with("longer than 65536 bytes"));
}

#[test]
fn bad_records_can_be_counted_and_left_out() {
    let long = "9".repeat(70_000);
    let data = format!("1\nx\n{long}\n2\n-3\n");
    let format = Some(Format::Ids);
    let options = TraceOptions {
        format,
        skip_bad: true,
        ..TraceOptions::default()
    };
    let mut reader = reader("t", data.as_bytes(), &options).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(reader.by_ref().filter_map(Result::ok).count(), 2);
    assert_eq!(reader.skipped(), 3);
}

#[test]
fn a_trace_without_requests_is_an_error_that_says_what_to_name() {
    let read = |name: &str, data: &[u8], format, skip_bad| {
        let options = TraceOptions {
            format,
            skip_bad,
            ..TraceOptions::default()
        };
        let read = reader(name, data, &options);
        let read = read.and_then(|mut reader| reader.read_batch(&mut Vec::new(), 99));
        read.map_or_else(|e| e.to_string(), |()| "no error".to_owned())
    };
    assert_eq!(
        read("t.be32", b"", None, false),
        "trace t.be32: the trace has no requests: there is no data"
    );
    let cases = [
        (
            read("t", b"a b c\nd e f\n", Some(Format::Blkparse), false),
            "none of its 2 records",
        ),
        (
            read("t.csv", b"time,offset,length\n", None, false),
            "none of its 1 records",
        ),
        (
            read("t", b"x\ny\n", Some(Format::Ids), true),
            "of its 2 records 2 are bad in ids",
        ),
    ];
    for (message, expected) in cases {
        assert!(
            message.contains(expected) && message.contains("--columns"),
            "{message}"
        );
    }
}

#[test]
fn bytes_that_no_program_wrote_are_no_oracle_general_whatever_the_name_says() {
    let mut state = 1u64;
    let random = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    });
    let random: Vec<u8> = random.take(24 * 100).collect();
    let named = reader("t.oracleGeneral", &random, &TraceOptions::default());
    let message = named.map_or_else(|e| e.to_string(), |_| "taken".to_owned());
    assert!(message.contains("no oracleGeneral"), "{message}");
    let options = TraceOptions {
        format: Some(Format::OracleGeneral),
        ..TraceOptions::default()
    };
    let told = reader("t", &random, &options).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(told.doubts(), [Doubt::NotOracle]);
}

#[test]
fn sizes_that_are_not_used_are_noticed_only_where_they_differ() {
    let doubts = |sizes: [u32; 2]| {
        let record = |size: u32| {
            let parts = [&[0; 12][..], &size.to_le_bytes(), &(-1i64).to_le_bytes()];
            parts.concat()
        };
        let data = sizes.map(record).concat();
        let mut reader = reader("t.oracleGeneral", &data, &TraceOptions::default())
            .unwrap_or_else(|e| panic!("{e}"));
        let mut starts = Vec::new();
        while reader.read_starts(&mut starts, 9).is_some() {}
        assert_eq!(reader.by_ref().count() + starts.len(), 2);
        reader.doubts()
    };
    assert_eq!(doubts([512, 512]), []);
    assert_eq!(doubts([512, 513]), [Doubt::SizesIgnored]);
}

#[test]
fn what_cannot_be_told_is_asked_for() {
    let error = |data: &[u8]| match reader("t", data, &TraceOptions::default()) {
        Ok(reader) => panic!("{}", reader.format()),
        Err(e) => e.to_string(),
    };
    for data in [&b""[..], b"hello world\n", &[1, 2, 3, 4]] {
        let message = error(data);
        assert!(
            message.starts_with("trace t: the format cannot be told"),
            "{message}"
        );
        assert!(
            message.contains("vscsi1") && message.contains("fio-iolog"),
            "{message}"
        );
    }
    let wrong = "vscsi3".parse::<Format>().map_err(|e| e.to_string());
    assert!(wrong.is_err_and(|e| e.contains("did you mean `vscsi1`?") && e.contains("msr")));
    for format in Format::ALL {
        assert_eq!(format.name().parse::<Format>().ok(), Some(format));
    }
    assert!(matches!(
        TraceReader::open(Path::new("/nowhere/t"), &TraceOptions::default()).map_err(|e| e.kind),
        Err(TraceErrorKind::Io(_))
    ));
}

#[test]
fn a_column_map_reads_any_table() {
    let columns = |text: &str| text.parse::<Columns>();
    let map = "separator=blank, kind=0:read1, offset=2:4096, length=1:4096, time=3:ms, volume=4";
    let options = TraceOptions {
        columns: columns(map).ok(),
        ..TraceOptions::default()
    };
    let table = reader("t", b"k n o t v\n1 2 3 1.5 a\n0 1 9 2 b\n", &options);
    let requests: Vec<String> = table
        .unwrap_or_else(|e| panic!("{e}"))
        .map(|r| show(&r.unwrap_or_else(|e| panic!("{e}"))))
        .collect();
    assert_eq!(requests, ["0 R 12288+8192 @1500", "1 W 36864+4096 @2000"]);
    for bad in [
        "",
        "length=1",
        "offset=x",
        "offset=65536",
        "offset=1:0",
        "offset=1,kind=2:maybe",
        "offset=1,time=0:weeks",
        "offset=1,colour=2",
        "offset=1,separator=pipe",
        "offset=0,offset=1",
        "offset=0,time=1,length=2,length=3,time=4",
        "separator=tab,offset=0,separator=tab",
    ] {
        let message = columns(bad).map_err(|e| e.to_string());
        assert!(
            message.is_err_and(|e| e.contains("in the column map is not")),
            "{bad}"
        );
    }
    for columns in [
        "volume=0,volume=1,offset=2,length=3,length=4",
        "key=0,key=1",
    ] {
        assert!(columns.parse::<Columns>().is_ok(), "{columns}");
    }
    for format in Format::ALL {
        let options = TraceOptions {
            format: Some(format),
            columns: columns("offset=0").ok(),
            ..TraceOptions::default()
        };
        let error = reader("t", b"1,2\n", &options).err().map(|e| e.to_string());
        let is_refused = error.is_some_and(|e| e.contains("a map is for tables"));
        let is_table = [Format::Csv, Format::Parquet].contains(&format);
        assert_eq!(is_refused, !is_table, "{format}");
    }
    let options = TraceOptions {
        format: Some(Format::Csv),
        ..TraceOptions::default()
    };
    let error = reader("t", b"1,2\n", &options).err().map(|e| e.to_string());
    assert!(error.is_some_and(|e| e.contains("needs a map of its columns")));
}

#[test]
fn every_compression_is_recognised() -> std::io::Result<()> {
    let plain = "7\n8\n9\n".repeat(20_000).into_bytes();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain)?;
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
    xz.write_all(&plain)?;
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip2.write_all(&plain)?;
    let zstd = zstd::encode_all(&plain[..], 1)?;
    let cases = [
        (Compression::None, plain),
        (Compression::Gzip, gzip.finish()?),
        (Compression::Xz, xz.finish()?),
        (Compression::Bzip2, bzip2.finish()?),
        (Compression::Zstd, zstd),
    ];
    for (compression, data) in cases {
        for (copies, whole) in [
            (1, data.clone()),
            (2, [data.clone(), data.clone()].concat()),
        ] {
            let mut reader =
                reader("t", &whole, &TraceOptions::default()).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(reader.compression(), compression);
            let count = reader.by_ref().filter_map(Result::ok).count();
            assert_eq!(count, copies * 60_000, "{compression:?}");
        }
        let cut = reader("t", &data[..data.len() / 2], &TraceOptions::default());
        let ends_in_error = cut.map_or(true, |reader| reader.last().is_some_and(|r| r.is_err()));
        assert!(
            ends_in_error || compression == Compression::None,
            "{compression:?}"
        );
    }
    Ok(())
}

#[test]
fn zeros_after_compressed_members_are_padding_and_other_bytes_are_errors() -> std::io::Result<()> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"7\n8\n9\n")?;
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip2.write_all(b"7\n8\n9\n")?;
    for member in [gzip.finish()?, bzip2.finish()?] {
        let count = |parts: &[&[u8]]| {
            let reader = reader("t", &parts.concat(), &TraceOptions::default())?;
            reader.map(|request| request.map(|_| 1)).sum()
        };
        let good: [(&[&[u8]], usize); 4] = [
            (&[&member, &[0]], 3),
            (&[&member, &[0; 700_000]], 3),
            (&[&member, &[0; 512], &member], 6),
            (&[&member, &member, &[0; 512]], 6),
        ];
        for (parts, requests) in good {
            let found: Result<usize, TraceError> = count(parts);
            assert_eq!(found.map_err(|e| e.to_string()), Ok(requests));
        }
        let cut = &member[..member.len() - 1];
        let bad: [&[&[u8]]; 4] = [
            &[&member, b"x"],
            &[&member, &[0; 512], b"x"],
            &[cut],
            &[&member, &[0; 8], cut],
        ];
        for parts in bad {
            let found: Result<usize, TraceError> = count(parts);
            assert!(found.is_err(), "{found:?}");
        }
    }
    Ok(())
}

#[test]
fn numbers_that_begin_like_a_text_lose_no_bytes() {
    let options = TraceOptions {
        format: Some(Format::Le64),
        ..TraceOptions::default()
    };
    let data = b"\xEF\xBB\xBF\0\0\0\0\0\x07\0\0\0\0\0\0\0";
    let reader = reader("t", data, &options).unwrap_or_else(|e| panic!("{e}"));
    let read: Vec<String> = reader.flatten().map(|request| show(&request)).collect();
    assert_eq!(
        read,
        [
            format!("0 R {}+4096", 0xBF_BBEFu64 * 4096),
            "0 R 28672+4096".into()
        ]
    );
}

#[test]
fn volumes_beyond_the_limit_are_places_on_the_last() {
    // Each volume has one block, at the same place; the last ones are asked for twice.
    let volumes: Vec<u32> = (0..70_000).chain(65_530..70_000).chain([3]).collect();
    let line = |volume: &u32| format!("v{volume},R,4096,512,0\n");
    let data: String = volumes.iter().map(line).collect();
    let mut reader =
        reader("t", data.as_bytes(), &TraceOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    assert!(reader.doubts().is_empty());
    let mut seen = std::collections::HashMap::new();
    for volume in &volumes {
        let request = reader.next().expect("a request").expect("a good one");
        let place = (request.volume, request.offset_bytes);
        let expected = match volume.checked_sub(65_535) {
            None => (*volume as u16, 4096),
            Some(further) => (65_535, (u64::from(further) << 44) + 4096),
        };
        assert_eq!((place.0.0, place.1), expected);
        // Two volumes never have the same place.
        assert_eq!(*seen.entry(place).or_insert(*volume), *volume);
    }
    assert_eq!(seen.len(), 70_000);
    assert!(reader.next().is_none());
    assert_eq!(reader.doubts(), [Doubt::VolumesFolded]);
}

#[test]
fn a_folded_volume_has_room_for_16_tib() {
    let last = |offset: u64| {
        let first = (0..65_537).map(|volume| format!("{volume},R,0,512,0\n"));
        let data: String = first.chain([format!("65536,R,{offset},512,0\n")]).collect();
        let reader = reader("t", data.as_bytes(), &TraceOptions::default());
        reader
            .unwrap_or_else(|e| panic!("{e}"))
            .last()
            .expect("a request")
    };
    let room = 1u64 << 44;
    assert_eq!(
        last(room - 512).expect("it fits").offset_bytes,
        2 * room - 512
    );
    let error = last(room).expect_err("it is beyond");
    assert!(matches!(error.kind, TraceErrorKind::FoldedTooLarge));
}

#[test]
fn volumes_beyond_all_room_end_the_trace() {
    let data: String = (0..=1_114_110)
        .map(|volume| format!("{volume},R,0,512,0\n"))
        .collect();
    let reader = reader("t", data.as_bytes(), &TraceOptions::default());
    let results: Vec<_> = reader.unwrap_or_else(|e| panic!("{e}")).collect();
    assert_eq!(results.len(), 1_114_111);
    let last = results.last().and_then(|r| r.as_ref().err());
    assert!(matches!(
        last.map(|e| &e.kind),
        Some(TraceErrorKind::TooManyVolumes)
    ));
}

proptest! {
    #[test]
    fn garbage_never_panics(
        data in prop::collection::vec(any::<u8>(), 0..300),
        format in prop::option::of(prop::sample::select(Format::ALL.to_vec())),
        skip_bad in any::<bool>(),
    ) {
        let options = TraceOptions { format, skip_bad, ..TraceOptions::default() };
        if let Ok(reader) = reader("t", &data, &options) {
            reader.for_each(drop);
        }
    }

    #[test]
    fn garbled_text_never_panics(
        data in "[-0-9a-zA-Z.,+*# \n\t]{0,200}",
        format in prop::option::of(prop::sample::select(Format::ALL.to_vec())),
    ) {
        let options = TraceOptions { format, skip_bad: true, ..TraceOptions::default() };
        if let Ok(reader) = reader("t", data.as_bytes(), &options) {
            reader.for_each(drop);
        }
    }

    #[test]
    fn garbled_column_maps_never_panic(text in "[a-z]{0,8}(=[0-9:a-z]{0,6},?){0,4}|\\PC{0,30}") {
        let _ = text.parse::<Columns>();
    }
}
