use super::{Extras, TraceWriter, WriteOptions};
use crate::format::{Compression, Format, TraceError, TraceOptions, TraceReader};
use crate::{Noted, Request, RequestKind, View};
use futae_policy::VolumeId;
use proptest::prelude::{Strategy, any, prop, prop_assert, prop_assert_eq, proptest};
use std::collections::HashMap;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Memory that a writer writes to.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<Vec<u8>>>);

impl io::Write for Shelf {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut data = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        data.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const BLOCK_BYTES: u64 = 4096;

fn written(
    requests: &[Request],
    volumes: &[String],
    options: &WriteOptions,
) -> Result<Vec<u8>, TraceError> {
    let shelf = Shelf::default();
    let mut writer = TraceWriter::new(Path::new("t"), shelf.clone(), options)?;
    for request in requests {
        writer.write(request, volumes)?;
    }
    writer.finish()?;
    let mut data = shelf.0.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(std::mem::take(&mut *data))
}

fn read(data: Vec<u8>, format: Option<Format>) -> Result<(Vec<Request>, TraceReader), TraceError> {
    let options = TraceOptions {
        format,
        ..TraceOptions::default()
    };
    let mut reader = TraceReader::new(Path::new("t"), io::Cursor::new(data), &options)?;
    let requests = reader.by_ref().collect::<Result<_, _>>()?;
    Ok((requests, reader))
}

fn options(format: Format, compression: Compression, view: View) -> WriteOptions {
    WriteOptions {
        format,
        compression,
        view,
        extras: Extras::default(),
    }
}

fn formats() -> Vec<Format> {
    let built = |format: &Format| cfg!(feature = "parquet") || *format != Format::Parquet;
    Format::WRITABLE.into_iter().filter(built).collect()
}

/// Requests whose volumes are numbered as they come.
fn requests() -> impl Strategy<Value = Vec<Request>> {
    let kind = prop::bool::ANY.prop_map(|write| match write {
        true => RequestKind::Write,
        false => RequestKind::Read,
    });
    let lengths = 0u64..=1 << 30;
    let one = (
        0u16..40,
        0..=u64::MAX >> 1,
        lengths,
        kind,
        any::<Option<u64>>(),
    );
    prop::collection::vec(one, 1..200).prop_map(|all| {
        let mut numbers = HashMap::new();
        let one = |(volume, offset_bytes, length_bytes, kind, time_us)| {
            let next = numbers.len() as u16;
            Request {
                guest: 0,
                volume: VolumeId(*numbers.entry(volume).or_insert(next)),
                offset_bytes,
                length_bytes,
                kind,
                time_us,
            }
        };
        all.into_iter().map(one).collect()
    })
}

fn compression() -> impl Strategy<Value = Compression> {
    prop::sample::select(vec![
        Compression::None,
        Compression::Gzip,
        Compression::Zstd,
        Compression::Xz,
        Compression::Bzip2,
    ])
}

proptest! {
    #[test]
    fn tables_are_read_back_without_loss(requests in requests(), compression in compression()) {
        for format in formats() {
            if format.has_block_numbers() {
                continue;
            }
            let view = View::Start;
            let data = written(&requests, &[], &options(format, compression, view))?;
            let (found, reader) = read(data, None)?;
            prop_assert_eq!(&found, &requests);
            prop_assert_eq!((reader.format(), reader.compression()), (format, compression));
            prop_assert!(reader.volumes().iter().enumerate().all(|(i, v)| *v == i.to_string()));
        }
    }

    #[test]
    fn block_numbers_are_read_back(
        blocks in prop::collection::vec(0u64..1 << 32, 1..200),
        compression in compression(),
    ) {
        let request = |&block: &u64| Request {
            guest: 0,
            volume: VolumeId(0),
            offset_bytes: block * BLOCK_BYTES,
            length_bytes: BLOCK_BYTES,
            kind: RequestKind::Read,
            time_us: None,
        };
        let requests: Vec<Request> = blocks.iter().map(request).collect();
        for format in formats().into_iter().filter(|format| format.has_block_numbers()) {
            let view = View::Blocks(BLOCK_BYTES);
            let data = written(&requests, &[], &options(format, compression, view))?;
            let (mut found, reader) = read(data, Some(format))?;
            if format == Format::OracleGeneral {
                prop_assert!(found.iter().all(|r| r.time_us == Some(0)));
                found.iter_mut().for_each(|r| r.time_us = None);
            }
            prop_assert_eq!(&found, &requests);
            prop_assert_eq!(reader.compression(), compression);
        }
    }

    #[test]
    fn the_next_request_of_every_object_is_found(
        blocks in prop::collection::vec(0u64..30, 1..300),
    ) {
        let request = |(second, &block): (u64, &u64)| Request {
            guest: 0,
            volume: VolumeId((block % 3) as u16),
            offset_bytes: block / 3 * 512,
            length_bytes: 700,
            kind: RequestKind::Write,
            time_us: Some((second + 1 + (1 << 40)) * 1_000_000),
        };
        let requests: Vec<Request> = (0..).zip(&blocks).map(request).collect();
        let data = written(&requests, &[], &WriteOptions {
            format: Format::OracleGeneral,
            compression: Compression::None,
            view: View::Start,
            extras: Extras::default(),
        })?;
        prop_assert_eq!(data.len(), blocks.len() * 24);
        for (i, record) in data.chunks_exact(24).enumerate() {
            let later = blocks[i + 1..].iter().position(|block| *block == blocks[i]);
            let next = later.map_or(-1, |distance| (i + 1 + distance + 1) as i64);
            let block = ((blocks[i] % 3) << 48) | (blocks[i] / 3);
            let mut expected = (i as u32).to_le_bytes().to_vec();
            expected.extend(block.to_le_bytes());
            expected.extend(700u32.to_le_bytes());
            expected.extend(next.to_le_bytes());
            prop_assert_eq!(record, &expected[..]);
        }
    }
}

#[test]
fn requests_are_cut_into_blocks() -> Result<(), TraceError> {
    let request = Request {
        guest: 0,
        volume: VolumeId(0),
        offset_bytes: 4000,
        length_bytes: 5000,
        kind: RequestKind::Write,
        time_us: Some(7),
    };
    let options = |format, view| WriteOptions {
        format,
        compression: Compression::None,
        view,
        extras: Extras::default(),
    };
    let csv = options(Format::Csv, View::Blocks(BLOCK_BYTES));
    let data = written(&[request], &["8,0 x".to_owned()], &csv)?;
    let expected = "time_us,volume,kind,offset,length\n\
                    7,8:0_x,W,0,4096\n7,8:0_x,W,4096,4096\n7,8:0_x,W,8192,4096\n";
    assert_eq!(String::from_utf8_lossy(&data), expected);
    let ids = |view| written(&[request], &[], &options(Format::Ids, view));
    assert_eq!(ids(View::Blocks(BLOCK_BYTES))?, b"0\n1\n2\n");
    assert_eq!(ids(View::Start)?, b"7\n");
    Ok(())
}

#[test]
fn an_object_that_is_too_long_for_a_request_is_not_written_to_a_table() {
    let object = |length_bytes| Request {
        guest: 0,
        volume: VolumeId(0),
        offset_bytes: 0,
        length_bytes,
        kind: RequestKind::Read,
        time_us: None,
    };
    let is_table = |format: &Format| [Format::Csv, Format::Parquet].contains(format);
    for format in formats().into_iter().filter(is_table) {
        let options = WriteOptions {
            format,
            compression: Compression::None,
            view: View::Start,
            extras: Extras::default(),
        };
        assert!(written(&[object(1 << 30)], &[], &options).is_ok());
        let problem = written(&[object((1 << 30) + 1)], &[], &options).map_err(|e| e.to_string());
        let told = problem.is_err_and(|it| it.contains("1073741825 bytes long, more than 1 GiB"));
        assert!(told, "{format}");
    }
}

#[test]
fn names_of_volumes_stay_different() -> Result<(), TraceError> {
    let names = ["a,b", "a:b", "a:b~", "", "#c", "\"d", "'d"].map(str::to_owned);
    let request = |volume| Request {
        guest: 0,
        volume: VolumeId(volume),
        offset_bytes: 0,
        length_bytes: 0,
        kind: RequestKind::Read,
        time_us: None,
    };
    let requests: Vec<Request> = (0..9).map(request).collect();
    let options = WriteOptions {
        format: Format::Csv,
        compression: Compression::None,
        view: View::Start,
        extras: Extras::default(),
    };
    let (found, reader) = read(written(&requests, &names, &options)?, None)?;
    assert_eq!(found, requests);
    assert_eq!(
        reader.volumes(),
        ["a:b", "a:b~", "a:b~~", "", "#c", "'d", "'d~", "7", "8"]
    );
    Ok(())
}

#[test]
fn what_cannot_be_written_is_said() {
    let options = |format, view| WriteOptions {
        format,
        compression: Compression::None,
        view,
        extras: Extras::default(),
    };
    let far = |volume, offset_bytes| Request {
        guest: 0,
        volume: VolumeId(volume),
        offset_bytes,
        length_bytes: 1,
        kind: RequestKind::Read,
        time_us: None,
    };
    let message = |request, format| {
        let result = written(&[request], &[], &options(format, View::Start));
        result.err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert_eq!(
        message(far(0, 1 << 42), Format::Le32),
        "trace t: block 8589934592 of volume 0 has no number in a le32 trace; write csv or parquet, which keep volumes and offsets"
    );
    assert!(message(far(1, 0), Format::Be32).contains("of volume 1 has no number"));
    assert!(message(far(1, 1 << 60), Format::Ids).contains("has no number in a ids trace"));
    // A number of volume 0 may be one of another volume, whichever comes first.
    for format in [Format::Ids, Format::Be64, Format::OracleGeneral] {
        let all = |requests: &[Request]| written(requests, &[], &options(format, View::Start));
        assert!(all(&[far(0, 1 << 57), far(0, 0)]).is_ok());
        for requests in [[far(0, 1 << 57), far(1, 0)], [far(1, 0), far(0, 1 << 57)]] {
            let error = all(&requests).err().map(|e| e.to_string());
            assert!(
                error.is_some_and(|e| e.contains("has no number")),
                "{format}"
            );
        }
    }
    let unwritable = message(far(0, 0), Format::Msr);
    assert!(
        unwritable.starts_with("trace t: msr traces are read, not written; written are oracle")
    );
    let of_name = |name: &str| {
        WriteOptions::of_name(Path::new(name), None, View::Start)
            .map(|o| (o.format, o.compression))
            .map_err(|e| e.to_string())
    };
    assert_eq!(of_name("x.CSV.zst"), Ok((Format::Csv, Compression::Zstd)));
    assert_eq!(
        of_name("a/x.oracleGeneral.bin"),
        Ok((Format::OracleGeneral, Compression::None))
    );
    assert_eq!(
        of_name("x.parquet"),
        Ok((Format::Parquet, Compression::None))
    );
    assert!(of_name("csv").is_err_and(|e| e.contains("does not tell which format to write")));
    assert!(of_name("x.é").is_err());
}

#[test]
fn a_file_appears_when_it_is_whole() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("t.ids.gz");
    std::fs::write(&path, "what was there")?;
    let options = WriteOptions::of_name(&path, None, View::Start)?;
    let left = || std::fs::read_dir(directory.path()).map(Iterator::count);
    drop(TraceWriter::create(&path, &options)?);
    assert_eq!(
        (std::fs::read(&path)?, left()?),
        (b"what was there".to_vec(), 1)
    );
    let request = Request {
        guest: 0,
        volume: VolumeId(0),
        offset_bytes: 9 * 512,
        length_bytes: 0,
        kind: RequestKind::Read,
        time_us: None,
    };
    let mut writer = TraceWriter::create(&path, &options)?;
    writer.write(&request, &[])?;
    assert_eq!(writer.records(), 1);
    writer.finish()?;
    let mut reader = TraceReader::open(&path, &TraceOptions::default())?;
    let found: Result<Vec<Request>, _> = reader.by_ref().collect();
    assert_eq!(
        (found?.len(), reader.compression(), left()?),
        (1, Compression::Gzip, 1)
    );
    assert_eq!(reader.file_bytes_read(), std::fs::metadata(&path)?.len());
    TraceWriter::create(Path::new("/dev/null"), &options)?.finish()?;
    assert!(TraceWriter::create(Path::new("/nowhere/x.csv"), &options).is_err());
    Ok(())
}

#[test]
fn a_link_goes_on_being_one_and_what_is_open_is_written_behind_what_it_has()
-> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let at = |name: &str| directory.path().join(name);
    let options = options(Format::Csv, Compression::None, View::Start);
    let header = super::CsvLines::header();

