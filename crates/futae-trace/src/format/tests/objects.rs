//! Formats whose records name objects, and others of studies: each read from some lines of it.

use super::{check, reader, show};
use crate::format::{Format, TraceOptions};
use crate::{RequestReader, TraceReader};

const OBJECT: u64 = 1 << 32;

fn at(number: u64, kind: char, length: u64, time: Option<u64>) -> String {
    let time = time.map_or_else(String::new, |time| format!(" @{time}"));
    format!("0 {kind} {}+{length}{time}", number * OBJECT)
}

fn check_objects(data: &str, format: Format, objects: &[(u64, char, u64, u64)]) {
    let of = |&(number, kind, length, seconds)| at(number, kind, length, Some(seconds * 1_000_000));
    let wanted: Vec<String> = objects.iter().map(of).collect();
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    check("a", data, format, &wanted);
}

fn open(data: &str, format: Option<Format>) -> TraceReader {
    let options = TraceOptions {
        format,
        ..TraceOptions::default()
    };
    reader("t", data.as_bytes(), &options).unwrap_or_else(|e| panic!("{e}"))
}

fn error(data: &str, format: Format) -> String {
    let mut reader = open(data, Some(format));
    let error = reader.find_map(Result::err);
    error.map_or_else(String::new, |e| e.to_string())
}

#[test]
fn twitter_has_sizes_of_keys_and_values_and_no_deletions() {
    let data = "0,Q8q_8qjj0,26,110,0,get,0\n\
                0,q8-jjjj,20,7,1,set,14400\n\
                1,q8-jjjj,20,0,1,delete,0\n\
                2,Q8q_8qjj0,26,110,0,gets,0\n";
    let objects = [(0, 'R', 136, 0), (1, 'W', 27, 0), (0, 'R', 136, 2)];
    check_objects(data, Format::Twitter, &objects);
    let damaged = error("0,k,1,1,0,grab,0\n", Format::Twitter);
    assert!(
        damaged.ends_with("`grab` is not an operation such as get, set or delete"),
        "{damaged}"
    );
    let large = error("0,k,1,4294967295,0,get,0\n", Format::Twitter);
    assert!(
        large.ends_with("the object is 4294967296 bytes large, more than 4 GiB"),
        "{large}"
    );
}

#[test]
fn cachelib_repeats_requests_as_often_as_a_record_says() {
    let data = "op_time,key,key_size,op,op_count,size,cache_hits,ttl,usecase,sub_usecase\n\
                5,99,8,GET,3,100,3,0,1,1\n\
                6,98,8,DELETE,2,0,0,0,1,1\n\
                7,97,8,SET,1,5,0,60,1,1\n";
    let get = (0, 'R', 108, 5);
    check_objects(data, Format::CacheLib, &[get, get, get, (1, 'W', 13, 7)]);
    let old = "key,op,size,op_count,key_size\n7,GET,0,2,30\n";
    let get = at(0, 'R', 30, None);
    check("a", old, Format::CacheLib, &[&get, &get]);
    // A key may be what a column is named.
    let named = "key,op,size,op_count,key_size\nkey,GET,0,2,30\noffset,SET,0,1,30\n";
    let set = at(1, 'W', 30, None);
    check("a", named, Format::CacheLib, &[&get, &get, &set]);
    let none = error(
        "key,op,size,op_count,key_size\n7,GET,0,0,30\n",
        Format::CacheLib,
    );
    assert!(none.contains("`0` is not a number of operations"), "{none}");
}

#[test]
fn wikipedia_has_files_with_and_without_a_type() {
    let upload = "relative_unix\thashed_path_query\timage_type\tresponse_size\ttime_firstbyte\n\
                  0\t833946053\tjpeg\t57837\t1.9598007202148438E-4\n\
                  2\t-5\tpng\t10\t1.0E-4\n";
    check_objects(
        upload,
        Format::Wikipedia,
        &[(0, 'R', 57837, 0), (1, 'R', 10, 2)],
    );
    let text =
        "relative_unix\thashed_host_path_query\tresponse_size\ttime_firstbyte\n3\t1\t9\t0.1\n";
    check_objects(text, Format::Wikipedia, &[(0, 'R', 9, 3)]);
    let bare = open("3\t1\tpng\t9\t0.1\n", Some(Format::Wikipedia)).next();
    assert!(matches!(bare, Some(Ok(request)) if request.length_bytes == 9));
}

