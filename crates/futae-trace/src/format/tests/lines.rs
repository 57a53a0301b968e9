//! What is a record, and what its fields mean, where the first line alone does not tell.

use super::{check, reader, show};
use crate::format::{Doubt, Format, TraceOptions};

#[test]
fn an_empty_first_field_between_tabs_is_a_field() {
    check(
        "a",
        "time\toffset\tlength\tx\n5\t8192\t4096\t1\n\t4096\t512\t7\r\n \t\t\t\n",
        Format::Csv,
        &["0 R 8192+4096 @5000000", "0 R 4096+512"],
    );
    // The index of a data frame has no name.
    check(
        "a",
        "\ttime\toffset\n0\t5\t512\n",
        Format::Csv,
        &["0 R 512+0 @5000000"],
    );
}

#[test]
fn a_comment_is_no_record_and_a_record_is_no_comment() {
    let [first, second, third] = ["0 R 0+4096", "0 R 4096+4096", "0 R 8192+4096"];
    let keys = |format, columns: Option<&str>, data: &str| -> Vec<String> {
        let options = TraceOptions {
            format,
            columns: columns.map(|text| text.parse().expect("columns")),
            ..TraceOptions::default()
        };
        let reader = reader("t", data.as_bytes(), &options).expect("a trace");
        reader.map(|r| show(&r.expect("requests"))).collect()
    };
    let names = "#a\nb\n#a\n #c\n\n";
    assert_eq!(
        keys(Some(Format::Keys), None, names),
        [first, second, first, third]
    );
    let table = "# made by x\n\nop,key\nget,#a\n";
    assert_eq!(keys(None, None, table), [first]);
    // A name may begin with the sign of a comment, and so may what is not read.
    let table = "# made by x\nkey,op\n#a,get\nb,get\n#a,get\n";
    assert_eq!(keys(None, None, table), [first, second, first]);
    assert_eq!(keys(None, Some("key=1"), "x,a\n#x,b\n"), [first, second]);
    let tabs = Some("separator=tab,key=1");
    assert_eq!(keys(None, tabs, "x\ta\n\t#b\n"), [first, second]);
    let cachelib = "# made by x\nkey,op,size,op_count,key_size\n#a,GET,1,1,1\n";
    check("a", cachelib, Format::CacheLib, &["0 R 0+2"]);
    let iolog = "# made by x\nfio version 2 iolog\n#a read 0 512\n";
    check("a", iolog, Format::FioIolog, &["0 R 0+512 @0"]);
    // No number begins so.
    check("a", "1\n # more\n2\n", Format::Ids, &[second, third]);
    let table = "time,key\n1,a\n# more\n2,b\n";
    check(
        "a",
        table,
        Format::Csv,
        &["0 R 0+4096 @1000000", "0 R 4096+4096 @2000000"],
    );
}

#[test]
fn the_whole_beginning_tells_what_the_first_line_does_not() {
    for comment in ["", "# made by x 1.2 on a 3.4\n"] {
        let check = |data: &str, format, requests: &[&str]| {
            check("a", format!("{comment}{data}"), format, requests);
        };
        // DiskSim's first time may be 0 without a fraction.
        check(
            "0 0 8 8 1\n1000.5 0 16 8 0\n",
            Format::DiskSim,
            &["0 R 4096+4096 @0", "0 W 8192+4096 @1000500"],
        );
        check(
            "0 0 8 8 1\n5000 0 16 8 0\n",
            Format::DiskSim,
            &["0 R 4096+4096 @0", "0 W 8192+4096 @5"],
        );
        check(
            "fio version 3 iolog\n5 a read 0 512\n",
            Format::FioIolog,
            &["0 R 0+512 @5"],
        );
        let options = TraceOptions {
            format: Some(Format::Wikipedia),
            ..TraceOptions::default()
        };
        let text = format!("{comment}5 17 100 0.5\n");
        let mut reader = reader("t", text.as_bytes(), &options).expect("a trace");
        let request = reader.next().expect("a request").expect("a good one");
        assert_eq!(request.length_bytes, 100);
    }
}

#[test]
fn of_columns_with_one_meaning_the_reader_tells_which_it_reads() {
    let pair = |[read, left]: [&str; 2]| Doubt::Rivals(Box::new([read.into(), left.into()]));
    for (names, pairs) in [
        ("offset,lba", vec![["offset", "lba"]]),
        ("Key,Offset,op", vec![["offset", "key"]]),
        ("key,object", vec![["key", "object"]]),
        ("op,is_write,offset", vec![["op", "is_write"]]),
        ("offset,ttl_s,ttl", vec![["ttl_s", "ttl"]]),
        (
            "latency_us,offset,latency_s",
            vec![["latency_us", "latency_s"]],
        ),
        (
            "device,volume,time,offset,disk,time_us",
            vec![
                ["device", "volume"],
                ["device", "disk"],
                ["time", "time_us"],
            ],
        ),
        ("volume,key,size", vec![]),
        ("time,op,x,offset,length,latency_ms,ttl", vec![]),
    ] {
        let fields = names.split(',').count();
        let data = format!("{names}\n{}0\n", "0,".repeat(fields - 1));
        let reader = reader("t", data.as_bytes(), &TraceOptions::default()).expect("a trace");
        let mut doubts = reader.doubts();
        doubts.retain(|doubt| matches!(doubt, Doubt::Rivals(_)));
        let wanted: Vec<Doubt> = pairs.into_iter().map(pair).collect();
        assert_eq!(doubts, wanted, "{names}");
    }
    let table = "latency_ms,offset,latency_us\n7,0,9\n";
    let options = TraceOptions {
        latencies: true,
        ..TraceOptions::default()
    };
    let mut reader = reader("t", table.as_bytes(), &options).expect("a trace");
    assert!(reader.next().is_some_and(|request| request.is_ok()));
    assert_eq!(reader.take_latencies(), [7000]);
}