    std::fs::create_dir(at("elsewhere"))?;
    std::fs::write(at("elsewhere/t.csv"), "what was there")?;
    std::os::unix::fs::symlink("elsewhere/t.csv", at("link"))?;
    TraceWriter::create(&at("link"), &options)?.finish()?;
    assert!(at("link").is_symlink());
    assert_eq!(std::fs::read_to_string(at("elsewhere/t.csv"))?, header);

    for (link, target) in [("first", "second"), ("second", "elsewhere/new.csv")] {
        std::os::unix::fs::symlink(target, at(link))?;
    }
    TraceWriter::create(&at("first"), &options)?.finish()?;
    assert!(at("first").is_symlink() && at("second").is_symlink());
    assert_eq!(std::fs::read_to_string(at("elsewhere/new.csv"))?, header);
    std::os::unix::fs::symlink("circle", at("circle"))?;
    assert!(TraceWriter::create(&at("circle"), &options).is_err());
    assert!(at("circle").is_symlink());

    // As /dev/stdout is a link, here to a file that a shell has opened with >>.
    std::fs::write(at("output"), "before\n")?;
    let output = std::fs::File::options().append(true).open(at("output"))?;
    let descriptor = format!("/proc/self/fd/{}", output.as_raw_fd());
    std::os::unix::fs::symlink(&descriptor, at("stdout"))?;
    for name in [at("stdout"), descriptor.into()] {
        TraceWriter::create(&name, &options)?.finish()?;
        assert!(name.is_symlink());
    }
    let expected = format!("before\n{header}{header}");
    assert_eq!(std::fs::read_to_string(at("output"))?, expected);

