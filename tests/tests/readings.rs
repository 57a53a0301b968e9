//! A trace that is probably not read as it was meant, or a simulation that cannot mean anything, is said to be so.

use futae_tests::binary::{run, run_json};
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

    // They are still apart in a copy of the trace, and for `info`.
    let pages = traces.file("t.lis", b"1 1 0 0\n2 1 0 1\n3 1 0 2\n1 1 0 3\n");
    for copy in ["t.csv", "t.ids", "t.le64", "t.parquet"] {
        let copy = traces.0.path().join(copy);
        let made = run(&["trace", "convert", text(&pages), text(&copy)]);
        assert!(made.status.success(), "{}", copy.display());
        let report = run_json(&["sim", text(&copy), "--level", "lru:4blocks", "--json"]);
        assert_eq!(report["runs"][0]["store_reads"], 3, "{}", copy.display());
    }
    let info = run_json(&["trace", "info", text(&pages), "--json"]);
    assert_eq!(info["distinct_blocks"], 3, "{info}");
    // A list of extents may begin with some that are one block long. That it was taken for pages is said, with a remedy.
    let late = b"1 1 0 0\n2 1 0 1\n".repeat(20_000);
    let late = [&late[..], b"8 8 0 2\n"].concat();
    let (status, _, errors) = traces.sim("late.lis", &late, LRU);
    assert_eq!(status, Some(1), "{errors}");
    assert!(
        errors.contains("record 40001") && errors.contains("length is 8"),
        "{errors}"
    );
    let (_, columns) = errors.split_once("--columns ").expect("a remedy");
    let (_, out, errors) = traces.sim(
        "late.lis",
        &late,
        &format!("{LRU} --columns {}", columns.trim()),
    );
    assert!(out.contains(": 2 blocks of 4096 bytes"), "{out}{errors}");
}

#[test]
fn columns_that_mean_the_same_are_warned_of() {
    let traces = Traces::new();
    for (header, used, left) in [
        ("offset,lba,length", "offset", "lba"),
        ("offset,length,sectors", "length", "sectors"),
        ("time_ns,offset,time_us", "time_ns", "time_us"),
        ("key,offset,length", "offset", "key"),
    ] {
        let table = format!("{header}\n0,8,4096\n");
        let (status, _, errors) = traces.sim("t.csv", table.as_bytes(), LRU);
        assert_eq!(status, Some(0), "{errors}");
        assert!(
            errors.contains(&format!("`{used}` and `{left}`")),
            "{errors}"
        );
        let info = run(&[
            "trace",
            "info",
            text(&traces.file("t.csv", table.as_bytes())),
        ]);
        assert!(String::from_utf8_lossy(&info.stderr).contains("mean the same"));
    }
}

#[test]
fn a_curve_of_a_sample_is_the_same_beside_the_exact_one() {
    let traces = Traces::new();
    let blocks = |seed: u64| (0..20_000u64).map(move |at| (at * at + seed * at) % 4093 + 7000);
    let lines =
        |volume: u64| blocks(volume).map(move |block| format!("{volume},{},4096\n", block * 4096));
    let table: String = std::iter::once("volume,offset,length\n".to_owned())
        .chain(lines(1))
        .chain(lines(2))
        .collect();
    let path = traces.file("t.csv", table.as_bytes());
    for method in [
        &["--shards", "0.1"][..],
        &["--mini", "0.1"],
        &["--aet", "0.1"],
        &["--kosmo", "0.1"],
        &["--shards-blocks", "300"],
    ] {
        let asked = [
            &[
                "mrc",
                text(&path),
                "--sizes",
                "100blocks,3000blocks",
                "--json",
            ][..],
            method,
        ]
        .concat();
        let alone = run_json(&asked);
        let both = run_json(&[&asked[..], &["--exact"]].concat());
        assert_eq!(
            alone["curves"][0]["points"], both["curves"][1]["points"],
            "{method:?}"
        );
        let exact = run_json(&[
            "mrc",
            text(&path),
            "--sizes",
            "100blocks,3000blocks",
            "--json",
        ]);
        assert_eq!(exact["curves"][0]["points"], both["curves"][0]["points"]);
        assert_eq!(
            (&exact["blocks"], &both["blocks_estimated"]),
            (&both["blocks"], &false.into())
        );
    }
    let few = traces.file("few.csv", b"offset,length\n0,4096\n4096,4096\n0,4096\n");
    let refused = run(&["mrc", text(&few), "--shards", "0.000001", "--exact"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no block is in the sample"));
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
