//! `futae sweep`: killed and resumed, in parts, with a trace that is gone.

use futae_testkit::wait::eventually;
use futae_tests::binary::{binary, futae};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const PLAN: &str = "traces = ['a.csv']\nworkloads = ['zipf(0.8):64MiB']\npolicies = ['lru', 'arc', 's3-fifo', 'opt']\n\
                    sizes = ['1%', '5%', '20%']\nlevels = [['lru:1%,5%', 'exclusive:5%,10%']]\nseeds = [1, 2]\n";
const CELLS: usize = 2 * 2 * (4 * 3 + 2 * 2);

fn prepare(folder: &Path) {
    let made = Command::new(binary())
        .args([
            "trace",
            "convert",
            "zipf(1.0):16MiB",
            "a.csv",
            "--requests",
            "20000",
        ])
        .current_dir(folder)
        .output();
    assert!(made.expect("futae starts").status.success());
    fs::write(folder.join("plan.toml"), PLAN).expect("a plan");
}

fn sweep(folder: &Path, out: &str, more: &[&str]) -> Output {
    let plan = folder.join("plan.toml");
    let out = folder.join(out);
    let text = |path: &Path| path.to_str().expect("a plain name").to_owned();
    let (plan, out) = (text(&plan), text(&out));
    let arguments = [&["sweep", &plan, "--out", &out], more].concat();
    futae(&arguments).output().expect("futae starts")
}

fn table(folder: &Path, out: &str) -> String {
    fs::read_to_string(folder.join(out).join("results.csv")).expect("a table")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

#[test]
fn a_sweep_that_is_killed_or_shared_ends_with_the_same_table() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    prepare(at);
    let whole = sweep(at, "whole", &[]);
    assert!(whole.status.success(), "{}", said(&whole));
    let expected = table(at, "whole");
    let rows = 2 * 2 * (4 * 3 + 2 * 2 * 2);
    assert_eq!(expected.lines().count(), 1 + rows);

    let cells = at.join("killed/cells");
    let mut running = Command::new(binary())
        .args(["sweep", "plan.toml", "--out", "killed", "--threads", "1"])
        .current_dir(at)
        .stdout(Stdio::null())
        .spawn()
        .expect("futae starts");
    let done = || fs::read_dir(&cells).map_or(0, Iterator::count);
    eventually("some cells are done", || done() > 2);
    running.kill().expect("SIGKILL");
    running.wait().expect("it ended");
    assert!(done() < CELLS, "it was killed too late to show anything");
    assert!(!at.join("killed/results.csv").exists());
    // As a crash of the machine may leave it.
    fs::write(cells.join("000000.json"), "[[\"0\",").expect("half a cell");
    // As a kill leaves it that comes while a file is written.
    for folder in ["killed", "killed/cells"] {
        fs::write(at.join(folder).join(".futae-sweep-AbCdEf"), "[[").expect("half a file");
    }
    let resumed = sweep(at, "killed", &[]);
    assert!(resumed.status.success(), "{}", said(&resumed));
    for folder in ["killed", "killed/cells"] {
        let names = fs::read_dir(at.join(folder)).expect("a folder");
        let mut names = names.map(|entry| entry.expect("an entry").file_name());
        let left_over = names.find(|name| name.as_encoded_bytes().starts_with(b"."));
        assert_eq!(left_over, None, "in {folder}");
    }
    assert!(
        !said(&resumed).contains(", 0 were done before"),
        "{}",
        said(&resumed)
    );
    assert_eq!(table(at, "killed"), expected);

    for part in ["2/3", "3/3", "1/3"] {
        assert!(sweep(at, "parts", &["--part", part]).status.success());
        assert!(!at.join("parts/results.csv").exists());
    }
    let merged = sweep(at, "parts", &["--threads", "1"]);
    assert!(
        said(&merged).starts_with(&format!("0 cells done, {CELLS} were")),
        "{}",
        said(&merged)
    );
    assert_eq!(table(at, "parts"), expected);

    fs::write(at.join("plan.toml"), PLAN.replace("20%", "30%")).expect("another plan");
    let other = sweep(at, "whole", &[]);
    assert_eq!(other.status.code(), Some(2));
    assert!(said(&other).contains("another plan"), "{}", said(&other));
    assert_eq!(table(at, "whole"), expected);
}

#[test]
fn a_file_that_is_too_long_for_a_plan_is_not_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let plan = File::create(at.join("plan.toml")).expect("a file");
    plan.set_len((1 << 30) + 1).expect("a sparse file");
    let refused = sweep(at, "out", &[]);
    let said = said(&refused);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("longer than 1 GiB"), "{said}");
    assert!(!at.join("out").exists());
}

