//! Traces larger than memory: what says that it reads a trace in bounded memory is fed gigabytes
//! through a pipe, and asked at their end how much it has needed.

use futae_testkit::wait::obtain;
use futae_tests::binary::{binary, run, run_json};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Records of oracleGeneral in one piece that is written again and again, 24 bytes each.
const RECORDS: u64 = 1 << 15;
const MIB: u64 = 1 << 20;

/// Reads of different blocks in some order.
fn piece() -> Vec<u8> {
    let record = |number: u64| {
        let block = number.wrapping_mul(0x9E37_79B9) % 100_000;
        let mut record = [0; 24];
        record[..4].copy_from_slice(&1u32.to_le_bytes());
        record[4..12].copy_from_slice(&block.to_le_bytes());
        record[12..16].copy_from_slice(&4096u32.to_le_bytes());
        record[16..].copy_from_slice(&(-1i64).to_le_bytes());
        record
    };
    (0..RECORDS).flat_map(record).collect()
}

/// Ends the child also where the test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The most memory that a process has had, in bytes.
fn peak_bytes(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.expect("a peak").trim().trim_end_matches(" kB");
    kib.parse::<u64>().expect("a number") << 10
}

/// Runs `futae` to its end, and returns the most memory that it had, in bytes.
fn peak_of_run(arguments: &[&str]) -> u64 {
    let program = "import resource, subprocess, sys\n\
        subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)\n\
        print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)";
    let mut command = Command::new("python3");
    command.args(["-c", program]).arg(binary()).args(arguments);
    let output = command.output().expect("python3 starts");
    let (text, why) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{why}");
    let kib = String::from_utf8_lossy(text).trim().parse::<u64>();
    kib.expect("a number") << 10
}

/// Feeds `bytes` of a trace to `futae`, whose arguments have `PIPE` for its name, and returns the
/// peak of its memory before the trace ended, and what it printed.
fn feed(arguments: &[&str], bytes: u64) -> (u64, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let pipe = directory.path().join("trace.oracleGeneral");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    let mut command = Command::new(binary());
    for &argument in arguments {
        match argument {
            "PIPE" => command.arg(&pipe),
            _ => command.arg(argument),
        };
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = Running(command.spawn().expect("futae starts"));
    let mut feeder = open_for_writing(&pipe, &mut child.0);
    let (piece, begin) = (piece(), Instant::now());
    let mut sent = 0;
    while sent < bytes {
        feeder.write_all(&piece).expect("futae reads on");
        sent += piece.len() as u64;
    }
    let peak = peak_bytes(child.0.id());
    drop(feeder);
    let mut printed = String::new();
    let out = child.0.stdout.as_mut().expect("piped");
    out.read_to_string(&mut printed).expect("text");
    assert!(
        child.0.wait().expect("it was started").success(),
        "{arguments:?}"
    );
    eprintln!(
        "{arguments:?}: {} MiB in {:.1} s, peak {} MiB",
        sent / MIB,
        begin.elapsed().as_secs_f64(),
        peak / MIB
    );
    (peak, printed)
}

/// Opening a pipe waits for its reader, which may have failed.
fn open_for_writing(pipe: &Path, child: &mut Child) -> File {
    let mut options = File::options();
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        options.write(true),
        rustix::fs::OFlags::NONBLOCK.bits() as i32,
    );
    let file = obtain("a reader", || {
        assert!(child.try_wait().expect("started").is_none(), "futae ended");
        options.open(pipe)
    });
    let flags = rustix::fs::fcntl_getfl(&file).expect("flags");
    rustix::fs::fcntl_setfl(&file, flags - rustix::fs::OFlags::NONBLOCK).expect("flags");
    file
}

#[test]
fn sampled_curves_keep_the_sample_only() {
    // 134 million requests: at four bytes each they would be 512 MiB.
    let bounded = ["mrc", "--shards-blocks", "4096", "--json", "PIPE"];
    let (peak, printed) = feed(&bounded, 3 << 30);
    assert!(peak < 100 * MIB, "{} MiB", peak / MIB);
    let report: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(report["requests"], 4096 * RECORDS);
    assert_eq!(report["blocks_estimated"], true);
    let blocks = report["blocks"].as_f64().expect("a number");
    assert!((blocks / 32768.0 - 1.0).abs() < 0.1, "{blocks} blocks");
    let rate = ["mrc", "--shards", "0.01", "--json", "PIPE"];
    let (peak, _) = feed(&rate, 1 << 30);
    assert!(peak < 100 * MIB, "{} MiB", peak / MIB);
}

