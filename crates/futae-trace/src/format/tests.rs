mod lines;
mod objects;
#[cfg(feature = "parquet")]
mod parquet;
mod robust;
mod srt;

use super::{Format, TraceOptions, TraceReader};
use crate::{Request, RequestKind, TraceError};
use std::io::Cursor;
use std::path::Path;

fn reader(name: &str, data: &[u8], options: &TraceOptions) -> Result<TraceReader, TraceError> {
    TraceReader::new(Path::new(name), Cursor::new(data.to_vec()), options)
}

/// The format that is found, and each request as "volume kind offset+length @time".
fn read(name: &str, data: &[u8]) -> (Format, Vec<String>) {
    let mut reader = reader(name, data, &TraceOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let requests = reader
        .by_ref()
        .map(|r| show(&r.unwrap_or_else(|e| panic!("{e}"))))
        .collect();
    (reader.format(), requests)
}

fn show(request: &Request) -> String {
    let kind = if request.kind == RequestKind::Read {
        'R'
    } else {
        'W'
    };
    let time = request
        .time_us
        .map_or_else(String::new, |time| format!(" @{time}"));
    let Request {
        volume,
        offset_bytes,
        length_bytes,
        ..
    } = request;
    format!("{} {kind} {offset_bytes}+{length_bytes}{time}", volume.0)
}

fn check(name: &str, data: impl AsRef<[u8]>, format: Format, requests: &[&str]) {
    let (found, shown) = read(name, data.as_ref());
    assert_eq!(found, format, "{name}");
    assert_eq!(shown, requests, "{name}");
}

#[test]
fn text_formats_are_told_apart_and_read() {
    let msr = "128166372003061629,usr,0,Read,10995532800,16384,30123\n\
               128166372016382155,usr,1,Write,2517696,512,14720\n";
    let expected = [
        "0 R 10995532800+16384 @12816637200306162",
        "1 W 2517696+512 @12816637201638215",
    ];
    check("a", msr, Format::Msr, &expected);
    check(
        "a",
        "1,4247200,128,1,1058\n2,0,8,0,1063\n",
        Format::Tencent,
        &["0 W 2174566400+65536 @1000000", "1 R 0+4096 @2000000"],
    );
    let systor =
        "Timestamp,Response,IOType,LUN,Offset,Size\n1.5,0.1,R,4,4096,512\n2.0,,W,4,0,512\n";
    check(
        "a",
        systor,
        Format::Systor,
        &["0 R 4096+512 @1500000", "0 W 0+512 @2000000"],
    );
    check(
        "a",
        "419,W,8192,4096,1577808000000046\n",
        Format::Alibaba,
        &["0 W 8192+4096 @1577808000000046"],
    );
    check(
        "a",
        "0,20941264,8192,W,0.551706,x\n1,8,512,r,1\n",
        Format::Spc,
        &["0 W 10721927168+8192 @551706", "1 R 4096+512 @1000000"],
    );
    check(
        "a",
        "1.000,134,1,4096,512,0.100,4096\n",
        Format::FlashNet,
        &["0 R 512+4096 @1000"],
    );
    check(
        "a",
        "230027 8 0 0\n1 64 0 1\n",
        Format::Arc,
        &["0 R 117773824+4096", "0 R 512+32768"],
    );
    check(
        "a",
        "0.5 2 10 16 1\n1.25 2 26 16 0\n",
        Format::DiskSim,
        &["0 R 5120+8192 @500", "0 W 13312+8192 @1250"],
    );
    check(
        "a",
        "938513000 4 10 16 0\n",
        Format::DiskSim,
        &["0 W 5120+8192 @938513"],
    );
    check(
        "a",
        "timestamp_ns,op,lba_512,len_512\n5000,W,2,3\n",
        Format::Csv,
        &["0 W 1024+1536 @5"],
    );
    check(
        "a",
        "offset,size\r\n# a comment\r\n\r\n7,8\r\n",
        Format::Csv,
        &["0 R 7+8"],
    );
    check(
        "a",
        "*\n7\n\n8\n*\n",
        Format::Ids,
        &["0 R 28672+4096", "0 R 32768+4096"],
    );
}

#[test]
fn blkparse_and_iolog_are_read() {
    let blkparse = "  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]\n\
                    8,0    3        2     0.000001829   697  Q  WS 223490 + 8 [kjournald]\n\
                    8,0    3        3     0.500000000   697  Q   R 16 + 8 [cat]\n\
                    8,16   3        4     0.600000000   697  Q   D 16 + 8 [fstrim]\n\
                    8,16   3        5     0.600000000   697  Q FWS [sync]\n\
                    8,16   3        6     0.700000000     0  m   N cfq workload\n\
                    CPU3 (8,0):\n Reads Queued:           1,        4KiB\n";
    let requests = ["0 W 114426880+4096 @1", "0 R 8192+4096 @500000"];
    check("a", blkparse, Format::Blkparse, &requests);
    let v2 = "fio version 2 iolog\n/f add\n/f open\n/f read 0 4096\nx wait 150 0\n\
              /g write 8192 512\n/f sync 0 0\n/f close\n";
    check(
        "a",
        v2,
        Format::FioIolog,
        &["0 R 0+4096 @0", "1 W 8192+512 @150"],
    );
    let v3 = "fio version 3 iolog\n18 /f add\n122 /f open\n126 /f read 0 4096\n3270 /f trim 0 9\n\
              3300 /f sync_file_range 0 4096\n3310 /f syncfs 0 0\n3476 /f write 28672 4096\n4118 /f close\n";
    check(
        "a",
        v3,
        Format::FioIolog,
        &["0 R 0+4096 @126", "0 W 28672+4096 @3476"],
    );
}

fn oracle(seconds: u32, object: u64, size: u32, next: i64) -> Vec<u8> {
    let mut record = seconds.to_le_bytes().to_vec();
    record.extend(object.to_le_bytes());
    record.extend(size.to_le_bytes());
    record.extend(next.to_le_bytes());
    record
}

/// A blktrace record, little-endian, with a tail of two bytes.
fn blktrace(action: u32, sector: u64, bytes: u32) -> Vec<u8> {
    let words = [0x6561_7407u32, 1];
    let mut record: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    record.extend(5_000_000u64.to_le_bytes());
    record.extend(sector.to_le_bytes());
    for word in [bytes, action, 99, 8 << 20 | 1, 0] {
        record.extend(word.to_le_bytes());
    }
    record.extend([0, 0, 2, 0, 7, 7]);
    record
}

#[test]
fn binary_formats_are_told_apart_and_read() {
    let two = [
        oracle(5, 77, 4096, 3),
        oracle(6, 1 << 63, 1, -1),
        oracle(6, 77, 4096, i64::MAX),
    ];
    let requests = [
        "0 R 315392+4096 @5000000",
        "0 R 4611686018427387904+4096 @6000000",
        "0 R 315392+4096 @6000000",
    ];
    check("a", two.concat(), Format::OracleGeneral, &requests);

    let mut v1 = Vec::new();
    let mut v2 = Vec::new();
    for command in [0x28u16, 0x2a, 0x35] {
        v1.extend([0u8; 4]);
        v1.extend(4096u32.to_le_bytes());
        v1.extend([1, 0, 0, 0]);
        v1.extend(command.to_le_bytes());
        v1.extend(0x0100u16.to_le_bytes());
        v2.extend(command.to_le_bytes());
        v2.extend(0x0200u16.to_le_bytes());
        v2.extend([0u8; 4]);
        v2.extend(4096u32.to_le_bytes());
        v2.extend([1, 0, 0, 0]);
        for record in [&mut v1, &mut v2] {
            record.extend(16u64.to_le_bytes());
            record.extend(9u64.to_le_bytes());
        }
        v2.extend(100u64.to_le_bytes());
    }
    let requests = ["0 R 8192+4096 @9", "0 W 8192+4096 @9"];
    check("a", v1, Format::Vscsi1, &requests);
    check("a", v2, Format::Vscsi2, &requests);

    let queued = [
        blktrace(1 << 16 | 1, 16, 4096),
        blktrace(1 << 17 | 1, 24, 512),
        // A discard: BLK_TC_DISCARD is 1 << 13, above BLK_TC_SHIFT.
        blktrace(1 << 17 | 1 << (16 + 13) | 1, 24, 512),
        blktrace(1 << 17 | 15, 24, 512),
        blktrace(1 << 17 | 1, 0, 0),
        // With the number of its cgroup.
        blktrace(1 << 16 | 1 << 8 | 1, 32, 512),
    ];
    check(
        "a",
        queued.concat(),
        Format::Blktrace,
        &[
            "0 R 8192+4096 @5000",
            "0 W 12288+512 @5000",
            "0 R 16384+512 @5000",
        ],
    );

    check("a.le32.zst", [1, 0, 0, 0], Format::Le32, &["0 R 4096+4096"]);
    check("a.be32", [0, 0, 0, 1], Format::Be32, &["0 R 4096+4096"]);
    check(
        "a.le64",
        2u64.to_le_bytes(),
        Format::Le64,
        &["0 R 8192+4096"],
    );
    check(
        "a.be64",
        [2u64.to_be_bytes(), u64::MAX.to_be_bytes()].concat(),
        Format::Be64,
        &["0 R 8192+4096", "0 R 4611686018427387904+4096"],
    );
}

#[test]
fn a_trace_of_the_other_byte_order_is_read() {
    let mut record = Vec::new();
    for word in [
        0x6561_7407u32,
        1,
        0,
        5_000_000,
        0,
        16,
        4096,
        1 << 16 | 1,
        99,
        8 << 20,
        0,
        0,
    ] {
        record.extend(word.to_be_bytes());
    }
    check("a", record, Format::Blktrace, &["0 R 8192+4096 @5000"]);
}

/// As the kernel's `blk_io_trace2`, with a tail of two bytes.
fn blktrace_2(action: u64, bytes: u32, order: fn(u64, usize) -> Vec<u8>) -> Vec<u8> {
    let fields = [
        (0x6561_7408, 4),
        (1, 4),
        (5_000_000, 8),
        (16, 8),
        (u64::from(bytes), 4),
        (99, 4),
        (action, 8),
        (8 << 20 | 1, 4),
        (0, 4),
        (0, 2),
        (2, 2),
        (0, 8),
        (0, 4),
        (0x0707, 2),
    ];
    let bytes = fields
        .into_iter()
        .flat_map(|(value, bytes)| order(value, bytes));
    bytes.collect()
}

#[test]
fn version_8_of_blktrace_is_read_in_either_byte_order() {
    let little = |value: u64, bytes| value.to_le_bytes()[..bytes].to_vec();
    let big = |value: u64, bytes| value.to_be_bytes()[8 - bytes..].to_vec();
    for order in [little, big] {
        // A zone append has a category above 32 bits beside that of a write.
        let records = [
            blktrace_2(1 << 16 | 1, 4096, order),
            blktrace_2(1 << 32 | 1 << 17 | 1, 512, order),
            blktrace_2(1 << 29 | 1 << 17 | 1, 512, order),
        ];
        check(
            "a",
            records.concat(),
            Format::Blktrace,
            &["0 R 8192+4096 @5000", "0 W 8192+512 @5000"],
        );
    }
    let mixed = [blktrace(1 << 16 | 1, 16, 512), blktrace_2(1, 0, little)].concat();
    let error = reader("a", &mixed, &TraceOptions::default())
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .expect_err("two versions");
    let why = "a blktrace record of version 8 in a file that is read as version 7";
    assert!(error.to_string().contains(why), "{error}");
    let lenient = TraceOptions {
        skip_bad: true,
        ..TraceOptions::default()
    };
    let read = reader("a", &mixed, &lenient).map(Iterator::count);
    assert_eq!(read.map_err(|error| error.to_string()), Ok(1));
}

#[test]
fn a_header_may_have_one_name_or_many() {
    check(
        "a",
        "offset\n0\n4096\n",
        Format::Csv,
        &["0 R 0+0", "0 R 4096+0"],
    );
    check("a", "\u{feff}\"LBA\"\n1\n", Format::Csv, &["0 R 512+0"]);
    for text in [
        "key\nfoo\nbar\nfoo\n",
        "object,op\nfoo,get\nbar,get\nfoo,get\n",
    ] {
        let (found, requests) = read("a", text.as_bytes());
        assert_eq!((found, requests.len()), (Format::Csv, 3), "{text}");
        assert!(
            requests[0] == requests[2] && requests[0] != requests[1],
            "{requests:?}"
        );
    }
    check(
        "a",
        "offset,is_write\n0,True\n512,False\n0,1\n0,W\n",
        Format::Csv,
        &["0 W 0+0", "0 R 512+0", "0 W 0+0", "0 W 0+0"],
    );
    // A map may ask for them, too.
    let filler = |name: &str| {
        (0..36)
            .map(|number| format!("{name}{number},"))
            .collect::<String>()
    };
    let wide = format!("offset,{}op\n512,{}W\n", filler("c"), filler(""));
    check("a", &wide, Format::Csv, &["0 W 512+0"]);
    let options = TraceOptions {
        columns: Some("offset=36,kind=37".parse().expect("columns")),
        ..TraceOptions::default()
    };
    let requests = reader("a", wide.as_bytes(), &options)
        .expect("a trace")
        .map(|r| show(&r.expect("requests")));
    assert_eq!(requests.collect::<Vec<_>>(), ["0 W 35+0"]);
    // Of names that are not all in the first piece of the data some might be missed.
    let wider = format!(
        "offset,{}op\n512,{}W\n",
        filler("c").repeat(200),
        filler("").repeat(200)
    );
    for data in [wider.clone(), format!("# a comment\n\n{wider}")] {
        let error = reader("a", data.as_bytes(), &TraceOptions::default())
            .err()
            .map(|e| e.to_string());
        assert!(
            error
                .as_ref()
                .is_some_and(|e| e.contains("longer than 16 KiB; give a map")),
            "{error:?}"
        );
    }
    let last = format!("offset=0,kind={}", 36 * 200 + 1);
    let options = TraceOptions {
        columns: Some(last.parse().expect("columns")),
        ..TraceOptions::default()
    };
    let requests = reader("a", wider.as_bytes(), &options)
        .expect("a trace")
        .map(|r| show(&r.expect("requests")));
    assert_eq!(requests.collect::<Vec<_>>(), ["0 W 512+0"]);
}

/// Latencies in microseconds, 0 where a line has none; kept only if asked for.
#[test]
fn recorded_latencies_are_kept_on_demand() {
    let vscsi: Vec<u8> = [(7u64, 300u64), (9, u64::MAX)]
        .iter()
        .flat_map(|&(time, response)| {
            let mut record = vec![0x28, 0, 0, 2];
            record.resize(8, 0);
            record.extend(512u32.to_le_bytes());
            record.extend(1u32.to_le_bytes());
            record.extend(8u64.to_le_bytes());
            record.extend(time.to_le_bytes());
            record.extend(response.to_le_bytes());
            record
        })
        .collect();
    let columns = Some("offset=0,latency=1:ms");
    for (name, data, columns, wanted) in [
        (
            "msr",
            &b"128166372003061629,usr,0,Read,0,16384,30123\n128166372016382155,usr,1,Write,512,512,9\n"[..],
            None,
            &[3012, 0][..],
        ),
        (
            "systor",
            b"Timestamp,Response,IOType,LUN,Offset,Size\n1.5,0.1,R,4,4096,512\n2.0,,W,4,0,512\n",
            None,
            &[100_000, 0],
        ),
        ("csv", b"latency_us,offset\n17,0\n,4096\n", None, &[17, 0]),
        ("columns", b"0,1.5\n4096\n", columns, &[1500, 0]),
        ("vscsi2", &vscsi, None, &[300, u32::MAX]),
        ("none", b"offset,length\n0,512\n", None, &[]),
    ] {
        for latencies in [true, false] {
            let options = TraceOptions {
                columns: columns.map(|text| text.parse().expect("columns")),
                format: (name == "vscsi2").then_some(Format::Vscsi2),
                latencies,
                ..TraceOptions::default()
            };
            let mut reader = reader(name, data, &options).expect("a trace");
            let requests: Result<Vec<_>, _> = reader.by_ref().collect();
            assert!(!requests.expect("requests").is_empty());
            let found = reader.take_latencies();
            let wanted = if latencies { wanted } else { &[] };
            assert_eq!(found, wanted, "{name}");
        }
    }
}
