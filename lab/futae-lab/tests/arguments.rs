//! What the laboratory does with arguments, right and wrong, and with files that it cannot write.

use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn laboratory(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_futae-lab"));
    command.args(arguments);
    command
}

#[test]
fn what_leaves_nothing_to_check_is_refused() {
    let cases: [(&[&str], &str); 17] = [
        (&["pages", "--count", "0"], "--count"),
        (&["drawn", "--predict", "--count", "0"], "--count"),
        (&["drawn", "--predict", "--reads", "0"], "--reads"),
        (
            &["drawn", "--predict", "--from", "18446744073709551615"],
            "--from",
        ),
        (&["kernels", "--predict", "--reads", "0"], "--reads"),
        (&["kernels", "--predict", "--within", "nan"], "--within"),
        (&["kernels", "--predict", "--cache", "0"], "--cache 0"),
        (&["kernels", "--predict", "--disk", "5"], "--disk 5"),
        (&["kernels", "--predict", "--cache", "9TiB"], "--cache 9TiB"),
        (
            &["inference", "--workload", "uniform:100TiB"],
            "--workload uniform:100TiB",
        ),
        (&["inference", "--passes", "0"], "--passes"),
        (&["inference", "--sizes", "0"], "--sizes"),
        (&["inference", "--sizes", "101"], "--sizes"),
        (&["inference", "--policy", "nope"], "unknown policy"),
        (&["auto-table", "--sizes", "0"], "--sizes"),
        (&["auto-table", "--requests", "0"], "--requests"),
        (&["auto-table", "--above", "nope"], "--above nope"),
    ];
    for (arguments, named) in cases {
        let ended = laboratory(arguments).output().expect("it runs");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(named), "{arguments:?}: {said}");
        assert!(ended.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn predictions_are_printed_as_asked_and_kept_where_they_can_be() {
    let arguments = [
        "kernels",
        "--predict",
        "--json",
        "--kernel",
        "6.1",
        "--workload",
        "uniform:8MiB",
        "--cache",
        "4MiB",
        "--disk",
        "8MiB",
        "--warmup",
        "2000",
        "--reads",
        "2000",
    ];
    let said = laboratory(&arguments).output().expect("it runs");
    let said: Value = serde_json::from_slice(&said.stdout).expect("JSON");
    let rows = said["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 2, "{said}");
    for row in rows {
        assert_eq!(row["cache_pages"], 1024);
        let ratio = row["model_hit_ratio"].as_f64().expect("a ratio");
        assert!((0.3..0.7).contains(&ratio), "{said}");
    }

    let place = tempfile::tempdir().expect("a directory");
    let drawn = |file: &Path| {
        let arguments = [
            "drawn",
            "--predict",
            "--count",
            "1",
            "--warmup",
            "500",
            "--reads",
            "500",
        ];
        let mut command = laboratory(&arguments);
        let ended = command.arg("--predictions").arg(file).output();
        let ended = ended.expect("it runs");
        (
            ended.status.success(),
            String::from_utf8_lossy(&ended.stderr).into_owned(),
        )
    };
    let file = place.path().join("predictions.json");
    assert!(drawn(&file).0);
    let kept = std::fs::read(&file).expect("predictions");
    assert!(drawn(&file).0);
    assert_eq!(std::fs::read(&file).expect("predictions"), kept);
    let nowhere = place.path().join("nowhere/predictions.json");
    for unfit in [place.path(), &nowhere] {
        let (is_ok, said) = drawn(unfit);
        assert!(
            !is_ok && said.contains(&unfit.display().to_string()),
            "{said}"
        );
    }
}
