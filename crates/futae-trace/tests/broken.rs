//! Cut traces end in an error that says where, and traces that are too long in one that says so.

use futae_policy::VolumeId;
use futae_testkit::need::{Need, skip};
use futae_trace::{
    Format, Request, RequestKind, TraceError, TraceErrorKind, TraceOptions, TraceReader,
    TraceWriter, View, WriteOptions,
};
use std::error::Error;
use std::io::{self, Read};
use std::path::Path;

#[test]
fn more_data_than_allowed_is_an_error() -> Result<(), Box<dyn Error>> {
    let mut bomb = Vec::new();
    let mut encoder = zstd::Encoder::new(&mut bomb, 19)?;
    io::copy(&mut io::repeat(b'\n').take(100 << 20), &mut encoder)?;
    encoder.finish()?;
    assert!(bomb.len() < 100_000);
    let options = TraceOptions {
        format: Some(Format::Ids),
        data_bytes_max: Some(1 << 20),
        ..TraceOptions::default()
    };
    let reader = TraceReader::new(Path::new("t"), io::Cursor::new(bomb), &options)?;
    let errors: Vec<TraceError> = reader.filter_map(Result::err).collect();
    assert!(errors.len() == 1 && errors[0].to_string().contains("more data than the limit"));
    Ok(())
}

/// A trace of each format with three records, and where the third begins; of text, no fewer
/// lines than that.
fn samples() -> Vec<(Format, Vec<u8>, usize)> {
    let text = |format, line: &str| {
        let (lines, at) = (line.repeat(3), line.len() * 2);
        (format, lines.into_bytes(), at)
    };
    let binary = |format, record: &[u8]| (format, record.repeat(3), record.len() * 2);
    let mut vscsi1 = [0; 32];
    (vscsi1[12], vscsi1[15]) = (0x28, 1);
    let mut vscsi2 = [0; 40];
    (vscsi2[0], vscsi2[3]) = (0x28, 2);
    let mut blktrace = [0; 48];
    blktrace[..4].copy_from_slice(&0x6561_7407u32.to_le_bytes());
    vec![
        binary(Format::OracleGeneral, &[1; 24]),
        binary(Format::Vscsi1, &vscsi1),
        binary(Format::Vscsi2, &vscsi2),
        binary(Format::Le32, &[1; 4]),
        binary(Format::Le64, &[1; 8]),
        binary(Format::Be32, &[1; 4]),
        binary(Format::Be64, &[1; 8]),
        binary(Format::Blktrace, &blktrace),
        text(Format::Msr, "1,h,0,Read,0,512,1\n"),
        text(Format::Arc, "1 2 0 1\n"),
        text(Format::Tencent, "1,2,3,0,7\n"),
        text(Format::Systor, "1,0,R,3,4096,512\n"),
        text(Format::DiskSim, "1 0 8 8 1\n"),
        text(Format::Spc, "0,8,512,R,1\n"),
        text(Format::Alibaba, "3,R,0,512,9\n"),
        text(Format::FlashNet, "1,2,1,512,0,1,512\n"),
    ]
}

#[test]
fn a_cut_trace_says_where_it_ends() -> Result<(), Box<dyn Error>> {
    for (format, data, third) in samples() {
        let options = TraceOptions {
            format: Some(format),
            ..TraceOptions::default()
        };
        let outcome = |cut: usize| -> Result<Vec<_>, TraceError> {
            let data = io::Cursor::new(data[..cut].to_vec());
            Ok(TraceReader::new(Path::new("t"), data, &options)?.collect())
        };
        // The records of some of these formats hold no requests.
        let is_whole = |found: &Result<Request, TraceError>| match found {
            Ok(_) => true,
            Err(error) => matches!(error.kind, TraceErrorKind::NoRequests { .. }),
        };
        let whole = outcome(data.len())?;
        assert!(whole.iter().all(is_whole), "{format}: {whole:?}");
        // A line may be cut so that what is left is a line, which cannot be told; not this one.
        let last = outcome(third + 1)?.pop();
        let Some(Err(error)) = last else {
            panic!("{format}: {last:?}");
        };
        assert_eq!(error.at, Some((3, third as u64)), "{format}: {error}");
    }
    Ok(())
}

#[test]
fn cut_compressed_data_and_tables_are_errors() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let names = [
        "t.ids.gz",
        "t.ids.zst",
        "t.ids.xz",
        "t.ids.bz2",
        "t.parquet",
    ];
    for name in names {
        let path = directory.path().join(name);
        let options = WriteOptions::of_name(&path, None, View::Start)?;
        let mut writer = match TraceWriter::create(&path, &options) {
            Err(e) if matches!(e.kind, TraceErrorKind::NoParquet) => {
                skip(Need::Parquet, &e.to_string());
                continue;
            }
            writer => writer?,
        };
        for number in 0..10_000u64 {
            let request = Request {
                guest: 0,
                volume: VolumeId(0),
                offset_bytes: number * number * 512,
                length_bytes: 512,
                kind: RequestKind::Read,
                time_us: Some(number),
            };
            writer.write(&request, &[])?;
        }
        writer.finish()?;
        let data = std::fs::read(&path)?;
        for cut in [data.len() / 2, data.len() - 1] {
            std::fs::write(&path, &data[..cut])?;
            let error = match TraceReader::open(&path, &TraceOptions::default()) {
                Ok(reader) => reader.filter_map(Result::err).last(),
                Err(e) => Some(e),
            };
            let message = error.map(|e| e.to_string()).unwrap_or_default();
            assert!(message.contains(name), "{name} cut at {cut}: {message}");
        }
    }
    Ok(())
}
