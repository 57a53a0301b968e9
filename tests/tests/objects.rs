//! `futae sim --objects`: objects that differ in size, beside libCacheSim.

use futae_tests::binary::run;
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

const REQUESTS: usize = 60_000;
const OBJECTS: u64 = 3_000;

/// Policy, bytes, misses, and bytes missed per byte asked for, of libCacheSim 0.3.5: `lab/truth/record_sizes.py`.
const RECORDED: [(&str, u64, u64, f64); 15] = [
    ("fifo", 200_000, 59_315, 0.98852),
    ("fifo", 2_000_000, 53_142, 0.88405),
    ("fifo", 10_000_000, 29_741, 0.49484),
    ("lru", 200_000, 59_314, 0.98854),
    ("lru", 2_000_000, 53_075, 0.88314),
    ("lru", 10_000_000, 28_108, 0.46738),
    ("sieve", 200_000, 59_165, 0.98689),
    ("sieve", 2_000_000, 51_510, 0.85760),
    ("sieve", 10_000_000, 23_214, 0.37996),
    ("lfu-in-cache", 200_000, 58_999, 0.98387),
    ("lfu-in-cache", 2_000_000, 51_697, 0.86032),
    ("lfu-in-cache", 10_000_000, 23_833, 0.39988),
    ("gdsf", 200_000, 57_541, 0.98884),
    ("gdsf", 2_000_000, 45_539, 0.87839),
    ("gdsf", 10_000_000, 18_812, 0.40766),
];

/// The same of objects whose sizes are Pareto's.
const RECORDED_PARETO: [(&str, u64, u64, f64); 15] = [
    ("fifo", 10_000, 59_198, 0.99354),
    ("fifo", 100_000, 55_159, 0.93941),
    ("fifo", 500_000, 39_636, 0.67249),
    ("lru", 10_000, 59_203, 0.99354),
    ("lru", 100_000, 55_114, 0.93877),
    ("lru", 500_000, 38_965, 0.65302),
    ("sieve", 10_000, 59_158, 0.99334),
    ("sieve", 100_000, 54_857, 0.93585),
    ("sieve", 500_000, 35_357, 0.58843),
    ("lfu-in-cache", 10_000, 59_157, 0.99374),
    ("lfu-in-cache", 100_000, 54_850, 0.93497),
    ("lfu-in-cache", 500_000, 37_177, 0.57093),
    ("gdsf", 10_000, 58_034, 0.99277),
    ("gdsf", 100_000, 38_930, 0.92391),
    ("gdsf", 500_000, 9_300, 0.67805),
];

fn even(object: u64) -> u32 {
    1 + (object * object * 7919 % 20_011) as u32
}

fn pareto(object: u64) -> u32 {
    100_000 / (1 + (object * object * 7919 % 997) as u32)
}

/// The requests of `lab/truth/record_sizes.py`.
fn requests(size: fn(u64) -> u32) -> Vec<(u64, u32)> {
    let mut state = 1u64;
    let mut draw = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % OBJECTS
    };
    let mut one = || {
        let object = [draw(), draw(), draw()].into_iter().min().unwrap_or(0);
        (object, size(object))
    };
    (0..REQUESTS).map(|_| one()).collect()
}

fn write(path: &Path, requests: &[(u64, u32)]) {
    let mut following: HashMap<u64, i64> = HashMap::new();
    let mut records: Vec<[u8; 24]> = Vec::new();
    for (at, &(object, size)) in requests.iter().enumerate().rev() {
        let next = following.insert(object, at as i64).unwrap_or(-1);
        let mut record = [0; 24];
        record[..4].copy_from_slice(&(at as u32 / 1000).to_le_bytes());
        record[4..12].copy_from_slice(&object.to_le_bytes());
        record[12..16].copy_from_slice(&size.to_le_bytes());
        record[16..].copy_from_slice(&next.to_le_bytes());
        records.push(record);
    }
    records.reverse();
    fs::write(path, records.concat()).expect("a trace");
}

