//! A trace that is probably not read as it was meant, or a simulation that cannot mean anything, is said to be so.

use futae_tests::binary::run;
use futae_tests::tools::text;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

struct Traces(TempDir);

impl Traces {
    fn new() -> Self {
        Self(TempDir::new().expect("a directory"))
    }

    fn file(&self, name: &str, data: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, data).expect("a trace");
        path
    }

    /// Exit status, output and complaints of `futae sim` of this data.
    fn sim(&self, name: &str, data: &[u8], rest: &str) -> (Option<i32>, String, String) {
        let path = self.file(name, data);
        let words: Vec<&str> = rest.split_whitespace().collect();
        let output = run(&[&["sim", text(&path)][..], &words].concat());
        let read = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code(),
            read(&output.stdout),
            read(&output.stderr),
        )
    }
}

const LRU: &str = "--level lru:4blocks";

#[test]
fn a_trace_without_requests_is_an_error() {
    let traces = Traces::new();
    let cases: [(&str, &[u8], &str); 4] = [
        ("t.be32", b"", ""),
        ("header.csv", b"time,offset,length\n", ""),
        (
            "fiu.txt",
            b"1 2 3 4 W 6\n2 3 4 5 W 6\n",
            "--format blkparse",
        ),
        ("words.txt", b"x\ny\n", "--format ids --skip-bad"),
    ];
    for (name, data, rest) in cases {
        for levels in [LRU, "--policy lru,opt --sizes 50%"] {
            let (status, out, errors) = traces.sim(name, data, &format!("{levels} {rest}"));
            assert_eq!(status, Some(2), "{name} {levels}: {out}{errors}");
            assert!(errors.contains("has no requests"), "{name}: {errors}");
        }
    }
}

#[test]
fn a_warm_up_that_leaves_nothing_is_an_error() {
    let traces = Traces::new();
    for levels in [LRU, "--policy lru,opt --sizes 50%"] {
        let (status, _, errors) =
            traces.sim("t.ids", b"1\n2\n3\n", &format!("{levels} --warmup 3"));
        assert_eq!(status, Some(2), "{errors}");
        assert!(
            errors.contains("--warmup") && errors.contains('3'),
            "{errors}"
        );
        let (status, ..) = traces.sim("t.ids", b"1\n2\n3\n", &format!("{levels} --warmup 2"));
        assert_eq!(status, Some(0), "one request is left to count");
    }
}

#[test]
fn bytes_that_are_taken_for_sectors_are_warned_of() {
    let traces = Traces::new();
    let bytes = b"0 0 4096 8192 1\n7 0 1048576 4096 0\n9 0 4096 4096 1\n";
    let (status, _, errors) = traces.sim("t.trace", bytes, LRU);
    assert_eq!(status, Some(0), "{errors}");
    let (_, columns) = errors.split_once("--columns ").expect("a remedy");
    let columns = columns.split_whitespace().next().expect("a map of columns");
    let (_, out, errors) = traces.sim("t.trace", bytes, &format!("{LRU} --columns {columns}"));
    assert!(errors.is_empty(), "the remedy is one: {errors}");
    assert!(out.contains(": 3 blocks of 4096 bytes"), "{out}");
}

#[test]
fn pages_in_a_list_of_extents_are_blocks_each() {
    let traces = Traces::new();
    let (_, out, errors) = traces.sim("t.lis", b"1 1 0 0\n2 1 0 1\n3 1 0 2\n", LRU);
    assert!(out.contains(": 3 blocks, one a request"), "{out}{errors}");
    let (_, out, _) = traces.sim("t.lis", b"1 8 0 0\n2 8 0 1\n3 8 0 2\n", LRU);
    assert!(out.contains(": 2 blocks of 4096 bytes"), "{out}");
}

#[test]
fn keys_that_merge_are_warned_of_until_a_view_is_named() {
    let traces = Traces::new();
    let keys = b"time,offset\n1,17\n2,18\n3,4711\n";
    let (_, _, errors) = traces.sim("t.csv", keys, LRU);
    assert!(
        errors.contains("warning") && errors.contains("--view start"),
        "{errors}"
    );
    for view in ["start", "blocks"] {
        let (_, _, errors) = traces.sim("t.csv", keys, &format!("{LRU} --view {view}"));
        assert!(errors.is_empty(), "{errors}");
    }
}

#[test]
fn no_byte_miss_ratio_is_printed_that_is_not_known() {
    let traces = Traces::new();
    let trace = |sizes: [u32; 3]| {
        let record = |size: u32| [&[0; 12][..], &size.to_le_bytes(), &[255; 8]].concat();
        sizes.map(record).concat()
    };
    for levels in [LRU, "--policy lru,opt --sizes 50%"] {
        for (sizes, is_known) in [([512; 3], true), ([512, 9, 512], false)] {
            let levels = format!("{levels} --json");
            let (_, out, errors) = traces.sim("t.oracleGeneral", &trace(sizes), &levels);
            let report: serde_json::Value = serde_json::from_str(&out).expect("JSON");
            let ratio = &report["runs"][0]["byte_miss_ratio"];
            assert_eq!(ratio.is_number(), is_known, "{levels}: {ratio}");
            assert_eq!(
                errors.matches("byte miss ratio").count(),
                usize::from(!is_known)
            );
        }
    }
}

#[test]
fn a_level_that_no_trace_fills_does_not_abort() {
    let traces = Traces::new();
    for levels in [
        "--level opt:8TiB",
        "--level lru:8TiB",
        "--level lru:8TiB --level lru:1MiB",
        "--policy lru,arc,2q,opt,lfu --sizes 4000000000blocks",
    ] {
        let (status, _, errors) = traces.sim("t.ids", b"1\n2\n3\n", levels);
        assert_eq!(status, Some(2), "{levels}: {errors}");
        assert!(errors.contains("100%"), "{errors}");
    }
}

#[test]
fn names_and_sizes_that_were_meant_are_suggested() {
    let traces = Traces::new();
    for (levels, meant) in [
        ("--policy lru --sizes 1000", "did you mean `1000blocks`?"),
        ("--policy belady --sizes 50%", "did you mean opt?"),
        ("--policy lrru --sizes 50%", "did you mean lru"),
    ] {
        let (status, _, errors) = traces.sim("t.ids", b"1\n2\n3\n", levels);
        assert_eq!(status, Some(2), "{errors}");
        assert!(errors.contains(meant), "{errors}");
    }
}

#[test]
fn an_exclusive_level_below_nothing_is_warned_of() {
    let traces = Traces::new();
    let (_, _, errors) = traces.sim("t.ids", b"1\n2\n1\n", "--level exclusive:4blocks");
    assert!(
        errors.contains("warning") && errors.contains("--level lru"),
        "{errors}"
    );
    let pair = "--level lru:1blocks --level exclusive:4blocks";
    let (_, _, errors) = traces.sim("t.ids", b"1\n2\n1\n", pair);
    assert!(errors.is_empty(), "{errors}");
}

#[test]
fn several_traces_are_said_to_be_guests() {
    let traces = Traces::new();
    let other = traces.file("other.ids", b"1\n2\n");
    let (_, out, errors) = traces.sim("t.ids", b"1\n2\n1\n", &format!("{} {LRU}", text(&other)));
    assert!(
        out.contains("2 guests, one for each trace"),
        "{out}{errors}"
    );
    let (_, out, _) = traces.sim("t.ids", b"1\n2\n1\n", LRU);
    assert!(!out.contains("guests"), "{out}");
}
