//! `futae load` asks for what it is told to, and knows wrong data when it reads it.

use futae_tests::binary::{futae, run, run_json};
use futae_tests::stage::Stage;
use futae_tests::tools::{self, has_fuse, has_root, text};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tempfile::TempDir;

const OPERATION: u64 = 4096;

/// A directory for a test, and a path in it.
fn place(name: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::Builder::new().prefix("futae-test-").tempdir();
    let directory = directory.expect("a directory can be made");
    let path = directory.path().join(name);
    (directory, path)
}

fn load(path: &Path, arguments: &[&str]) -> Value {
    run_json(&[&["load", text(path), "--json"], arguments].concat())
}

/// Kind and offset of every operation of a record.
fn recorded(path: &Path) -> Vec<(String, u64)> {
    let text = fs::read_to_string(path).expect("a record");
    let line = |line: &str| {
        let fields: Vec<_> = line.split(',').collect();
        (fields[2].to_owned(), fields[3].parse().expect("an offset"))
    };
    text.lines().skip(1).map(line).collect()
}

/// The distance of counts from equal ones, by Pearson.
fn chi_square(record: &[(String, u64)], places: u64) -> f64 {
    let mut counts = vec![0u64; places as usize];
    for (_, offset) in record {
        counts[(offset / OPERATION) as usize] += 1;
    }
    let expected = record.len() as f64 / places as f64;
    let distance = |&count: &u64| (count as f64 - expected).powi(2) / expected;
    counts.iter().map(distance).sum()
}

/// How long it takes at least; nobody is asked to be fast.
#[test]
fn a_load_is_no_faster_than_it_is_told() {
    let (_directory, path) = place("file");
    let made = |options: &[&str]| {
        let arguments = ["--create", "--file-size", "1MiB", "--operations", "300"];
        load(&path, &[&arguments[..], options].concat())
    };
    let paced = made(&["--hit-us", "1000"]);
    let seconds = paced["seconds"].as_f64().expect("seconds");
    assert!(seconds >= 0.3, "{seconds} s for 300 times 1 ms");
    assert_eq!(paced["hit_us"], 1000.0);
    assert_eq!(paced["miss_us"], 1000.0);
    assert!(made(&[])["hit_us"].is_null());
    for (arguments, said) in [
        (&["--hit-us", "-1"][..], "--hit-us"),
        (&["--miss-us", "5"], "--hit-us"),
        (&["--hit-us", "1", "--miss-us", "1e9"], "--miss-us"),
    ] {
        let output = run(&[&["load", text(&path)][..], arguments].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(said), "{error}");
    }
}