fn simulated(path: &Path, more: &[&str]) -> Value {
    let path = path.to_str().expect("a plain name");
    let output = run(&[&["sim", path, "--objects", "--json"], more].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn objects_with_sizes_are_counted_as_libcachesim_counts_them() {
    equal_libcachesim(even, &RECORDED, "200000,2000000,10000000");
    equal_libcachesim(pareto, &RECORDED_PARETO, "10000,100000,500000");
}

fn equal_libcachesim(size: fn(u64) -> u32, recorded: &[(&str, u64, u64, f64)], sizes: &str) {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("sizes.oracleGeneral");
    let requests = requests(size);
    write(&path, &requests);
    let mut policies: Vec<&str> = recorded.iter().map(|row| row.0).collect();
    policies.dedup();
    let policies = policies.join(",");
    let report = simulated(&path, &["--policy", &policies, "--sizes", sizes]);
    let runs = report["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), recorded.len());
    for (run, &(policy, bytes, misses, byte_misses)) in runs.iter().zip(recorded) {
        assert_eq!(
            (&run["policy"], &run["capacity_bytes"]),
            (&policy.into(), &bytes.into())
        );
        assert_eq!(run["misses"], misses, "{policy} of {bytes} bytes");
        let found = run["byte_miss_ratio"].as_f64().expect("a ratio");
        assert!(
            (found - byte_misses).abs() < 1e-5,
            "{policy} of {bytes} bytes: {found}"
        );
        assert_eq!(run["requests"], REQUESTS);
    }
    let mut sizes: HashMap<u64, u64> = HashMap::new();
    for &(object, size) in &requests {
        sizes.insert(object, size.into());
    }
    assert_eq!(report["footprint_bytes"], sizes.values().sum::<u64>());
    assert_eq!(report["objects"], sizes.len());
}

/// Twitter's reads say no time to live, its writes do; a table may say it of any request.
#[test]
fn objects_live_as_long_as_the_trace_says() {
    let folder = tempfile::tempdir().expect("a directory");
    let twitter = folder.path().join("cluster.csv");
    let lines = "0,a,1,99,7,set,60\n10,a,1,99,7,get,0\n59,a,1,99,7,get,0\n60,a,1,99,7,get,0\n100,a,1,99,7,get,0\n\
                 130,a,1,99,7,get,0\n5000,b,1,99,7,get,0\n900000,b,1,99,7,get,0\n";
    fs::write(&twitter, lines).expect("a trace");
    let hits = |path: &Path, more: &[&str]| {
        let more = [&["--policy", "lru", "--sizes", "1KiB"], more].concat();
        let run = simulated(path, &more)["runs"][0].clone();
        [run["hits"].clone(), run["expired"].clone()].map(|count| count.as_u64().expect("a count"))
    };
    // Over at 60, placed anew until 120, and again; b lives for ever.
    assert_eq!(hits(&twitter, &[]), [4, 2]);
    assert_eq!(hits(&twitter, &["--ttl", "none"]), [6, 0]);
    assert_eq!(hits(&twitter, &["--ttl", "45s"]), [3, 3]);
    let table = folder.path().join("t.csv");
    fs::write(&table, "time,key,size,ttl\n0,a,10,5\n4,a,10,5\n6,a,10,0\n").expect("a trace");
    assert_eq!(hits(&table, &[]), [1, 1]);
    let fine = folder.path().join("fine.csv");
    fs::write(&fine, "time,key,size\n0,a,10\n1.2,a,10\n").expect("a trace");
    assert_eq!(hits(&fine, &["--ttl", "1500ms"]), [1, 0]);
    assert_eq!(hits(&fine, &["--ttl", "1100ms"]), [0, 1]);
    assert_eq!(
        hits(&table, &["--columns", "time=0,key=1,length=2,ttl=3"]),
        [1, 1]
    );
    let path = table.to_str().expect("a plain name");
    let timeless = folder.path().join("u.csv");
    fs::write(&timeless, "key,size,ttl\na,10,5\na,10,5\n").expect("a trace");
    for (path, why) in [
        (
            timeless.to_str().expect("a plain name"),
            "the trace has no times",
        ),
        (path, "soon"),
    ] {
        let ttl: &[&str] = if why == "soon" {
            &["--ttl", "soon"]
        } else {
            &[]
        };
        let sizes = ["--policy", "lru", "--sizes", "1KiB"];
        let output = run(&[&["sim", path, "--objects"], &sizes[..], ttl].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(why), "{error}");
    }
}

#[test]
fn large_objects_can_be_kept_out_and_shares_are_of_all_bytes() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("t.csv");
    // Objects 0 to 9 of 100 bytes, and one of 5000 between any two requests.
    let line = |at: u64| {
        format!(
            "{at},{},100\n{at},{},5000\n",
            at % 10 * 1_000_000,
            (100 + at) * 1_000_000
        )
    };
    fs::write(&path, (0..1000).map(line).collect::<String>()).expect("a trace");
    let columns = ["--columns", "time=0:s,offset=1,length=2", "--policy", "lru"];
    let ask = |more: &[&str]| simulated(&path, &[&columns[..], more].concat())["runs"][0].clone();
    let all = ask(&["--sizes", "6000"]);
    assert_eq!((&all["hits"], &all["too_large"]), (&0.into(), &0.into()));
    let small = ask(&["--sizes", "6000", "--admit-size-max", "100"]);
    assert_eq!(
        (&small["hits"], &small["too_large"]),
        (&990.into(), &1000.into())
    );
    assert_eq!(small["resident_bytes"], 1000);
    // 10 * 100 + 1000 * 5000 bytes.
    assert_eq!(ask(&["--sizes", "50%"])["capacity_bytes"], 2_500_500);
    let warm = ask(&["--sizes", "50%", "--warmup", "1000", "--requests", "500"]);
    assert_eq!(
        (&warm["requests"], &warm["hits"]),
        (&500.into(), &250.into())
    );
}

#[test]
fn what_no_cache_of_objects_can_be_is_refused() {
    let folder = tempfile::tempdir().expect("a directory");
    let ids = folder.path().join("t.ids");
    fs::write(&ids, "1\n2\n1\n").expect("a trace");
    let path = folder.path().join("t.csv");
    fs::write(&path, "time,offset,length\n1,0,100\n2,512,70\n3,0,100\n").expect("a trace");
    let text = |path: &Path| path.to_str().expect("a plain name").to_owned();
    let (ids, path) = (&text(&ids)[..], &text(&path)[..]);
    let usual = ["--policy", "lru", "--sizes", "10%"];
    let arc = ["--policy", "arc", "--sizes", "10%"];
    let cases: [(&str, &[&str], &str); 9] = [
        (path, &arc[..], "divides a number of slots"),
        (
            path,
            &["--policy", "lur", "--sizes", "1KiB"],
            "did you mean",
        ),
        (
            path,
            &["--policy", "lru", "--sizes", "3blocks"],
            "give bytes",
        ),
        (
            path,
            &["--policy", "lru", "--sizes", "1KiB", "--view", "blocks"],
            "--view start",
        ),
        (
            path,
            &["--policy", "lru", "--sizes", "1KiB", "--warmup", "3"],
            "nothing to count",
        ),
        (
            path,
            &[
                "--policy",
                "lru",
                "--sizes",
                "1KiB",
                "--admit-size-max",
                "5%",
            ],
            "--admit-size-max 5%",
        ),
        (path, &["--level", "lru:1KiB"], "--objects"),
        ("zipf(1.0):1MiB", &usual[..], "no file"),
        (ids, &usual[..], "sizes of objects are not known"),
    ];
    for (source, more, part) in cases {
        let output = run(&[&["sim", source, "--objects"], more].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{more:?}: {said}");
        assert!(said.contains(part), "{more:?}: {said}");
    }
}
