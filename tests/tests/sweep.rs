//! `futae sweep`: killed and resumed, in parts, with a trace that is gone.

use futae_testkit::wait::eventually;
use futae_tests::binary::{binary, futae};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
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
    let resumed = sweep(at, "killed", &[]);
    assert!(resumed.status.success(), "{}", said(&resumed));
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