#[test]
fn tencents_photos_are_objects_by_format_and_specification() {
    let hash = "1".repeat(40);
    let data = format!(
        "20160201164559 {hash} 0 8 12000 1 0 5\n20160201164559 {hash} 5 8 9000 0 0 5\n\
         20160201164600 {hash} 0 8 12000 1 0 5\n"
    );
    let objects =
        [(0, 12000), (1, 9000), (0, 12000)].map(|(number, size)| at(number, 'R', size, None));
    check(
        "a",
        &data,
        Format::TencentPhoto,
        &objects.each_ref().map(String::as_str),
    );
}

#[test]
fn tragen_is_read_by_name_only() {
    let data = "0,17,4\n0,18,1\n1,17,4\n";
    let requests: Vec<String> = open(data, Some(Format::Tragen))
        .flatten()
        .map(|r| show(&r))
        .collect();
    let second = |seconds: u64| Some(seconds * 1_000_000);
    let wanted = [
        at(0, 'R', 4096, second(0)),
        at(1, 'R', 1024, second(0)),
        at(0, 'R', 4096, second(1)),
    ];
    assert_eq!(requests, wanted);
    let guessed = reader("t", data.as_bytes(), &TraceOptions::default());
    assert!(guessed.is_err_and(|e| e.to_string().contains("tragen")));
}

#[test]
fn fiu_is_told_from_blkparse() {
    let data = "391020023 4253 syslogd 904265560 8 W 6 0 531e779d26f1ce9c\n\
                391020123 4253 cat 16 8 R 8 1 531e\n";
    let requests = ["0 W 462983966720+4096 @391020", "1 R 8192+4096 @391020"];
    check("a", data, Format::Fiu, &requests);
    assert!(
        error("1 2 p 1 8 W 6 0 h\n1 2 p x 8 W 6 0 h\n", Format::Fiu)
            .ends_with("`x` is not a whole number below 2^64")
    );
    assert!(error(data, Format::Blkparse).contains("none of its 2 records holds one in blkparse"));
}

#[test]
fn each_block_of_a_prefix_is_an_access() {
    let data = "{\"timestamp\": 0, \"input_length\": 1500, \"output_length\": 5, \"hash_ids\": [0, 14, 15]}\n\
                {\"timestamp\": 3000, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": []}\n\
                {\"timestamp\": 5999, \"hash_ids\": [0, 14, \"x\"]}\n";
    let requests = [
        "0 R 0+4096 @0",
        "0 R 4096+4096 @0",
        "0 R 8192+4096 @0",
        "0 R 0+4096 @5999000",
        "0 R 4096+4096 @5999000",
        "0 R 12288+4096 @5999000",
    ];
    check("a", data, Format::Prefix, &requests);
    let seconds =
        "{\"timestamp\": 61, \"hash_ids\": [7]}\n{\"timestamp\": 61.114, \"hash_ids\": [7]}\n";
    check(
        "a",
        seconds,
        Format::Prefix,
        &["0 R 0+4096 @61000000", "0 R 0+4096 @61114000"],
    );
    let damaged = error("{\"timestamp\": 1, \"hash_ids\": [0,\n", Format::Prefix);
    assert!(
        damaged.contains("record 1") && damaged.contains("no request in JSON"),
        "{damaged}"
    );
    assert!(error("{\"timestamp\": 1}\n", Format::Prefix).contains("missing field `hash_ids`"));
}

#[test]
fn keys_are_texts_in_lines_and_in_columns() {
    let options = |columns: &str| TraceOptions {
        columns: Some(columns.parse().unwrap_or_else(|e| panic!("{e}"))),
        ..TraceOptions::default()
    };
    let read = |data: &str, columns: &str| -> Vec<String> {
        let reader =
            reader("t", data.as_bytes(), &options(columns)).unwrap_or_else(|e| panic!("{e}"));
        assert!(reader.names_blocks());
        reader
            .map(|r| show(&r.unwrap_or_else(|e| panic!("{e}"))))
            .collect()
    };
    assert_eq!(
        read("a b\n01\n1\na b\n", "key=0"),
        ["0 R 0+4096", "0 R 4096+4096", "0 R 8192+4096", "0 R 0+4096"]
    );
    assert_eq!(read("user,Key\nx,a\n", "key=1"), ["0 R 0+4096"], "names");
    let sized = read(
        "time;who;what;size\n1;x;k;5\n1;y;k;6\n2;x;k;5\n",
        "separator=semicolon,time=0,key=1,key=2,length=3",
    );
    let second = |seconds: u64| Some(seconds * 1_000_000);
    assert_eq!(
        sized,
        [
            at(0, 'R', 5, second(1)),
            at(1, 'R', 6, second(1)),
            at(0, 'R', 5, second(2))
        ]
    );
    let names: Vec<String> = open("a,b\nc\na,b\n", Some(Format::Keys))
        .flatten()
        .map(|r| show(&r))
        .collect();
    assert_eq!(names, ["0 R 0+4096", "0 R 4096+4096", "0 R 0+4096"]);
    check(
        "a",
        "\u{feff}timestamp\tkey\n1\tx\n",
        Format::Csv,
        &["0 R 0+4096 @1000000"],
    );
    check(
        "a",
        "key,size\n\"a,b\",7\n",
        Format::Csv,
        &[&at(0, 'R', 7, None)],
    );
}

