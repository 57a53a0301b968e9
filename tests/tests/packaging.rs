//! What packages hold: units that systemd accepts, an example that `futae check` accepts, and files that are there.

use futae_testkit::need::{Need, skip};
use futae_tests::binary::{binary, run};
use futae_tests::tidy::root;
use futae_tests::tools::text;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn units() -> Vec<PathBuf> {
    let directory = fs::read_dir(root().join("packaging/systemd")).expect("the units");
    let units: Vec<_> = directory
        .map(|entry| entry.expect("a unit").path())
        .collect();
    assert_eq!(units.len(), 4, "{units:?}");
    units
}

#[test]
fn systemd_accepts_the_units() {
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        return skip(Need::Tools, "systemd-analyze is not installed");
    }
    let place = tempfile::tempdir().expect("a directory");
    // With programs that are there; an instance, if it is a template. All at once, since a socket has its service.
    let copies = units().into_iter().map(|unit| {
        let said = fs::read_to_string(&unit).expect("the unit");
        let here = said
            .replace("/usr/bin/futae-agent", "/usr/bin/env")
            .replace("/usr/bin/futae", text(binary()));
        let name = unit.file_name().expect("a name");
        let copy = place
            .path()
            .join(text(Path::new(name)).replace("@.", "@vm1."));
        fs::write(&copy, &here).expect("a copy");
        (copy, here)
    });
    let copies: Vec<(PathBuf, String)> = copies.collect();
    for (copy, here) in copies {
        let name = copy.file_name().map(|name| text(Path::new(name)));
        let name = name.expect("a name");
        let output = Command::new("systemd-analyze")
            .arg("verify")
            .arg(&copy)
            .output();
        let output = output.expect("it starts");
        let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success() && !complaints.contains(name),
            "{name}: {complaints}"
        );
        let wrong = here.replace("[Install]\n", "Restrat=on-failure\n[Install]\n");
        fs::write(&copy, wrong).expect("a copy");
        let output = Command::new("systemd-analyze")
            .arg("verify")
            .arg(&copy)
            .output();
        let complaints = output.expect("it starts").stderr;
        let complaints = String::from_utf8_lossy(&complaints).into_owned();
        assert!(
            complaints.contains("Restrat"),
            "a wrong key would be seen: {complaints}"
        );
        fs::write(&copy, here).expect("a copy");
    }
}

/// Commands and options in the units are those of futae.
#[test]
fn units_use_commands_that_there_are() {
    for unit in units() {
        let said = fs::read_to_string(&unit).expect("the unit");
        let commands = said
            .lines()
            .filter_map(|line| line.split_once("=/usr/bin/futae "));
        for (_, command) in commands {
            let words: Vec<&str> = command.split_whitespace().collect();
            let help = run(&[words[0], "--help"]);
            assert!(help.status.success(), "{command}: {help:?}");
            let help = String::from_utf8_lossy(&help.stdout).into_owned();
            for option in words.iter().filter(|word| word.starts_with("--")) {
                assert!(help.contains(option), "{command}: there is no {option}");
            }
        }
    }
}

#[test]
fn the_example_is_a_configuration() {
    let place = tempfile::tempdir().expect("a directory");
    let example = root().join("packaging/examples/serve.toml");
    let example = fs::read_to_string(example).expect("the example");
    let image = place.path().join("vm1.img");
    fs::write(&image, vec![0; 1 << 20]).expect("an image");
    let here = example
        .replace("/var/lib/libvirt/images/vm1.img", text(&image))
        .replace("/run/futae/vm1", text(place.path()));
    assert_ne!(here, example);
    let file = place.path().join("vm1.toml");
    fs::write(&file, here).expect("a copy");
    let output = run(&["check", text(&file)]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn what_packages_hold_is_there() {
    for package in ["futae-cli", "futae-agent"] {
        let crate_root = root().join("crates").join(package);
        let manifest = fs::read_to_string(crate_root.join("Cargo.toml")).expect("the manifest");
        let manifest: toml::Table = manifest.parse().expect("TOML");
        let assets = manifest["package"]["metadata"]["deb"]["assets"]
            .as_array()
            .expect("assets");
        assert!(assets.len() > 2, "{package}");
        for asset in assets {
            let source = asset[0].as_str().expect("a path");
            // Programs are there once they are built.
            if source.starts_with("target/release/") {
                continue;
            }
            assert!(
                crate_root.join(source).is_file(),
                "{package}: there is no {source}"
            );
        }
    }
}
