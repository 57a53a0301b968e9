//! `futae paper` is reachable by that name where the laboratory is built, and says how to build it elsewhere.

use futae_testkit::wait::eventually;
use futae_tests::binary::binary;
use futae_tests::process::Running;
use futae_tests::tools::{Need, skip};
use rustix::process::Signal;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

/// Runs `futae` from a directory that has nothing else in it than what is linked there.
fn futae(place: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(place.join("futae"));
    command.args(arguments).env("PATH", "/nowhere");
    command.env_remove("FUTAE_BIN");
    command.output().expect("futae starts")
}

#[test]
fn the_laboratory_is_called_by_the_names_of_the_product() {
    let place = tempfile::tempdir().expect("a directory");
    // A link would be followed to the directory where the laboratory is.
    std::fs::copy(binary(), place.path().join("futae")).expect("the program is copied");
    for arguments in [&["paper", "list"][..], &["demo", "--guests"]] {
        let alone = futae(place.path(), arguments);
        let errors = String::from_utf8_lossy(&alone.stderr);
        assert_eq!(alone.status.code(), Some(1), "{arguments:?}: {errors}");
        assert!(
            errors.contains("cargo build --release -p futae-lab"),
            "{errors}"
        );
    }

    let laboratory = binary().with_file_name("futae-lab");
    symlink(laboratory, place.path().join("futae-lab")).expect("it is linked");
    let list = futae(place.path(), &["paper", "list"]);
    let listed = String::from_utf8_lossy(&list.stdout);
    assert!(
        list.status.success() && listed.contains("sugimoto-2015"),
        "{listed}"
    );
    let help = futae(place.path(), &["paper", "run", "--help"]);
    let shown = String::from_utf8_lossy(&help.stdout);
    assert!(shown.contains("Usage: futae paper run"), "{shown}");
    let wrong = futae(place.path(), &["paper", "run", "nobody-1999"]);
    assert_eq!(wrong.status.code(), Some(2));
}

/// Runs the laboratory, with what it may find beside itself.
fn laboratory(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary().with_file_name("futae-lab"));
    command.args(arguments).env("FUTAE_BIN", binary());
    command
}

/// What an experiment has started is gone when a signal has ended it: servers, guests and what they had in a directory.
#[test]
fn an_experiment_that_is_told_to_end_takes_all_down() {
    let place = tempfile::tempdir().expect("a directory");
    let predictions = place.path().join("predictions.json");
    let temporary = place.path().join("tmp");
    std::fs::create_dir(&temporary).expect("a directory");
    let mut command = laboratory(&[
        "drawn", "--count", "1", "--warmup", "500", "--reads", "100000",
    ]);
    command.env("TMPDIR", &temporary);
    command.arg("--predictions").arg(&predictions);
    let mut running = Running::start("futae-lab drawn", command);
    let has = |name: &str| {
        let entries = std::fs::read_dir(&temporary).expect("the place");
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter(|it| it.starts_with(name)).count() > 0
    };
    eventually("a guest is booted, or cannot be", || {
        has("futae-guest-") || !running.is_running()
    });
    running.signal(Signal::TERM);
    let ended = running.wait();
    if ended.errors.contains("needs QEMU") || ended.errors.contains("no guests here") {
        return skip(Need::Qemu, &ended.errors);
    }
    assert_eq!(ended.status.code(), Some(1), "{}", ended.errors);
    assert!(
        ended.errors.contains("everything was taken down"),
        "{}",
        ended.errors
    );
    let left: Vec<_> = std::fs::read_dir(&temporary).expect("the place").collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    let processes = std::fs::read_dir("/proc").expect("processes");
    let lines =
        processes.filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok());
    let of_place = |line: &String| line.contains(&temporary.display().to_string());
    let left: Vec<_> = lines
        .map(|line| String::from_utf8_lossy(&line).into_owned())
        .filter(of_place)
        .collect();
    assert!(left.is_empty(), "left running: {left:?}");
}