#[test]
fn looking_into_traces_and_converting_them_keeps_no_requests() {
    let (peak, printed) = feed(&["trace", "info", "--json", "PIPE"], 512 << 20);
    assert!(peak < 100 * MIB, "{} MiB", peak / MIB);
    let report: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(report["distinct_blocks"], RECORDS);
    let convert = ["trace", "convert", "--to", "le64", "PIPE", "/dev/null"];
    let (peak, _) = feed(&convert, 1 << 30);
    assert!(peak < 100 * MIB, "{} MiB", peak / MIB);
}

#[test]
fn a_streamed_curve_is_near_the_one_in_memory() {
    let directory = tempfile::tempdir().expect("a directory");
    let trace = directory.path().join("zipf.le64.zst");
    let trace = trace.to_str().expect("a name");
    let make = [
        "trace",
        "convert",
        "zipf(0.6):256MiB",
        trace,
        "--requests",
        "400000",
    ];
    assert!(run(&make).status.success());
    let curve = |options: &[&str]| {
        let all = [
            &["mrc", trace, "--json", "--sizes", "32MiB,64MiB,128MiB"],
            options,
        ]
        .concat();
        let report = run_json(&all);
        let curves = report["curves"].as_array().expect("curves");
        let points = curves.last().expect("one")["points"]
            .as_array()
            .expect("points");
        let ratios = points.iter().map(|point| point["miss_ratio"].as_f64());
        ratios.collect::<Option<Vec<f64>>>().expect("numbers")
    };
    let exact = curve(&[]);
    for options in [
        ["--shards", "0.2"],
        ["--mini", "0.2"],
        ["--shards-blocks", "3000"],
    ] {
        for (sampled, exact) in curve(&options).iter().zip(&exact) {
            assert!(
                (sampled - exact).abs() < 0.04,
                "{options:?}: {sampled} {exact}"
            );
        }
    }
}

#[test]
fn curves_read_traces_as_simulations_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let table = directory.path().join("table");
    let lines = (0..1000).map(|n| format!("{};w;{}\n", n % 70, n * 7919 % 300));
    let lines: String = lines.map(|line| line.replace(';', ",")).collect();
    fs::write(&table, format!("{lines}bad,bad,bad\n")).expect("written");
    let table = table.to_str().expect("a name");
    let columns = "offset=2:4096,length=0:512,kind=1";
    let how = ["--columns", columns, "--skip-bad", "--json"];
    for (view, block) in [("start", "4KiB"), ("blocks", "4KiB"), ("blocks", "512")] {
        let how = [&how[..], &["--view", view, "--block", block, table]].concat();
        let sizes = ["--policy", "fifo", "--sizes", "20%"];
        let simulated = run_json(&[&["sim"], &how[..], &sizes].concat());
        let curve = run_json(&[&["mrc"], &how[..], &sizes].concat());
        let run = &simulated["runs"][0];
        assert_eq!(run["requests"], curve["requests"], "{view} {block}");
        let point = &curve["curves"][0]["points"][0];
        assert_eq!(run["miss_ratio"], point["miss_ratio"], "{view} {block}");
        let locality = run_json(&[&["locality"], &how[..]].concat());
        assert_eq!(locality["blocks"], curve["blocks"], "{view} {block}");
    }
    for command in [&["mrc"][..], &["locality"], &["trace", "info"]] {
        let refused = run(&[command, &["loop:1MiB", "--skip-bad", "--requests", "9"]].concat());
        assert_eq!(refused.status.code(), Some(2), "{command:?}");
    }
}

/// Program, tables, counters: all that the process has, for each block in the cache.
#[test]
fn a_cached_block_costs_less_than_32_bytes() {
    let blocks = 1 << 21;
    for policy in ["lru", "sieve"] {
        let level = format!("{policy}:{blocks}blocks");
        let workload = format!("loop:{blocks}blocks");
        let requests = (2 * blocks).to_string();
        let sized = ["sim", &workload, "--level", &level, "--warmup", "0"];
        let peak = peak_of_run(&[&sized[..], &["--requests", &requests]].concat());
        assert!(
            peak > 4 * blocks,
            "{policy}: {peak} bytes cannot be all of it"
        );
        assert!(
            peak < 32 * blocks,
            "{policy}: {peak} bytes for {blocks} blocks"
        );
    }
}
