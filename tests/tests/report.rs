//! `futae sim --report` as a browser shows it, and the other files that results are written to.

use futae_tests::binary::{futae, run, run_json};
use futae_tests::browser::{BROWSER, Browser, Pixels, colour};
use futae_tests::tools::{has, text};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;
use std::fs::{self, File};
use std::path::Path;
use tempfile::TempDir;

fn directory() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

/// Simulates with a report, and reads its results as JSON.
fn report(page: &Path, arguments: &[&str]) -> Value {
    let rest = ["--json", "--report", text(page)];
    run_json(&[&["sim"], arguments, &rest].concat())
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

/// The line of this name.
fn named<'a>(series: &'a [Value], name: &str) -> &'a Value {
    let found = series.iter().find(|one| one["name"] == name);
    found.unwrap_or_else(|| panic!("no {name:?} in {series:?}"))
}

const POLICIES: &str = "lru,fifo,sieve,2q(k_in=0.3),arc,s3-fifo,lfu,random,mru,lirs,clock,slru";
const SIZES: &str = "1%,2%,5%,10%,20%,40%,60%,90%";

/// What every page has, whatever it shows.
fn check_page(measured: &Value, results: &Value) {
    assert_eq!(list(&measured["wrong"]).len(), 0, "{}", measured["wrong"]);
    assert_eq!(list(&measured["loaded"]).len(), 0, "{}", measured["loaded"]);
    let figures = measured["figures"].as_object().expect("figures");
    let ids: Vec<_> = figures.keys().map(String::as_str).collect();
    assert_eq!(ids, ["by-size", "miss-ratios", "locality", "by-level"]);
    for (id, figure) in figures {
        for plot in list(&figure["plots"]) {
            assert!(number(&plot["box"]["width"]) > 250.0, "{id}: {plot}");
            assert!(number(&plot["texts"]) >= 4.0, "{id} has no labels: {plot}");
            for series in list(&plot["series"]) {
                check_series(id, &plot["box"], series);
            }
            check_bars(id, plot);
        }
        let names = list(&figure["names"]).len();
        let series = figure["plots"][0]["series"].as_array().map_or(0, Vec::len);
        assert_eq!(names, series, "{id}: a name in the legend for each line");
    }
    let levels = list(&results["runs"])
        .iter()
        .map(|run| list(&run["levels"]).len());
    let levels: Vec<usize> = levels.collect();
    let all_together = levels.iter().filter(|&&levels| levels > 1).count();
    let rows = levels.iter().sum::<usize>() + all_together;
    assert_eq!(list(&measured["rows"]).len(), rows);
    let embedded = measured["results"].as_str().expect("text");
    let mut embedded: Value = serde_json::from_str(embedded).expect("results as JSON");
    let mut printed = results.clone();
    for results in [&mut embedded, &mut printed] {
        for run in results["runs"].as_array_mut().expect("runs") {
            run.as_object_mut().expect("a run").remove("seconds");
        }
    }
    for key in ["runs", "seed", "trace_digest", "version"] {
        assert_eq!(embedded[key], printed[key], "{key}");
    }
    let pressed = list(&measured["pressed"]).iter().map(number);
    let pressed: Vec<f64> = pressed.collect();
    assert!(
        pressed[0] > 1.0 && pressed[1] == 0.0 && pressed[2] > 1.0,
        "{pressed:?}"
    );
}

/// Every point is drawn, and where the chart is.
fn check_series(id: &str, plot: &Value, series: &Value) {
    let points = list(&series["points"]);
    assert!(!points.is_empty(), "{id}: {series}");
    let (left, top) = (number(&plot["left"]), number(&plot["top"]));
    let (right, bottom) = (left + number(&plot["width"]), top + number(&plot["height"]));
    for point in points {
        let (x, y, width) = (number(&point[0]), number(&point[1]), number(&point[2]));
        assert!(
            x > left && x < right && y > top && y < bottom,
            "{id}: {point}"
        );
        assert!(width > 2.0, "{id}: {point}");
    }
    if points.len() > 1 && !series["line"].is_null() {
        assert!(number(&series["line"]) > 20.0, "{id}: {series}");
    }
}

/// Bars are as long as their ratios.
fn check_bars(id: &str, plot: &Value) {
    let bars = list(&plot["bars"]);
    let ratios = bars
        .iter()
        .map(|bar| (number(&bar["ratio"]), number(&bar["width"])));
    let ratios: Vec<(f64, f64)> = ratios.collect();
    let longest = ratios
        .iter()
        .copied()
        .fold((0.0, 0.0), |a: (f64, f64), b| if b.0 > a.0 { b } else { a });
    for &(ratio, width) in &ratios {
        let expected = ratio / longest.0 * longest.1;
        assert!(
            (width - expected).abs() < 0.1,
            "{id}: {ratio} is {width} wide"
        );
    }
}