    let refused = TraceWriter::create(&at("nowhere/t.csv"), &options).map(drop);
    let refused = refused.expect_err("no directory").to_string();
    let nowhere = at("nowhere");
    let why = format!("t.csv: there is no directory {}", nowhere.display());
    assert!(refused.ends_with(&why), "{refused}");
    Ok(())
}

/// Requests, what is noted of each, and the names of their volumes.
type Whole = (Vec<(Request, Noted)>, Vec<String>, TraceReader);

fn read_whole(data: Vec<u8>) -> Result<Whole, TraceError> {
    let options = TraceOptions {
        lives: true,
        latencies: true,
        ..TraceOptions::default()
    };
    let mut reader = TraceReader::new(Path::new("t"), io::Cursor::new(data), &options)?;
    let mut all = Vec::new();
    while let Some(request) = reader.next() {
        all.push((request?, reader.take_noted()));
    }
    let names = reader.volumes().to_vec();
    Ok((all, names, reader))
}

/// Writes a table again as it was read.
fn copied((all, names, reader): &Whole, format: Format) -> Result<Vec<u8>, TraceError> {
    let mut options = options(format, Compression::None, View::Start);
    options.extras = Extras {
        objects: reader.has_sizes(),
        lives: all[0].1.life_seconds.is_some(),
        latencies: all[0].1.latency_us.is_some(),
    };
    let shelf = Shelf::default();
    let mut writer = TraceWriter::new(Path::new("t"), shelf.clone(), &options)?;
    for (request, noted) in all {
        writer.write_noted(request, *noted, names)?;
    }
    writer.finish()?;
    let mut data = shelf.0.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(std::mem::take(&mut *data))
}

#[test]
fn objects_lives_latencies_and_many_volumes_are_read_back() -> Result<(), TraceError> {
    let objects = "time,key,size,op,ttl,latency_us\n0,b,3000000000,R,60,7\n1,a,5,W,0,\n2,b,3000000000,R,1.5,9\n";
    let mut volumes = "offset,length,volume\n".to_owned();
    for volume in 0..70_000 {
        volumes += &format!("{},4096,v{volume}\n", volume % 7 * 4096);
    }
    for table in [objects, &volumes] {
        let first = read_whole(table.as_bytes().to_vec())?;
        for format in formats() {
            if format.has_block_numbers() {
                continue;
            }
            let again = read_whole(copied(&first, format)?)?;
            assert!(again.0 == first.0, "{format}: {:?}", &again.0[..3]);
            assert_eq!(again.1.len(), first.1.len(), "{format}");
            assert!(again.1 == first.1 || first.2.has_sizes(), "{format}");
            assert_eq!(again.2.has_sizes(), first.2.has_sizes(), "{format}");
        }
    }
    Ok(())
}