#[test]
fn a_cell_is_what_sim_finds() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    prepare(at);
    assert!(sweep(at, "o", &[]).status.success());
    let trace = at.join("a.csv");
    let trace = trace.to_str().expect("a plain name");
    let alone = futae(&["sim", trace, "--policy", "arc", "--sizes", "5%", "--csv"]).output();
    let alone = String::from_utf8(alone.expect("futae starts").stdout).expect("text");
    let field = |text: &str, row: &str, name: &str| {
        let at = text
            .lines()
            .next()
            .and_then(|names| names.split(',').position(|it| it == name));
        row.split(',')
            .nth(at.expect("the column"))
            .expect("a value")
            .to_owned()
    };
    let table = table(at, "o");
    let row = table
        .lines()
        .find(|row| row.contains(",a.csv,arc:5%,"))
        .expect("the row");
    let line = alone.lines().nth(1).expect("a row");
    for name in [
        "hits",
        "misses",
        "hit_ratio",
        "evictions",
        "all_miss_ratio",
        "trace_digest",
    ] {
        assert_eq!(
            field(&table, row, name),
            field(&alone, line, name),
            "{name}"
        );
    }
}

#[test]
fn the_table_as_parquet_is_that_of_the_csv() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    prepare(at);
    assert!(sweep(at, "o", &[]).status.success());
    let table = table(at, "o");
    let file = File::open(at.join("o/results.parquet")).expect("there");
    let reader = SerializedFileReader::new(file).expect("Parquet");
    let rows: Vec<_> = reader.get_row_iter(None).expect("rows").collect();
    let (names, lines) = table.split_once('\n').expect("a head");
    assert_eq!(rows.len(), lines.lines().count());
    for (row, line) in rows.into_iter().zip(lines.lines()) {
        let row = row.expect("a row");
        let found: Vec<_> = row.get_column_iter().collect();
        let columns: Vec<_> = found.iter().map(|column| column.0.as_str()).collect();
        assert_eq!(columns.join(","), names);
        let shown = found.iter().map(|(name, field)| match field {
            Field::Null => String::new(),
            Field::Str(text) if text.contains(',') => format!("\"{text}\""),
            Field::Str(text) => text.clone(),
            Field::ULong(count) => count.to_string(),
            Field::Double(number) => number.to_string(),
            other => panic!("{name} is {other:?}"),
        });
        assert_eq!(shown.collect::<Vec<_>>().join(","), line);
    }
}

#[test]
fn a_trace_that_is_gone_is_named_and_stops_nothing_else() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    prepare(at);
    let plan = "traces = ['gone.csv', 'a.csv']\npolicies = ['lru']\nsizes = ['1%', '5%']\n";
    fs::write(at.join("plan.toml"), plan).expect("a plan");
    let output = sweep(at, "o", &[]);
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert!(
        said.contains("cells 0 to 1") && said.contains("gone.csv"),
        "{said}"
    );
    assert_eq!(
        table(at, "o").lines().count(),
        1 + 2,
        "the others are there"
    );
    fs::copy(at.join("a.csv"), at.join("gone.csv")).expect("it is back");
    assert!(sweep(at, "o", &[]).status.success());
    assert_eq!(table(at, "o").lines().count(), 1 + 4);
}

#[test]
fn a_trace_that_was_replaced_and_a_plan_that_repeats_itself_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let trace = |content: &str| fs::write(at.join("a.csv"), content).expect("a trace");
    let plan = |more: &str| {
        let plan = format!("policies = ['lru']\nsizes = ['2blocks']\n{more}\n");
        fs::write(at.join("plan.toml"), plan).expect("a plan");
    };
    plan("traces = ['a.csv']");
    // What failed has no results, and may be mended.
    trace("offset,length\n0,oops\n");
    assert_eq!(sweep(at, "out", &[]).status.code(), Some(1));
    trace("offset,length\n0,4096\n0,4096\n");
    assert!(sweep(at, "out", &[]).status.success());
    let before = table(at, "out");
    trace("offset,length\n0,4096\n8192,4096\n");
    let refused = sweep(at, "out", &[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        said(&refused).contains("a.csv was changed since the sweep began"),
        "{}",
        said(&refused)
    );
    assert_eq!(table(at, "out"), before);
    trace("offset,length\n0,4096\n0,4096\n");
    assert!(sweep(at, "out", &[]).status.success());
    for (more, twice) in [
        ("traces = ['a.csv', 'a.csv']", "source a.csv"),
        ("traces = ['a.csv']\nseeds = [1, 2, 1]", "seed 1"),
        (
            "traces = ['a.csv']\nlevels = [['lru:2blocks']]",
            "hierarchy lru:2blocks",
        ),
    ] {
        plan(more);
        let refused = sweep(at, "twice", &[]);
        assert_eq!(refused.status.code(), Some(2), "{more}");
        assert!(
            said(&refused).contains(&format!("the {twice} is in the plan twice")),
            "{}",
            said(&refused)
        );
    }
}