/// Points stand as high as their ratios.
fn check_heights(series: &[Value], ratios: &[Vec<f64>]) {
    let points = series.iter().zip(ratios).flat_map(|(series, ratios)| {
        let points = list(&series["points"]);
        assert_eq!(points.len(), ratios.len(), "{series}");
        points
            .iter()
            .map(|point| number(&point[1]))
            .zip(ratios.iter().copied())
    });
    let points: Vec<(f64, f64)> = points.collect();
    let by_ratio = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
    let low = points.iter().min_by(by_ratio).expect("points");
    let high = points.iter().max_by(by_ratio).expect("points");
    assert!(low.0 - high.0 > 25.0, "{points:?}");
    for (y, ratio) in &points {
        let expected = low.0 + (ratio - low.1) / (high.1 - low.1) * (high.0 - low.0);
        assert!(
            (y - expected).abs() < 2.0,
            "{ratio} is at {y}, not {expected}"
        );
    }
}

#[test]
fn many_policies_and_sizes_in_a_browser() {
    if !has(BROWSER) {
        return;
    }
    let directory = directory();
    let page = directory.path().join("page.html");
    let arguments = [
        "zipf(0.9):8000blocks",
        "--policy",
        POLICIES,
        "--sizes",
        SIZES,
    ];
    let results = report(&page, &arguments);
    let browser = Browser::default();
    let seen = browser.open(&page);
    assert!(seen.console.is_empty(), "{:?}", seen.console);
    let measured = &seen.measured;
    check_page(measured, &results);

    let runs = list(&results["runs"]);
    let ratio = |at: usize| number(&runs[at]["levels"][0]["hit_ratio"]);
    let by_size = &measured["figures"]["by-size"]["plots"][0];
    let series = list(&by_size["series"]);
    let expected = POLICIES.split(',').collect::<Vec<_>>();
    let names: Vec<_> = series
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert_eq!(names, expected);
    let of_policy = |at: usize| (0..8).map(|size| ratio(8 * at + size)).collect();
    let ratios: Vec<Vec<f64>> = (0..12).map(of_policy).collect();
    check_heights(series, &ratios);
    let tip = series[3]["tips"][2].as_str().expect("a tip");
    let shown = format!("2q(k_in=0.3): {:.2} % at ", 100.0 * ratios[3][2]);
    assert!(tip.starts_with(&shown), "{tip}");

    let panels = list(&measured["figures"]["by-level"]["plots"]);
    assert_eq!(panels.len(), 8, "a panel for each size");
    for (size, panel) in panels.iter().enumerate() {
        let bars = list(&panel["bars"]).iter().map(|bar| number(&bar["ratio"]));
        let expected: Vec<f64> = (0..12).map(|at| ratio(8 * at + size)).collect();
        assert_eq!(bars.collect::<Vec<_>>(), expected);
    }
    let misses = list(&measured["figures"]["miss-ratios"]["plots"][0]["series"]);
    assert_eq!(misses.len(), 13, "the policies, and the curve");
    let curve = list(&named(misses, "lru, at every size")["points"]);
    assert!(curve.len() > 60, "{}", curve.len());
    let sorted = list(&measured["sorted"]).iter();
    let percent = |cell: &Value| cell.as_str()?.trim_end_matches(" %").parse::<f64>().ok();
    let sorted: Vec<f64> = sorted.filter_map(percent).collect();
    assert_eq!(sorted.len(), 96);
    assert!(sorted.is_sorted_by(|a, b| a >= b), "{sorted:?}");

    for is_dark in [false, true] {
        let picture = browser.picture(&page, is_dark);
        check_colours(&picture, by_size, series, is_dark);
    }
}

/// Each line is there in the picture in its colour. In the dark they are others. The edges of
/// letters are grey like the eighth.
fn check_colours(picture: &Pixels, plot: &Value, series: &[Value], is_dark: bool) {
    for one in &series[..7] {
        let near = picture.count(&plot["box"], colour(&one["colour"]));
        let (name, is_there) = (&one["name"], near >= 12);
        assert_eq!(is_there, !is_dark, "{name}: {near} pixels, dark: {is_dark}");
    }
    let colours: Vec<[u8; 3]> = series.iter().map(|one| colour(&one["colour"])).collect();
    for (at, one) in colours[..8].iter().enumerate() {
        let is_pale = one.iter().map(|&part| u32::from(part)).sum::<u32>() > 500;
        assert!(!is_pale, "{one:?} is hardly seen on white");
        assert!(!colours[..at].contains(one), "{one:?} twice");
    }
    let paper = if is_dark {
        [0x1d, 0x23, 0x27]
    } else {
        [0xff; 3]
    };
    assert!(
        picture.count(&plot["box"], paper) > 50_000,
        "dark: {is_dark}"
    );
}

