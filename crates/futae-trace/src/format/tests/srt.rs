//! HP's SRT, from records built as DiskSim and DataSeries describe them.

use super::{check, reader, show};
use crate::format::{Format, TraceOptions};

const HEADER: &[u8] = b"$$TR_IOREC-1.3 (IOAdaptor)\0\nversion = 1.3;\ntracedate = \"Sat May 30 00:03:06 1992\";\n\
    disks = {\n 0 -> { blockmajor = 8, charactermajor = 7, sectorsize = 256 },\n 1 -> { sectorsize = 512 }\n };\n\x0C";

/// A record of big-endian words, its size in the first.
fn record(version: u32, kind: u32, rest: &[u32]) -> Vec<u8> {
    let size = (rest.len() as u32 + 2) * 4;
    let words = [size, version << 16 | kind]
        .into_iter()
        .chain(rest.iter().copied());
    words.flat_map(u32::to_be_bytes).collect()
}

/// Seconds, microseconds, start, stop, size, sector, device, driver, cylinder, flags, info; version 4 has the queue's length, too.
fn old(version: u32, sector: u32, device: u32, flags: u32) -> Vec<u8> {
    let mut rest = vec![
        3,
        500_000,
        174,
        19_687,
        4096,
        sector,
        device,
        4,
        1,
        flags,
        7 << 16,
    ];
    if version == 4 {
        rest.push(1);
    }
    record(version, 1, &rest)
}

/// Seconds, microseconds, start, stop, size, machine, device, driver, thread, flags, info, queue, process, logical volume,
/// offset on the disk and in that volume in two words each, and flags of what is not known.
fn new(offset: u64, flags: u32) -> Vec<u8> {
    let (high, low) = ((offset >> 32) as u32, offset as u32);
    let rest = [
        1_053_281_044,
        630_058,
        3,
        7487,
        8192,
        0x287E_0C73,
        0x1F01_6000,
        0,
        0,
        flags,
    ];
    let more = [
        0xB_0000,
        0,
        11_417,
        0x4000_0002,
        high,
        low,
        0,
        0,
        0xA_0000,
        0x4300_0000,
    ];
    record(7, 1, &[&rest[..], &more].concat())
}

fn error(data: &[u8], format: Option<Format>) -> String {
    let options = TraceOptions {
        format,
        ..TraceOptions::default()
    };
    let found = match reader("t", data, &options) {
        Ok(mut reader) => reader.find_map(Result::err),
        Err(e) => Some(e),
    };
    found.map_or_else(String::new, |e| e.to_string())
}

#[test]
fn sectors_are_those_of_the_disk_that_the_header_describes() {
    let mut data = HEADER.to_vec();
    data.extend(old(4, 1056, 0x0800_0008, 27));
    // The same disk in another section, by its driver of characters, and another disk.
    data.extend(old(4, 1072, 0x0700_000E, 0x4002));
    data.extend(old(3, 1, 0x0800_0107, 1));
    let expected = [
        "0 R 270336+4096 @3500000",
        "0 W 274432+4096 @3500000",
        "1 R 512+4096 @3500000",
    ];
    check("a.bin", data, Format::Srt, &expected);
}

#[test]
fn version_7_counts_bytes_and_is_absolute_in_time() {
    let mut data = b"$$TR_IOREC-1.7 : derived\0\nversion = 1.7;\n\n\x0C".to_vec();
    data.extend(new(0x79E_2000, 0x20_401B));
    data.extend(new(17_616_764_928, 0x20_408A));
    let expected = [
        "0 R 127803392+8192 @1053281044630058",
        "0 W 17616764928+8192 @1053281044630058",
    ];
    check("t", data, Format::Srt, &expected);
}

#[test]
fn suspect_requests_are_left_out() {
    let mut data = HEADER.to_vec();
    data.extend(record(4, 4, &[0; 13]));
    data.extend(old(4, 0, 0x0800_0000, 1));
    check("t", data, Format::Srt, &["0 R 0+4096 @3500000"]);
}

#[test]
fn the_output_of_hplcomb_has_no_header_and_sectors_of_512_bytes() {
    let options = TraceOptions {
        format: "hpl2".parse().ok(),
        ..TraceOptions::default()
    };
    let data = old(4, 3, 0x0800_0008, 0);
    let mut reader = reader("t", &data, &options).unwrap_or_else(|e| panic!("{e}"));
    let request = reader.next().and_then(Result::ok).expect("a request");
    assert_eq!(show(&request), "0 W 1536+4096 @3500000");
    assert_eq!(reader.volumes(), ["080000"]);
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    let with = |record: Vec<u8>| error(&[HEADER, &record].concat(), None);
    for version in [0, 5, 6, 8] {
        let said = with(record(version, 1, &[0; 14]));
        let refused =
            format!("records of SRT 1.{version} are not read, only those of 1.1 to 1.4 and 1.7");
        assert!(said.contains(&refused), "{said}");
        assert!(
            said.contains("srt2ds") && said.ends_with("--columns"),
            "{said}"
        );
    }
    let said = with(record(4, 1, &[0; 11]));
    assert!(
        said.contains("`52 bytes` is not the length of a request"),
        "{said}"
    );
    let said = with(record(4, 5, &[0; 12]));
    assert!(said.contains("`type 5` is not 1"), "{said}");
    let said = with(old(4, 0, 0x0800_0500, 0));
    assert!(said.contains("`disk 5` is not one of the disks"), "{said}");
    let said = with(vec![0; 16]);
    assert!(said.contains("said to have 0 bytes"), "{said}");
    let said = with(old(4, 0, 0x0800_0000, 0)[..50].to_vec());
    assert!(
        said.contains("the data ends after 50 of the record's 56 bytes"),
        "{said}"
    );
    let said = error(b"$$TR_IOREC-1.3 and no end", None);
    assert!(
        said.ends_with("the header of the SRT trace has no end"),
        "{said}"
    );
}