/// The places of a workload are those that the simulator draws, and the page cache then has each of them.
#[test]
fn a_workload_is_read_as_it_is_simulated_and_stays_in_the_page_cache() {
    let (directory, path) = place("file");
    let record = directory.path().join("record.csv");
    let workload = "mix(0.5*zipf(1.0):256KiB, 0.5*scan:512KiB)";
    let (operations, seed) = (80, 7);
    let bytes = File::create(&path).and_then(|file| file.set_len(1 << 20));
    bytes.expect("a file");
    let report = load(
        &path,
        &[
            "--workload",
            workload,
            "--operations",
            &operations.to_string(),
            "--seed",
            &seed.to_string(),
            "--record",
            text(&record),
            "--resident",
        ],
    );
    let spec: futae_trace::WorkloadSpec = workload.parse().expect("a workload");
    let mut drawn = spec.generator(OPERATION, seed).expect("it fits");
    let drawn: Vec<u64> = (0..operations).map(|_| drawn.next_block().0).collect();
    let asked: Vec<u64> = recorded(&record)
        .into_iter()
        .map(|(_, offset)| offset / OPERATION)
        .collect();
    assert_eq!(asked, drawn);
    let ranges: Vec<[u64; 2]> =
        serde_json::from_value(report["resident_pages"].clone()).expect("ranges");
    let is_there = |page: &u64| ranges.iter().any(|[from, to]| (from..to).contains(&page));
    assert!(drawn.iter().all(is_there), "{ranges:?}");
    assert!(
        ranges.last().is_some_and(|last| last[1] <= 256),
        "{ranges:?}"
    );
    for (workload, said) in [
        ("uniform:2MiB", "smaller size"),
        ("uniform", "--workload"),
        ("zipf(1.0, writes=0.5):64KiB", "only reads"),
    ] {
        let output = run(&["load", text(&path), "--workload", workload]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn rounds_are_parts_of_one_sequence() {
    let (_directory, path) = place("file");
    let bytes = File::create(&path).and_then(|file| file.set_len(256 << 20));
    bytes.expect("a file");
    let mut command = futae(&["load", text(&path), "--workload", "uniform:256MiB"]);
    command.args(["--rounds", "--resident", "--json"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    let mut running = command.spawn().expect("it starts");
    let mut orders = running.stdin.take().expect("its input");
    let mut reports = BufReader::new(running.stdout.take().expect("its output")).lines();
    let mut round = |operations: &str| -> Vec<[u64; 2]> {
        writeln!(orders, "{operations}").expect("it reads");
        let line = reports.next().expect("a report").expect("a line");
        let report: Value = serde_json::from_str(&line).expect("JSON on one line");
        assert_eq!(report["operations"].to_string(), operations);
        serde_json::from_value(report["resident_pages"].clone()).expect("ranges")
    };
    let spec: futae_trace::WorkloadSpec = "uniform:256MiB".parse().expect("a workload");
    let mut drawn = spec.generator(OPERATION, 1).expect("it fits");
    let drawn: Vec<u64> = (0..100).map(|_| drawn.next_block().0).collect();
    let are_there = |ranges: &[[u64; 2]], pages: &[u64]| {
        pages
            .iter()
            .all(|page| ranges.iter().any(|[from, to]| (from..to).contains(&page)))
    };
    let first = round("40");
    assert!(are_there(&first, &drawn[..40]), "{first:?}");
    assert!(!are_there(&first, &drawn[40..]), "{first:?}");
    let both = round("60");
    assert!(are_there(&both, &drawn), "{both:?}");
    writeln!(orders, "some").expect("it reads");
    let ended = running.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(
        said.contains("\"some\" is not a number of operations"),
        "{said}"
    );
}

#[test]
fn places_are_chosen_as_asked() {
    let (directory, path) = place("file");
    let record = directory.path().join("record.csv");
    let of = |choice: &str, threads: &str| {
        let arguments = ["--create", "--file-size", "256KiB", "--operations", "6400"];
        let how = ["--choice", choice, "--threads", threads];
        let to = ["--writes", "0.25", "--record", text(&record)];
        let made = load(&path, &[&arguments[..], &how, &to].concat());
        let record = recorded(&record);
        assert_eq!(made["operations"], 6400);
        let writes = record.iter().filter(|(kind, _)| kind == "W").count();
        assert_eq!(made["writes"], writes);
        assert!(
            (1450..1750).contains(&writes),
            "{writes} of 6400 are a quarter"
        );
        record
    };
    // 63 degrees of freedom: one seed in a million is above 130.
    let uniform = of("uniform", "1");
    let distance = chi_square(&uniform, 64);
    assert!((20.0..130.0).contains(&distance), "not uniform: {distance}");
    let skewed = chi_square(&of("zipf(1.0)", "1"), 64);
    assert!(skewed > 1000.0, "not skewed: {skewed}");
    let middle = of("normal(0.125)", "1");
    let within = |at: u64| (96 << 10..160 << 10).contains(&at);
    let inside = middle.iter().filter(|(_, at)| within(*at)).count();
    assert!(
        (4000..4740).contains(&inside),
        "{inside} of 6400 within one sigma"
    );
    assert_eq!(
        of("uniform", "4"),
        uniform,
        "threads change what is asked for"
    );
    let order: Vec<_> = of("loop", "1").into_iter().map(|(_, at)| at).collect();
    let expected: Vec<_> = (0..6400).map(|number| number % 64 * OPERATION).collect();
    assert_eq!(order, expected);
}

#[test]
fn figures_agree_with_each_other() {
    let (_directory, path) = place("files");
    let made = load(
        &path,
        &[
            "--create",
            "--files",
            "3",
            "--file-size",
            "1MiB",
            "--operation",
            "64KiB",
            "--seconds",
            "0.3",
            "--threads",
            "2",
            "--writes",
            "0.5",
            "--verify",
        ],
    );
    let number = |name: &str| made[name].as_f64().expect("a number");
    assert!(number("operations") > 0.0, "{made}");
    assert_eq!(number("bytes"), number("operations") * 65_536.0);
    assert_eq!(number("reads") + number("writes"), number("operations"));
    let rate = number("operations") / number("seconds");
    assert!((number("operations_per_second") / rate - 1.0).abs() < 1e-6);
    assert!((number("mib_per_second") * 16.0 / rate - 1.0).abs() < 1e-6);
    assert!((0.3..60.0).contains(&number("seconds")), "{made}");
    let time = |name: &str| made["latency_seconds"][name].as_f64().expect("a time");
    assert!(
        time("p50") <= time("p99") && time("p99") <= time("max"),
        "{made}"
    );
    // Two threads cannot be busy for longer than twice the time.
    let busy = time("mean") * number("operations");
    assert!(busy > 0.0 && busy <= 2.02 * number("seconds"), "{made}");
    assert_eq!(made["verify_errors"], 0);
    assert_eq!(fs::read_dir(&path).expect("a directory").count(), 3);
}

#[test]
fn a_corrupted_sector_is_found() {
    let (_directory, path) = place("file");
    load(
        &path,
        &["--create", "--file-size", "1MiB", "--operations", "1"],
    );
    let arguments = ["--verify", "--choice", "loop", "--operations", "256"];
    assert_eq!(load(&path, &arguments)["verify_errors"], 0);
    let file = File::options().write(true).open(&path).expect("the file");
    file.write_all_at(b"?", 300_000).expect("it can be written");
    let output = run(&[&["load", text(&path), "--json"][..], &arguments].concat());
    assert_eq!(output.status.code(), Some(1));
    let made: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(made["verify_errors"], 1);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // The sector of 512 bytes that holds it.
    assert!(
        said.contains(text(&path)) && said.contains("299520"),
        "{said}"
    );
}

#[test]
fn what_is_read_through_a_map_is_what_is_written() {
    let (_directory, path) = place("files");
    let make = ["--create", "--files", "2", "--file-size", "1MiB"];
    let how = ["--map", "--verify", "--operations", "3000"];
    let mixed = ["--writes", "0.4", "--threads", "3", "--operation", "8KiB"];
    let made = load(&path, &[&make[..], &how, &mixed].concat());
    assert_eq!(made["verify_errors"], 0);
    assert_eq!(made["bytes"], 3000 * 8192);
    let file = path.join("load-0001.dat");
    let file = File::options().write(true).open(file).expect("the file");
    file.write_all_at(b"?", 700_000).expect("it can be written");
    let loop_of = ["--files", "2", "--choice", "loop", "--operations", "512"];
    let arguments = [
        &["load", text(&path), "--json", "--map", "--verify"],
        &loop_of[..],
    ]
    .concat();
    let output = run(&arguments);
    let made: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        made["verify_errors"], 1,
        "the wrong byte is seen by a map, too"
    );
}

#[test]
fn what_is_read_twice_is_one_operation() {
    let (_directory, path) = place("file");
    load(
        &path,
        &["--create", "--file-size", "1MiB", "--operations", "1"],
    );
    let bytes_read = |how: &[&str]| {
        let how = [
            &["load", text(&path), "--json", "--operations", "2000"],
            how,
        ]
        .concat();
        let mut child = futae(&how).stdout(Stdio::piped()).spawn().expect("futae");
        let out = child.stdout.take().expect("piped");
        let made: Value = serde_json::from_reader(out).expect("JSON");
        // All is done, and the kernel tells until it is waited for.
        let io = fs::read_to_string(format!("/proc/{}/io", child.id())).expect("its figures");
        assert!(child.wait().expect("it ends").success());
        assert_eq!(made["operations"], 2000);
        assert_eq!(made["bytes"], 2000 * 4096);
        let read = io.lines().find_map(|line| line.strip_prefix("rchar: "));
        let read: u64 = read.and_then(|text| text.parse().ok()).expect("a number");
        read
    };
    let (once, twice) = (bytes_read(&[]), bytes_read(&["--read-twice", "--verify"]));
    // What a program reads to start is the same, or nearly.
    assert_eq!((twice - once + 2048) / 4096, 2000);
}

#[test]
fn somebody_elses_data_is_not_written_over() {
    let (_directory, path) = place("file");
    let precious = vec![7; 1 << 16];
    fs::write(&path, &precious).expect("a file");
    let cases = [
        (["--writes", "0.5"], "--overwrite"),
        (["--verify", "--direct"], "not as it was written"),
    ];
    for (how, expected) in cases {
        let output = run(&[&["load", text(&path), "--operations", "9"][..], &how].concat());
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(expected), "{said}");
        assert_eq!(fs::read(&path).expect("the file"), precious);
    }
    let how = [
        "--writes",
        "0.5",
        "--verify",
        "--overwrite",
        "--operations",
        "9",
    ];
    assert_eq!(load(&path, &how)["verify_errors"], 0);
    assert_ne!(fs::read(&path).expect("the file"), precious);
}

#[test]
fn a_mounted_file_is_loaded_and_verified() {
    if !has_fuse() {
        return;
    }
    let mut stage = Stage::bare();
    let make = ["--create", "--file-size", "8MiB", "--operations", "1"];
    load(&stage.image.clone(), &make);
    stage.serve(&["--cache", "2MiB", "--policy", "exclusive"]);
    stage.mount(&["--cache", "1MiB"]);
    let how = ["--writes", "0.3", "--verify", "--direct", "--threads", "4"];
    let made = load(
        &stage.file(),
        &[&how[..], &["--operations", "4000"]].concat(),
    );
    assert_eq!(made["verify_errors"], 0);
    stage.stop_mount();
    stage.stop_serve();
    let how = ["--verify", "--choice", "scan", "--operations", "2048"];
    assert_eq!(load(&stage.image, &how)["verify_errors"], 0);
}

#[test]
fn wrong_requests_are_refused_in_one_line() {
    let (directory, path) = place("file");
    load(
        &path,
        &["--create", "--file-size", "64KiB", "--operations", "1"],
    );
    let (file, missing) = (text(&path), directory.path().join("missing"));
    let missing = text(&missing);
    let cases: [(&[&str], i32, &str); 12] = [
        (&[missing], 1, "--create"),
        (&[missing, "--create"], 1, "--file-size"),
        (&[file, "--operation", "128KiB"], 2, "128KiB"),
        (&[file, "--operation", "1000"], 2, "512"),
        (&[file, "--operation", "2GiB"], 2, "1GiB"),
        (&[file, "--file-size", "128KiB"], 1, "64KiB"),
        (&[file, "--files", "2"], 2, "directory"),
        (&[file, "--choice", "unifrom"], 2, "uniform"),
        (&[file, "--choice", "uniform:1MiB"], 2, "without a size"),
        (&[file, "--choice", "zipf(x)"], 2, "--choice"),
        (&[file, "--writes", "1.5"], 2, "1.5"),
        (&[file, "--seconds", "-1"], 2, "-1"),
    ];
    for (arguments, status, expected) in cases {
        let arguments = [&["load"], arguments].concat();
        let output = run(&arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let what = format!("futae {}\n{said}", arguments.join(" "));
        assert_eq!(output.status.code(), Some(status), "{what}");
        assert!(said.contains(expected), "does not say {expected:?}: {what}");
        assert!(
            said.starts_with("futae: ") || said.starts_with("error: "),
            "{what}"
        );
        assert!(!Path::new(missing).exists(), "left behind: {what}");
    }
}

/// What it leads to may be on a disk that is not mounted.
#[test]
fn a_link_that_leads_nowhere_stays() {
    let (_directory, path) = place("link");
    std::os::unix::fs::symlink("nowhere/file", &path).expect("a link");
    let output = run(&["load", text(&path), "--create", "--file-size", "1MiB"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cannot be made"), "{said}");
    assert!(path.is_symlink(), "{said}");
}

#[test]
fn no_space_is_told_and_nothing_is_left() {
    if !has_root() {
        return;
    }
    // What is mounted in it is taken down with it.
    let stage = Stage::bare();
    let path = stage.path("full");
    fs::create_dir(&path).expect("a directory can be made");
    tools::run(
        "mount",
        &["-t", "tmpfs", "-o", "size=4m", "none", text(&path)],
    );
    let files = path.join("files");
    let arguments = ["--create", "--files", "3", "--file-size", "2MiB"];
    let output = run(&[&["load", text(&files)][..], &arguments].concat());
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("no space") && said.contains("load-000"),
        "{said}"
    );
    let left = fs::read_dir(&files).map_or(0, Iterator::count);
    assert!(left < 3, "the file that did not fit is still there");
}
