//! `futae paper` is reachable by that name where the laboratory is built, and says how to build it elsewhere.

use futae_tests::binary::binary;
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