/// The rows of a CSV, each with its names.
fn records(csv: &str) -> Vec<HashMap<String, String>> {
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().expect("a header").split(',').collect();
    let row = |line: &str| {
        let pairs = names.iter().zip(line.split(','));
        pairs
            .map(|(name, value)| ((*name).to_owned(), value.to_owned()))
            .collect()
    };
    lines.map(row).collect()
}

#[test]
fn a_summary_has_the_mean_of_the_seeds_and_its_interval() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let plan = "workloads = ['zipf(0.8):16MiB']\npolicies = ['lru', 'sieve']\nsizes = ['1%', '10%']\nseeds = [1, 2, 3, 4]\n\
                requests = 20000";
    fs::write(at.join("plan.toml"), plan).expect("a plan");
    let done = sweep(at, "o", &[]);
    assert!(done.status.success(), "{}", said(&done));
    let rows = records(&table(at, "o"));
    let summary = fs::read_to_string(at.join("o/summary.csv")).expect("a summary");
    let summary = records(&summary);
    assert_eq!(summary.len(), 4);
    let number =
        |row: &HashMap<String, String>, name: &str| -> f64 { row[name].parse().expect("a number") };
    for row in &summary {
        assert_eq!(row["seeds"], "4");
        let same = rows
            .iter()
            .filter(|one| one["hierarchy"] == row["hierarchy"]);
        let ratios: Vec<f64> = same.map(|one| number(one, "hit_ratio")).collect();
        assert_eq!(ratios.len(), 4);
        let mean = ratios.iter().sum::<f64>() / 4.0;
        let squares: f64 = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum();
        // Student's t of 95 % for 3 degrees of freedom.
        let half = 3.182 * (squares / 3.0 / 4.0).sqrt();
        assert!((number(row, "hit_ratio_mean") - mean).abs() < 1e-12);
        let found = number(row, "hit_ratio_half_width");
        assert!(half > 0.0 && (found - half).abs() < half * 1e-3, "{found}");
    }
}

#[test]
fn objects_of_a_sweep_are_those_of_sim() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let mut trace = "time,key,size,ttl\n".to_owned();
    for request in 0u64..3000 {
        let object = request * request * 7919 % 211;
        trace += &format!("{request},o{object},{},0\n", 1 + object * 37 % 1000);
    }
    fs::write(at.join("objects.csv"), trace).expect("a trace");
    let map = "time=0:s,key=1,length=2";
    let plan = format!(
        "traces = ['objects.csv']\npolicies = ['lru', 'gdsf']\nsizes = ['5%', '40000']\ncolumns = '{map}'\nseeds = [1, 2]\n\
         objects = true\nttl = '10min'\nadmit_size_max = '900'\nwarmup = 100"
    );
    fs::write(at.join("plan.toml"), plan).expect("a plan");
    let done = sweep(at, "o", &[]);
    assert!(done.status.success(), "{}", said(&done));
    let rows = records(&table(at, "o"));
    let alone = Command::new(binary())
        .current_dir(at)
        .args(["sim", "objects.csv", "--columns", map, "--objects", "--csv"])
        .args(["--policy", "lru,gdsf", "--sizes", "5%,40000", "--seed", "2"])
        .args([
            "--ttl",
            "10min",
            "--admit-size-max",
            "900",
            "--warmup",
            "100",
        ])
        .output();
    let alone = alone.expect("futae starts");
    assert!(alone.status.success(), "{}", said(&alone));
    let alone = records(&String::from_utf8(alone.stdout).expect("text"));
    assert_eq!((rows.len(), alone.len()), (8, 4));
    for (row, sim) in rows[4..].iter().zip(&alone) {
        for (name, value) in sim {
            assert_eq!(&row[name], value, "{name}");
        }
        assert!(sim["too_large"] != "0" && sim["hits"] != "0");
    }
    assert!(alone[1]["expired"] != "0" && alone[3]["expired"] != "0");
    assert_eq!(rows[7]["hierarchy"], "gdsf:40000");
    let summary = fs::read_to_string(at.join("o/summary.csv")).expect("a summary");
    assert_eq!(records(&summary).len(), 4);
    assert_eq!(records(&summary)[0]["byte_miss_ratio_half_width"], "0");
}