#[test]
fn levels_and_guests_in_a_browser() {
    if !has(BROWSER) {
        return;
    }
    let directory = directory();
    let page = directory.path().join("page.html");
    let workloads = ["uniform:40MiB", "uniform:40MiB"];
    let levels = [
        "--level",
        "lru:30%",
        "--level",
        "lru:10%",
        "--level",
        "exclusive:30%",
    ];
    let results = report(&page, &[&workloads[..], &levels].concat());
    let seen = Browser::default().open(&page);
    assert!(seen.console.is_empty(), "{:?}", seen.console);
    let measured = &seen.measured;
    check_page(measured, &results);
    let run = &results["runs"][0];
    let bars = |at: usize| {
        let bars = list(&measured["figures"]["by-level"]["plots"][at]["bars"]);
        bars.iter()
            .map(|bar| number(&bar["ratio"]))
            .collect::<Vec<_>>()
    };
    let mut ratios: Vec<f64> = list(&run["levels"])
        .iter()
        .map(|level| number(&level["hit_ratio"]))
        .collect();
    ratios.push(number(&run["combined_hit_ratio"]));
    assert_eq!(bars(0), ratios);
    let served = list(&run["served"]).iter();
    let all = number(&run["requests"]);
    let shares: Vec<f64> = served
        .map(|at| (number(&at["reads"]) + number(&at["writes"])) / all)
        .collect();
    assert_eq!(bars(1), shares);
    let locality = &measured["figures"]["locality"]["plots"][0];
    assert_eq!(
        list(&locality["series"]).len(),
        4,
        "the application, below each"
    );
    assert!(!list(&locality["rules"]).is_empty(), "no gap is drawn");
    let steps = shares[..3].iter().scan(0.0, |sum, share| {
        *sum += share;
        Some(*sum)
    });
    let by_size = list(&measured["figures"]["by-size"]["plots"][0]["series"]);
    let name = "lru over lru over exclusive, down to each level";
    let series = named(by_size, name).clone();
    check_heights(&[series], &[steps.collect()]);
}

#[test]
fn one_cache_and_a_name_that_looks_like_markup_in_a_browser() {
    if !has(BROWSER) {
        return;
    }
    let directory = directory();
    let evil = directory
        .path()
        .join("<img src=x onerror=alert(1)>&\"'.ids");
    fs::write(&evil, "1\n2\n1\n3\n2\n1\n4\n1\n").expect("a trace");
    let page = directory.path().join("page.html");
    let arguments = [text(&evil), "--policy", "lru", "--sizes", "50%"];
    let results = report(&page, &arguments);
    let seen = Browser::default().open(&page);
    assert!(seen.console.is_empty(), "{:?}", seen.console);
    check_page(&seen.measured, &results);
    let title = seen.measured["title"].as_str().expect("a title");
    assert_eq!(title, format!("futae: {}", text(&evil)));
    let bars = list(&seen.measured["figures"]["by-size"]["plots"][0]["bars"]);
    assert_eq!(bars.len(), 1);
    let html = fs::read_to_string(&page).expect("the page");
    assert!(!html.contains("<img") && html.contains("&lt;img"));
}

#[test]
fn the_page_of_the_same_command_is_the_same_and_needs_no_network() {
    let directory = directory();
    let page = directory.path().join("page.html");
    let command = [
        "zipf(1.0):1000blocks",
        "--policy",
        "lru,fifo",
        "--sizes",
        "5%,50%",
    ];
    let read = || {
        report(&page, &command);
        fs::read_to_string(&page).expect("the page")
    };
    let first = read();
    assert_eq!(first, read());
    for outside in ["://", "src=", "href=", "@import", "url("] {
        assert!(!first.contains(outside), "{outside}");
    }
    assert!(first.contains("futae sim &#39;zipf(1.0):1000blocks&#39; --policy lru,fifo"));
    let left = fs::read_dir(&directory).expect("there").count();
    assert_eq!(left, 1, "the page and nothing else");
}

