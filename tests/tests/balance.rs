//! `futae balance` from the command line: shares of a real `futae serve` are moved and returned.

use futae_testkit::nbd::Plain as Client;
use futae_tests::BLOCK;
use futae_tests::binary::{futae, run};
use futae_tests::process::Running;
use futae_tests::stage::Stage;
use futae_tests::tools::text;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;
/// Of the exports: one is read in a few blocks, one here and there.
const NAMES: [&str; 2] = ["few", "many"];

fn config(stage: &Stage, head: &str) -> PathBuf {
    let path = stage.path("balance.toml");
    let guest = |name: &str| {
        format!(
            "[[guest]]\nname = \"{name}\"\nminimum = \"1MiB\"\nmaximum = \"7MiB\"\n\
             actuator = {{ kind = \"share\", control = \"{}\", export = \"{name}\" }}\n",
            stage.control.display()
        )
    };
    let body = format!(
        "total = \"8MiB\"\nperiod = 0.2\nreserve = \"0MiB\"\nevaluator = \"paper\"\n\
         return_on_exit = true\n{head}\n[paper]\nmove_when = \"always\"\nstep = \"1MiB\"\n{}{}",
        guest(NAMES[0]),
        guest(NAMES[1])
    );
    fs::write(&path, body).expect("a file");
    path
}

/// A server of two exports with 4 MiB each, beside the stage's own.
fn served() -> Stage {
    let mut stage = Stage::new(4096);
    let exports = NAMES.map(|name| {
        let image = stage.path(name);
        fs::copy(&stage.image, &image).expect("a copy");
        format!("{name}={},share=4MiB", image.display())
    });
    let [few, many] = &exports;
    stage.serve(&[
        "--export", few, "--export", many, "--cache", "9MiB", "--policy", "lru",
    ]);
    stage
}

fn share(stage: &Stage, name: &str) -> u64 {
    let status = stage.status();
    let engines = status["engines"].as_array().expect("engines");
    let its = engines.iter().find(|engine| engine["exports"][0] == name);
    let blocks = its.expect("its engine")["capacity_blocks"].as_u64();
    blocks.expect("a number") * BLOCK as u64 / MIB
}

fn read(socket: &Path) {
    let mut few = Client::connect(socket, NAMES[0]).expect("connects");
    let mut many = Client::connect(socket, NAMES[1]).expect("connects");
    for number in 0..300u64 {
        few.read(number % 8 * BLOCK as u64, BLOCK)
            .expect("reads")
            .expect("data");
        let place = number * 2_654_435_761 % 4096;
        many.read(place * BLOCK as u64, BLOCK)
            .expect("reads")
            .expect("data");
    }
}

#[test]
fn shares_move_and_are_returned() {
    let stage = served();
    let config = config(&stage, "");
    let mut balance = Running::start(
        "futae balance",
        futae(&["balance", "--json", "--config", text(&config)]),
    );
    let mut last = Value::Null;
    for _ in 0..40 {
        read(&stage.socket);
        last = serde_json::from_str(&balance.line()).expect("JSON");
        if share(&stage, NAMES[0]) == 1 {
            break;
        }
    }
    assert_eq!(
        (share(&stage, NAMES[0]), share(&stage, NAMES[1])),
        (1, 7),
        "{last}"
    );
    assert_eq!(last["problems"], serde_json::json!([]), "{last}");
    let ended = balance.stop();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!((share(&stage, NAMES[0]), share(&stage, NAMES[1])), (4, 4));
}

#[test]
fn a_dry_run_tells_the_numbers_and_moves_nothing() {
    let stage = served();
    let config = config(&stage, "");
    let words = [
        "balance",
        "--dry-run",
        "--periods",
        "8",
        "--config",
        text(&config),
    ];
    let mut balance = Running::start("futae balance", futae(&words));
    let mut said = Vec::new();
    for _ in 0..8 {
        read(&stage.socket);
        said.push(balance.line());
    }
    assert!(balance.wait().status.success());
    let moves = said.iter().filter(|line| line.contains("1.0 MiB from"));
    assert!(moves.count() > 1, "{said:#?}");
    assert!(
        said.iter().all(|line| line.contains("nothing was done")),
        "{said:#?}"
    );
    assert_eq!((share(&stage, NAMES[0]), share(&stage, NAMES[1])), (4, 4));
}

#[test]
fn what_is_wrong_with_a_configuration_is_said() {
    let stage = Stage::bare();
    for (head, said) in [
        ("colour = 1", "colour"),
        ("", "out of sight"),
        ("period = 7", "duplicate key"),
    ] {
        let config = config(&stage, head);
        let output = run(&["balance", "--config", text(&config)]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(said), "{said}: {errors}");
    }
    let output = run(&["balance", "--config", "/nowhere.toml"]);
    assert_eq!(output.status.code(), Some(1));
}