/// A message: fields of numbers, each with its number.
fn message(fields: &[(u8, u64)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &(field, number) in fields {
        bytes.push(field << 3);
        let mut left = number;
        while left >= 128 {
            bytes.push(left as u8 | 128);
            left >>= 7;
        }
        bytes.push(left as u8);
    }
    bytes
}

/// An event with a header and a message of this number, after its length.
fn event(number: u64, time_ns: u64, field: u8, fields: &[(u8, u64)]) -> Vec<u8> {
    let mut event = Vec::new();
    for (field, message) in [
        (1, message(&[(1, number), (2, time_ns)])),
        (field, message(fields)),
    ] {
        event.extend([field << 3 | 2, message.len() as u8]);
        event.extend(message);
    }
    event.insert(0, event.len() as u8);
    event
}

#[test]
fn octf_is_merged_by_time_from_an_archive() {
    let first = [
        event(1, 5000, 2, &[(1, 8), (2, 8), (4, 300), (5, 2)]),
        event(4, 9000, 2, &[(1, 16), (2, 8), (4, 300), (5, 1)]),
    ];
    let second = [
        event(2, 6000, 2, &[(1, 1), (2, 1), (4, 301), (5, 1)]),
        event(3, 6000, 2, &[(1, 0), (2, 0), (4, 300), (5, 2)]),
        event(3, 6500, 2, &[(1, 0), (2, 9), (4, 300), (5, 3)]),
        event(3, 6600, 6, &[(1, 0), (2, 9)]),
    ];
    let alone = ["0 W 4096+4096 @5", "0 R 8192+4096 @9"];
    check("a", first.concat(), Format::Octf, &alone);
    let mut archive = tar::Builder::new(Vec::new());
    for (name, data) in [
        ("t/octf.trace.0", first.concat()),
        ("t/octf.trace.1", second.concat()),
        ("t/octf.summary", b"{}".to_vec()),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        let added = archive.append_data(&mut header, name, &data[..]);
        added.unwrap_or_else(|e| panic!("{e}"));
    }
    let archive = archive.into_inner().unwrap_or_else(|e| panic!("{e}"));
    let merged = ["0 W 4096+4096 @5", "1 R 512+512 @6", "0 R 8192+4096 @9"];
    check("a.tar", archive, Format::Octf, &merged);

    let mut cut = first.concat();
    cut.truncate(cut.len() - 3);
    let error = reader("t", &cut, &TraceOptions::default())
        .err()
        .map(|e| e.to_string());
    let begin = first[0].len();
    let wanted = format!(
        "trace t: the file is damaged at byte {begin}: an event is cut off, or its length is wrong"
    );
    assert_eq!(error, Some(wanted));
    let mut other = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(0);
    let added = other.append_data(&mut header, "notes.txt", &[][..]);
    let other = added.and_then(|()| other.into_inner());
    let error = reader(
        "t.tar",
        &other.unwrap_or_default(),
        &TraceOptions::default(),
    );
    assert!(error.is_err_and(|e| e.to_string().contains("no file named octf.trace.N")));
}

#[test]
fn sized_objects_are_apart_in_every_view() {
    let mut reader = open("key,size\nx,10000\ny,10000\nx,10000\n", None);
    assert!(reader.has_sizes());
    let mut batch = Vec::new();
    assert!(reader.read_batch(&mut batch, 10).is_ok());
    let blocks = |at: usize| {
        crate::View::Blocks(4096)
            .blocks(&batch[at])
            .collect::<Vec<u64>>()
    };
    assert_eq!(blocks(0), [0, 1, 2]);
    assert_eq!(blocks(1), [1 << 20, (1 << 20) + 1, (1 << 20) + 2]);
    assert_eq!(blocks(2), blocks(0));
}