#[test]
fn results_as_parquet_are_those_of_the_csv() {
    let directory = directory();
    let path = directory.path().join("results.parquet");
    let levels = ["--level", "2q(k_in=0.3):10%", "--level", "lru:20%"];
    let rest = [
        "--csv",
        "--seed",
        "18446744073709551615",
        "--parquet",
        text(&path),
    ];
    let output = run(&[&["sim", "zipf(1.0):2000blocks"], &levels[..], &rest].concat());
    assert!(output.status.success(), "{output:?}");
    let csv = String::from_utf8(output.stdout).expect("text");
    let file = SerializedFileReader::new(File::open(&path).expect("there")).expect("Parquet");
    let rows = file.get_row_iter(None).expect("rows");
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().expect("a head").split(',').collect();
    let mut count = 0;
    for (row, line) in rows.zip(lines) {
        let row = row.expect("a row");
        let shown = row.get_column_iter().map(|(name, field)| {
            let field = match field {
                Field::Null => String::new(),
                Field::Str(text) => text.clone(),
                Field::ULong(count) => count.to_string(),
                Field::Double(number) => number.to_string(),
                other => panic!("{name} is {other:?}"),
            };
            (name.as_str(), field)
        });
        let (columns, fields): (Vec<_>, Vec<_>) = shown.unzip();
        assert_eq!(columns, names);
        assert_eq!(fields.join(","), line);
        count += 1;
    }
    assert_eq!(count, 2, "a row for each level");
    assert_eq!(csv.lines().count(), 3);
}

#[test]
fn what_cannot_be_written_fails_at_once_and_leaves_nothing() {
    let directory = directory();
    let at = directory.path();
    fs::write(at.join("file"), "kept").expect("a file");
    fs::create_dir(at.join("directory")).expect("a directory");
    let sim = ["sim", "uniform:1000blocks", "--level", "lru:10%"];
    let locality = ["locality", "uniform:1000blocks"];
    let mrc = ["mrc", "uniform:1000blocks"];
    let cases: [(&[&str], &str); 4] = [
        (&sim, "--report"),
        (&sim, "--parquet"),
        (&locality, "--plot"),
        (&mrc, "--plot"),
    ];
    for (command, option) in cases {
        for place in ["directory.svg", "none/x.svg", "file/x.svg"] {
            let name = place.replace("directory.svg", "directory");
            let path = at.join(if option == "--plot" { place } else { &name });
            if place == "directory.svg" {
                fs::create_dir_all(&path).expect("a directory");
            }
            let output = run(&[command, &[option, text(&path)]].concat());
            let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
            let begin = format!("futae: cannot write {}: ", path.display());
            assert_eq!(output.status.code(), Some(1), "{option}: {complaint}");
            assert!(complaint.starts_with(&begin), "{option}: {complaint}");
            assert_eq!(complaint.lines().count(), 1, "{complaint}");
            assert!(output.stdout.is_empty(), "{option} did its work before");
        }
    }
    let output = run(&[&locality[..], &["--plot", text(&at.join("x.gif"))]].concat());
    assert_eq!(output.status.code(), Some(2));
    // A simulation that fails after all leaves the old file as it was.
    let kept = at.join("file");
    let failing = [
        "sim",
        "uniform:10MiB",
        "--level",
        "lru:0",
        "--report",
        text(&kept),
    ];
    assert_eq!(run(&failing).status.code(), Some(2));
    assert_eq!(fs::read(&kept).expect("there"), b"kept");
    // A file that is not a regular file is written to as it is.
    let to_output = [&sim[..], &["--report", "/dev/stdout", "--csv"]].concat();
    let output = futae(&to_output).output().expect("futae starts");
    assert!(output.stdout.starts_with(b"<!DOCTYPE html>"), "{output:?}");
    let mut names: Vec<_> = fs::read_dir(at)
        .expect("there")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["directory", "directory.svg", "file"]);
}

#[test]
fn densities_as_a_picture() {
    let directory = directory();
    let path = directory.path().join("densities.png");
    let command = ["locality", "uniform:16MiB", "--level", "lru:4MiB", "--json"];
    let found = run_json(&[&command[..], &["--plot", text(&path)]].concat());
    assert_eq!(list(&found["taps"]).len(), 2);
    let picture = Pixels::of_png(&path);
    let (width, height) = picture.size();
    assert_eq!(width, 1440, "twice the drawing's");
    let all = serde_json::json!({ "left": 0, "top": 0, "width": width, "height": height });
    for line in [[0x00, 0x67, 0xa5], [0xb8, 0x4a, 0x09]] {
        assert!(picture.count(&all, line) > 2000, "{line:?}");
    }
    let title = serde_json::json!({ "left": 0, "top": 0, "width": width, "height": 72 });
    let letters = picture.count(&title, [0x22; 3]);
    assert!(letters > 300, "no title: {letters}");
    let svg = directory.path().join("densities.svg");
    let drawn = run(&["mrc", "zipf(1.0):4MiB", "--plot", text(&svg)]);
    assert!(drawn.status.success());
    let svg = fs::read_to_string(&svg).expect("there");
    assert!(svg.starts_with("<svg ") && svg.contains("<polyline"));
}
